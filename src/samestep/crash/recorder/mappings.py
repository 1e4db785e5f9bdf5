"""Files that processes store to through shared memory: nothing reports those stores, so the content is looked at."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from samestep.crash.recorder.paths import Key


@dataclass(slots=True)
class Mapping:
    """A file that is mapped shared and writable.

    Attributes:
        inode: its number in the recording.
        key: its number in the kernel.
        descriptor: open for reading, so that it can be looked at when it has no name any more.
        pids: processes that map it.
        stored: position and size of the content that was logged last.
    """

    inode: int
    key: Key
    descriptor: int
    pids: set[int] = field(default_factory=set)
    stored: tuple[int, int] | None = None


class Mappings:
    """All such files that are mapped now.

    Attributes:
        by_inode: by recording-wide number.
    """

    def __init__(self) -> None:
        self.by_inode: dict[int, Mapping] = {}

    def begin(self, inode: int, key: Key, pid: int, file: bytes) -> None:
        """Remember that a process maps a file, which can be opened at ``file`` now."""
        mapping = self.by_inode.get(inode)
        if mapping is None:
            mapping = self.by_inode[inode] = Mapping(inode, key, os.open(file, os.O_RDONLY))
        mapping.pids.add(pid)

    def of(self, pid: int) -> list[Mapping]:
        """Return what a process maps."""
        return [mapping for mapping in self.by_inode.values() if pid in mapping.pids]

    def left_by(self, pid: int) -> list[Mapping]:
        """Return the mappings that a process has given up; after the next call they are forgotten."""
        self._drop_unused()
        mine = self.of(pid) if self.by_inode else []
        if not mine:
            return []
        present = {area.number for area in areas(pid)}
        left = [mapping for mapping in mine if mapping.key[1] not in present]
        for mapping in left:
            mapping.pids.discard(pid)
        return left

    def end(self, pid: int) -> None:
        """Forget a process."""
        for mapping in self.of(pid):
            mapping.pids.discard(pid)
        self._drop_unused()

    def _drop_unused(self) -> None:
        for mapping in [mapping for mapping in self.by_inode.values() if not mapping.pids]:
            os.close(mapping.descriptor)
            del self.by_inode[mapping.inode]


@dataclass(slots=True)
class Area:
    """One line of ``/proc/PID/maps`` that is a shared, writable mapping of a file.

    The device is left out: some file systems show another one there than stat(2) does.
    """

    start: int
    end: int
    number: int


def areas(pid: int) -> list[Area]:
    """Return the shared writable file mappings of a process; none when it is gone."""
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            lines = [line.split(None, 5) for line in file if b"s " in line]
    except OSError:
        return []
    return [
        _area(line[0], line[4])
        for line in lines
        if line[1][1:2] == b"w" and line[1].endswith(b"s") and line[4] != b"0"
    ]


def _area(addresses: bytes, number: bytes) -> Area:
    start, _, end = addresses.partition(b"-")
    return Area(int(start, 16), int(end, 16), int(number))
