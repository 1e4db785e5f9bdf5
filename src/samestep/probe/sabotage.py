"""Damages the state on purpose, once, so that a drill can prove that its criterion would notice."""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from .capture import Capture
    from .loaders import LoaderWatch

_SEED = 20_011


def sabotage(what: str, capture: Capture, loaders: LoaderWatch) -> bool:
    """Damage one component, as an incomplete restore would leave it.

    Args:
        what: ``optimizer``, ``schedule``, ``data`` or ``rng``.
        capture: where the live objects are known.
        loaders: shifts the data.

    Returns:
        Whether there was anything to damage.
    """
    if what == "optimizer":
        return sum(_drop_state(optimizer) for optimizer in capture.optimizers.alive()) > 0
    if what == "schedule":
        return sum(_start_over(scheduler) for scheduler in capture.schedulers.alive()) > 0
    if what == "data":
        loaders.shift_next()
        return True
    if what == "rng":
        _reseed()
        return True
    return False


def _drop_state(optimizer: Any) -> bool:
    had = bool(optimizer.state)
    optimizer.state.clear()
    return had


def _start_over(scheduler: Any) -> bool:
    """Put a scheduler back to its first step, with the rates of its beginning."""
    for inner in getattr(scheduler, "_schedulers", ()):
        _start_over(inner)
    had = getattr(scheduler, "last_epoch", 0) > 0
    scheduler.last_epoch = 0
    if hasattr(scheduler, "_step_count"):
        scheduler._step_count = 1
    for group in getattr(getattr(scheduler, "optimizer", None), "param_groups", ()):
        _set_rate(group)
    return had


def _set_rate(group: dict[str, Any]) -> None:
    initial = group.get("initial_lr")
    if initial is None:
        return
    if isinstance(group["lr"], torch.Tensor):
        group["lr"].fill_(float(initial))
    else:
        group["lr"] = float(initial)


def _reseed() -> None:
    random.seed(_SEED)
    torch.manual_seed(_SEED)  # all devices
    numpy_random: Any = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed(_SEED)
