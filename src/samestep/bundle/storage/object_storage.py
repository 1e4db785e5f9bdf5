"""A bucket, or a part of one, as a place that keeps bytes."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import time
from typing import TYPE_CHECKING, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError

from samestep.bundle.digests import CHUNK_BYTES, ChunkDigests, chunk_count, chunk_range
from samestep.bundle.errors import StoreError, UnreadableError
from samestep.bundle.storage.base import Absent, AlreadyThere, Entry
from samestep.bundle.storage.conditions import conditional_create_honoured
from samestep.bundle.storage.failures import SourceError
from samestep.bundle.storage.object_errors import (
    FAILURES,
    container_is_missing,
    is_about_range,
    may_be_repeated,
    place_failed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from obstore.store import ObjectStore

    from samestep.bundle.storage.base import Content, Written
    from samestep.bundle.storage.object_uploads import UnfinishedUploads

Answer = TypeVar("Answer")

PARALLEL_REQUESTS = 16
"""Small requests at once: they wait for the network, and a round of the head search has as many."""

PIECE_BYTES = 8 << 20
"""Of a multipart upload. Above S3's least (5 MiB), and two of them make a chunk of the digest."""

FLYING_BYTES = 32 << 20
"""Of pieces on their way. With the chunk that is read and two pieces in the making, memory stays below 64 MiB."""

MOST_PIECES = 10_000
"""Of one upload, on S3 and on GCS; a larger part is cut into larger pieces."""

READ_BYTES = 16 << 20
"""Of one ranged read: a request must end within its time limit."""

REMOVED_AT_ONCE = 1000
"""What one bulk deletion of S3 takes."""

CREATE_TRIES = 4
"""A name that is said to be taken and is not: two puts met (409 of S3), and neither may have won."""

CONFLICT_SECONDS = 0.2


class ObjectStorage:
    """Keeps bytes as objects below one prefix of a bucket.

    Args:
        url: the address as a user would name it, without secrets.
        store: the client, which retries by itself what it knows to be safe to repeat.
        pauses: seconds to wait before each retry of what the client leaves at one try. All that is asked for here is
            safe to repeat: whoever creates reads back, and nobody else writes under the name of a part.
        uploads: what a dead process left of its uploads, where the place is one of S3.
    """

    def __init__(
        self,
        url: str,
        store: ObjectStore,
        pauses: Sequence[float] = (),
        uploads: UnfinishedUploads | None = None,
    ) -> None:
        self.url = url
        self.uploads = uploads
        self._store = store
        self._pauses = tuple(pauses)
        self._pool = concurrent.futures.ThreadPoolExecutor(PARALLEL_REQUESTS, thread_name_prefix="objects")

    @functools.cached_property
    def honours_conditional_create(self) -> bool:
        """Whether the place keeps a name that it was told to keep; asked once."""
        return conditional_create_honoured(self)

    def create(self, key: str, data: bytes) -> None:
        """Store ``data`` under ``key`` in one conditional put.

        The client tries again when a reply is lost, and then finds its own object: ``AlreadyThere`` may mean
        success, which the caller sees by reading back.

        Raises:
            AlreadyThere: the name is taken.
            StoreError: the place failed; whether the name now exists is unknown.
        """
        for _ in range(CREATE_TRIES):
            with self._translated(f"creating {key}"):
                try:
                    self._repeated(
                        lambda: obstore.put(self._store, key, data, mode="create", use_multipart=False)
                    )
                except AlreadyExistsError:
                    pass
                else:
                    return
            if self.size(key) is not None:
                raise AlreadyThere(key)
            time.sleep(CONFLICT_SECONDS)
        raise StoreError(
            f"{self.url}: {key} could not be created: the place says the name is taken, and shows nothing there",
            hint="Another writer may be at work on the same name; try again.",
        )

    def read(self, key: str, *, limit: int) -> bytes:
        """Return what is stored under ``key``.

        Raises:
            Absent: there is nothing.
            StoreError: the place failed, or holds more than ``limit`` bytes.
        """
        with self._translated(f"reading {key}"), _absent(key):
            answer = obstore.get(self._store, key)
            size = answer.meta["size"]
            if size > limit:
                raise StoreError(f"{self.url}: {key} has {size} bytes; {limit} are the most it may have")
            data = bytes(answer.bytes())
        if len(data) != size:
            raise StoreError(f"{self.url}: only {len(data)} of the {size} bytes of {key} arrived")
        return data

    def size(self, key: str) -> int | None:
        """Return the stored size in bytes, or None when there is nothing."""
        with self._translated(f"looking for {key}"):
            try:
                return obstore.head(self._store, key)["size"]
            except FileNotFoundError as error:
                if container_is_missing(error):
                    raise
                return None

    def sizes(self, keys: Iterable[str]) -> dict[str, int | None]:
        """Return the sizes of several keys, asked for in parallel."""
        wanted = list(keys)
        return dict(zip(wanted, self._pool.map(self.size, wanted), strict=True))

    def write(self, key: str, content: Content) -> Written:
        """Store a large thing, in pieces when it is larger than one, and digest it in the same pass.

        Nothing is visible under ``key`` before all of it is there. A failed upload is taken back; one whose
        process dies leaves its pieces behind, see ``discard_unfinished``. Needs at most 64 MiB of memory up
        to a size of 78 GiB, from where on S3's limit of 10,000 pieces makes them larger.

        Raises:
            StoreError: the place failed, or the content cannot be read.
        """
        try:
            with self._translated(f"writing {key}"):
                return self._repeated(lambda: self._write(key, content))
        except SourceError as error:
            raise StoreError(f"{self.url}: what should become {key} cannot be read: {error}") from error

    def settle(self, keys: Iterable[str]) -> None:
        """Return at once: an object store answers a put when the object is durable."""

    def read_into(self, key: str, offset: int, target: memoryview) -> None:
        """Fill ``target`` from ``offset`` on.

        Raises:
            Absent: there is nothing.
            UnreadableError: the thing is shorter.
            StoreError: the place failed.
        """
        if not len(target):
            self._require(key, offset)
        for start in range(0, len(target), READ_BYTES):
            self._read_range(key, offset + start, target[start : start + READ_BYTES])

    def share(self, source: str, target: str) -> bool:  # noqa: ARG002 - the seam's names
        """Return False: an object cannot have two names; the manifest says where a shared part is stored."""
        return False

    def remove(self, keys: Iterable[str]) -> None:
        """Remove what is there, many at once where the place can."""
        wanted = list(keys)
        for start in range(0, len(wanted), REMOVED_AT_ONCE):
            self._remove_batch(wanted[start : start + REMOVED_AT_ONCE])

    def entries(self, prefix: str) -> Iterator[Entry]:
        """Yield what is stored below ``prefix``, a page of the listing at a time."""
        seen: set[str] = set()
        pauses = iter(self._pauses)
        with self._translated(f"listing {prefix}"):
            while True:
                try:
                    yield from self._listed(prefix, seen)
                except FAILURES as error:
                    self._pause_or_raise(error, pauses)
                else:
                    return

    def discard_unfinished(self, prefix: str, older_than: float) -> int:
        """Abort what dead processes left of their uploads, where it can be listed: on S3, if boto3 is installed.

        It is invisible and no part of any bundle, and it costs its storage. Azure drops uncommitted blocks after a
        week by itself; S3 and GCS do so by a lifecycle rule of the bucket (AbortIncompleteMultipartUpload). Uploads
        that fail while their process lives are taken back.
        """
        if self.uploads is None or not self.uploads.reachable:
            return 0
        try:
            return self.uploads.abort(prefix, older_than)
        except StoreError:  # no bundle needs it, and doctor --storage says why
            return 0

    def free_bytes(self) -> int | None:
        """Return None: a bucket has no size that could be asked for."""
        return None

    def _repeated(self, ask: Callable[[], Answer]) -> Answer:
        """Return what ``ask`` returns, called again where the client leaves it at one try."""
        pauses = iter(self._pauses)
        while True:
            try:
                return ask()
            except FAILURES as error:
                self._pause_or_raise(error, pauses)

    def _pause_or_raise(self, error: Exception, pauses: Iterator[float]) -> None:
        pause = next(pauses, None) if may_be_repeated(error) else None
        if pause is None:
            raise error
        time.sleep(pause)

    @contextlib.contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        try:
            yield
        except FAILURES as error:
            # Without its cause: the client's own text may repeat what was signed.
            raise place_failed(f"{self.url}: {doing}", error) from None

    def _write(self, key: str, content: Content) -> Written:
        digests = ChunkDigests(content.size)
        pieces, piece = _pieces(content, digests), piece_bytes(content.size)
        if content.size <= piece:
            obstore.put(self._store, key, b"".join(pieces), use_multipart=False)
        else:
            flying = max(1, FLYING_BYTES // piece)
            obstore.put(self._store, key, pieces, chunk_size=piece, max_concurrency=flying)
        return digests.written()

    def _listed(self, prefix: str, seen: set[str]) -> Iterator[Entry]:
        """Yield what a listing shows that is not among ``seen``, and note it there."""
        for page in obstore.list(self._store, prefix.rstrip("/") or None, chunk_size=1000):
            for found in page:
                if found["path"] not in seen:
                    seen.add(found["path"])
                    yield Entry(found["path"], found["size"], found["last_modified"].timestamp())

    def _require(self, key: str, least: int) -> None:
        size = self.size(key)
        if size is None:
            raise Absent(key)
        if size < least:
            raise UnreadableError(f"{self.url}: {key} has {size} bytes, and {least} were expected")

    def _read_range(self, key: str, offset: int, target: memoryview) -> None:
        end = offset + len(target)
        with self._translated(f"reading {key}"), _absent(key):
            try:
                data = memoryview(obstore.get_range(self._store, key, start=offset, end=end))
            except FAILURES as error:
                if is_about_range(error):
                    self._require(key, end)
                raise
        if len(data) != len(target):
            self._require(key, end)
            raise StoreError(f"{self.url}: only {len(data)} of {len(target)} bytes of {key} arrived")
        target[:] = data

    def _remove_batch(self, keys: list[str]) -> None:
        """Remove in bulk; where an absent name fails the whole of it, one by one."""
        with self._translated("removing objects"):
            try:
                self._repeated(lambda: obstore.delete(self._store, keys))
            except FileNotFoundError as error:
                if container_is_missing(error):
                    raise
            else:
                return
            list(self._pool.map(self._remove_one, keys))

    def _remove_one(self, key: str) -> None:
        with self._translated(f"removing {key}"), contextlib.suppress(FileNotFoundError):
            self._repeated(lambda: obstore.delete(self._store, key))


def piece_bytes(size: int) -> int:
    """Return how large the pieces of an upload of ``size`` bytes are."""
    piece = PIECE_BYTES
    while piece * MOST_PIECES < size:
        piece *= 2
    return piece


def _pieces(content: Content, digests: ChunkDigests) -> Iterator[bytes]:
    """Yield the content once, digested; every piece is a copy, for it may still be on its way."""
    chunk = memoryview(bytearray(min(CHUNK_BYTES, content.size)))
    for number in range(chunk_count(content.size)):
        offset, length = chunk_range(number, content.size)
        try:
            content.read_into(offset, chunk[:length])
        except OSError as error:
            raise SourceError(str(error)) from error
        digests.add(number, chunk[:length])
        for start in range(0, length, PIECE_BYTES):
            yield bytes(chunk[start : min(start + PIECE_BYTES, length)])


@contextlib.contextmanager
def _absent(key: str) -> Iterator[None]:
    """Turn the client's answer that there is no such object into the seam's."""
    try:
        yield
    except FileNotFoundError as error:
        if container_is_missing(error):
            raise
        raise Absent(key) from None
