"""A recording made of looks: what a training process saw under its durable folder, as operations.

What two looks differ in has happened between them, nobody knows in which order; only a file that was about to be
opened for writing, and alone has changed, is known to have been written in place (see `Operation.together`).
"""

from __future__ import annotations

import itertools
import json
import mmap
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from samestep import __version__
from samestep.crash.operations import SEEN, Header, Kind, Operation
from samestep.crash.recording import Recording, RecordingWriter, SpillLimitError
from samestep.probe.looks import CONTENT, LINES, Keeper

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_APPENDED = frozenset({Kind.WRITE})
_IN_PLACE = _APPENDED | {Kind.CREATE, Kind.TRUNCATE}


def recording_of_looks(
    looks: Path, folder: Path, *, final: Path, root: str, command: Sequence[str], steps: int
) -> Recording:
    """Turn the looks of a run into a recording.

    Args:
        looks: folder of the looks; without one the recording is empty and incomplete.
        folder: for the recording.
        final: what the run has left of its durable folder, wherever it lies now.
        root: path of the durable folder as the run saw it.
        command: of the run.
        steps: that the run took; looks that end before the last of them are incomplete.
    """
    writer = RecordingWriter(
        folder, Header(roots=[root], command=list(command), tier=SEEN, version=__version__)
    )
    conversion = _Conversion(writer, root)
    try:
        if (looks / LINES).is_file():
            conversion.convert(looks, final)
    except (OSError, ValueError, SpillLimitError) as error:
        writer.header.notes.append(f"what the probe saw cannot be read, or not kept: {error}")
        conversion.last = 0
    if conversion.last != steps:
        writer.header.notes.append(f"the probe looked until step {conversion.last} of {steps}")
    writer.close(complete=conversion.last == steps)
    return Recording.open(folder)


@dataclass(frozen=True, slots=True)
class _Seen:
    """Something that a look found.

    Attributes:
        kind: ``file``, ``folder`` or ``link``.
        inode: number on its file system.
        content: of a file.
        target: of a link.
    """

    kind: str
    inode: int
    content: memoryview = field(default_factory=lambda: memoryview(b""))
    target: str = ""

    @property
    def identity(self) -> tuple[str, int, str]:
        """What stays the same as long as it is the same thing: a link that says something else is another."""
        return (self.kind, self.inode, self.target)


class _Conversion:
    """Appends to a recording what leads from one look to the next.

    Attributes:
        last: newest step that was seen to be complete.
    """

    def __init__(self, writer: RecordingWriter, root: str) -> None:
        self._writer = writer
        self._root = root
        self._there: dict[str, _Seen] = {}
        self._numbers = itertools.count(1)
        self._inodes: dict[str, int] = {}
        self._held: set[int] = set()
        self._steady = True
        self.last = 0

    def convert(self, looks: Path, final: Path) -> None:
        """Append all looks, and the state at the end.

        Raises:
            OSError, ValueError: the looks cannot be read, or the bytes not kept.
        """
        lines = [json.loads(line) for line in (looks / LINES).read_bytes().split(b"\n")[:-1]]
        self._writer.header.notes += [
            f"the probe looked no further: {line['ended']}" for line in lines if "ended" in line
        ]
        content = _content(looks)
        self._writer.append(Operation(index=0, kind=Kind.MKDIR, path=self._root))
        for line in lines:
            if "mark" in line:
                self.last = line["mark"]
                self._writer.append(Operation(index=0, kind=Kind.MARK, rank=0, step=self.last))
            elif "changed" in line:
                self._look(line, content)
        self._look_at_the_end(looks / "end", final)

    def _look_at_the_end(self, scratch: Path, final: Path) -> None:
        """Compare with what was left: a process that is ended from outside cannot look any more."""
        scratch.mkdir()
        self._steady = True
        Keeper(str(scratch), str(final)).look("")
        content, now = _content(scratch), {}
        for line in (scratch / LINES).read_bytes().splitlines():
            now = {path: _seen(facts, content) for path, facts in json.loads(line)["changed"].items()}
        # a copy has numbers of its own: what has the same name and kind is the same
        known = {path: self._there[path].inode for path in now if path in self._there}
        now = {path: replace(seen, inode=known.get(path, -at)) for at, (path, seen) in enumerate(now.items())}
        self._advance(now, "", ordered=False)

    def _look(self, line: Mapping[str, Any], content: memoryview) -> None:
        now = {path: seen for path, seen in self._there.items() if path not in line["gone"]}
        written = {path: _seen(facts, content) for path, facts in line["changed"].items()}
        self._steady = line["steady"]
        self._advance(now | written, line["opened"])
        self._held |= {seen.inode for seen in written.values() if seen.kind == "file"}
        closed = self._held.difference(line["held"])
        self._held -= closed
        for path, seen in self._there.items():
            if seen.inode in closed:
                closing = self._operation(Kind.CLOSE, path, derived=True)
                closing.together = not self._steady
                self._writer.append(closing)

    def _advance(self, now: dict[str, _Seen], opened: str, *, ordered: bool = True) -> None:
        """Append what leads from the last look to this one, as one group unless its order is known.

        A look during which something went on is no moment: its group has no end before the next one's.
        """
        operations = [*self._moves(now), *self._removals(now), *self._arrivals(now, ordered=ordered)]
        self._there = now
        alone = _written_alone(operations, f"{self._root}/{opened}" if opened else "")
        if not (alone and ordered and self._steady):
            for operation in operations[:-1] if self._steady else operations:
                operation.together = True
        for operation in operations:
            self._writer.append(operation)

    def _moves(self, now: dict[str, _Seen]) -> Iterator[Operation]:
        """Yield renames, of folders first, and let what was there move along."""
        names = {(seen.kind, seen.inode): path for path, seen in now.items()}
        for path, seen in sorted(self._there.items(), key=lambda item: (item[1].kind != "folder", item[0])):
            target = names.get((seen.kind, seen.inode))
            if target is None or path in now or path not in self._there:
                continue
            if target in self._there and seen.kind == "folder":
                continue
            self._there.pop(target, None)
            yield self._operation(Kind.RENAME, path, target=f"{self._root}/{target}")
            for old in [name for name in self._there if name == path or name.startswith(f"{path}/")]:
                moved = target + old[len(path) :]
                self._there[moved] = self._there.pop(old)
                self._inodes[moved] = self._inodes.pop(old)

    def _removals(self, now: dict[str, _Seen]) -> Iterator[Operation]:
        """Yield the removal of what is gone, or has become something else, from the inside out."""
        for path, seen in sorted(self._there.items(), reverse=True):
            if path not in now or now[path].identity != seen.identity:
                yield self._operation(Kind.RMDIR if seen.kind == "folder" else Kind.UNLINK, path)
                del self._there[path], self._inodes[path]

    def _arrivals(self, now: dict[str, _Seen], *, ordered: bool) -> Iterator[Operation]:
        """Yield what is new or was written to, from the outside in."""
        for path, seen in sorted(now.items()):
            before = self._there.get(path)
            if before is None:
                self._inodes[path] = next(self._numbers)
                if seen.kind == "folder":
                    yield self._operation(Kind.MKDIR, path)
                elif seen.kind == "link":
                    yield self._operation(Kind.SYMLINK, path, target=seen.target)
                else:
                    yield self._operation(Kind.CREATE, path)
                    yield from self._written(path, seen.content, 0)
            elif before.content != seen.content:
                kept = len(before.content)
                if not ordered or seen.content[:kept] != before.content:
                    kept = 0
                    yield self._operation(Kind.TRUNCATE, path)
                yield from self._written(path, seen.content, kept)

    def _written(self, path: str, content: memoryview, begin: int) -> Iterator[Operation]:
        if len(content) > begin:
            at, size = self._writer.keep(content[begin:]), len(content) - begin
            yield self._operation(Kind.WRITE, path, offset=begin, at=at, size=size)

    def _operation(self, kind: Kind, path: str, **fields: Any) -> Operation:
        inode = self._inodes.get(path, 0)
        return Operation(index=0, kind=kind, path=f"{self._root}/{path}", inode=inode, rank=0, **fields)


def _seen(facts: list[Any], content: memoryview) -> _Seen:
    kind, inode, *rest = facts
    if kind == "file":
        at, size = rest
        return _Seen(kind, inode, content[at : at + size])
    return _Seen(kind, inode, target=rest[0] if rest else "")


def _written_alone(operations: Sequence[Operation], opened: str) -> bool:
    """Say whether all that happened is that one file was written where it lies, so that it was there in part."""
    kinds = {operation.kind for operation in operations}
    if len({operation.path for operation in operations}) != 1 or not kinds <= _IN_PLACE:
        return False
    return operations[0].path == opened or kinds <= _APPENDED


def _content(looks: Path) -> memoryview:
    """Return the content that looks kept, without reading it into memory."""
    path = looks / CONTENT
    if path.stat().st_size == 0:
        return memoryview(b"")
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
