"""Starts the probe of a drill in this interpreter, then hands over to the ``sitecustomize`` it stands before.

Every Python process of a drill passes here before its own code: nothing that is not needed is imported.
"""

import os
import sys
from importlib.machinery import PathFinder, SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib costs


def _start_probe() -> None:
    name = "_samestep_boot"
    loader = SourceFileLoader(name, os.path.dirname(_HERE) + "/boot.py")  # noqa: PTH120
    spec = spec_from_loader(name, loader)
    if spec is not None:
        boot = module_from_spec(spec)
        loader.exec_module(boot)
        boot.start_under_alias()


def _hand_over() -> None:
    """Run the ``sitecustomize`` that Python would have found without this one."""
    elsewhere = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]  # noqa: PTH100
    spec = PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if os.environ.get("SAMESTEP_ORDERS"):
    try:
        _start_probe()
    except Exception as error:
        sys.stderr.write(f"samestep: the probe could not start: {type(error).__name__}: {error}\n")
_hand_over()
