"""What a run keeps: the objects that the user has named, and what was said of those that are not kept."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from samestep.contract import Component

from .errors import RunError
from .rows import Rebuilt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_NAMES = {
    "model": Component.WEIGHTS,
    "optimizer": Component.OPTIMIZER,
    "schedule": Component.SCHEDULE,
    "scaler": Component.SCALER,
    "ema": Component.EMA,
}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class Tracking:
    """The objects of a run by name, and the statements about others."""

    def __init__(self) -> None:
        self._things: dict[str, tuple[str, Any]] = {}
        self.rebuilt: dict[str, Rebuilt] = {}
        self.irrelevant: dict[str, str] = {}
        self.framework: list[Any] = []
        self._closed = False

    def add_argument(self, argument: str, given: Any) -> None:
        """Track what was given for an argument of ``Run``: nothing, an object, or several by name."""
        if given is None:
            return
        if isinstance(given, list | tuple):
            raise RunError(
                f"{argument}= was given a {type(given).__name__}, and its objects have no names",
                hint=f"name each: {argument}={{'first': ..., 'second': ...}}",
            )
        named = given if isinstance(given, dict) else {argument: given}
        for name, thing in named.items():
            self.add(name, thing, _NAMES.get(argument))

    def add(self, name: str, thing: Any, component: str | None = None) -> None:
        """Track ``thing`` as ``name``.

        Raises:
            RunError: the name is taken or cannot be one, or the run has begun.
        """
        self._check(name)
        if not _NAME.fullmatch(name):
            raise RunError(f"{name!r} cannot be a name", hint="letters, digits, _, - and . can")
        self._things[name] = (str(component or component_of(thing)), thing)

    def add_rebuilt(self, name: str, by: Callable[[], Any], check: Callable[[], Any]) -> None:
        """Say that a restart makes ``name`` anew."""
        self._check(name)
        self.rebuilt[name] = Rebuilt(by, check)

    def add_irrelevant(self, name: str, because: str) -> None:
        """Say that ``name`` does not matter for going on."""
        self._check(name)
        if not because.strip():
            raise RunError(
                f"{name} is irrelevant and nothing says why", hint="give the reason: because='...'"
            )
        self.irrelevant[name] = because

    def close(self) -> None:
        """Take nothing more: the run begins."""
        self._closed = True

    def items(self) -> Iterator[tuple[str, str, Any]]:
        """Yield name, component and object."""
        yield from ((name, component, thing) for name, (component, thing) in self._things.items())

    def of(self, component: Component) -> dict[str, Any]:
        """Return the objects of one component by name."""
        return {name: thing for name, of, thing in self.items() if of == component}

    @property
    def things(self) -> list[Any]:
        """All objects."""
        return [thing for _, _, thing in self.items()]

    @property
    def excused(self) -> set[str]:
        """Names of which the user has said that they need not be kept."""
        return {*self.rebuilt, *self.irrelevant}

    @property
    def device(self) -> str:
        """Kind of device that the models are on."""
        for model in self.of(Component.WEIGHTS).values():
            for parameter in model.parameters() if hasattr(model, "parameters") else ():
                return str(parameter.device.type)
        return "cpu"

    def described(self) -> Mapping[str, tuple[str, Any]]:
        """Return component and object by name."""
        return {name: (component, thing) for name, component, thing in self.items()}

    def _check(self, name: str) -> None:
        if self._closed:
            raise RunError(f"{name} came too late: the run has begun", hint="say it before the loop begins")
        if name in self._things or name in self.excused:
            raise RunError(f"{name} was named twice", hint="give each object a name of its own")


_CLASSES: tuple[tuple[tuple[type, ...], Component], ...] = (
    ((torch.optim.swa_utils.AveragedModel,), Component.EMA),
    ((torch.nn.Module,), Component.WEIGHTS),
    ((torch.optim.Optimizer,), Component.OPTIMIZER),
    ((LRScheduler, ReduceLROnPlateau), Component.SCHEDULE),
    ((torch.amp.GradScaler,), Component.SCALER),
    ((torch.Generator, np.random.Generator, np.random.RandomState, random.Random), Component.RNG),
)


def component_of(thing: Any) -> Component:
    """Return the component that an object belongs to by its class."""
    return next(
        (component for classes, component in _CLASSES if isinstance(thing, classes)), Component.CALLBACKS
    )
