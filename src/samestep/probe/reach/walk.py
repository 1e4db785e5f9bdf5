"""The walk from the frames around a step to everything they reach, and the reading of its paths in between."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .frames import Frames, readable_names
from .kinds import Kind, is_private, kind_of, lacks_counting_name, plain_value
from .paths import Branch, Step, edges_of, names_settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

MOST_VALUES = 300
MOST_GENERATORS = 64
MOST_OBJECTS = 2000
MOST_DEPTH = 4
MOST_SIGNATURES = 16
_LATE_WALKS = frozenset({1, 2, 3, 5, 9, 17, 33, 65, 129})
"""Observations that walk again; in between the known paths are read."""


@dataclass
class Reach:
    """What was found at one step.

    Attributes:
        values: plain values by readable path.
        generators: digest per random generator that is not a global one, by path.
        untracked: ``{"name", "type"}`` of state that cannot be followed, each once in the life of the process.
    """

    values: dict[str, Any] = field(default_factory=dict)
    generators: dict[str, str] = field(default_factory=dict)
    untracked: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class _Leaf:
    rank: tuple[int, int, int]
    path: tuple[Any, ...]
    name: str
    kind: Kind


@dataclass
class _Visit:
    """An object on the way: where it is, how it is called, how deep it lies, whether it is mere configuration."""

    thing: Any
    path: tuple[Any, ...]
    name: str
    depth: int
    settings: bool = False


class Reacher:
    """Walks and reads; one per process."""

    def __init__(self) -> None:
        self._frames = Frames()
        self._observations = 0
        self._root = Branch()
        self._signatures: set[tuple[Any, ...]] = set()
        self._reported: set[str] = set()

    def observe(self, frame: FrameType) -> Reach:
        """Look at what the loop around ``frame`` can reach."""
        self._observations += 1
        roots = self._frames.roots(frame)
        untracked: list[dict[str, Any]] = []
        if self._walk_is_due(roots):
            leaves, untracked = self._walk(roots)
            self._root = Branch.of([(leaf.path, leaf.name, leaf.kind) for leaf in leaves])
        found = Reach(untracked=untracked)
        self._root.read(roots, found.values, found.generators)
        return found

    def roots(self, frame: FrameType) -> list[dict[str, Any]]:
        """Return the local names of the user's frames and the ``self`` of frameworks', outermost first."""
        by_frame: dict[Any, dict[str, Any]] = {}
        for (owner, name), thing in self._frames.roots(frame).items():
            by_frame.setdefault(owner, {})[name] = thing
        return list(by_frame.values())

    def _walk_is_due(self, roots: dict[Any, Any]) -> bool:
        signature = tuple(dict.fromkeys(owner for owner, _ in roots))
        fresh = signature not in self._signatures and len(self._signatures) < MOST_SIGNATURES
        if fresh:
            self._signatures.add(signature)
        return fresh or self._observations in _LATE_WALKS

    def _walk(self, roots: dict[Any, Any]) -> tuple[list[_Leaf], list[dict[str, Any]]]:
        walk = _Walk(readable_names(roots))
        for visit in walk.starts(roots):
            walk.explore(visit)
        values = sorted((leaf for leaf in walk.leaves if leaf.kind is Kind.PLAIN), key=lambda leaf: leaf.rank)
        generators = [leaf for leaf in walk.leaves if leaf.kind is Kind.RANDOM]
        functions = self._frames.unreadable()
        closed = [{"name": f"locals of {name}", "type": "it calls locals()"} for name in functions]
        fresh = [item for item in walk.untracked + closed if item["name"] not in self._reported]
        self._reported.update(item["name"] for item in fresh)
        return [*values[:MOST_VALUES], *generators[:MOST_GENERATORS]], fresh


class _Walk:
    """One breadth-first walk; identities are valid only while it lasts."""

    def __init__(self, names: dict[Any, str]) -> None:
        self.leaves: list[_Leaf] = []
        self.untracked: list[dict[str, Any]] = []
        self._names = names
        self._depths: dict[int, int] = {}
        self._places: dict[int, _Visit] = {}
        self._taken: set[tuple[Any, ...]] = set()
        self._budget = MOST_OBJECTS

    def starts(self, roots: dict[Any, Any]) -> Iterator[list[_Visit]]:
        """Yield the user's names first, together; then each framework object on its own.

        A framework's object that the script can reach by itself keeps that name.
        """
        mine = {key: thing for key, thing in roots.items() if not key[0].is_framework}
        yield [_Visit(it, (key,), self._names[key], 0, names_settings(key[1])) for key, it in mine.items()]
        for key, thing in roots.items():
            if key not in mine:
                known = self._places.get(id(thing))
                path, name = (known.path, known.name) if known else ((key,), self._names[key])
                yield [_Visit(thing, path, name, 0)]

    def explore(self, starts: list[_Visit]) -> None:
        """Walk breadth first from these starts."""
        level = [visit for visit in starts if self._sort(visit)]
        while level and self._budget > 0:
            level = [inner for visit in level for inner in self._inside(visit) if self._sort(inner)]

    def _inside(self, visit: _Visit) -> Iterator[_Visit]:
        for key, thing, cost in edges_of(visit.thing):
            depth = visit.depth + cost
            if depth <= MOST_DEPTH:
                settings = visit.settings or key.is_settings
                yield _Visit(thing, (*visit.path, key), visit.name + key.text, depth, settings)

    def _sort(self, visit: _Visit) -> bool:
        """File a leaf; return whether the thing has an inside worth walking."""
        kind = kind_of(visit.thing)
        if kind is Kind.PLAIN:
            self._file_value(visit)
            return False
        if kind is Kind.SKIPPED:
            return False
        return self._is_new(visit, kind)

    def _is_new(self, visit: _Visit, kind: Kind) -> bool:
        identity = id(visit.thing)
        seen = identity in self._depths
        if seen and self._depths[identity] <= visit.depth:
            return False
        self._depths[identity] = visit.depth
        self._places.setdefault(identity, visit)
        self._budget -= 1
        if seen:
            return kind in (Kind.CONTAINER, Kind.STATEFUL)
        if kind is Kind.RANDOM:
            self.leaves.append(_Leaf((0, 0, 0), visit.path, visit.name, kind))
            return False
        if kind in (Kind.ITERATOR, Kind.STATEFUL):
            self.untracked.append({"name": visit.name, "type": _type_name(visit.thing)})
        return kind in (Kind.CONTAINER, Kind.STATEFUL)

    def _file_value(self, visit: _Visit) -> None:
        inside_a_list = isinstance(visit.path[-1], Step) and visit.path[-1].is_position
        if inside_a_list or visit.path in self._taken:
            return  # numbers in lists are data (token ids, labels), not counters
        if is_private(visit.name) or plain_value(visit.thing) is None:
            return
        self._taken.add(visit.path)
        rank = (int(visit.settings), lacks_counting_name(visit.name, visit.thing), visit.depth)
        self.leaves.append(_Leaf(rank, visit.path, visit.name, Kind.PLAIN))


def _type_name(thing: Any) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"
