"""Save windows: which operations of a recording belong to one save."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING

from samestep.checkpoints import is_log
from samestep.checkpoints.naming import is_step_folder
from samestep.crash.operations import Kind, Operation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samestep.crash.recording import Recording

NEIGHBOURS = 6  # saves that may still be going on when another begins

_DIGITS = re.compile(r"\d+")
_NO_PART = frozenset({Kind.MARK, Kind.SYNC_RANGE})
_KEEPS = frozenset({Kind.SYNC, Kind.SYNC_DATA, Kind.SYNC_ALL, Kind.CLOSE})
_OPENS = frozenset({Kind.CREATE, Kind.OPEN, Kind.WRITE, Kind.MAP})
_BEGINS = frozenset({Kind.CREATE, Kind.MKDIR, Kind.SYMLINK})


@dataclass(frozen=True)
class Window:
    """The operations of one save.

    Attributes:
        name: ``save-12``: the steps complete when it began.
        step: steps complete when it began.
        last_step: steps complete when it last changed something; higher when it went on in the background.
        operations: indices of its operations, ascending. Between them others may lie, of logs or of another save.
    """

    name: str
    step: int
    last_step: int
    operations: tuple[int, ...]

    @property
    def first(self) -> int:
        """Index of its first operation."""
        return self.operations[0]

    @property
    def last(self) -> int:
        """Index of its last operation."""
        return self.operations[-1]


def save_windows(recording: Recording) -> list[Window]:
    """Group the operations that write, change or delete checkpoints into saves.

    Operations after the same step belong together. A save also goes on after later steps: as long as a file that it
    opened is written to, and as long as its folder is filled with files that it has not had yet.
    """
    places = _places(recording.operations, recording.header.roots[0])
    bursts: list[_Burst] = []
    for operation, step in _with_steps(recording.operations):
        place = places[operation.index]
        if place is not None:
            _burst_of(bursts, step, operation, place).add(step, operation, place)
    return [
        Window(f"save-{burst.step}", burst.step, burst.last_change, tuple(burst.operations))
        for burst in bursts
        if burst.changes
    ]


def _with_steps(operations: list[Operation]) -> Iterator[tuple[Operation, int]]:
    """Yield what was done, with the steps that its rank, or else any rank, had completed."""
    by_rank: dict[int | None, int] = {}
    newest = 0
    for operation in operations:
        if operation.kind is Kind.MARK:
            newest = by_rank[operation.rank] = operation.step or 0
        elif operation.done:
            yield operation, by_rank.get(operation.rank, newest)


def _places(operations: list[Operation], root: str) -> list[str | None]:
    """Return for each operation the path relative to the root that it is about; None: it is no part of a save.

    What happens outside of the root to a file or folder that is moved in later counts under its later name.
    """
    places: list[str | None] = []
    staged: dict[str, str] = {}
    for operation in reversed(operations):
        place = None if operation.kind in _NO_PART or not operation.done else _place(operation, root, staged)
        moves = operation.kind in {Kind.RENAME, Kind.LINK}
        if place is not None and moves and relative(operation.path, root) is None:
            staged[operation.path] = place
        elif operation.kind in _BEGINS:
            staged.pop(operation.path, None)
        places.append(None if place is None or is_log(place) else place)
    return places[::-1]


def _place(operation: Operation, root: str, staged: dict[str, str]) -> str | None:
    if operation.kind is Kind.SYNC_ALL:
        return ""
    moves = operation.kind in {Kind.RENAME, Kind.LINK}
    for path in (operation.target, operation.path) if moves else (operation.path,):
        inside = relative(path, root)
        if inside is not None:
            return inside
        for source, place in staged.items():
            rest = relative(path, source)
            if rest is not None:
                return f"{place}/{rest}" if rest else place
    return None


def relative(path: str, root: str) -> str | None:
    """Return a path relative to the root, ``""`` for the root itself, None outside of it."""
    if path == root:
        return ""
    return path[len(root) + 1 :] if path.startswith(f"{root}/") else None


@dataclass
class _Burst:
    """A save while its operations are being gathered."""

    step: int
    last_step: int
    last_change: int
    operations: list[int] = field(default_factory=list)
    paths: set[str] = field(default_factory=set)
    shapes: set[str] = field(default_factory=set)
    folders: set[str] = field(default_factory=set)
    opened: set[int] = field(default_factory=set)
    changes: bool = False

    def add(self, step: int, operation: Operation, place: str) -> None:
        self.last_step = max(self.last_step, step)
        self.operations.append(operation.index)
        if operation.kind in _KEEPS:
            self.opened.discard(operation.inode)
            return
        self.last_change = max(self.last_change, step)
        self.changes |= operation.kind not in {Kind.OPEN, Kind.MAP}
        self.paths.add(place)
        self.shapes.add(_DIGITS.sub("#", place))
        if operation.kind is Kind.MKDIR:
            self.folders.add(place)
        if operation.kind in _OPENS and operation.inode:
            self.opened.add(operation.inode)

    def lacks(self, step: int, place: str, *, numbered: bool) -> bool:
        """Tell whether a path lies in a folder that this save has just made, and is not yet a part of it.

        Args:
            step: of the operation.
            place: the path.
            numbered: look at folders named after a step only: all that is in them is one checkpoint. In others a
                name that differs in its numbers only is another checkpoint.
        """
        if step - self.last_step > 1 or place in self.paths:
            return False
        shared = {str(parent) for parent in PurePath(place).parents} & self.folders
        if numbered:
            return any(is_step_folder(PurePath(folder).name) for folder in shared)
        return bool(shared) and _DIGITS.sub("#", place) not in self.shapes


def _burst_of(bursts: list[_Burst], step: int, operation: Operation, place: str) -> _Burst:
    """Return the save that an operation belongs to, a new one if to none: the first sign that fits decides."""
    recent = bursts[: -NEIGHBOURS - 1 : -1]
    found = (
        _first(burst for burst in recent if operation.inode in burst.opened)
        or _first(burst for burst in recent if burst.step != step and burst.lacks(step, place, numbered=True))
        or _first(burst for burst in recent if burst.step == step)
        or _first(burst for burst in recent if burst.lacks(step, place, numbered=False))
        or _first(burst for burst in recent if operation.kind in _KEEPS and place and place in burst.paths)
    )
    if found is None:
        found = _Burst(step, step, step)
        bursts.append(found)
    return found


def _first(bursts: Iterator[_Burst]) -> _Burst | None:
    return next(bursts, None)
