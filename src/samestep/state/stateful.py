"""Objects that bring their own state: anything with ``state_dict`` and ``load_state_dict``, and plain values."""

from __future__ import annotations

import dataclasses
import functools
import types
from typing import TYPE_CHECKING, Any

from samestep.state import leaves
from samestep.state.builtin_codecs import fields_of
from samestep.state.errors import StateError
from samestep.state.modules import not_taken
from samestep.state.tracked import Fresh, Tracked, asked, poured

if TYPE_CHECKING:
    from torch.optim.lr_scheduler import LRScheduler

    from samestep.contract.words import Component
    from samestep.state.mismatches import Mismatches


class TrackedStateful(Tracked):
    """An object with ``state_dict`` and ``load_state_dict``.

    Args:
        name: that it is tracked under.
        thing: the object.
        component: of the training state.
        read_back: see after loading whether the object gives back exactly what it was given. Turn it off for an
            object that takes its state over later.
    """

    def __init__(self, name: str, thing: Any, component: Component, *, read_back: bool = True) -> None:
        super().__init__(name, thing, component)
        self._read_back = read_back

    def read(self) -> Any:
        """Return what ``state_dict`` returns; see ``Tracked``."""
        return asked(self.name, self.thing.state_dict)

    def _prepare(self, stored: Any, mismatches: Mismatches) -> Any:  # noqa: ARG002 - its entries are its own affair
        return Fresh().tree(stored, self.read())

    def write(self, tree: Any) -> None:
        """Give the object its state, and see whether it holds it; see ``Tracked``."""
        asked(self.name, lambda: self.thing.load_state_dict(_own_copy(tree)))
        if not self._read_back:
            return
        unlike = leaves.differences(tree, self.read(), at=self.name)
        if unlike:
            raise not_taken(self, unlike)


class TrackedSchedule(TrackedStateful):
    """A learning-rate schedule of torch: everything but its functions, which are code and not saved."""

    def __init__(self, name: str, schedule: LRScheduler, component: Component) -> None:
        inner = getattr(schedule, "scheduler", None)
        if type(schedule).__name__ == "AcceleratedScheduler" and inner is not None:
            schedule = inner
        super().__init__(name, schedule, component)
        leaves.encode(self.read(), at=name)
        functions = _functions(schedule)
        if functions:
            self.notes["not_saved"] = functions


class TrackedDataclass(Tracked):
    """A dataclass of plain values and tensors; its fields are set in place.

    Raises:
        StateError: it is frozen, or holds more than its fields.
    """

    def __init__(self, name: str, thing: Any, component: Component) -> None:
        super().__init__(name, thing, component)
        if thing.__dataclass_params__.frozen:
            raise StateError(
                f"{name} is a frozen dataclass, and its state cannot be put back into it",
                slug="untrackable",
                hint="Track the object that holds it.",
            )
        self.read()

    def read(self) -> dict[str, Any]:
        """Return the fields; see ``Tracked``."""
        try:
            fields: dict[str, Any] = fields_of(self.thing)
        except StateError as error:
            raise StateError(f"{self.name}: {error.message}", slug=error.slug, hint=error.hint) from None
        return fields

    def _prepare(self, stored: dict[str, Any], mismatches: Mismatches) -> dict[str, Any]:
        live = self.read()
        for field in sorted(live.keys() - stored.keys()):
            mismatches.missing(self.place(field))
        for field in sorted(stored.keys() - live.keys()):
            mismatches.surplus(self.place(field))
        kept = {field: value for field, value in stored.items() if field in live}
        tree: dict[str, Any] = Fresh().tree(kept, live)
        return tree

    def write(self, tree: dict[str, Any]) -> None:
        """Set the fields."""
        taken: dict[int, int] = {}
        for field, value in tree.items():
            setattr(self.thing, field, poured(value, getattr(self.thing, field), taken))


class TrackedContainer(Tracked):
    """A dict or list of values, changed in place, so that whoever holds it sees the restored values."""

    def read(self) -> Any:
        """Return its content; see ``Tracked``."""
        return dict(self.thing) if isinstance(self.thing, dict) else list(self.thing)

    def _prepare(self, stored: Any, mismatches: Mismatches) -> Any:
        if isinstance(stored, dict) != isinstance(self.thing, dict):
            mismatches.differs(self.name, f"a {type(stored).__name__}", f"a {type(self.thing).__name__}")
        return Fresh().tree(stored, self.read())

    def write(self, tree: Any) -> None:
        """Change the content in place."""
        taken: dict[int, int] = {}
        if isinstance(self.thing, dict):
            content = {key: poured(item, self.thing.get(key), taken) for key, item in tree.items()}
            self.thing.clear()
            self.thing.update(content)
        else:
            present = [*self.thing, *[None] * len(tree)]
            self.thing[:] = [poured(item, into, taken) for item, into in zip(tree, present, strict=False)]


def _own_copy(tree: Any) -> Any:
    """Return the tree in containers of its own: some objects take their state apart while they load it."""
    return leaves.map_leaves(tree, lambda leaf: leaf)


def _functions(schedule: Any) -> list[str]:
    """Return the names of the functions that a schedule calls and that are not part of its state."""
    called = [*getattr(schedule, "lr_lambdas", ()), getattr(schedule, "_scale_fn_custom", None)]
    plain = [
        function.func if isinstance(function, functools.partial) else function
        for function in called
        if isinstance(function, types.FunctionType | types.MethodType | functools.partial)
    ]
    names = [f"{function.__module__}.{function.__qualname__}" for function in plain]
    return names + [name for part in getattr(schedule, "_schedulers", ()) for name in _functions(part)]


def is_value_object(thing: Any) -> bool:
    """Whether a thing is an instance of a dataclass."""
    return dataclasses.is_dataclass(thing) and not isinstance(thing, type)
