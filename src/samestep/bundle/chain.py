"""The chain of a run: records with consecutive numbers, each created only if absent, never changed.

Two writers always contend for one name, the next number, so the chain is also what decides between them. Where it
ends is found by asking for numbers, never by the order of a listing.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import itertools
import threading
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from samestep.bundle import canonical
from samestep.bundle.errors import FormatError, StoreError
from samestep.bundle.records import (
    BundleRef,
    CommitRecord,
    Record,
    ReinstateRecord,
    RemoveRecord,
    RetireRecord,
    decode_record,
    encode_record,
    record_key,
)
from samestep.bundle.storage.base import Absent, AlreadyThere

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from samestep.bundle.storage.base import Storage

AnyRecord = TypeVar("AnyRecord", bound=Record)

PROBES = 16
"""How many numbers are asked for at once while the head is looked for."""

_BATCHES = (2, 8)
_KEPT_RECORDS = 8
_KEPT_BYTES = 8 << 20
"""Records are kept up to that many bytes; two always are. Once one is as large, no more are read ahead."""


@dataclasses.dataclass(frozen=True)
class Unreadable:
    """A number of the chain under which there is nothing that this version can take for a record."""

    number: int
    reason: str  #: ``no-manifest``, ``unknown-format`` or ``wrong-run``
    text: str


class Mark(NamedTuple):
    """A bundle, or something else of the chain, met on the way back from its head."""

    number: int
    record: Record | Unreadable | None = None  #: None: named by a retirement, not read
    ref: BundleRef | None = None
    retired: bool = False


class Chain:
    """The records of one run.

    Args:
        storage: the place that holds them.
        run: id of the run; a record of another run is no record of this chain.
    """

    def __init__(self, storage: Storage, run: str) -> None:
        self.storage = storage
        self.run = run
        self._recent: dict[int, tuple[Record, int]] = {}
        self._durable = 0
        self._lock = threading.Lock()
        self._ahead = _BATCHES[-1]

    def head(self, at_least: int = 0) -> int:
        """Return the highest number in use, 0 when there is none.

        Args:
            at_least: a number known to exist, from which the search may start.

        Raises:
            StoreError: the place failed.
        """
        low, high = at_least, None
        while True:
            numbers = _numbers_to_probe(low, high)
            last_look = high is not None and high - low <= PROBES // 2
            low = max([low, *self._present(numbers)])
            if last_look and low < numbers[-1]:
                return low
            absent = [number for number in numbers if number + 1 in numbers] + [high or 0]
            high = min((number for number in absent if number > low), default=None)

    def look(self, number: int) -> Record | Unreadable:
        """Return the record under ``number``, or what keeps it from being read.

        Raises:
            StoreError: the place failed.
        """
        recent = self._recent.get(number)
        if recent is not None:
            return recent[0]
        what = f"record {number} of {self.run}"
        try:
            data = self._read(number, what)
            record = decode_record(data, number=number, what=what)
        except Absent:
            return Unreadable(number, "no-manifest", f"{what} is missing from the chain")
        except FormatError as error:
            return Unreadable(number, "unknown-format", error.message)
        if record.run != self.run:
            return Unreadable(number, "wrong-run", f"{what} belongs to another run, {record.run}")
        self._keep(record, len(data))
        return record

    def read(self, number: int) -> Record:
        """Return the record under ``number``.

        Raises:
            FormatError: there is none that this version can read.
            StoreError: the place failed.
        """
        found = self.look(number)
        if isinstance(found, Unreadable):
            raise FormatError(found.text, hint="run samestep bundle verify on the store")
        return found

    def backwards(self, head: int, down_to: int = 1) -> Iterator[Record | Unreadable]:
        """Yield what stands under ``head``, the number before it, and so on, reading ahead a little."""
        numbers = iter(range(head, down_to - 1, -1))
        with concurrent.futures.ThreadPoolExecutor(_BATCHES[-1], thread_name_prefix="chain") as pool:
            for size in itertools.chain(_BATCHES, itertools.repeat(_BATCHES[-1])):
                batch = list(itertools.islice(numbers, min(size, self._ahead)))
                if not batch:
                    return
                known = all(number in self._recent for number in batch)
                yield from (map if known else pool.map)(self.look, batch)

    def following(self, number: int) -> Iterator[Record]:
        """Yield the records after ``number`` in order, up to the first number that is free.

        Raises:
            FormatError: one of them cannot be read.
            StoreError: the place failed.
        """
        for one in itertools.count(number + 1):
            found = self.look(one)
            if isinstance(found, Unreadable) and found.reason == "no-manifest":
                return
            yield self.read(one)

    def append(
        self, build: Callable[[int], AnyRecord], *, after: int, nonce: str, meet: Callable[[Record], None]
    ) -> AnyRecord:
        """Create the next record, in one atomic act, and return it.

        Args:
            build: makes the record for a number; called again for every number tried.
            after: the last number whose record the caller has taken into account.
            nonce: of the record, the same in every try: a lost reply makes one's own success look like a conflict.
            meet: takes in every record that others have put there first; what it raises ends the attempt.

        Raises:
            FormatError: a record on the way cannot be read, or the new one cannot be written.
            StoreError: the place failed; whether the record exists is unknown, and the same call may be repeated.
        """
        number = after + 1
        while True:
            record = build(number)
            self._settle_before(number)
            try:
                self.storage.create(record_key(number), encode_record(record))
            except AlreadyThere:
                self.read(number)  # a name that is taken and empty is no reason to go on
                for found in self.following(number - 1):
                    if found.nonce == nonce:
                        self.storage.settle([record_key(found.number)])
                        return cast("AnyRecord", found)
                    meet(found)
                    number = found.number + 1
            else:
                self._durable = number
                return record

    def _settle_before(self, number: int) -> None:
        """Make the record before ``number`` durable: who created it may have died before it came to that."""
        if number - 1 > self._durable:
            self.storage.settle([record_key(number - 1)])
            self._durable = number - 1

    def _present(self, numbers: Iterable[int]) -> list[int]:
        keys = {record_key(number): number for number in numbers}
        return [keys[key] for key, size in self.storage.sizes(keys).items() if size is not None]

    def _read(self, number: int, what: str) -> bytes:
        key = record_key(number)
        with contextlib.suppress(StoreError):
            return self.storage.read(key, limit=canonical.BYTES_LIMIT)
        size = self.storage.size(key)
        if size is not None and size > canonical.BYTES_LIMIT:
            raise FormatError(f"{what} has {size:,} bytes; at most {canonical.BYTES_LIMIT:,} are read")
        return self.storage.read(key, limit=canonical.BYTES_LIMIT)

    def _keep(self, record: Record, size_bytes: int) -> None:
        with self._lock:
            self._recent[record.number] = record, size_bytes
            if size_bytes * _KEPT_RECORDS > _KEPT_BYTES:
                self._ahead = 1
            total = 0
            for index, (number, (_, size)) in enumerate(reversed(list(self._recent.items()))):
                total += size
                if index >= _KEPT_RECORDS or (index >= 2 and total > _KEPT_BYTES):
                    del self._recent[number]


def _numbers_to_probe(low: int, high: int | None) -> list[int]:
    """Return where to look between ``low``, which exists, and ``high``, which does not.

    Always at two numbers in a row: one that was lost does not pass for the end of the chain.
    """
    pairs = PROBES // 2
    if high is None:
        begins = [low + 4**power for power in range(pairs)]
    elif high - low <= pairs:
        return list(range(low + 1, low + PROBES + 1))
    else:
        begins = [low + (high - low) * part // (pairs + 1) for part in range(1, pairs + 1)]
    return sorted({number for begin in begins for number in (begin, begin + 1)})


def marks(chain: Chain, head: int) -> Iterator[Mark]:
    """Yield what counts, newest first, without reading what the newest retirement already sums up.

    A retirement names every bundle that is alive after it, so nothing older has to be read to know them.
    """
    revived: dict[str, BundleRef] = {}
    for found in chain.backwards(head):
        if isinstance(found, RetireRecord):
            yield Mark(found.number, found)
            yield from _summed_up(found, revived)
            return
        if isinstance(found, ReinstateRecord):
            revived |= {ref.id: ref for ref in found.bundles}
        yield Mark(found.number, found, ref_of(found) if isinstance(found, CommitRecord) else None)


def _summed_up(retirement: RetireRecord, revived: dict[str, BundleRef]) -> Iterator[Mark]:
    alive = {ref.id: ref for ref in retirement.survivors}
    alive |= {id_: ref for id_, ref in revived.items() if ref.number < retirement.number}
    refs = {ref.id: ref for ref in retirement.bundles} | alive
    for ref in sorted(refs.values(), key=lambda ref: -ref.number):
        yield Mark(ref.number, None, ref, retired=ref.id not in alive)


def living(chain: Chain, head: int) -> dict[str, BundleRef]:
    """Return the bundles that were committed and not given up, newest first, by id.

    Raises:
        FormatError: a record that may commit one cannot be read.
    """
    alive = {}
    for mark in marks(chain, head):
        if isinstance(mark.record, Unreadable):
            raise FormatError(f"{mark.record.text}; which bundles are alive is not known")
        if mark.ref and not mark.retired:
            alive[mark.ref.id] = mark.ref
    return alive


def given_up(chain: Chain, ref: BundleRef, head: int) -> bool:
    """Whether a retirement up to ``head`` has given ``ref`` up; reads only what came after it."""
    for found in chain.backwards(head, down_to=ref.number + 1):
        if isinstance(found, ReinstateRecord) and ref in found.bundles:
            return False
        if isinstance(found, RetireRecord):
            return ref not in found.survivors
    return False


def removal_begun(chain: Chain, ref: BundleRef, head: int) -> bool:
    """Whether somebody has said up to ``head`` that the parts of ``ref`` are being removed."""
    for found in chain.backwards(head, down_to=ref.number + 1):
        if isinstance(found, RemoveRecord) and ref.id in found.bundles:
            return True
        if isinstance(found, RetireRecord | ReinstateRecord) and ref in found.bundles:
            return False
    return False


def ref_of(record: CommitRecord) -> BundleRef:
    """Return how other records name the bundle that ``record`` commits."""
    return BundleRef(id=record.bundle.id, number=record.number, step=record.bundle.step)


def newest_ordinal(chain: Chain, head: int) -> tuple[int, int]:
    """Return how many attempts had registered up to ``head``, and how many records could not be read since."""
    unread = 0
    for found in chain.backwards(head):
        if not isinstance(found, Unreadable):
            return found.attempt_ordinal, unread
        unread += 1
    return 0, unread


def is_zombie(chain: Chain, record: CommitRecord) -> bool:
    """Whether a newer attempt had registered before ``record``, which only a place without conditions lets happen."""
    return newest_ordinal(chain, record.number - 1)[0] > record.attempt_ordinal
