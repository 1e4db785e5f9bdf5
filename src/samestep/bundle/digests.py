"""The digest scheme: BLAKE3 of a part, or of the BLAKE3 digests of its 16 MiB chunks."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import threading
from typing import TYPE_CHECKING

from blake3 import blake3

from samestep.bundle.errors import DamageError
from samestep.bundle.storage.base import Resting, Written
from samestep.bundle.storage.contents import FileContent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from samestep.bundle.storage.base import Content

    Lender = Callable[[], contextlib.AbstractContextManager[memoryview]]

CHUNK_BYTES = 16 << 20
SLICE_BYTES = 2 << 20
"""Read and digested at a time, while they are in the processor's cache."""
PLAIN = "blake3"
CHUNKED = "blake3-16MiB"
ALGORITHMS = (PLAIN, CHUNKED)

Buffer = bytes | bytearray | memoryview


def digest_chunk(data: Buffer) -> str:
    """Return the BLAKE3 of one chunk as 64 hex digits."""
    return blake3(data).hexdigest()


def read_and_digest(content: Content, offset: int, target: memoryview) -> str:
    """Fill ``target`` with the content from ``offset`` on, and return the BLAKE3 of what is there now.

    Raises:
        OSError: the content cannot be read, or is shorter.
    """
    digest = blake3()
    for begin in range(0, len(target), SLICE_BYTES):
        piece = target[begin : begin + SLICE_BYTES]
        content.read_into(offset + begin, piece)
        digest.update(piece)
    return digest.hexdigest()


@contextlib.contextmanager
def room_for(content: Content, offset: int, length: int, lend: Lender) -> Iterator[memoryview]:
    """Lend memory to read a chunk of ``content`` into: where it lies already, or out of a stock."""
    memory = content.memory if isinstance(content, Resting) else None
    if memory is not None:
        with memory[offset : offset + length] as resting:
            yield resting
        return
    with lend() as buffer:
        yield buffer[:length]


def chunk_count(size: int) -> int:
    """Return how many chunks ``size`` bytes make; nothing at all still is one, empty, chunk."""
    return max(1, -(-size // CHUNK_BYTES))


def chunk_range(number: int, size: int) -> tuple[int, int]:
    """Return where chunk ``number`` of a part of ``size`` bytes begins and how long it is."""
    offset = number * CHUNK_BYTES
    return offset, min(CHUNK_BYTES, size - offset)


def combine(chunks: Sequence[str]) -> tuple[str, str]:
    """Return the algorithm and the digest of a part, from the digest of each of its chunks in order."""
    if len(chunks) == 1:
        return PLAIN, chunks[0]
    return CHUNKED, blake3(b"".join(map(bytes.fromhex, chunks))).hexdigest()


class ChunkDigests:
    """Collects the digests of a part's chunks, in any order and from several threads.

    Args:
        size: of the part, in bytes.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._digests: list[str] = [""] * chunk_count(size)

    def add(self, number: int, data: Buffer) -> str:
        """Digest chunk ``number``, keep its digest and return it."""
        expected = chunk_range(number, self.size)[1]
        if len(data) != expected:
            raise ValueError(f"chunk {number} has {len(data)} bytes instead of {expected}")
        digest = digest_chunk(data)
        self.put(number, digest)
        return digest

    def put(self, number: int, digest: str) -> None:
        """Keep the digest of chunk ``number``."""
        self._digests[number] = digest

    def written(self) -> Written:
        """Return what was stored, once every chunk was added."""
        missing = sum(not digest for digest in self._digests)
        if missing:
            raise ValueError(f"{missing} of {len(self._digests)} chunks were never digested")
        algorithm, digest = combine(self._digests)
        chunks = tuple(self._digests) if algorithm == CHUNKED else ()
        return Written(size=self.size, algorithm=algorithm, digest=digest, chunks=chunks)


def digest_content(content: Content, threads: int = 1, *, buffer: Lender | None = None) -> Written:
    """Digest ``content``, ``threads`` chunks at a time, each thread holding one chunk in memory.

    Args:
        content: what to digest.
        threads: how many at most.
        buffer: lends memory for one chunk, out of a bounded stock; None to give each thread its own.

    Raises:
        OSError: the content cannot be read, or is shorter than it says.
    """
    digests = ChunkDigests(content.size)
    numbers = range(chunk_count(content.size))
    threads = max(1, min(threads, len(numbers)))
    if threads == 1:
        _digest_chunks(content, digests, iter(numbers), buffer)
        return digests.written()
    shared = _Shared(numbers)
    with concurrent.futures.ThreadPoolExecutor(threads, thread_name_prefix="digest") as pool:
        workers = [pool.submit(_digest_chunks, content, digests, shared, buffer) for _ in range(threads)]
    for worker in workers:
        worker.result()
    return digests.written()


def digest_file(path: Path, threads: int = 1) -> Written:
    """Digest a file; see ``digest_content``."""
    return digest_content(FileContent(path), threads)


def verify_chunk(data: Buffer, expected: str, *, what: str) -> None:
    """Compare a chunk with the digest it must have.

    Args:
        data: the chunk's bytes.
        expected: its digest, 64 hex digits.
        what: how a user would name the chunk, for the message.

    Raises:
        DamageError: the bytes are not those that were written.
    """
    check_digest(digest_chunk(data), expected, what=what)


def check_digest(found: str, expected: str, *, what: str) -> None:
    """Compare the digest of a chunk with that which it must have; see ``verify_chunk``."""
    if found != expected:
        raise DamageError(
            f"{what} was changed after it was written: its BLAKE3 is {found[:16]}…, not {expected[:16]}…",
            hint="Select again: an older bundle may be whole. Then check the disk or bucket that holds this one.",
        )


class _Shared:
    """An iterator that several threads may draw from."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self._waiting = collections.deque(numbers)
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[int]:
        while True:
            with self._lock:
                if not self._waiting:
                    return
                number = self._waiting.popleft()
            yield number


def _digest_chunks(
    content: Content, digests: ChunkDigests, numbers: Iterable[int], buffer: Lender | None
) -> None:
    own = memoryview(bytearray(0 if buffer else min(CHUNK_BYTES, content.size)))
    lend: Lender = buffer or (lambda: contextlib.nullcontext(own))
    for number in numbers:
        offset, length = chunk_range(number, content.size)
        with room_for(content, offset, length, lend) as target:
            digests.put(number, read_and_digest(content, offset, target))
