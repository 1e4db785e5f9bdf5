"""samestep: prove, step by step, that a restarted training run is the same run.

The names of the run API are loaded when they are asked for: they need torch, and importing samestep does not.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = ["Auto", "Every", "Run", "__version__", "load_weights", "new_run"]

if TYPE_CHECKING:
    from samestep.run import Auto, Every, Run, load_weights, new_run

_RUN_API = frozenset({"Auto", "Every", "Run", "load_weights", "new_run"})


def __getattr__(name: str) -> Any:
    if name == "integrations":
        return importlib.import_module("samestep.integrations")
    if name not in _RUN_API:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import samestep.run

    return getattr(samestep.run, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_RUN_API})
