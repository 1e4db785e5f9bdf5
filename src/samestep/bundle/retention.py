"""Retention: which bundles stay, and how the others are given up so that a crash anywhere loses nothing."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

from samestep.bundle.bundles import Bundle
from samestep.bundle.chain import Chain, Unreadable, is_zombie, marks, ref_of
from samestep.bundle.errors import FormatError, StoreError
from samestep.bundle.holds import counting_holds, holds_on
from samestep.bundle.leftovers import folders_of
from samestep.bundle.records import AttemptRecord, BundleRef, CommitRecord, RetireRecord
from samestep.bundle.removal import Changed, Removal
from samestep.bundle.storage.failures import out_of_room
from samestep.bundle.verifying import Level, size_faults, verify

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samestep.bundle.storage.base import Entry

_TRIES = 10
_LISTINGS = 8


@dataclasses.dataclass(frozen=True)
class Policy:
    """Which bundles stay, besides those that somebody holds.

    Args:
        keep_last: how many of the newest whole bundles of the lineage; at least 1.
        keep_every: also the first bundle at or after every multiple of so many steps.

    Raises:
        StoreError: a number is too small.
    """

    keep_last: int = 2
    keep_every: int | None = None

    def __post_init__(self) -> None:
        if self.keep_last < 1 or (self.keep_every is not None and self.keep_every < 1):
            raise StoreError(f"{self} would keep nothing", hint="keep at least the last bundle")

    def __str__(self) -> str:
        every = f", one every {self.keep_every} steps" if self.keep_every else ""
        return f"keep the last {self.keep_last}{every}"


@dataclasses.dataclass(frozen=True)
class Kept:
    """A bundle that stays, and why."""

    ref: BundleRef
    why: str


@dataclasses.dataclass(frozen=True)
class Pruning:
    """What pruning did, or would do.

    Attributes:
        kept: the bundles that stay.
        retired: the bundles that are given up.
        reinstated: bundles whose retirement was taken back, because somebody held them.
        removed: the keys that are removed; what belongs to earlier retirements and dead saves included.
        bytes_removed: how much they hold; a part shared by hard links counts though its bytes stay.
    """

    kept: tuple[Kept, ...]
    retired: tuple[BundleRef, ...]
    reinstated: tuple[BundleRef, ...] = ()
    removed: tuple[str, ...] = ()
    bytes_removed: int = 0


def prune(chain: Chain, policy: Policy, *, dry_run: bool = False) -> Pruning:
    """Give up the bundles that ``policy`` does not keep and remove what nothing refers to any more.

    At least one bundle that stays has passed a full verification. A crash at any moment leaves every bundle that
    stays whole, and the next call finishes what this one announced.

    Raises:
        FormatError: a record cannot be read, so that what may be removed is not known.
        StoreError: the place failed.
    """
    damaged: set[str] = set()
    freed: list[Entry] = []
    changes = 0
    while changes < _TRIES:
        plan = Plan(chain, policy, damaged)
        removal = Removal(chain, plan)
        if dry_run:
            return _told(plan, *removal.foreseen())
        if plan.retired and not plan.verified:
            plan.verified = _verified(chain, plan, damaged)
            if not plan.verified:
                continue
        changes += 1
        try:
            held, removed = removal.carried_out()
            return _told(plan, held, freed + removed)
        except Changed:
            continue
        except StoreError as error:
            made = removal.room_made() if out_of_room(error) else []
            if not made:
                raise
            freed += made
    raise StoreError(f"{chain.run} changed {changes} times while it was being pruned", hint="prune again")


def _told(plan: Plan, held: list[BundleRef], entries: list[Entry]) -> Pruning:
    return Pruning(
        kept=tuple(Kept(ref, plan.kept[ref.id]) for ref in plan.survivors),
        retired=tuple(ref for ref in plan.retired if ref not in held),
        reinstated=tuple(held),
        removed=tuple(entry.key for entry in entries),
        bytes_removed=sum(entry.size for entry in entries),
    )


def _verified(chain: Chain, plan: Plan, damaged: set[str]) -> str:
    """Read the newest bundle that stays; returns its id, or nothing when it turned out to be damaged."""
    found = verify(chain.storage, Bundle(plan.trusted[0]), Level.FULL, frugal=True)
    if not found.whole:
        damaged.add(found.bundle)
    return found.bundle if found.whole else ""


class Plan:
    """Which bundles stay and which are given up, as of one moment of the chain.

    Attributes:
        head: of the chain.
        kept: why each bundle stays, by id.
        retired: the bundles that are given up.
        lineage: ids of the bundles that the newest one continues, itself included, as far as they were looked at.
        verified: id of a bundle that stays and has passed a full verification; empty when none is known.
    """

    def __init__(self, chain: Chain, policy: Policy, damaged: set[str]) -> None:
        self._chain, self._damaged = chain, damaged
        self.policy = policy
        self.head = chain.head()
        self.living: dict[str, BundleRef] = {}
        self.kept: dict[str, str] = {}
        self.verified = ""
        self.lineage: list[str] = []
        self._whole: list[CommitRecord] = []
        self._known_lineage: frozenset[str] = frozenset()
        self._look_at_chain()
        self._keep_from_lineage()
        self._keep_worked_from()
        self._keep_held()
        if not self._whole:
            self.kept = dict.fromkeys(self.living, "there is no whole bundle") | self.kept
        self.retired = [ref for id_, ref in self.living.items() if id_ not in self.kept]
        if all(record.bundle.id != self.verified for record in self.trusted):
            self.verified = ""

    @property
    def survivors(self) -> list[BundleRef]:
        """The bundles that stay, newest first."""
        return [ref for id_, ref in self.living.items() if id_ in self.kept]

    @property
    def trusted(self) -> list[CommitRecord]:
        """Those of them that one would fall back to: not known to be damaged, and complete if any is."""
        return [record for record in self._whole if not record.bundle.open_rows] or self._whole

    def _look_at_chain(self) -> None:
        for mark in marks(self._chain, self.head):
            if isinstance(mark.record, Unreadable):
                raise FormatError(
                    f"{mark.record.text}; what may be removed is not known", hint="nothing was removed"
                )
            if isinstance(mark.record, RetireRecord):
                self.verified = mark.record.verified
                self._known_lineage = frozenset(mark.record.lineage)
            if mark.ref and not mark.retired:
                self.living[mark.ref.id] = mark.ref

    def _keep_from_lineage(self) -> None:
        """Keep the newest whole bundles of the lineage, what is damaged among them, and those at a spacing."""
        resumable = 0
        older: list[BundleRef] = []
        for record in self._lineage():
            bundle = record.bundle
            self.lineage.append(bundle.id)
            if resumable == self.policy.keep_last:
                if self.policy.keep_every is None:
                    return
            elif self._is_damaged(record):
                self.kept[bundle.id] = "damaged, and not older than what stays"
                continue
            elif not bundle.open_rows or len(self._whole) < self.policy.keep_last:
                self.kept[bundle.id] = f"one of the last {self.policy.keep_last}"
                self._whole.append(record)
                resumable += not bundle.open_rows
            older.append(ref_of(record))
        if self.policy.keep_every is not None:
            self._keep_spaced(older[::-1], self.policy.keep_every)

    def _is_damaged(self, record: CommitRecord) -> bool:
        if record.bundle.id not in self._damaged and size_faults(self._chain.storage, record.bundle):
            self._damaged.add(record.bundle.id)
        return record.bundle.id in self._damaged

    def _lineage(self) -> Iterator[CommitRecord]:
        """Yield the living bundles that the newest one continues, newest first.

        As soon as one of them belongs to the lineage that the newest retirement names, the older ones are those that
        it names, and nothing between them has to be read.
        """
        wanted: int | None = None
        met = False
        for ref in self.living.values():
            if met:
                if ref.id in self._known_lineage:
                    yield _commit(self._chain, ref.number)
                continue
            wanted = _down_to(self._chain, wanted, ref.number)
            if wanted not in (None, ref.number):
                continue
            record = _commit(self._chain, ref.number)
            if not is_zombie(self._chain, record):
                wanted = _parent(record)
                met = ref.id in self._known_lineage
                yield record

    def _keep_spaced(self, lineage: list[BundleRef], spacing: int) -> None:
        """Keep the first whole bundle at or after every multiple of some steps.

        Args:
            lineage: the bundles that the newest one continues, oldest first.
            spacing: steps.
        """
        seen = {0}
        for ref in lineage:
            window = ref.step // spacing
            if window not in seen and not self._is_damaged(_commit(self._chain, ref.number)):
                seen.add(window)
                self.kept.setdefault(ref.id, f"the first at or after step {window * spacing}")

    def _keep_worked_from(self) -> None:
        """Keep what the newest attempt went on from until it has committed; it may have passed over newer ones."""
        for found in self._chain.backwards(self.head):
            if isinstance(found, CommitRecord):
                return
            if isinstance(found, AttemptRecord):
                if found.resumed and found.resumed.id in self.living:
                    self.kept.setdefault(found.resumed.id, f"{found.attempt} went on from it")
                return

    def _keep_held(self) -> None:
        storage = self._chain.storage
        asked = [ref for ref in self.living.values() if ref.id not in self.kept]
        listed = folders_of(storage) if len(asked) > _LISTINGS else None
        for ref in asked:
            if listed is None:
                names = holds_on(storage, ref.id, time.time())
            else:
                names = counting_holds(listed[ref.id].entries if ref.id in listed else (), time.time())
            if names:
                self.kept[ref.id] = f"held by {', '.join(names[:3])}"


def _down_to(chain: Chain, wanted: int | None, number: int) -> int | None:
    """Follow the lineage from ``wanted`` down to ``number``, through what was given up."""
    while wanted is not None and wanted > number:
        wanted = _parent(_commit(chain, wanted))
    return wanted


def _parent(record: CommitRecord) -> int:
    return record.bundle.parent.number if record.bundle.parent else 0


def _commit(chain: Chain, number: int) -> CommitRecord:
    record = chain.read(number)
    if not isinstance(record, CommitRecord):
        raise FormatError(f"record {number} of {chain.run} commits no bundle, and another says that it does")
    return record
