"""Verification of a bundle, on three levels: its manifest, the sizes of its parts, every byte."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import dataclasses
import enum
import functools
from typing import TYPE_CHECKING, TypeVar

from blake3 import blake3

from samestep.bundle.digests import SLICE_BYTES, check_digest, chunk_count, chunk_range, verify_chunk
from samestep.bundle.errors import DamageError, UnreadableError
from samestep.bundle.paths import bundle_folder, part_key, part_path
from samestep.bundle.storage.base import Absent
from samestep.bundle.storage.direct import RING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from samestep.bundle.bundles import Bundle
    from samestep.bundle.digests import Lender
    from samestep.bundle.manifest import Manifest, Part
    from samestep.bundle.storage.base import Storage

Item = TypeVar("Item")
Result = TypeVar("Result")

READERS = 4
"""How many chunks are asked for at once; no more of them are in memory than the process has buffers."""

_SELECT_AGAIN = "select again: an older bundle may be whole"


class Level(enum.StrEnum):
    """How closely a bundle is looked at; each level includes those before it."""

    MANIFEST = "manifest"
    SIZES = "sizes"
    FULL = "full"


@dataclasses.dataclass(frozen=True)
class Fault:
    """Something about a bundle that is not as its manifest says."""

    path: str  #: of the part; empty when it concerns the bundle
    reason: str  #: ``row-open``, ``part-missing``, ``part-unreadable``, ``part-extra``, ``size-`` or ``digest-differs``
    text: str


@dataclasses.dataclass(frozen=True)
class Verification:
    """What was found about a bundle."""

    bundle: str
    level: Level
    faults: tuple[Fault, ...]

    @property
    def holds(self) -> bool:
        """Whether everything that was looked at is as the manifest says."""
        return not self.faults

    @property
    def whole(self) -> bool:
        """Whether every part is what was stored; rows may be open and other files may lie beside the parts."""
        return all(fault.reason in ("row-open", "part-extra") for fault in self.faults)


def verify(
    storage: Storage, bundle: Bundle, level: Level = Level.FULL, *, frugal: bool = False
) -> Verification:
    """Compare what is stored with the manifest of ``bundle``.

    Args:
        storage: the place.
        bundle: to look at.
        level: how closely.
        frugal: with less memory than one chunk has, and more requests: for beside a training.

    Raises:
        StoreError: the place failed, so that nothing can be said.
    """
    faults = [
        Fault("", "row-open", f"nothing says what becomes of {component}")
        for component in bundle.manifest.open_rows
    ]
    if level is not Level.MANIFEST:
        faults += size_faults(storage, bundle.manifest)
        faults += _extra(storage, bundle)
    if level is Level.FULL:
        known = {fault.path for fault in faults}
        with _lender(frugal=frugal) as lend:
            faults += _content_faults(storage, bundle, known, lend)
    return Verification(bundle.id, level, tuple(faults))


def size_faults(storage: Storage, manifest: Manifest) -> list[Fault]:
    """Return every part that is missing or of another size than the manifest says."""
    keys = {part_key(part.stored_in or manifest.id, part.path): part for part in manifest.parts}
    try:
        found = storage.sizes(keys)
    except UnreadableError:
        return [fault for key, part in keys.items() if (fault := _size_fault_alone(storage, key, part))]
    return [fault for key, part in keys.items() if (fault := _size_fault(part, found[key]))]


def _size_fault_alone(storage: Storage, key: str, part: Part) -> Fault | None:
    """Ask for one size where not all can be had: what cannot be looked at is damage of that part alone."""
    try:
        return _size_fault(part, storage.size(key))
    except UnreadableError as error:
        return Fault(part.path, "part-unreadable", error.message)


def _size_fault(part: Part, size: int | None) -> Fault | None:
    if size is None:
        return Fault(part.path, "part-missing", f"{part.path} is missing")
    if size != part.size:
        found = "is truncated" if size < part.size else "is too long"
        text = f"{part.path} {found}: it has {size:,} bytes instead of {part.size:,}"
        return Fault(part.path, "size-differs", text)
    return None


@contextlib.contextmanager
def checked_chunk(storage: Storage, bundle: Bundle, part: Part, number: int) -> Iterator[memoryview]:
    """Read one chunk of a part and lend its bytes, which are those that were written.

    Raises:
        DamageError: they are not, or there are fewer.
        StoreError: the place failed.
    """
    offset, length = chunk_range(number, part.size)
    what = f"{part.path} of {bundle.id}"
    with RING.borrow() as buffer:
        chunk = buffer[:length]
        _read(storage, bundle.key_of(part), offset, chunk, what=what)
        verify_chunk(chunk, _digest_of(part, number), what=what)
        yield chunk


def check_stored(storage: Storage, key: str, part: Part, *, what: str) -> None:
    """Read what is stored under ``key`` once and compare it with ``part``, wherever it is shared from.

    Raises:
        DamageError: they differ.
        StoreError: the place failed.
    """
    with _lender(frugal=True) as lend:
        look = functools.partial(_check_chunk, storage, key, part, lend=lend, what=what)
        collections.deque(in_parallel(look, range(chunk_count(part.size))), maxlen=0)


def _lender(*, frugal: bool) -> contextlib.AbstractContextManager[Lender]:
    """Return what lends the memory that chunks are read into: buffers of one chunk, or of a part of one."""
    return RING.pieces(READERS, SLICE_BYTES) if frugal else contextlib.nullcontext(RING.borrow)


def _check_chunk(storage: Storage, key: str, part: Part, number: int, *, lend: Lender, what: str) -> None:
    """Read one chunk, piece by piece, and compare its digest.

    Raises:
        DamageError: it is not what was written.
        StoreError: the place failed.
    """
    offset, length = chunk_range(number, part.size)
    digest = blake3()
    with lend() as buffer:
        for begin in range(0, length or 1, len(buffer)):
            piece = buffer[: length - begin]
            _read(storage, key, offset + begin, piece, what=what)
            digest.update(piece)
    check_digest(digest.hexdigest(), _digest_of(part, number), what=what)


def _read(storage: Storage, key: str, offset: int, target: memoryview, *, what: str) -> None:
    try:
        storage.read_into(key, offset, target)
    except Absent:
        raise DamageError(f"{what} is missing", hint=_SELECT_AGAIN) from None
    except UnreadableError as error:
        raise DamageError(f"{what} cannot be read: {error.message}", hint=_SELECT_AGAIN) from error


def _digest_of(part: Part, number: int) -> str:
    return (part.chunks or (part.digest,))[number]


def chunks_of(parts: Iterable[Part]) -> Iterator[tuple[Part, int]]:
    """Yield every chunk of every part."""
    for part in parts:
        for number in range(chunk_count(part.size)):
            yield part, number


def in_parallel(
    work: Callable[[Item], Result], items: Iterable[Item], workers: int = READERS
) -> Iterator[Result]:
    """Yield ``work(item)`` for every item in order, with no more than a few of them begun ahead."""
    waiting: collections.deque[concurrent.futures.Future[Result]] = collections.deque()
    with concurrent.futures.ThreadPoolExecutor(workers, thread_name_prefix="parts") as pool:
        try:
            for item in items:
                waiting.append(pool.submit(work, item))
                if len(waiting) > 2 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _extra(storage: Storage, bundle: Bundle) -> list[Fault]:
    """Return what lies in the bundle's folder and is no part of it."""
    known = {bundle.key_of(part) for part in bundle.manifest.parts}
    faults = []
    for entry in storage.entries(bundle_folder(bundle.id)):
        path = part_path(bundle.id, entry.key)
        if path is not None and entry.key not in known:
            faults.append(Fault(path, "part-extra", f"{path} lies in its folder and is no part of it"))
    return sorted(faults, key=lambda fault: fault.path)


def _content_faults(storage: Storage, bundle: Bundle, known: set[str], lend: Lender) -> list[Fault]:
    """Read every part that is not known to be at fault, and return those whose bytes differ."""
    parts = [part for part in bundle.manifest.parts if part.path not in known]

    def look(chunk: tuple[Part, int]) -> Fault | None:
        part, number = chunk
        try:
            key, what = bundle.key_of(part), f"{part.path} of {bundle.id}"
            _check_chunk(storage, key, part, number, lend=lend, what=what)
        except DamageError as error:
            return Fault(part.path, "digest-differs", error.message)
        return None

    return [fault for fault in in_parallel(look, chunks_of(parts)) if fault is not None]
