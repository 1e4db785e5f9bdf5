"""How bundles are given up and removed, so that whoever holds one in time keeps it.

The chain decides, record by record. A retirement gives bundles up. Whoever holds one writes the hold first and looks
at the chain then, and whoever retires looks for holds after the retirement, so at least one of them sees the other. A
retirement may be taken back by any prune that finds a hold, also by one that finishes what a dead one announced, but
only until a removal was announced: the record ``remove`` is the point of no return. Who announces a removal takes in
every record before it, so it meets each reinstatement that came first; who reinstates meets each removal that came
first. One of the two is first, and so nobody relies on a bundle whose parts somebody else is about to remove.
"""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING

from samestep.bundle.chain import Chain, living, newest_ordinal, removal_begun
from samestep.bundle.identity import new_nonce, utc_text
from samestep.bundle.leftovers import Leftovers, folders_of
from samestep.bundle.records import BundleRef, Record, ReinstateRecord, RemoveRecord, RetireRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from samestep.bundle.retention import Plan
    from samestep.bundle.storage.base import Entry

UNFINISHED_SECONDS = 24 * 3600.0
"""After this time an upload that was never finished is taken for abandoned."""


class Changed(Exception):  # noqa: N818 - caught by prune
    """Somebody else has appended a record meanwhile that changes what is to be done."""


class Removal:
    """Carries a plan out: the retirement first, then what nobody holds and nothing needs is removed."""

    def __init__(self, chain: Chain, plan: Plan) -> None:
        self._chain, self._plan = chain, plan
        self._head = plan.head

    def foreseen(self) -> tuple[list[BundleRef], list[Entry]]:
        """Return what would be taken back, and what would be removed."""
        leftovers = self._leftovers(already=False)
        held = self._held(leftovers)
        leftovers.spare(held)
        return held, _entries(leftovers)

    def carried_out(self) -> tuple[list[BundleRef], list[Entry]]:
        """Do it; return the bundles whose retirement was taken back, and what was removed.

        Raises:
            Changed: somebody else has appended a record that changes the plan.
            StoreError: the place failed.
        """
        if self._plan.retired:
            self._retire()
        leftovers = self._leftovers()
        held = self._held(leftovers)
        if held:
            self._reinstate(held)
            leftovers.spare(held)
        removed = _entries(leftovers)
        if removed:
            self._announce(leftovers)
            self._remove(leftovers)
        for prefix in ("bundles/", "chain/"):
            self._chain.storage.discard_unfinished(prefix, time.time() - UNFINISHED_SECONDS)
        return held, removed

    def room_made(self) -> list[Entry]:
        """Remove what needs no record any more, where there is no room for one; return what was removed."""
        leftovers = self._leftovers()
        leftovers.keep_only_settled()
        self._remove(leftovers)
        return _entries(leftovers)

    def _leftovers(self, *, already: bool = True) -> Leftovers:
        """List first, and look for what is alive then: nothing that is committed in between can be taken for dead.

        For the same reason holds are seen that were placed before the retirement; whoever places one later sees it.

        Args:
            already: what the plan retires counts as given up only if the chain says so.
        """
        folders = folders_of(self._chain.storage)
        self._head = self._chain.head(at_least=self._head)
        alive = living(self._chain, self._head)
        retired = {ref.id: ref for ref in self._plan.retired if not already or ref.id not in alive}
        for id_ in retired:
            alive.pop(id_, None)
        return Leftovers(self._chain, folders, head=self._head, alive=alive, retired=retired)

    def _held(self, leftovers: Leftovers) -> list[BundleRef]:
        return [ref for ref in leftovers.held() if not removal_begun(self._chain, ref, self._head)]

    def _remove(self, leftovers: Leftovers) -> None:
        for entries in filter(None, leftovers.removable()):
            self._chain.storage.remove([entry.key for entry in entries])

    def _retire(self) -> None:
        plan = self._plan
        make = functools.partial(
            RetireRecord,
            bundles=tuple(plan.retired),
            survivors=tuple(plan.survivors),
            policy=str(plan.policy),
            verified=plan.verified,
            lineage=tuple(id_ for id_ in plan.lineage if id_ in plan.kept),
        )
        self._append(make, changes=lambda _: True)

    def _reinstate(self, held: list[BundleRef]) -> None:
        make = functools.partial(ReinstateRecord, bundles=tuple(held), because="somebody held them")
        ids = {ref.id for ref in held}
        self._append(
            make, changes=lambda found: isinstance(found, RemoveRecord) and not ids.isdisjoint(found.bundles)
        )

    def _announce(self, leftovers: Leftovers) -> None:
        ids = sorted({folder.bundle for folder in leftovers.dead})

        def changes(found: Record) -> bool:
            return isinstance(found, ReinstateRecord) and any(ref.id in ids for ref in found.bundles)

        self._append(functools.partial(RemoveRecord, bundles=tuple(ids)), changes=changes)

    def _append(self, make: Callable[..., Record], *, changes: Callable[[Record], bool]) -> None:
        nonce, ordinals = new_nonce(), [newest_ordinal(self._chain, self._head)[0]]

        def build(number: int) -> Record:
            return make(
                number=number,
                run=self._chain.run,
                nonce=nonce,
                written=utc_text(),
                attempt_ordinal=ordinals[-1],
            )

        def meet(found: Record) -> None:
            if changes(found):
                raise Changed
            ordinals.append(found.attempt_ordinal)

        self._head = self._chain.append(build, after=self._head, nonce=nonce, meet=meet).number


def _entries(leftovers: Leftovers) -> list[Entry]:
    return [entry for entries in leftovers.removable() for entry in entries]
