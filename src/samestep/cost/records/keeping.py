"""What the bundles of a run occupied, for how long, and what was moved and asked for, from the records of its chain."""

from __future__ import annotations

import collections
import dataclasses
from typing import TYPE_CHECKING

from samestep.bundle.history import unix
from samestep.bundle.records import AttemptRecord, CommitRecord, RemoveRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from samestep.bundle.manifest import Part
    from samestep.bundle.records import Record

OBJECTS_BESIDE_PARTS = 2
"""Objects that a save makes beside its parts and its journal segments: its marker and its commit."""


@dataclasses.dataclass(frozen=True)
class Keeping:
    """Bytes in the store.

    Attributes:
        byte_seconds: integral of the bytes over the time.
        seconds: from the first bundle on.
    """

    byte_seconds: float
    seconds: float

    @property
    def mean_bytes(self) -> float:
        """That were kept on average."""
        return self.byte_seconds / self.seconds if self.seconds > 0 else 0.0


def keeping_of(records: Iterable[Record], until: float) -> Keeping:
    """Return what bundles occupied up to ``until``; bytes that several share count once.

    Args:
        records: of a chain, oldest first.
        until: seconds since 1970.
    """
    shelf, total, since, begun = _Shelf(), 0.0, 0.0, 0.0
    for record in records:
        if not isinstance(record, CommitRecord | RemoveRecord):
            continue
        at = unix(record.written)
        begun = begun or at
        if at > until:
            break
        total += shelf.bytes * max(0.0, at - (since or at))
        since = at
        if isinstance(record, CommitRecord):
            shelf.put(record.bundle.id, record.bundle.parts)
        else:
            shelf.remove(record.bundles)
    if not begun:
        return Keeping(0.0, 0.0)
    return Keeping(total + shelf.bytes * max(0.0, until - since), max(0.0, until - begun))


class _Shelf:
    """Which bytes are there, and which bundles they belong to."""

    def __init__(self) -> None:
        self.bytes = 0
        self._sizes: list[int] = []
        self._newest: dict[tuple[str, str], int] = {}
        self._of_bundle: dict[str, list[int]] = {}
        self._holders: collections.Counter[int] = collections.Counter()

    def put(self, bundle: str, parts: Sequence[Part]) -> None:
        numbers = [self._number(part) for part in parts]
        self._of_bundle[bundle] = numbers
        self._holders.update(numbers)

    def remove(self, bundles: Iterable[str]) -> None:
        for bundle in bundles:
            for number in self._of_bundle.pop(bundle, []):
                self._holders[number] -= 1
                if not self._holders[number]:
                    self.bytes -= self._sizes[number]

    def _number(self, part: Part) -> int:
        """Return the number of the bytes of a part: those of an earlier bundle where they are shared with it."""
        name = (part.path, part.digest)
        known = self._newest.get(name)
        if part.share_depth and known is not None and self._holders[known]:
            return known
        self._newest[name] = len(self._sizes)
        self._sizes.append(part.size)
        self.bytes += part.size
        return self._newest[name]


def written_bytes(record: CommitRecord) -> int:
    """Return the bytes that a save has written: those of parts that it does not share with another bundle."""
    return sum(part.size for part in record.bundle.parts if not part.share_depth)


def objects_written(record: CommitRecord) -> int:
    """Return how many objects a save has made."""
    own = sum(1 for part in record.bundle.parts if not part.share_depth)
    return own + len(record.bundle.journal) + OBJECTS_BESIDE_PARTS


def restored_bytes(records: Sequence[Record]) -> int:
    """Return the bytes of all bundles that attempts went on from."""
    sizes = {record.number: record.bundle.size for record in records if isinstance(record, CommitRecord)}
    return sum(
        sizes.get(record.resumed.number, 0)
        for record in records
        if isinstance(record, AttemptRecord) and record.resumed
    )
