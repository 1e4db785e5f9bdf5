"""Carrying out recorded operations on an image.

Operations name files by path, and a path means something only in the state the process saw. So each operation is
first bound, in that state, to the numbers of the folders and files it touches; what is bound can then be carried out
on states that never existed while the process ran, such as those after a power loss.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from samestep.crash.contents import Content, Piece, zeros
from samestep.crash.image import TOP, Entry, File, Folder, Image, Node, Symlink
from samestep.crash.operations import Kind, Operation

if TYPE_CHECKING:
    from pathlib import Path

    from samestep.crash.contents import Source
    from samestep.crash.recording import Recording

TICK = 10_000  # nanoseconds between the modification times of neighbouring operations
UMASK = 0o022
RENAME_EXCHANGE = 2
KEEP_SIZE, PUNCH_HOLE, COLLAPSE_RANGE, ZERO_RANGE, INSERT_RANGE = 0x01, 0x02, 0x08, 0x10, 0x20

DATA = frozenset({Kind.WRITE, Kind.STORED})
SIZES = frozenset({Kind.TRUNCATE, Kind.ALLOCATE})
NAMES = frozenset({Kind.CREATE, Kind.RENAME, Kind.LINK, Kind.SYMLINK, Kind.UNLINK, Kind.MKDIR, Kind.RMDIR})
SYNCS = frozenset({Kind.SYNC, Kind.SYNC_DATA, Kind.SYNC_ALL})
CHANGES = DATA | SIZES | NAMES
"""Kinds that change what is on disk."""

_NEED_A_NAME = CHANGES - {Kind.UNLINK, Kind.RMDIR} | {Kind.OPEN, Kind.MAP}


@dataclass(frozen=True, slots=True)
class Effect:
    """What an operation does, in numbers.

    Attributes:
        operation: the operation.
        node: number of the file, folder or link concerned.
        source: the name that goes away.
        target: the name that comes, or is replaced.
        replaced: number of what the target name led to before.
        made: what a new number stands for.
        piece: bytes that are written.
        implied: the operation was never seen, but must have happened before the recording or out of its sight.
    """

    operation: Operation
    node: int
    source: Entry | None = None
    target: Entry | None = None
    replaced: int | None = None
    made: Node | None = None
    piece: Piece | None = None
    implied: bool = False

    @property
    def kind(self) -> Kind:
        """What the operation does."""
        return self.operation.kind

    @property
    def index(self) -> int:
        """Index of the operation."""
        return self.operation.index


class Replay:
    """Carries out operations one after the other.

    Args:
        base: what was there before the first.
        source: where written bytes are, usually the recording.

    Attributes:
        image: what is there now; `copy` it to keep it.
    """

    def __init__(self, base: Image, source: Source) -> None:
        self.image = base.settled()
        self._source = source
        self._next = base.next_number()
        self._known: dict[int, int] = {}

    def step(self, operation: Operation) -> list[Effect]:
        """Carry out an operation and return what it did, implied folders first; nothing for one that failed."""
        if not operation.done or operation.kind is Kind.MARK:
            return []
        effects = self._implied(operation)
        effects.append(self._bind(operation))
        take_effect(self.image, effects[-1])
        return effects

    def _implied(self, operation: Operation) -> list[Effect]:
        """Make the folders that lead to a name the operation needs but were never seen being made."""
        effects: list[Effect] = []
        path = operation.target if operation.kind in {Kind.RENAME, Kind.LINK} else operation.path
        followed = operation.kind not in NAMES and operation.inode in self._known
        if path and operation.kind in _NEED_A_NAME and not followed:
            folder, missing = os.path.dirname(path), []  # noqa: PTH120 - a path of the image, not of this machine
            while self.image.find(folder) is None:
                missing.append(folder)
                folder = os.path.dirname(folder)  # noqa: PTH120
            for path_of_folder in reversed(missing):
                made = Operation(index=operation.index, kind=Kind.MKDIR, path=path_of_folder)
                effects.append(replace(self._bind(made), implied=True))
                take_effect(self.image, effects[-1])
        return effects

    def _bind(self, operation: Operation) -> Effect:
        kind = operation.kind
        if kind in {Kind.CREATE, Kind.MKDIR, Kind.SYMLINK}:
            return self._new(operation)
        if kind in {Kind.RENAME, Kind.LINK}:
            return self._moved(operation)
        if kind in {Kind.UNLINK, Kind.RMDIR}:
            source = self._entry(operation.path)
            number = self.image.at(source) if source else None
            return Effect(operation, TOP if number is None else number, source=source)
        effect = Effect(operation, self._number(operation), piece=self._piece(operation))
        if kind in _NEED_A_NAME and self.image.node(effect.node) is None:  # it was there before, out of sight
            target = self._entry(operation.path)
            effect = replace(effect, made=File(), target=target)
        return effect

    def _new(self, operation: Operation) -> Effect:
        target = self._entry(operation.path)
        if operation.kind is Kind.SYMLINK:
            made: Node = Symlink(operation.target)
        elif operation.kind is Kind.MKDIR:
            made = Folder(mode=_mode(operation, 0o755))
        else:
            made = File(mode=_mode(operation, 0o644))
        return Effect(
            operation,
            self._fresh(operation.inode),
            target=target,
            replaced=self.image.at(target) if target else None,
            made=made,
        )

    def _moved(self, operation: Operation) -> Effect:
        source = self._entry(operation.path)
        target = self._entry(operation.target)
        number = self.image.at(source) if source else None
        if number is None:
            number = self._number(operation)
        elif operation.inode:
            self._known[operation.inode] = number
        return Effect(
            operation,
            number,
            source=source if operation.kind is Kind.RENAME else None,
            target=target,
            replaced=self.image.at(target) if target else None,
            made=File() if self.image.node(number) is None else None,
        )

    def _number(self, operation: Operation) -> int:
        known = self._known.get(operation.inode) if operation.inode else None
        if known is None and operation.path:
            known = self.image.find(operation.path)
            if known is not None and operation.inode:
                self._known[operation.inode] = known
        return self._fresh(operation.inode) if known is None else known

    def _fresh(self, inode: int) -> int:
        number, self._next = self._next, self._next + 1
        if inode:
            self._known[inode] = number
        return number

    def _entry(self, path: str) -> Entry | None:
        folder, name = os.path.split(path)
        number = self.image.find(folder) if name else None
        return None if number is None else (number, name)

    def _piece(self, operation: Operation) -> Piece | None:
        if operation.kind not in DATA:
            return None
        return (
            zeros(operation.size)
            if operation.at is None
            else Piece(self._source, operation.at, operation.size)
        )


def _mode(operation: Operation, usual: int) -> int:
    return (operation.mode & 0o777 & ~UMASK) or usual


def replay(recording: Recording, base: Image) -> Image:
    """Carry out a whole recording on what was there before it, and return what is there after it."""
    steps = Replay(base, recording)
    for operation in recording.operations:
        steps.step(operation)
    return steps.image


def apply(image: Image, operation: Operation, source: Source) -> Image:
    """Return the image after one operation that stands alone; files are found by path."""
    steps = Replay(image, source)
    steps.step(operation)
    return steps.image


def take_effect(image: Image, effect: Effect, *, named: bool = True) -> None:
    """Carry out what is bound on an image of one's own.

    Args:
        image: is changed.
        effect: what to do.
        named: False: the change of names gets lost, and only that.
    """
    when = image.clock + (effect.index + 1) * TICK
    if effect.made is not None and image.node(effect.node) is None:
        image.put(effect.node, replace(effect.made, modified=when))
    if named:
        _change_names(image, effect, when)
    node = image.node(effect.node)
    if isinstance(node, File) and effect.kind in DATA | SIZES:
        image.put(effect.node, replace(node, content=changed(node.content, effect), modified=when))


def _change_names(image: Image, effect: Effect, when: int) -> None:
    if effect.kind is Kind.RENAME and effect.replaced == effect.node:
        return  # two names of one file: nothing happens
    exchanged = effect.kind is Kind.RENAME and effect.operation.mode & RENAME_EXCHANGE
    if effect.source is not None:
        image.leave(effect.source, when)
    if effect.target is not None:
        image.enter(effect.target, effect.node, when)
    if exchanged and effect.source is not None and effect.replaced is not None:
        image.enter(effect.source, effect.replaced, when)


def undo_names(image: Image, effect: Effect) -> None:
    """Take back the change of names of an effect on an image of one's own; nothing after it touched these names."""
    when = image.clock + (effect.index + 1) * TICK
    if effect.kind is Kind.RENAME and effect.replaced == effect.node:
        return
    if effect.target is not None and effect.replaced is None:
        image.leave(effect.target, when)
    elif effect.target is not None and effect.replaced is not None:
        image.enter(effect.target, effect.replaced, when)
    if effect.source is not None:
        image.enter(effect.source, effect.node, when)


def changed(content: Content, effect: Effect) -> Content:
    """Return a file's bytes after an effect on them."""
    operation = effect.operation
    if effect.kind is Kind.STORED and effect.piece:
        return Content.of([effect.piece])
    if effect.kind is Kind.WRITE and effect.piece:
        return content.written(operation.offset, effect.piece)
    if effect.kind is Kind.TRUNCATE:
        return content.truncated(operation.size)
    if effect.kind is Kind.ALLOCATE:
        return _allocated(content, operation)
    return content


def _allocated(content: Content, operation: Operation) -> Content:
    offset, size, mode = operation.offset, operation.size, operation.mode
    if mode & COLLAPSE_RANGE:
        return content.without(offset, size)
    if mode & INSERT_RANGE:
        return content.widened(offset, size)
    end = min(offset + size, content.size) if mode & KEEP_SIZE else offset + size
    if mode & (PUNCH_HOLE | ZERO_RANGE) and end > offset:
        return content.written(offset, zeros(end - offset))
    return content.truncated(max(content.size, end))


def differences(image: Image, folder: Path) -> list[str]:
    """Compare the durable folder of an image with a folder on disk; nothing differs if the recording is complete.

    Returns:
        A sentence for each path that is missing, unexpected or different.

    Raises:
        MachineError: something on disk cannot be read.
    """
    expected = dict(image.below())
    found = dict(Image.load(folder, image.root).below())
    told = [f"{path}: recorded, but not on disk" for path in expected if path not in found]
    told += [f"{path}: on disk, but not recorded" for path in found if path not in expected]
    told += [
        f"{path}: {what}"
        for path, node in expected.items()
        if path in found and (what := _difference(node, found[path]))
    ]
    return sorted(told)


def _difference(recorded: Node, real: Node) -> str:
    if type(recorded) is not type(real):
        return f"recorded as {_noun(recorded)}, on disk {_noun(real)}"
    if isinstance(recorded, Symlink) and isinstance(real, Symlink) and recorded.text != real.text:
        return f"recorded as a link to {recorded.text}, on disk a link to {real.text}"
    if isinstance(recorded, File) and isinstance(real, File):
        return _content_difference(recorded.content, real.content)
    return ""


def _noun(node: Node) -> str:
    return {File: "a file", Folder: "a folder", Symlink: "a symbolic link"}[type(node)]


def _content_difference(recorded: Content, real: Content) -> str:
    if recorded.digest == real.digest:
        return ""
    if recorded.size != real.size:
        return f"{recorded.size} bytes recorded, {real.size} on disk"
    return f"bytes differ ({recorded.size} in all)"
