"""The first lines of the probe in a process: leave a mark, wait for torch, then attach.

Runs in every Python process of a drill, also in those that never train: it stays cheap, imports nothing heavy, and
is loaded as a file of its own, so nothing here may be a relative import.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

ALIAS = "_samestep"
"""Package name of the probe inside training processes: never that of an installed samestep."""

_ORDERS = "SAMESTEP_ORDERS"


def start_under_alias() -> bool:
    """Make the alias package and start the probe once per process.

    Returns:
        Whether the probe runs in this process.
    """
    orders = os.environ.get(_ORDERS)
    if not orders:
        return False
    if ALIAS not in sys.modules:
        _add_alias()
        _leave_mark(orders)
        _when_torch_is_there()
    return True


def _add_alias() -> None:
    source = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - pathlib costs
    package = type(sys)(ALIAS, "samestep, as the probe of a drill sees it.")
    package.__path__ = [source]
    package.__spec__ = ModuleSpec(ALIAS, None, is_package=True)
    package.__spec__.submodule_search_locations = [source]
    sys.modules[ALIAS] = package


def _leave_mark(orders: str) -> None:
    """Tell the drill that the probe came up here, whether or not this process will train."""
    with open(orders, encoding="utf-8") as file:  # noqa: PTH123
        folder = json.load(file)["trace_folder"]
    mark = {"argv": sys.orig_argv, "pid": os.getpid(), "ppid": os.getppid()}
    with open(f"{folder}/boot-{os.getpid()}.json", "w", encoding="utf-8") as file:  # noqa: PTH123
        json.dump(mark, file)


def _when_torch_is_there() -> None:
    torch = sys.modules.get("torch")
    if torch is None or getattr(torch.__spec__, "_initializing", False):
        sys.meta_path.insert(0, TorchFinder())
    else:
        _attach(torch)


def _attach(torch: ModuleType) -> None:
    try:
        from importlib import import_module

        import_module(f"{ALIAS}.probe.attach").attach(torch)
    except Exception as error:
        sys.stderr.write(f"samestep: the probe could not attach: {type(error).__name__}: {error}\n")


class TorchFinder:
    """Finds torch as the others would, and attaches the probe once it is imported."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return torch's own spec with a loader that attaches the probe; None for every other module."""
        if name != "torch":
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find and finder is not self else None
            if spec is not None:
                _attach_after(spec.loader)
                return spec  # type: ignore[no-any-return]
        return None


def _attach_after(loader: Any) -> None:
    """Let this one loader object attach the probe when it has run the module."""
    run = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        loader.exec_module = run
        run(module)
        _attach(module)

    loader.exec_module = exec_module
