"""Starts the probe of a drill in this interpreter, then hands over to the ``sitecustomize`` it stands before."""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _start_probe():
    source = os.path.join(os.path.dirname(_HERE), "boot.py")
    name = "_samestep_boot"
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(name, source)
    boot = module_from_spec(spec)
    spec.loader.exec_module(boot)
    boot.start_under_alias()


def _hand_over():
    """Run the ``sitecustomize`` that Python would have found without this one."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    elsewhere = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
    spec = PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if os.environ.get("SAMESTEP_ORDERS"):
    try:
        _start_probe()
    except Exception as error:  # the training must run, watched or not
        sys.stderr.write("samestep: the probe could not start: %s: %s\n" % (type(error).__name__, error))
_hand_over()
