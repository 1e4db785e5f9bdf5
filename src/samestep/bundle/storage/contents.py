"""Things to be stored: bytes in memory, in one piece or several, and files."""

from __future__ import annotations

import bisect
import itertools
import os
from typing import TYPE_CHECKING

from samestep.bundle.storage import system

if TYPE_CHECKING:
    from pathlib import Path

Buffer = bytes | bytearray | memoryview


class BufferContent:
    """Bytes in memory; several pieces count as one after the other, and none is copied before it is read.

    Args:
        pieces: contiguous buffers, of any item type. They must not change until they are stored.

    Raises:
        TypeError: a piece is not contiguous.
    """

    def __init__(self, *pieces: Buffer) -> None:
        views = [memoryview(piece) for piece in pieces]
        self._views = [view.cast("B") for view in views if view.nbytes]
        self._starts = [0, *itertools.accumulate(view.nbytes for view in self._views)]
        self.size: int = self._starts[-1]

    def read_into(self, offset: int, target: memoryview) -> None:
        """Fill ``target`` with the bytes from ``offset`` on.

        Raises:
            OSError: there are not enough.
        """
        if offset + len(target) > self.size:
            raise OSError(f"{self.size:,} bytes are there, {offset + len(target):,} were asked for")
        index, done = bisect.bisect_right(self._starts, offset) - 1, 0
        while done < len(target):
            begin = offset + done - self._starts[index]
            piece = self._views[index][begin : begin + len(target) - done]
            _copy(piece, target[done : done + len(piece)])
            done += len(piece)
            index += 1


class FileContent:
    """A file as it is now; that it was replaced, cut or written to since is noticed while it is read.

    Args:
        path: of a regular file. Nothing stays open between reads, so there may be many.

    Raises:
        OSError: it cannot be looked at.
    """

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        seen = path.stat()
        self._seen = _state(seen)
        self.size = seen.st_size

    def read_into(self, offset: int, target: memoryview) -> None:
        """Fill ``target`` with the bytes from ``offset`` on.

        Raises:
            OSError: the file cannot be read, or is no longer the one that was looked at.
        """
        descriptor = system.open_file(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            count = system.read_all(descriptor, target, offset)
            unchanged = _state(os.fstat(descriptor)) == self._seen
        finally:
            system.close(descriptor)
        if count < len(target) or not unchanged:
            raise OSError(f"{self._path} changed while it was being stored")


def _state(seen: os.stat_result) -> tuple[int, ...]:
    return seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns


def _copy(source: memoryview, target: memoryview) -> None:
    target[:] = source
