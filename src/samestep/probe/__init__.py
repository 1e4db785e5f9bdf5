"""Inside the training process: watch every optimizer step without a change to the script.

A drill puts `site_folder` on ``PYTHONPATH`` (see `environment`); a training script may also call `install` itself.
Everything else in this package is loaded under the alias ``_samestep``, with the standard library and the script's own
torch only, so that the training may live in another environment than samestep.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..trace import ORDERS_VARIABLE
from ..trace.orders import XXHASH_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["environment", "install", "prelude", "site_folder"]


def site_folder() -> Path:
    """Return the folder with the ``sitecustomize`` that starts the probe in a Python process."""
    from pathlib import Path

    return Path(__file__).resolve().parent / "site"


def environment(orders_path: Path, base_env: Mapping[str, str]) -> dict[str, str]:
    """Return ``base_env`` with what makes every Python process below it load the probe.

    Args:
        orders_path: the orders, as written by ``Orders.write``.
        base_env: environment to start from; it is not changed.
    """
    inherited = base_env.get("PYTHONPATH", "")
    folders = [str(site_folder()), *([inherited] if inherited else [])]
    return {
        **base_env,
        "PYTHONPATH": os.pathsep.join(folders),
        ORDERS_VARIABLE: str(orders_path.absolute()),
        XXHASH_VARIABLE: _xxhash_folder(),
    }


def _xxhash_folder() -> str:
    """Return where this interpreter's xxhash lies: an extension that scripts of the same Python version can use."""
    from importlib.util import find_spec
    from pathlib import Path

    spec = find_spec("xxhash")
    return str(Path(spec.origin).parent) if spec and spec.origin else ""


def prelude() -> tuple[str, str]:
    """Return file and function that start the probe in a process whose interpreter has started long ago."""
    from pathlib import Path

    return str(Path(__file__).resolve().with_name("boot.py")), "start_under_alias"


def install() -> bool:
    """Start the probe in this process, for interpreters that skip ``sitecustomize`` (``python -I``, ``-S``).

    Does nothing outside a drill and when the probe already runs. Call it before the training loop begins, best before
    models and optimizers are made.

    Returns:
        Whether the probe runs in this process.
    """
    from .boot import start_under_alias

    return start_under_alias()
