"""Selection: the newest complete bundle by lineage, and why each newer one was set aside."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from samestep.bundle.chain import Chain, Mark, Unreadable, is_zombie, marks, newest_ordinal, ref_of
from samestep.bundle.decisions import PASSED_OVER, Decision, SetAside
from samestep.bundle.errors import RequestError
from samestep.bundle.identity import utc_text
from samestep.bundle.records import AttemptRecord, CommitRecord, RetireRecord
from samestep.bundle.verifying import size_faults
from samestep.contract import Component, Intent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from samestep.bundle.manifest import Manifest, Parent, World
    from samestep.bundle.records import BundleRef

FALLBACK, STRICT = "fallback", "strict"
POLICIES = (FALLBACK, STRICT)

_SHOWN = 3


def select(
    chain: Chain,
    *,
    intent: Intent = Intent.RESUME,
    policy: str = FALLBACK,
    expected_environment: Mapping[str, str] | None = None,
    expected_world: World | None = None,
    cut_step: int | None = None,
    run: str | None = None,
    damaged: Mapping[str, str] | None = None,
) -> Decision:
    """Decide from where to go on; reads records and asks for sizes, and changes nothing.

    Args:
        chain: of the run.
        intent: what the bundle is wanted for.
        policy: ``fallback`` goes to the newest bundle that can be used, ``strict`` refuses to go past one that
            cannot.
        expected_environment: what a bundle to resume must have been made in, by name.
        expected_world: the ranks a bundle to resume must have been made by.
        cut_step: the last step that was completed before the interruption, if it is known.
        run: the run that is meant, to notice a wrong root.
        damaged: bundles whose bytes were found to differ, by id, with what was found.

    Raises:
        StoreError: the root belongs to another run, the policy is unknown, or the place failed.
    """
    if policy not in POLICIES:
        raise RequestError(f"there is no selection policy {policy!r}", hint=f"use {' or '.join(POLICIES)}")
    if run is not None and run != chain.run:
        raise RequestError(
            f"{chain.storage.url} holds {chain.run}, and {run} was asked for",
            hint="give the root of the run that you mean",
        )
    wishes = _Wishes(intent, expected_environment or {}, expected_world, damaged or {})
    return _Selection(chain, wishes).decide(policy, cut_step)


class _Wishes:
    """What a bundle must be like to be chosen."""

    def __init__(
        self,
        intent: Intent,
        environment: Mapping[str, str],
        world: World | None,
        damaged: Mapping[str, str],
    ) -> None:
        self.intent = intent
        self._environment, self._world, self._damaged = environment, world, damaged

    def fault(self, manifest: Manifest) -> tuple[str, str] | None:
        """Return the reason why a bundle cannot be used as far as its manifest tells, and its text."""
        if manifest.id in self._damaged:
            return "digest-differs", self._damaged[manifest.id]
        if self.intent is not Intent.RESUME:
            row = manifest.contract.get(Component.WEIGHTS)
            return None if row and row.state == "saved" else ("row-open", "it holds no weights")
        if manifest.open_rows:
            return "row-open", f"nothing says what becomes of {', '.join(manifest.open_rows)}"
        return self._environment_fault(manifest) or self._world_fault(manifest)

    def _environment_fault(self, manifest: Manifest) -> tuple[str, str] | None:
        for name, wanted in sorted(self._environment.items()):
            found = manifest.environment.get(name)
            if found != wanted:
                made = f"with {name} {found}" if found is not None else f"without saying its {name}"
                return "environment-differs", f"it was made {made}, and here is {name} {wanted}"
        return None

    def _world_fault(self, manifest: Manifest) -> tuple[str, str] | None:
        if self._world is None or manifest.world == self._world:
            return None
        made, here = manifest.world, self._world
        if made.size != here.size:
            return "world-differs", f"it was made by {made.size} ranks, and here are {here.size}"
        return (
            "world-differs",
            f"its {made.size} ranks were laid out as {made.layout}, and here as {here.layout}",
        )


class _Selection:
    """One walk from the head of the chain back to the bundle that is chosen."""

    def __init__(self, chain: Chain, wishes: _Wishes) -> None:
        self._chain, self._wishes = chain, wishes
        self._set_aside: list[SetAside] = []
        self._wanted: int | None = None  # the only commit that continues the lineage; None: any
        self._child = ""
        self._lineage_unknown = False

    def decide(self, policy: str, cut_step: int | None) -> Decision:
        head = self._chain.head()
        chosen = next(self._usable(head), None)
        passed = any(one.reason not in PASSED_OVER for one in self._set_aside)
        decision = Decision(
            outcome="damaged" if self._set_aside or self._lost(head) else "empty",
            run=self._chain.run,
            intent=str(self._wishes.intent),
            policy=policy,
            head=head,
            set_aside=tuple(self._set_aside),
            decided=utc_text(),
        )
        if chosen is None:
            return decision
        if policy == STRICT and passed:
            return msgspec.structs.replace(decision, outcome="refused")
        bundle = chosen.bundle
        return msgspec.structs.replace(
            decision,
            outcome="resume",
            bundle=bundle.id,
            number=chosen.number,
            step=bundle.step,
            next_step=bundle.step + 1,
            steps_lost=None if cut_step is None else max(0, cut_step - bundle.step),
            data_version=bundle.data.version,
            environment=dict(bundle.environment),
        )

    def _usable(self, head: int) -> Iterator[CommitRecord]:
        for mark in marks(self._chain, head):
            if mark.ref is not None and mark.retired:
                self._note(mark.ref, "retired", "it was given up by a retirement")
                continue
            record = mark.record or self._chain.look(mark.number)
            if isinstance(record, CommitRecord):
                if self._takes(record):
                    yield record
            elif isinstance(record, Unreadable):
                self._pass_unreadable(record, mark)
            elif isinstance(record, AttemptRecord) and self._lineage_unknown:
                self._follow(record.resumed)
            elif isinstance(record, RetireRecord) and self._lineage_unknown:
                self._trace(record.number)

    def _takes(self, record: CommitRecord) -> bool:
        """Whether ``record`` is the bundle to go on from; if not, note why and follow its lineage."""
        fault = self._passed_over(record)
        if fault is None:
            bundle = record.bundle
            fault = self._wishes.fault(bundle) or self._stored_fault(bundle)
            self._child = bundle.id
            self._follow(bundle.parent)
        if fault is not None:
            self._note(ref_of(record), *fault)
        return fault is None

    def _passed_over(self, record: CommitRecord) -> tuple[str, str] | None:
        """Return why a commit is no candidate at all: its attempt was fenced, or the lineage goes past it."""
        newest, _ = newest_ordinal(self._chain, record.number - 1)
        if newest > record.attempt_ordinal:
            return (
                "zombie-attempt",
                f"attempt {newest} had registered before attempt {record.attempt_ordinal} wrote it",
            )
        self._step_over_retired(record.number)
        if self._wanted is not None and record.number != self._wanted:
            origin = f"record {self._wanted}" if self._wanted else "the beginning"
            return "abandoned", f"{self._child or 'a newer attempt'} continued from {origin}"
        return None

    def _step_over_retired(self, number: int) -> None:
        """Follow the lineage down to ``number``; what a retirement sums up is not met on the way."""
        while self._wanted is not None and self._wanted > number:
            record = self._chain.look(self._wanted)
            if isinstance(record, CommitRecord):
                self._follow(record.bundle.parent)
            else:
                self._trace(self._wanted)

    def _follow(self, parent: Parent | BundleRef | None) -> None:
        self._wanted = parent.number if parent else 0
        self._lineage_unknown = False

    def _pass_unreadable(self, record: Unreadable, mark: Mark) -> None:
        """Note a record that may have been a bundle; if it was, where the lineage goes is not known."""
        self._set_aside.append(
            SetAside(
                number=record.number,
                reason=record.reason,
                text=record.text,
                bundle=mark.ref.id if mark.ref else "",
                step=mark.ref.step if mark.ref else None,
            )
        )
        if self._wanted is None or self._wanted == record.number:
            self._wanted, self._lineage_unknown = None, True
            if mark.ref is not None:
                self._trace(record.number)

    def _trace(self, number: int) -> None:
        """Find what the lineage came from at ``number``, where a retirement keeps the records between from being met.

        Among what it lets live there may be bundles that the lineage went past, because somebody holds them.
        """
        self._follow(None)
        for found in self._chain.backwards(number - 1):
            if isinstance(found, AttemptRecord):
                self._follow(found.resumed)
                return
            if isinstance(found, CommitRecord) and not is_zombie(self._chain, found):
                self._wanted = found.number
                return

    def _stored_fault(self, bundle: Manifest) -> tuple[str, str] | None:
        """Compare the sizes of the stored parts with the manifest."""
        faults = size_faults(self._chain.storage, bundle)
        if not faults:
            return None
        more = f", and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
        reasons = {fault.reason for fault in faults}
        reason = next(one for one in ("part-missing", "part-unreadable", "size-differs") if one in reasons)
        return reason, "; ".join(fault.text for fault in faults[:_SHOWN]) + more

    def _note(self, ref: BundleRef, reason: str, text: str) -> None:
        self._set_aside.append(
            SetAside(bundle=ref.id, number=ref.number, step=ref.step, reason=reason, text=text)
        )

    def _lost(self, head: int) -> bool:
        """Whether there are parts and no chain: an attempt registers before it stores anything."""
        return head == 0 and next(iter(self._chain.storage.entries("bundles/")), None) is not None
