"""Looking for state that the user did not name: a run starts only when every piece of it has a row."""

from __future__ import annotations

import dataclasses
import re
import sys
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, Sampler

from samestep.contract import Component

from .errors import ContractOpen
from .excuses import tail_of
from .reachable import NAMELESS, Names, alive, attributes, inside

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType

    from .excuses import Excused

_AVERAGE = re.compile(r"(?:^|_)(?:ema|swa)|Ema|EMA|Averag|Polyak")
_CONTAINERS = (dict, list)
_MOST_HINTS = 5
_PREFIX = re.compile(r"(?:^|(?<=\.))(?:module|_orig_mod|_fsdp_wrapped_module)\.")


@dataclasses.dataclass(frozen=True)
class Stray:
    """Something alive without a row.

    Attributes:
        name: what the script calls it.
        kind: its class.
        component: that it belongs to.
        needed: a run may not start without a row for it.
    """

    name: str
    kind: str
    component: Component
    needed: bool

    def __str__(self) -> str:
        return f"{self.name} ({self.kind}, {self.component})"


@dataclasses.dataclass(frozen=True)
class _Kind:
    """One kind of thing that a training may have to keep."""

    component: Component
    types: tuple[type, ...]
    argument: str


def _kinds() -> list[_Kind]:
    scalers: list[type] = [torch.amp.GradScaler]
    return [
        _Kind(Component.OPTIMIZER, (torch.optim.Optimizer,), "optimizer"),
        _Kind(Component.SCHEDULE, (LRScheduler, torch.optim.lr_scheduler.ReduceLROnPlateau), "schedule"),
        _Kind(Component.SCALER, tuple(scalers), "scaler"),
        _Kind(Component.EMA, (AveragedModel,), "ema"),
        _Kind(Component.DATA_POSITION, (DataLoader,), "data"),
    ]


def strays(tracked: Iterable[Any], models: Iterable[Any], frame: FrameType | None) -> list[Stray]:
    """Return what is alive and not tracked.

    Args:
        tracked: everything that the user has named.
        models: the modules among it.
        frame: of the script, to find out what it calls things.
    """
    tracked, models = list(tracked), list(models)
    names = Names(frame)
    kinds = _kinds()
    wanted = tuple(cls for kind in kinds for cls in kind.types)
    living = alive(lambda cls: issubclass(cls, (*wanted, torch.nn.Module)) or _is_called_average(cls))
    found: list[tuple[Any, Component]] = []
    for kind in kinds:
        covered = _covered(tracked, kind.types)
        found += [
            (thing, kind.component)
            for thing in living
            if isinstance(thing, kind.types) and not _is_covered(thing, covered, kind.types)
        ]
    found += [(thing, Component.EMA) for thing in _copies(living, tracked, models)]
    needed = [
        Stray(names.of(thing), type(thing).__name__, component, needed=True) for thing, component in found
    ]
    loaders = [thing for thing in living if isinstance(thing, DataLoader)]
    warned = [_warning(names, thing) for thing in _sources_of_chance(names, [*tracked, *loaders])]
    return _distinct([*needed, *warned])


def require_rows(excused: Excused) -> None:
    """Refuse to start while something that a training needs has no row.

    Raises:
        ContractOpen: the message names everything, the hint what to write for each.
    """
    needed = [one for one in excused.left if one.needed]
    if not needed:
        return
    more = [f"and for {len(needed) - _MOST_HINTS} more"] if len(needed) > _MOST_HINTS else []
    raise ContractOpen(
        "; ".join([f"nobody has said what becomes of {', '.join(map(str, needed))}", *excused.offers]),
        hint="\n".join(["say before the loop begins", *map(_what_to_say, needed[:_MOST_HINTS]), *more]),
    )


def _what_to_say(stray: Stray) -> str:
    """Return the calls of which one is to be written for a stray, as they are written."""
    name, argument = stray.name, next(one.argument for one in _kinds() if one.component is stray.component)
    thing = "object" if NAMELESS in name else name
    if stray.component is Component.DATA_POSITION:
        return (
            f"  run.irrelevant({name!r}, because='only evaluations read it') if the training takes no batches "
            f"from it, Run(..., {argument}={thing}) if it does"
        )
    return (
        f"  Run(..., {argument}={thing}) or run.track({tail_of(name)!r}, {thing}) to save it, "
        f"run.rebuilt({name!r}, by=..., check=...) if a restart makes it anew, "
        f"run.irrelevant({name!r}, because='...') if it does not matter"
    )


def _is_called_average(cls: type) -> bool:
    return bool(_AVERAGE.search(cls.__name__))


def _is_average(thing: Any) -> bool:
    """Whether a thing is by its name an averaged model, and keeps a state: by methods, or in tensors that it holds."""
    cls = type(thing)
    if not _is_called_average(cls):
        return False
    by_methods = hasattr(cls, "state_dict") and hasattr(cls, "load_state_dict")
    return by_methods or any(isinstance(part, torch.Tensor) for part in inside(thing, 2))


def _covered(tracked: Iterable[Any], types: tuple[type, ...]) -> set[int]:
    """Return the ids of the things of one kind that are tracked, those inside tracked things of that kind included."""
    covered = {id(thing) for thing in tracked}
    for thing in tracked:
        if isinstance(thing, types):
            covered |= {id(part) for part in inside(thing) if isinstance(part, types)}
    return covered


def _is_covered(thing: Any, covered: set[int], types: tuple[type, ...]) -> bool:
    """Whether a thing is tracked, or wraps one that is."""
    if id(thing) in covered:
        return True
    held = [part for part in attributes(thing).values() if isinstance(part, types)]
    return any(id(part) in covered for part in held)


def _copies(living: Iterable[Any], tracked: list[Any], models: list[Any]) -> Iterator[Any]:
    """Yield averaged models by their name, and modules that look like a copy of a trained one."""
    kept = [*models, *(thing for thing in tracked if isinstance(thing, torch.nn.Module))]
    known = {id(part) for model in kept for part in model.modules()} | {id(thing) for thing in tracked}
    for thing in tracked:
        known |= {id(part) for part in inside(thing)}
    named = {id(thing) for thing in tracked if isinstance(thing, _CONTAINERS)}
    shapes = [shape for model in models if (shape := _shape(model))]
    owned = {id(parameter) for model in kept for parameter in model.parameters()}
    copies = [
        thing
        for thing in living
        if id(thing) not in known
        and not isinstance(thing, AveragedModel)
        and not any(id(part) in named for part in attributes(thing).values())
        and _looks_copied(thing, shapes)
        and not _shares(thing, owned)
    ]
    nested = {
        id(part)
        for copy in copies
        if isinstance(copy, torch.nn.Module)
        for part in copy.modules()
        if part is not copy
    }
    averaged = {id(part) for thing in living if isinstance(thing, AveragedModel) for part in thing.modules()}
    yield from (copy for copy in copies if id(copy) not in nested | averaged)


def _looks_copied(thing: Any, shapes: list[dict[str, tuple[int, ...]]]) -> bool:
    if _is_average(thing):
        return True
    return (
        isinstance(thing, torch.nn.Module) and "_parameters" in attributes(thing) and _shape(thing) in shapes
    )


def _shares(thing: Any, owned: set[int]) -> bool:
    """Whether a module is a wrapper of a tracked one, with the very same parameters."""
    return isinstance(thing, torch.nn.Module) and all(
        id(parameter) in owned for parameter in thing.parameters()
    )


def _shape(model: Any) -> dict[str, tuple[int, ...]] | None:
    shape = {_PREFIX.sub("", name): tuple(value.shape) for name, value in model.named_parameters()}
    return shape or None


def _sources_of_chance(names: Names, owners: list[Any]) -> Iterator[Any]:
    """Yield the generators and samplers that the script can see and that belong to none of the owners."""
    kinds = (*_generator_types(), Sampler)
    known = {id(torch.default_generator)} | {id(thing) for thing in owners}
    for thing in owners:
        known |= {id(part) for part in inside(thing) if isinstance(part, kinds)}
    for thing in names.things():
        if (
            issubclass(type(thing), kinds) and id(thing) not in known
        ):  # isinstance would run code of lazy objects
            yield thing


def _generator_types() -> tuple[type, ...]:
    numpy: Any = sys.modules.get("numpy.random")
    return (torch.Generator, *((numpy.Generator, numpy.RandomState) if numpy else ()))


def _warning(names: Names, thing: Any) -> Stray:
    return Stray(names.of(thing), type(thing).__name__, Component.RNG, needed=False)


def _distinct(found: list[Stray]) -> list[Stray]:
    return list(dict.fromkeys(found))
