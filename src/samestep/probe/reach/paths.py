"""Paths to reachable things: the edges out of an object, and reading many paths at once without keeping objects."""

from __future__ import annotations

import enum
import re
from collections import deque
from dataclasses import dataclass, field
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

from .kinds import Kind, kind_of, plain_value, random_digest

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_ITEMS = 32
_MOST_ATTRIBUTES = 400
_IDENTIFIER = re.compile(r"[A-Za-z_][\w./-]{0,39}")
_SETTINGS = re.compile(
    r"_?(?:args|config|cfg|hparams|hyper_?parameters|settings|options|flags|training"
    r"|\w+_(?:args|config|kwargs|handler|plugin|configuration))"
)
_CONSTANT = re.compile(r"^[A-Z][A-Z0-9_]+$")
_NEVER = frozenset(
    {"_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "_samestep_fetched", "__wrapped__"}
    | {"environ", "log_history", "_tp_plan", "_pp_plan", "_fsdp_plan"}
)
_DEEP = ("torch.utils.data", "torchdata", "accelerate.data_loader")
_ASIDE = re.compile(r"_hooks(?:_with_kwargs|_always_called)?$|_connector$")
_MISSING = object()


class Way(enum.Enum):
    """How an edge is followed."""

    ATTRIBUTE = enum.auto()
    ITEM = enum.auto()
    SUBMODULE = enum.auto()


@dataclass(frozen=True)
class Step:
    """One edge out of an object."""

    name: Any
    way: Way = Way.ATTRIBUTE

    @property
    def text(self) -> str:
        """How the edge reads in a path."""
        return f"[{self.name}]" if self.way is Way.ITEM else f".{self.name}"

    @property
    def is_position(self) -> bool:
        """Whether this is a place in a list rather than a name."""
        return self.way is Way.ITEM and isinstance(self.name, int)

    @property
    def is_settings(self) -> bool:
        """Whether plain values beyond are configuration rather than counters."""
        return self.way is Way.SUBMODULE or (isinstance(self.name, str) and names_settings(self.name))

    def follow(self, thing: Any) -> Any:
        """Return what lies beyond, ``_MISSING`` when there is nothing; runs no code of the thing."""
        if self.way is Way.ATTRIBUTE:
            return _attribute(thing, self.name)
        if self.way is Way.SUBMODULE:
            thing = _attributes(thing).get("_modules", _MISSING)
        if isinstance(thing, dict):
            return dict.get(thing, self.name, _MISSING)  # a defaultdict would make what is missing
        items = list(thing) if isinstance(thing, (list, tuple, deque)) and len(thing) <= _MOST_ITEMS else []
        return items[self.name] if isinstance(self.name, int) and self.name < len(items) else _MISSING


def names_settings(name: str) -> bool:
    """Return whether a name says configuration (``args``, ``BATCH_SIZE``)."""
    return bool(_SETTINGS.fullmatch(name) or _CONSTANT.match(name))


@dataclass
class Branch:
    """A tree of paths; leaves carry the names to report."""

    inner: dict[Any, Branch] = field(default_factory=dict)
    name: str = ""
    kind: Kind = Kind.CONTAINER

    @classmethod
    def of(cls, leaves: list[tuple[tuple[Any, ...], str, Kind]]) -> Branch:
        """Build the tree of these paths."""
        root = cls()
        for path, name, kind in leaves:
            branch = root
            for key in path:
                branch = branch.inner.setdefault(key, cls())
            branch.name, branch.kind = name, kind
        return root

    def read(self, roots: dict[Any, Any], values: dict[str, Any], generators: dict[str, str]) -> None:
        """Read every path from its root; what is not there (any more) is left out."""
        for key, branch in self.inner.items():
            if key in roots:
                branch._read(roots[key], values, generators)

    def _read(self, thing: Any, values: dict[str, Any], generators: dict[str, str]) -> None:
        if self.name:
            self._report(thing, values, generators)
        for step, branch in self.inner.items():
            found = step.follow(thing)
            if found is not _MISSING:
                branch._read(found, values, generators)

    def _report(self, thing: Any, values: dict[str, Any], generators: dict[str, str]) -> None:
        kind = kind_of(thing)
        if kind is Kind.PLAIN:
            value = plain_value(thing)
            if value is not None:
                values[self.name] = value
        elif kind is Kind.RANDOM:
            generators[self.name] = random_digest(thing)


def edges_of(thing: Any) -> Iterator[tuple[Step, Any, int]]:
    """Yield ``(step, thing beyond, cost in depth)``; submodules and the parts of loaders cost nothing."""
    if isinstance(thing, dict):
        yield from _items_of(thing)
    elif isinstance(thing, (list, tuple, deque)):
        if len(thing) <= _MOST_ITEMS:
            yield from ((Step(i, Way.ITEM), item, 1) for i, item in enumerate(thing))
    else:
        yield from _attributes_of(thing)


def _items_of(thing: dict[Any, Any]) -> Iterator[tuple[Step, Any, int]]:
    if len(thing) > _MOST_ITEMS:
        return
    for name, item in list(dict.items(thing)):
        if isinstance(name, int) or (isinstance(name, str) and _IDENTIFIER.fullmatch(name)):
            yield Step(name, Way.ITEM), item, 1


def _attributes_of(thing: Any) -> Iterator[tuple[Step, Any, int]]:
    package = str(type(thing).__module__)
    # Loaders nest deeply before a generator of theirs is reached, and so do Lightning's progress counters.
    cost = 0 if package.startswith(_DEEP) or package.endswith("loops.progress") else 1
    bare = package.startswith("torch.")
    for name, inner in list(_attributes(thing).items())[:_MOST_ATTRIBUTES]:
        if name in _NEVER or _ASIDE.search(name):
            continue
        if bare and kind_of(inner) is Kind.PLAIN:
            continue  # torch's own settings (in_features, batch_size, ...) are no counters
        yield Step(name), inner, cost
    for name, inner in list(_submodules(thing).items()):
        yield Step(name, Way.SUBMODULE), inner, 0
    for name in _slots(type(thing)):
        inner = _slot(thing, name)
        if inner is not _MISSING:
            yield Step(name), inner, cost


def _attributes(thing: Any) -> dict[str, Any]:
    try:
        found = object.__getattribute__(thing, "__dict__")
    except (AttributeError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def _attribute(thing: Any, name: str) -> Any:
    found = _attributes(thing).get(name, _MISSING)
    return _slot(thing, name) if found is _MISSING else found


def _submodules(thing: Any) -> dict[str, Any]:
    found = _attributes(thing).get("_modules")
    return found if isinstance(found, dict) else {}


_SLOTS: dict[type, tuple[str, ...]] = {}


def _slots(cls: type) -> tuple[str, ...]:
    names = _SLOTS.get(cls)
    if names is None:
        members = [pair for base in cls.__mro__ for pair in base.__dict__.items()]
        found = [name for name, member in members if type(member) is MemberDescriptorType]
        names = tuple(found) if cls.__module__ not in {"builtins", "collections"} else ()
        if len(_SLOTS) < 5000:
            _SLOTS[cls] = names
    return names


def _slot(thing: Any, name: str) -> Any:
    for base in type(thing).__mro__:
        member = base.__dict__.get(name)
        if type(member) is MemberDescriptorType:
            try:
                return member.__get__(thing, type(thing))
            except AttributeError:
                return _MISSING
    return _MISSING
