"""Writes and reads parts past the page cache where the file system allows it.

A part's digest is of the very bytes that are handed over.

Direct writing is two to three times as fast as buffered writing with an fsync, costs a tenth of the
processor time, and leaves the training's page cache alone. Whether a place allows it is found out by the
first write itself: some accept the flag and refuse the write.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import errno
import mmap
import os
import queue
import threading
from typing import TYPE_CHECKING, Final

from samestep.bundle.digests import CHUNK_BYTES, ChunkDigests, chunk_count, chunk_range, read_and_digest
from samestep.bundle.storage import system
from samestep.bundle.storage.base import Resting
from samestep.bundle.storage.failures import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samestep.bundle.digests import Lender
    from samestep.bundle.storage.base import Content, Written

WRITERS: Final = 3
BUFFERS: Final = 3
BLOCK_BYTES: Final = 4096
DIRECT_BYTES: Final = 1 << 20
"""Smaller parts go through the page cache, which gathers them."""
REFUSED: Final = frozenset({errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM})


class Ring:
    """A few page-aligned buffers that every writer of the process shares; they bound the memory of a save.

    They are kept once they were used: fresh memory costs ten times as much as the copy into it.

    Who shares them takes turns at the disk, too. One buffer is enough to keep it busy; of several transfers at once
    all would end together, and the disk then wait until the buffers are filled or digested, together again.

    Attributes:
        turn: to be held during a transfer past the page cache.

    Args:
        count: how many; whoever wants one more waits.
    """

    def __init__(self, count: int = BUFFERS) -> None:
        self._count = count
        self.renew()

    def renew(self) -> None:
        """Forget the buffers, and who holds them: in a forked child nobody will give them back."""
        self._free: queue.LifoQueue[mmap.mmap | None] = queue.LifoQueue()
        for _ in range(self._count):
            self._free.put(None)
        self.turn = threading.Lock()

    @contextlib.contextmanager
    def borrow(self) -> Iterator[memoryview]:
        """Lend a buffer of one chunk."""
        free = self._free
        buffer = free.get()
        try:
            buffer = buffer or aligned(CHUNK_BYTES)
            with memoryview(buffer) as view:
                yield view
        finally:
            free.put(buffer)

    @contextlib.contextmanager
    def pieces(self, count: int, size: int) -> Iterator[Lender]:
        """Borrow one buffer, and lend out so many pieces of it, each to one thread at a time."""
        free: queue.LifoQueue[memoryview] = queue.LifoQueue()

        @contextlib.contextmanager
        def borrow() -> Iterator[memoryview]:
            piece = free.get()
            try:
                yield piece
            finally:
                free.put(piece)

        with self.borrow() as whole:
            for number in range(count):
                free.put(whole[number * size : (number + 1) * size])
            yield borrow


def aligned(size: int) -> mmap.mmap:
    """Return private memory that begins at a page (a shared mapping would be one with a forked child's)."""
    buffer = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError, AttributeError):
        buffer.madvise(mmap.MADV_HUGEPAGE)
    return buffer


RING: Final = Ring()
os.register_at_fork(after_in_child=RING.renew)


def write_content(descriptor: int, content: Content, ring: Ring = RING) -> Written:
    """Write ``content`` into an open, empty file, and return when it is durable, with its digest.

    Raises:
        OSError: the place failed; the file holds anything.
        SourceError: the content could not be read.
    """
    task = _Writing(descriptor, content, ring)
    chunks = chunk_count(content.size)
    if chunks == 1:
        task.work(descriptor)
    else:
        system.reserve(descriptor, content.size)
        _in_threads(task, min(WRITERS, chunks))
    if task.padded:
        system.cut(descriptor, content.size)
    system.sync(descriptor)
    return task.written()


def read_content(descriptor: int, target: memoryview, offset: int, ring: Ring = RING) -> int:
    """Fill ``target`` from ``offset`` on; return how many bytes there were.

    Goes past the page cache when the target is large and begins, like the offset, at a whole block.
    """
    whole = len(target) - len(target) % BLOCK_BYTES
    done = 0
    if whole >= DIRECT_BYTES and _at_a_block(target, offset) and system.set_direct(descriptor, direct=True):
        try:
            with ring.turn:
                done = system.read_all(descriptor, target[:whole], offset)
        except OSError as error:
            if error.errno not in REFUSED:
                raise
        system.set_direct(descriptor, direct=False)
    return done + system.read_all(descriptor, target[done:], offset + done)


def _at_a_block(target: memoryview, offset: int) -> bool:
    return not (offset % BLOCK_BYTES or ctypes.addressof(ctypes.c_char.from_buffer(target)) % BLOCK_BYTES)


def _in_threads(task: _Writing, count: int) -> None:
    """Let ``count`` threads share the chunks; raise what the first that failed raised."""
    with concurrent.futures.ThreadPoolExecutor(count, thread_name_prefix="samestep-part-writer") as pool:
        try:
            workers = [pool.submit(task.work, os.dup(task.descriptor), own=True) for _ in range(count)]
            concurrent.futures.wait(workers)
        except BaseException:
            task.stop()
            raise
    failed = [error for worker in workers if (error := worker.exception())]
    if failed:
        raise failed[0]


class _Writing:
    """One part on its way into one file."""

    def __init__(self, descriptor: int, content: Content, ring: Ring) -> None:
        self.descriptor = descriptor
        self._digests = ChunkDigests(content.size)
        self._content = content
        self._ring = ring
        self._memory = content.memory if isinstance(content, Resting) else None
        self._direct = content.size >= DIRECT_BYTES and system.set_direct(descriptor, direct=True)
        self.padded = self._direct and content.size % BLOCK_BYTES > 0
        self._numbers = iter(range(chunk_count(content.size)))
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Let every thread end after its chunk."""
        self._stopped.set()

    def written(self) -> Written:
        """Return what was written, once all of it is."""
        return self._digests.written()

    def work(self, descriptor: int, *, own: bool = False) -> None:
        """Write chunk after chunk.

        Args:
            descriptor: of the file.
            own: close it at the end. Each thread writes through its own descriptor, which stays good when
                the thread that waits is interrupted and closes the file.
        """
        try:
            while not self._stopped.is_set() and (number := self._next()) is not None:
                self._write(descriptor, number)
        except BaseException:
            self.stop()
            raise
        finally:
            if own:
                system.close(descriptor)

    def _next(self) -> int | None:
        with self._lock:
            return next(self._numbers, None)

    def _write(self, descriptor: int, number: int) -> None:
        offset, length = chunk_range(number, self._content.size)
        with self._chunk(offset, length) as buffer:
            self._digests.put(number, self._gather(offset, buffer[:length]))
            if not (self._direct and self._write_direct(descriptor, buffer, length, offset)):
                _write_buffered(descriptor, buffer[:length], offset)

    @contextlib.contextmanager
    def _chunk(self, offset: int, length: int) -> Iterator[memoryview]:
        """Lend the memory that a chunk is written from: its own if the disk takes it as it lies there."""
        if self._memory is not None and self._direct:
            with self._memory[offset : offset + length] as resting:
                if _at_a_block(resting, offset):
                    yield resting
                    return
        with self._ring.borrow() as buffer:
            yield buffer

    def _gather(self, offset: int, target: memoryview) -> str:
        try:
            return read_and_digest(self._content, offset, target)
        except OSError as error:
            raise SourceError(str(error)) from error

    def _write_direct(self, descriptor: int, buffer: memoryview, length: int, offset: int) -> bool:
        """Write whole blocks.

        False when that is refused, also in the middle: after a short write the rest may begin within a block.
        """
        try:
            with self._ring.turn:
                for begin, blocks in _in_blocks(buffer, length):
                    system.write_all(descriptor, blocks, offset + begin)
        except OSError as error:
            if error.errno not in REFUSED:
                raise
            self._direct = False
            system.set_direct(descriptor, direct=False)
            return False
        return True


def _in_blocks(buffer: memoryview, length: int) -> Iterator[tuple[int, memoryview]]:
    """Yield whole blocks, and where they begin; the last one is filled up with zeros, which are cut off later.

    That is done in the buffer, or beside it if it ends with its content, for what lies behind that is not its own.
    """
    rest = length % BLOCK_BYTES
    whole = length - rest
    if rest and len(buffer) > length:
        buffer[length : whole + BLOCK_BYTES] = bytes(BLOCK_BYTES - rest)
        yield 0, buffer[: whole + BLOCK_BYTES]
        return
    if whole:
        yield 0, buffer[:whole]
    if rest:
        last = memoryview(aligned(BLOCK_BYTES))
        last[:rest] = buffer[whole:length]
        yield whole, last


def _write_buffered(descriptor: int, data: memoryview, offset: int) -> None:
    system.write_all(descriptor, data, offset)
    if len(data) >= DIRECT_BYTES:
        # Starts the writing out now, so that the final fsync has less left to wait for.
        with contextlib.suppress(OSError):
            os.posix_fadvise(descriptor, offset, len(data), os.POSIX_FADV_DONTNEED)
