"""From a live object to what the capture needs of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

import torch
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import AveragedModel

from samestep.contract.words import Component
from samestep.state.errors import StateError
from samestep.state.generators import GENERATORS, TrackedGenerator, is_generator
from samestep.state.modules import TrackedModule, TrackedTensor
from samestep.state.optimizers import TrackedOptimizer
from samestep.state.stateful import (
    TrackedContainer,
    TrackedDataclass,
    TrackedSchedule,
    TrackedStateful,
    is_value_object,
)
from samestep.state.tracked import Tracked, class_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    _Belongs = Callable[[Any], bool]
    _Make = Callable[[str, Any, Component], Tracked]


@runtime_checkable
class Stateful(Protocol):
    """An object that gives and takes its own state."""

    def state_dict(self) -> Any:
        """Return the state."""

    def load_state_dict(self, state_dict: Any) -> Any:
        """Take a state over."""


def track(
    name: str,
    thing: Any,
    component: Component | None = None,
    *,
    models: Mapping[str, Any] | None = None,
    read_back: bool = True,
) -> Tracked:
    """Return what makes ``thing`` part of a bundle.

    Args:
        name: unique in the run; parts and messages use it.
        thing: a module, optimizer, schedule, scaler, generator, tensor, dict, list, dataclass of plain values, or
            anything that has ``state_dict`` and ``load_state_dict``.
        component: of the training state; known for the kinds of torch, otherwise ``progress``.
        models: modules (and single tensors) by the names they are tracked under; optimizers name their parameters
            by them.
        read_back: for objects with a state dict of their own: see whether they took over what they were given.

    Raises:
        StateError: the thing has no state that could be read and put back; the message says what would help.
    """
    found = component or component_of(thing)
    if isinstance(thing, torch.nn.Module):
        return TrackedModule(name, thing, found)
    if isinstance(thing, torch.optim.Optimizer):
        return TrackedOptimizer(name, thing, models or {}, found)
    if isinstance(thing, Stateful) and not isinstance(thing, type) and not _is_schedule(thing):
        return TrackedStateful(name, thing, found, read_back=read_back)
    kind = next((kind for belongs, kind in _KINDS if belongs(thing)), None)
    if kind is not None:
        return kind(name, thing, found)
    raise StateError(
        f"{name} is a {class_name(thing)}, whose state samestep cannot read",
        slug="untrackable",
        hint="Give it state_dict and load_state_dict, or make it a dataclass of plain values; "
        f"or say run.rebuilt({name!r}, by=…, check=…) or run.irrelevant({name!r}, because=…).",
    )


def component_of(thing: Any) -> Component:
    """Return which component of the training state an object is, as far as its class says."""
    if _is_schedule(thing):
        return Component.SCHEDULE
    return next((component for kind, component in _COMPONENTS if isinstance(thing, kind)), Component.PROGRESS)


def _is_schedule(thing: Any) -> bool:
    return isinstance(thing, LRScheduler) or type(thing).__name__ == "AcceleratedScheduler"


_KINDS: Final[tuple[tuple[_Belongs, _Make], ...]] = (
    (lambda thing: isinstance(thing, torch.Tensor), TrackedTensor),
    (_is_schedule, TrackedSchedule),
    (is_generator, TrackedGenerator),
    (lambda thing: isinstance(thing, dict | list), TrackedContainer),
    (is_value_object, TrackedDataclass),
)
_COMPONENTS: Final = (
    (AveragedModel, Component.EMA),
    (torch.nn.Module, Component.WEIGHTS),
    (torch.optim.Optimizer, Component.OPTIMIZER),
    (torch.amp.GradScaler, Component.SCALER),
    (torch.Tensor, Component.WEIGHTS),
    (GENERATORS, Component.RNG),
)
