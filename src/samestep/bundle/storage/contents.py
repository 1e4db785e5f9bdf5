"""Things to be stored: bytes in memory, in one piece or several, and files."""

from __future__ import annotations

import bisect
import itertools
import os
from typing import TYPE_CHECKING, Final

from samestep.bundle.storage import system

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Buffer = bytes | bytearray | memoryview

JOINED_BYTES: Final = 256 << 10
"""Small pieces are joined before they are copied, as many as make up so much: a copy less each is not worth a turn."""


class BufferContent:
    """Bytes in memory; several pieces count as one after the other, and none is copied before it is read.

    The pieces are kept as they came. Views of many thousands would have the garbage collector look at every object
    of the process.

    Args:
        pieces: contiguous buffers, of any item type. They must not change until they are stored.

    Raises:
        TypeError: a piece is not contiguous.
    """

    def __init__(self, *pieces: Buffer) -> None:
        sizes = [_size_of(piece) for piece in pieces]
        self._pieces = [piece for piece, size in zip(pieces, sizes, strict=True) if size]
        self._starts = [0, *itertools.accumulate(filter(None, sizes))]
        self.size: int = self._starts[-1]

    def read_into(self, offset: int, target: memoryview) -> None:
        """Fill ``target`` with the bytes from ``offset`` on.

        Raises:
            OSError: there are not enough.
        """
        end = offset + len(target)
        if end > self.size:
            raise OSError(f"{self.size:,} bytes are there, {end:,} were asked for")
        index, at = bisect.bisect_right(self._starts, offset) - 1, offset
        while at < end:
            start = self._starts[index]
            whole = bisect.bisect_right(self._starts, min(end, at + JOINED_BYTES)) - 1 if at == start else 0
            behind = max(whole, index + 1)
            stop = min(end, self._starts[behind])
            target[at - offset : stop - offset] = _joined(self._pieces[index:behind])[
                at - start : stop - start
            ]
            index, at = behind, stop


class FileContent:
    """A file as it is now; that it was replaced, cut or written to since is noticed while it is read.

    Args:
        path: of a regular file. Nothing stays open between reads, so there may be many.

    Raises:
        OSError: it cannot be looked at.
    """

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        seen = system.again(path.stat)
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


def _size_of(piece: Buffer) -> int:
    view = memoryview(piece)
    if not view.contiguous:
        raise TypeError("only contiguous memory can be stored")
    return view.nbytes


def _joined(pieces: Sequence[Buffer]) -> Buffer:
    return memoryview(pieces[0]).cast("B") if len(pieces) == 1 else b"".join(pieces)
