"""File contents put together from ranges of other files: values, cheap to change, equal when their bytes are."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import xxhash

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PAGE_BYTES = 4096
CHUNK_BYTES = 1 << 20  # digests are taken chunk by chunk, so that an append reads no more than its own chunk


class Source(Protocol):
    """Where bytes lie, for example a recording."""

    def read(self, at: int, size: int) -> bytes:
        """Return ``size`` bytes from position ``at``."""


@dataclass(frozen=True, slots=True, eq=False)
class BaseFile:
    """A file on disk that nobody changes as long as contents refer to it; equal to itself only."""

    path: str

    def read(self, at: int, size: int) -> bytes:
        """Return ``size`` bytes from position ``at``, fewer at its end."""
        file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(file, size, at)
        finally:
            os.close(file)


class Piece(NamedTuple):
    """A range of bytes of a source; without a source, zeros."""

    source: Source | None
    at: int
    size: int

    def part(self, start: int, end: int) -> Piece:
        """Return bytes ``start`` up to ``end`` of this piece."""
        return Piece(self.source, self.at + start if self.source else 0, end - start)

    def read(self) -> bytes:
        """Return its bytes."""
        return self.source.read(self.at, self.size) if self.source else bytes(self.size)


def zeros(size: int) -> Piece:
    """Return that many zero bytes."""
    return Piece(None, 0, size)


@dataclass(frozen=True, slots=True)
class Content:
    """The bytes of a file.

    Attributes:
        pieces: in order, none empty, no two neighbours that could be one.
        size: bytes.
    """

    pieces: tuple[Piece, ...] = ()
    size: int = 0

    @classmethod
    def of(cls, pieces: Iterable[Piece]) -> Content:
        """Put pieces together."""
        joined: list[Piece] = []
        for piece in pieces:
            if joined and _touch(joined[-1], piece):
                joined[-1] = joined[-1]._replace(size=joined[-1].size + piece.size)
            elif piece.size:
                joined.append(piece)
        return cls(tuple(joined), sum(piece.size for piece in joined))

    def between(self, start: int, end: int) -> Iterator[Piece]:
        """Yield the pieces of bytes ``start`` up to ``end``; zeros past the end."""
        position = 0
        for piece in self.pieces:
            low, high = max(start - position, 0), min(end - position, piece.size)
            if low < high:
                yield piece.part(low, high)
            position += piece.size
            if position >= end:
                return
        missing = end - max(start, position)
        if missing > 0:
            yield zeros(missing)

    def written(self, offset: int, piece: Piece) -> Content:
        """Return it with a piece written at ``offset``."""
        if offset == self.size:
            if self.pieces and _touch(self.pieces[-1], piece):
                last = self.pieces[-1]._replace(size=self.pieces[-1].size + piece.size)
                return Content((*self.pieces[:-1], last), self.size + piece.size)
            return Content((*self.pieces, piece), self.size + piece.size) if piece.size else self
        if not piece.size:
            return self
        end = offset + piece.size
        rest = self.between(end, self.size) if end < self.size else ()
        return Content.of([*self.between(0, offset), piece, *rest])

    def truncated(self, size: int) -> Content:
        """Return it cut or filled up with zeros to ``size``."""
        return self if size == self.size else Content.of(self.between(0, size))

    def without(self, offset: int, size: int) -> Content:
        """Return it with a range taken out, what follows moving up."""
        after = min(offset + size, self.size)
        return Content.of([*self.between(0, min(offset, self.size)), *self.between(after, self.size)])

    def widened(self, offset: int, size: int) -> Content:
        """Return it with zeros put in at ``offset``, what follows moving back."""
        return Content.of([*self.between(0, offset), zeros(size), *self.between(offset, self.size)])

    def until(self, end: int, rest: Content) -> Content:
        """Return the first ``end`` bytes of this content, then those of another from there on."""
        end = min(end, self.size)
        after = rest.between(end, rest.size) if rest.size > end else ()
        return Content.of([*self.between(0, end), *after])

    def read(self, start: int = 0, end: int | None = None) -> bytes:
        """Return bytes ``start`` up to ``end``, by default all."""
        end = self.size if end is None else min(end, self.size)
        return b"".join(piece.read() for piece in self.between(start, end)) if start < end else b""

    @property
    def digest(self) -> bytes:
        """16 bytes (xxh3-128 over chunks), the same for the same bytes however they are put together."""
        return _digest(self)


def _touch(first: Piece, second: Piece) -> bool:
    if first.source is not second.source:
        return False
    return first.source is None or first.at + first.size == second.at


@functools.lru_cache(maxsize=1 << 16)
def _digest(content: Content) -> bytes:
    digest = xxhash.xxh3_128(content.size.to_bytes(8, "little"))
    for chunk in _chunks(content):
        digest.update(_chunk_digest(chunk))
    return digest.digest()


def _chunks(content: Content) -> Iterator[tuple[Piece, ...]]:
    """Yield the pieces of every chunk, in one pass over them."""
    chunk: list[Piece] = []
    room = CHUNK_BYTES
    for whole in content.pieces:
        piece = whole
        while piece.size >= room:
            yield (*chunk, piece.part(0, room))
            piece, chunk, room = piece.part(room, piece.size), [], CHUNK_BYTES
        if piece.size:
            chunk.append(piece)
            room -= piece.size
    if chunk:
        yield tuple(chunk)


@functools.lru_cache(maxsize=1 << 16)
def _chunk_digest(chunk: tuple[Piece, ...]) -> bytes:
    return xxhash.xxh3_128_digest(b"".join(piece.read() for piece in chunk))
