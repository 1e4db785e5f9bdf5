"""Retention: which bundles stay, and how the others are given up so that a crash anywhere loses nothing."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

from samestep.bundle.bundles import Bundle
from samestep.bundle.chain import Chain, Unreadable, is_zombie, living, marks, newest_ordinal
from samestep.bundle.errors import FormatError, StoreError
from samestep.bundle.holds import counting_holds, holds_on
from samestep.bundle.identity import new_nonce, utc_text
from samestep.bundle.leftovers import Leftovers, folders_of
from samestep.bundle.records import (
    AttemptRecord,
    BundleRef,
    CommitRecord,
    Record,
    ReinstateRecord,
    RetireRecord,
)
from samestep.bundle.verifying import Level, size_faults, verify

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samestep.bundle.storage.base import Entry

UNFINISHED_SECONDS = 24 * 3600.0
"""After this time an upload that was never finished is taken for abandoned."""

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
    changes = 0
    while changes < _TRIES:
        plan = Plan(chain, policy, damaged)
        if dry_run:
            return _Removal(chain, plan).foreseen()
        if plan.retired and not plan.verified:
            plan.verified = _verified(chain, plan, damaged)
            if not plan.verified:
                continue
        try:
            return _Removal(chain, plan).carried_out()
        except _Changed:
            changes += 1
    raise StoreError(f"{chain.run} changed {changes} times while it was being pruned", hint="prune again")


def _verified(chain: Chain, plan: Plan, damaged: set[str]) -> str:
    """Read the newest bundle that stays; returns its id, or nothing when it turned out to be damaged."""
    found = verify(chain.storage, Bundle(plan.trusted[0]), Level.FULL)
    if not found.whole:
        damaged.add(found.bundle)
    return found.bundle if found.whole else ""


class Plan:
    """Which bundles stay and which are given up, as of one moment of the chain.

    Attributes:
        head: of the chain.
        kept: why each bundle stays, by id.
        retired: the bundles that are given up.
        verified: id of a bundle that stays and has passed a full verification; empty when none is known.
    """

    def __init__(self, chain: Chain, policy: Policy, damaged: set[str]) -> None:
        self._chain, self._damaged = chain, damaged
        self.policy = policy
        self.head = chain.head()
        self.living: dict[str, BundleRef] = {}
        self.kept: dict[str, str] = {}
        self.verified = ""
        self._whole: list[CommitRecord] = []
        self._reached = 0
        self._look_at_chain()
        self._keep_newest()
        self._keep_spaced()
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
            if mark.ref and not mark.retired:
                self.living[mark.ref.id] = mark.ref

    def _keep_newest(self) -> None:
        """Keep the newest whole bundles of the lineage, and what is damaged among them."""
        resumable = 0
        for record in self._lineage():
            bundle = record.bundle
            if bundle.id in self._damaged or size_faults(self._chain.storage, bundle):
                self._damaged.add(bundle.id)
                self.kept[bundle.id] = "damaged, and not older than what stays"
            elif not bundle.open_rows or len(self._whole) < self.policy.keep_last:
                self.kept[bundle.id] = f"one of the last {self.policy.keep_last}"
                self._whole.append(record)
                resumable += not bundle.open_rows
            if resumable == self.policy.keep_last:
                return

    def _lineage(self) -> Iterator[CommitRecord]:
        """Yield the living bundles that the newest one continues, newest first."""
        wanted: int | None = None
        for ref in self.living.values():
            wanted = _down_to(self._chain, wanted, ref.number)
            record = _commit(self._chain, ref.number)
            if wanted in (None, ref.number) and not is_zombie(self._chain, record):
                self._reached = ref.number
                wanted = _parent(record)
                yield record

    def _keep_spaced(self) -> None:
        """Keep the first bundle at or after every multiple of some steps, among those of the lineage.

        Of what is older than the bundles looked at so far, earlier retirements have left only the lineage.
        """
        spacing = self.policy.keep_every
        if spacing is None:
            return
        seen: set[int] = set()
        for ref in reversed(self.living.values()):
            window = ref.step // spacing
            of_lineage = ref.number < self._reached or ref.id in self.kept
            if of_lineage and ref.id not in self._damaged and window and window not in seen:
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


class _Changed(Exception):  # noqa: N818 - caught by prune
    """Somebody else has appended a record meanwhile."""


class _Removal:
    """Carries a plan out: the retirement first, then what nobody holds and nothing needs is removed."""

    def __init__(self, chain: Chain, plan: Plan) -> None:
        self._chain, self._plan = chain, plan
        self._retired = {ref.id: ref for ref in plan.retired}

    def foreseen(self) -> Pruning:
        """Return what would be done."""
        leftovers = self._leftovers()
        return self._told(leftovers.held(), leftovers.removable())

    def carried_out(self) -> Pruning:
        """Do it and return what was done."""
        if self._retired:
            self._retire()
        leftovers = self._leftovers()
        held = leftovers.held()
        if held:
            self._reinstate(held)
            leftovers.spare(held)
        removable = leftovers.removable()
        for entries in filter(None, removable):
            self._chain.storage.remove([entry.key for entry in entries])
        for prefix in ("bundles/", "chain/"):
            self._chain.storage.discard_unfinished(prefix, time.time() - UNFINISHED_SECONDS)
        return self._told(held, removable)

    def _leftovers(self) -> Leftovers:
        """List first, and look for what is alive then: nothing that is committed in between can be taken for dead.

        For the same reason holds are seen that were placed before the retirement; whoever places one later sees it.
        """
        folders = folders_of(self._chain.storage)
        head = self._chain.head(at_least=self._plan.head)
        alive = living(self._chain, head)
        for id_ in self._retired:
            alive.pop(id_, None)
        return Leftovers(self._chain, folders, head=head, alive=alive, retired=self._retired)

    def _retire(self) -> None:
        plan, nonce = self._plan, new_nonce()
        ordinal, _ = newest_ordinal(self._chain, plan.head)

        def build(number: int) -> RetireRecord:
            return RetireRecord(
                number=number,
                run=self._chain.run,
                nonce=nonce,
                written=utc_text(),
                attempt_ordinal=ordinal,
                bundles=tuple(plan.retired),
                survivors=tuple(plan.survivors),
                policy=str(plan.policy),
                verified=plan.verified,
            )

        def meet(_: Record) -> None:
            raise _Changed

        self._chain.append(build, after=plan.head, nonce=nonce, meet=meet)

    def _reinstate(self, held: list[BundleRef]) -> None:
        head, nonce = self._chain.head(at_least=self._plan.head), new_nonce()
        ordinals = [newest_ordinal(self._chain, head)[0]]

        def build(number: int) -> ReinstateRecord:
            return ReinstateRecord(
                number=number,
                run=self._chain.run,
                nonce=nonce,
                written=utc_text(),
                attempt_ordinal=ordinals[-1],
                bundles=tuple(held),
                because="somebody held them",
            )

        def meet(found: Record) -> None:
            ordinals.append(found.attempt_ordinal)

        self._chain.append(build, after=head, nonce=nonce, meet=meet)

    def _told(self, held: list[BundleRef], removable: list[list[Entry]]) -> Pruning:
        plan = self._plan
        entries = [entry for some in removable for entry in some]
        return Pruning(
            kept=tuple(Kept(ref, plan.kept[ref.id]) for ref in plan.survivors),
            retired=tuple(ref for ref in plan.retired if ref not in held),
            reinstated=tuple(held),
            removed=tuple(entry.key for entry in entries),
            bytes_removed=sum(entry.size for entry in entries),
        )


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
