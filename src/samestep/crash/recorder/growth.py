"""Writes that the kernel was let to carry out: whether files have grown as they must have by now.

A write is logged when its caller is let go, a moment before the bytes are in the file.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

WAITS, PAUSE_SECONDS = 500, 0.0001


@dataclass(slots=True)
class _Expected:
    pid: int
    tid: int
    size: int


class Growth:
    """How long files must be when the writes that were let go are done."""

    def __init__(self) -> None:
        self._expected: dict[int, _Expected] = {}

    def expect(self, inode: int, pid: int, tid: int, size: int) -> None:
        """A thread was let go on a write that makes a file at least ``size`` bytes long."""
        self._expected[inode] = _Expected(pid, tid, size)

    def resize(self, inode: int) -> None:
        """A file was given another size: nothing is expected of it any more."""
        self._expected.pop(inode, None)

    def end(self, inode: int, tid: int, file: bytes) -> int:
        """Return where the next append of ``tid`` goes, once another thread's write to the file is done."""
        size = os.stat(file).st_size
        expected = self._expected.get(inode)
        if expected is not None and expected.tid != tid:
            for _ in range(WAITS):
                if size >= expected.size:
                    break
                time.sleep(PAUSE_SECONDS)
                size = os.stat(file).st_size
        return size

    def fell_short(self, inode: int, pid: int, size: int, *, tid: int | None = None) -> bool:
        """Whether a file of this size lacks bytes that a process, or just one thread of it, has written before."""
        expected = self._expected.get(inode)
        if expected is None or expected.pid != pid or tid not in {None, expected.tid}:
            return False
        del self._expected[inode]
        return size < expected.size
