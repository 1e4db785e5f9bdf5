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
from samestep.crash.operations import Header, Kind, Operation
from samestep.crash.recording import Recording, RecordingWriter
from samestep.probe.looks import CONTENT, LINES, Keeper

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

PROBE = "probe"
"""Tier of a recording that is made of looks."""

_APPENDED = frozenset({Kind.WRITE})
_IN_PLACE = _APPENDED | {Kind.CREATE, Kind.TRUNCATE}


def recording_of_looks(
    looks: Path, folder: Path, *, final: Path, root: str, command: Sequence[str]
) -> Recording:
    """Turn the looks of a run into a recording.

    Args:
        looks: folder of the looks; without one the recording is empty and incomplete.
        folder: for the recording.
        final: what the run has left of its durable folder, wherever it lies now.
        root: path of the durable folder as the run saw it.
        command: of the run.
    """
    writer = RecordingWriter(
        folder, Header(roots=[root], command=list(command), tier=PROBE, version=__version__)
    )
    complete = False
    if (looks / LINES).is_file():
        complete = _Conversion(writer, root).convert(looks, final)
    else:
        writer.header.notes.append("no process of rank 0 was seen to complete a step")
    writer.close(complete=complete)
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


class _Conversion:
    """Appends to a recording what leads from one look to the next."""

    def __init__(self, writer: RecordingWriter, root: str) -> None:
        self._writer = writer
        self._root = root
        self._there: dict[str, _Seen] = {}
        self._numbers = itertools.count(1)
        self._inodes: dict[str, int] = {}
        self._held: set[int] = set()

    def convert(self, looks: Path, final: Path) -> bool:
        """Append all looks, and the state at the end; whether the looks went on until the end."""
        lines = [json.loads(line) for line in (looks / LINES).read_bytes().split(b"\n")[:-1]]
        ended = [line["ended"] for line in lines if "ended" in line]
        self._writer.header.notes += [f"the probe looked no further: {reason}" for reason in ended]
        content = _content(looks)
        self._writer.append(Operation(index=0, kind=Kind.MKDIR, path=self._root))
        for line in lines:
            if "mark" in line:
                self._writer.append(Operation(index=0, kind=Kind.MARK, rank=0, step=line["mark"]))
            elif "changed" in line:
                self._look(line, content)
        if not ended:
            self._look_at_the_end(looks / "end", final)
        return not ended

    def _look_at_the_end(self, scratch: Path, final: Path) -> None:
        """Compare with what was left: a process that is ended from outside cannot look any more."""
        scratch.mkdir()
        Keeper(str(scratch), str(final)).look("")
        content, now = _content(scratch), {}
        for line in (scratch / LINES).read_bytes().splitlines():
            now = {path: _seen(facts, content) for path, facts in json.loads(line)["changed"].items()}
        # a copy has numbers of its own: what has the same name and kind is the same
        known = {path: self._there[path].inode for path in now if path in self._there}
        self._advance(
            {path: replace(seen, inode=known.get(path, -at)) for at, (path, seen) in enumerate(now.items())},
            "",
        )

    def _look(self, line: Mapping[str, Any], content: memoryview) -> None:
        now = {path: seen for path, seen in self._there.items() if path not in line["gone"]}
        written = {path: _seen(facts, content) for path, facts in line["changed"].items()}
        self._advance(now | written, line["opened"])
        self._held |= {seen.inode for seen in written.values() if seen.kind == "file"}
        closed = self._held.difference(line["held"])
        self._held -= closed
        for path, seen in self._there.items():
            if seen.inode in closed:
                self._writer.append(self._operation(Kind.CLOSE, path, derived=True))

    def _advance(self, now: dict[str, _Seen], opened: str) -> None:
        """Append what leads from the last look to this one, as one group unless its order is known."""
        operations = [*self._moves(now), *self._removals(now), *self._arrivals(now)]
        self._there = now
        if not _written_alone(operations, f"{self._root}/{opened}" if opened else ""):
            for operation in operations[:-1]:
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
            stays = path in now and (now[path].kind, now[path].inode) == (seen.kind, seen.inode)
            if not stays:
                yield self._operation(Kind.RMDIR if seen.kind == "folder" else Kind.UNLINK, path)
                del self._there[path], self._inodes[path]

    def _arrivals(self, now: dict[str, _Seen]) -> Iterator[Operation]:
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
                if seen.content[:kept] != before.content:
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
