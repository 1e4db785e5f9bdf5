"""Adapters: a framework's training becomes a run that can be interrupted anywhere, by changing a few lines.

- `transformers` seals the Trainer's own checkpoint folder, with what the Trainer leaves out: the Trainer decides where
  it goes on before it asks any callback, and only by a folder.
- `lightning` captures the state itself, by `samestep.Run`: a callback is asked before anything of the loop is set, and
  Lightning's file leaves out too much.
- `accelerate` captures the state itself, by `samestep.Run`: an Accelerator knows every object, and the loop is the
  script's own.

All three take the batches from `samestep.data`: the order, the position and the random numbers of the data are those
of the run, whatever the number of workers. Each module imports its framework; this package imports nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

_ADAPTERS = ("accelerate", "lightning", "transformers")


def __getattr__(name: str) -> ModuleType:
    if name not in _ADAPTERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_ADAPTERS})
