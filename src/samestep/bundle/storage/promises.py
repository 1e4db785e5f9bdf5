"""Measures what a place promises, before a run rests on it: nothing is believed that can be tried."""

from __future__ import annotations

import concurrent.futures
import contextlib
import enum
import secrets
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from samestep.bundle.errors import StoreError
from samestep.bundle.storage import system
from samestep.bundle.storage.base import Absent, AlreadyThere
from samestep.bundle.storage.beneath import opened
from samestep.bundle.storage.conditions import PROBE_FOLDER, conditional_create_honoured
from samestep.bundle.storage.contents import BufferContent
from samestep.bundle.storage.direct import BLOCK_BYTES, DIRECT_BYTES, REFUSED, Ring
from samestep.bundle.storage.disks import INSTANCE_STORE, LAYERS, MEMORY, keeper_of
from samestep.bundle.storage.failures import told
from samestep.bundle.storage.local import LocalStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from samestep.bundle.storage.base import Storage
    from samestep.bundle.storage.disks import Keeper

MIB: Final = 1 << 20
GIB: Final = 1 << 30
PIECE_BYTES: Final = 16 << 20
PIECES: Final = 4
RACERS: Final = 8
ROUNDS: Final = 3
SCARCE_BYTES: Final = 5 * GIB
IGNORED_SYNC_SECONDS: Final = 5e-6
"""No disk answers an fsync of new bytes as quickly: something in between drops it."""


class Kept(enum.Enum):
    """How a place stands to one promise."""

    YES = "yes"
    WARN = "warn"  #: the store works there, and its user should know this
    NO = "no"  #: a store there could lose or mix bundles


class Promise(NamedTuple):
    """One thing that was tried."""

    name: str
    found: str
    kept: Kept
    meaning: str


def measure(storage: Storage, *, scratch: Path | None = None) -> Iterator[Promise]:
    """Try what a store needs of a place, and leave nothing there.

    Writes 64 MiB below a folder of its own, so the place must be one where a store may be.

    Args:
        storage: the place.
        scratch: a folder on the disk that goes with the machine; its temporary folder when left out.
    """
    here = f"{PROBE_FOLDER}{secrets.token_hex(8)}/"
    tries: dict[str, Callable[[], Promise]] = {}
    if isinstance(storage, LocalStorage):
        folder = storage.root / here
        tries["failure domain"] = lambda: _domain(storage.root, scratch or Path(tempfile.gettempdir()))
        tries["fsync"] = lambda: _fsync(folder)
        tries["names"] = lambda: _names(folder)
        tries["direct writing"] = lambda: _direct(folder)
    else:
        tries["failure domain"] = lambda: _remote_domain(storage)
    tries["one name, one writer"] = lambda: _conditional(storage, here)
    tries["records"] = lambda: _records(storage, here)
    tries["parts"] = lambda: _parts(storage, here)
    tries["sharing"] = lambda: _sharing(storage, here)
    tries["listing"] = lambda: _listing(storage, here)
    tries["removing"] = lambda: _removing(storage, here)
    if not isinstance(storage, LocalStorage):
        tries["abandoned uploads"] = lambda: _uploads(storage, here)
    tries["room"] = lambda: _room(storage)
    with _traceless(storage, here):
        for name, attempt in tries.items():
            yield _tried(name, attempt)


def _tried(name: str, attempt: Callable[[], Promise]) -> Promise:
    try:
        return attempt()
    except StoreError as error:
        return Promise(name, "failed", Kept.NO, error.message)


@contextlib.contextmanager
def _traceless(storage: Storage, here: str) -> Iterator[None]:
    """Remove whatever was tried with, and the folders that came into being for it."""
    folders = [storage.root, *storage.root.parents] if isinstance(storage, LocalStorage) else []
    made = [folder for folder in folders if not folder.exists()]
    try:
        if isinstance(storage, LocalStorage):
            storage.create(f"{here}begun", b"")
        yield
    finally:
        with contextlib.suppress(StoreError):
            storage.discard_unfinished(here, time.time() + 1)
            storage.remove([entry.key for entry in storage.entries(here)])
        for folder in made:
            with contextlib.suppress(OSError):
                folder.rmdir()


def _remote_domain(storage: Storage) -> Promise:
    if storage.url.startswith("memory:"):
        return Promise(
            "failure domain", "memory", Kept.WARN, "goes when this process ends: for trying things out"
        )
    return Promise("failure domain", storage.url, Kept.YES, "outlives the machine that trains")


def _domain(root: Path, scratch: Path) -> Promise:
    keeper = keeper_of(root)
    found = " on ".join([keeper.kind, ", ".join(sorted(keeper.disks))] if keeper.disks else [keeper.kind])
    danger = _danger(keeper, keeper_of(scratch), scratch)
    if danger:
        advice = "keep the store on a network file system or in an object store, or copy it there"
        return Promise("failure domain", found, Kept.WARN, f"{danger}: {advice}")
    return Promise("failure domain", found, Kept.YES, "another disk than the machine's scratch")


def _danger(keeper: Keeper, scratch: Keeper, folder: Path) -> str:
    """Say what would take the store along, or nothing."""
    if keeper.kind in MEMORY:
        return "this is memory, gone with the machine"
    if keeper.kind in LAYERS:
        return "this is the container's own layer, gone with the container"
    if INSTANCE_STORE in keeper.models:
        return "this disk is emptied when the machine stops"
    if keeper.same_as(scratch) and not keeper.shared:
        return f"the machine's scratch ({folder}) is on the same disk, and both go with it"
    return ""


def _fsync(folder: Path) -> Promise:
    seconds = statistics.median(_sync_seconds(folder / f"sync-{turn}") for turn in range(5))
    found = f"{seconds * 1000:.2f} ms"
    if seconds < IGNORED_SYNC_SECONDS and keeper_of(folder).kind not in MEMORY:
        meaning = "too quick to be true: something drops it, and a power cut can take committed bundles"
        return Promise("fsync", found, Kept.WARN, meaning)
    return Promise("fsync", found, Kept.YES, "for 4 KiB in a new file")


def _sync_seconds(path: Path) -> float:
    with told("sync", str(path)), _new_file(path) as descriptor:
        system.write_all(descriptor, memoryview(bytes(BLOCK_BYTES)), 0)
        started = time.perf_counter()
        system.sync(descriptor)
        return time.perf_counter() - started


def _names(folder: Path) -> Promise:
    with told("take a name in", str(folder)), opened(folder) as descriptor:
        with _new_file(folder / "old"):
            pass
        try:
            system.link("old", "linked", descriptor, descriptor)
        except OSError as refused:
            system.rename_if_free("old", "renamed", descriptor)
            return Promise(
                "names", "renamed", Kept.YES, f"taken if free, in one act (links: {refused.strerror})"
            )
        return Promise("names", "linked", Kept.YES, "taken if free, in one act")


def _direct(folder: Path) -> Promise:
    path = folder / "direct"
    with told("write", str(path)), _new_file(path) as descriptor, Ring(1).borrow() as buffer:
        accepted = system.set_direct(descriptor, direct=True)
        try:
            system.write_all(descriptor, buffer[:DIRECT_BYTES], 0)
        except OSError as error:
            if error.errno not in REFUSED:
                raise
            accepted = False
    if accepted:
        return Promise("direct writing", "yes", Kept.YES, "parts go past the page cache")
    return Promise("direct writing", "no", Kept.YES, "parts go through the page cache, which takes longer")


@contextlib.contextmanager
def _new_file(path: Path) -> Iterator[int]:
    descriptor = system.open_file(str(path), system.MAKING)
    try:
        yield descriptor
    finally:
        system.close(descriptor)


def _conditional(storage: Storage, here: str) -> Promise:
    name = "one name, one writer"
    if not conditional_create_honoured(storage):
        meaning = f"{storage.url} overwrites names that it was told to keep, so two writers can both commit"
        return Promise(name, "ignored", Kept.NO, meaning)
    most = max(_winners(storage, f"{here}race-{turn}") for turn in range(ROUNDS))
    if most > 1:
        meaning = f"{storage.url} told {most} of {RACERS} writers that a name is theirs"
        return Promise(name, f"{most} winners", Kept.NO, meaning)
    return Promise(name, "kept", Kept.YES, f"{ROUNDS} races of {RACERS} writers had one winner each")


def _winners(storage: Storage, key: str) -> int:
    gate = threading.Barrier(RACERS)

    def race(number: int) -> bool:
        gate.wait()
        try:
            storage.create(key, str(number).encode())
        except AlreadyThere:
            return False
        return True

    with concurrent.futures.ThreadPoolExecutor(RACERS) as pool:
        return sum(pool.map(race, range(RACERS)))


def _records(storage: Storage, here: str) -> Promise:
    seconds = []
    for number in range(5):
        key, data = f"{here}record-{number}", secrets.token_bytes(2048)
        started = time.perf_counter()
        with contextlib.suppress(AlreadyThere):  # the reply to one's own first try was lost
            storage.create(key, data)
        seconds.append(time.perf_counter() - started)
        if storage.size(key) != len(data) or _content(storage, key) != data:
            return Promise("records", "not there", Kept.NO, "what was stored could not be read back at once")
    found = f"{statistics.median(seconds) * 1000:.1f} ms"
    return Promise("records", found, Kept.YES, "to store 2 KiB durably; seen at once")


def _content(storage: Storage, key: str) -> bytes | None:
    try:
        return storage.read(key, limit=4096)
    except Absent:
        return None


def _parts(storage: Storage, here: str) -> Promise:
    key, piece = f"{here}part", secrets.token_bytes(PIECE_BYTES)
    started = time.perf_counter()
    storage.write(key, BufferContent(*[piece] * PIECES))
    storage.settle([key])
    written = time.perf_counter()
    target, whole = bytearray(PIECE_BYTES), True
    for number in range(PIECES):
        storage.read_into(key, number * PIECE_BYTES, memoryview(target))
        whole &= target == piece
    read = time.perf_counter()
    if not whole:
        return Promise("parts", "changed", Kept.NO, "what was read back is not what was written")
    size = PIECES * PIECE_BYTES
    found = f"{_rate(size, written - started)} written, {_rate(size, read - written)} read"
    return Promise("parts", found, Kept.YES, f"durable and digested, one part of {size >> 20} MiB")


def _rate(size: int, seconds: float) -> str:
    return f"{size / seconds / MIB:,.0f} MiB/s"


def _sharing(storage: Storage, here: str) -> Promise:
    storage.write(f"{here}frozen", BufferContent(b"unchanged"))
    if storage.share(f"{here}frozen", f"{here}shared"):
        return Promise("sharing", "linked", Kept.YES, "unchanged parts are stored once, under several names")
    return Promise(
        "sharing", "by reference", Kept.YES, "unchanged parts are stored once, where the manifest says"
    )


def _listing(storage: Storage, here: str) -> Promise:
    keys = {f"{here}listed/{number}" for number in range(8)}
    for key in keys:
        with contextlib.suppress(AlreadyThere):
            storage.create(key, b"x")
    if keys == {entry.key for entry in storage.entries(f"{here}listed/")}:
        return Promise("listing", "up to date", Kept.YES, "shows what was just stored; no commit rests on it")
    return Promise("listing", "late", Kept.WARN, "misses what was just stored; prune may need a second run")


def _removing(storage: Storage, here: str) -> Promise:
    keys = [f"{here}listed/{number}" for number in range(8)]
    try:
        storage.remove(keys)
    except StoreError as error:
        return Promise("removing", "refused", Kept.WARN, f"prune cannot work: {error.message}")
    if any(size is not None for size in storage.sizes(keys).values()):
        return Promise(
            "removing", "late", Kept.WARN, "what was removed is still shown; prune may need a second run"
        )
    return Promise("removing", "yes", Kept.YES, "prune can make room")


def _uploads(storage: Storage, here: str) -> Promise:
    """Say what becomes of the pieces of an upload whose process dies."""
    name, uploads = "abandoned uploads", getattr(storage, "uploads", None)
    rule = "or let the bucket abort them (lifecycle rule AbortIncompleteMultipartUpload)"
    if storage.url.startswith("az:"):
        return Promise(name, "dropped", Kept.YES, "Azure drops blocks that were never committed after a week")
    if storage.url.startswith("gs:"):
        meaning = "billed until a lifecycle rule of the bucket aborts them (AbortIncompleteMultipartUpload)"
        return Promise(name, "not known", Kept.WARN, meaning)
    if uploads is None:
        return Promise(name, "none", Kept.YES, "what a process does not finish is gone with it")
    if not uploads.reachable:
        return Promise(name, "not known", Kept.WARN, f"install boto3, so that prune can abort them, {rule}")
    try:
        uploads.abort(here, 0)
    except StoreError as error:
        return Promise(name, "refused", Kept.WARN, f"{error.message}: allow it, {rule}")
    return Promise(name, "listed", Kept.YES, "prune aborts what is older than a day")


def _room(storage: Storage) -> Promise:
    free = storage.free_bytes()
    if free is None:
        return Promise("room", "not known", Kept.YES, "the place has no limit that could be asked for")
    found = f"{free / GIB:.1f} GiB"
    if free < SCARCE_BYTES:
        return Promise("room", found, Kept.WARN, "left for this user; a save that does not fit is refused")
    return Promise("room", found, Kept.YES, "left for this user, quota included")
