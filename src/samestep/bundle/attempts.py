"""Attempts: one life of a run registers, and from then on every older one is fenced."""

from __future__ import annotations

import contextlib
import hashlib
import platform
import threading
from typing import TYPE_CHECKING

import msgspec

from samestep.bundle.chain import Chain, Unreadable, marks, newest_ordinal, ref_of
from samestep.bundle.errors import CommitRefused, DamageError, DecisionOutdated, FencedError, StoreError
from samestep.bundle.identity import new_attempt_id, new_nonce, utc_text
from samestep.bundle.manifest import Parent
from samestep.bundle.records import AttemptRecord, CommitRecord, Record, RetireRecord
from samestep.bundle.saving import Saving

if TYPE_CHECKING:
    from collections.abc import Callable

    from samestep.bundle.decisions import Decision
    from samestep.bundle.manifest import Manifest


class Attempt:
    """A registered life of the run: the only one that may commit, until a newer one registers.

    Commits may be made from several threads; they are put in order.

    Attributes:
        id: of the attempt.
        ordinal: how many attempts had registered, this one included.
        number: of its registration in the chain.
        known: the last number of the chain whose record it has taken into account.
        newest: the commit that the next one continues: resumed from, or made last. None at the beginning of a run.
        sound: keys of stored parts that it has written or verified; see ``PartWriter``.
    """

    def __init__(self, chain: Chain, record: AttemptRecord, newest: CommitRecord | None) -> None:
        self.chain = chain
        self.id = record.attempt
        self.ordinal = record.attempt_ordinal
        self.number = record.number
        self.newest = newest
        self.known = record.number
        self.sound: set[str] = set()
        self._given_up: set[str] = set()
        self._tried: set[str] = set()
        self._committed: dict[str, CommitRecord] = {}
        self._lock = threading.Lock()

    def begin(self, *, step: int, size_bytes: int = 0) -> Saving:
        """Begin a save of the state after ``step`` completed updates.

        Args:
            step: completed optimizer updates.
            size_bytes: of all parts together, as far as known: what cannot fit is refused before it begins.

        Raises:
            CommitRefused: there is no room for it.
            FencedError: a newer attempt has registered; nothing was written.
            StoreError: ``step`` lies before the bundle that the attempt continues, or the place failed.
        """
        self.catch_up()
        newest = self.newest
        if newest is not None and step < newest.bundle.step:
            raise StoreError(
                f"a save of step {step} was asked for, but {self.id} continues {newest.bundle.id} "
                f"of step {newest.bundle.step}",
                hint="going back makes another run: begin one with the intent new-run",
            )
        return Saving(self, step=step, size_bytes=size_bytes)

    def catch_up(self) -> None:
        """Take in what others have appended meanwhile.

        Raises:
            FencedError: a newer attempt has registered: stop as soon as possible.
            FormatError: a record cannot be read.
            StoreError: the place failed.
        """
        with self._lock:
            self._meet_all()

    def has_given_up(self, bundle: str) -> bool:
        """Whether a retirement that this attempt has met names ``bundle``."""
        return bundle in self._given_up

    def publish(self, nonce: str, secure: Callable[[], Manifest]) -> CommitRecord:
        """Append a commit, unless a newer attempt has registered.

        Args:
            nonce: of the record; the same when a commit is repeated whose outcome is unknown.
            secure: makes sure of the parts and returns the manifest, without its parent; called again when a
                bundle was retired meanwhile that they may have been shared with.

        Raises:
            FencedError: a newer attempt has registered; nothing was published.
            FormatError: a record on the way cannot be read.
            StoreError: the place failed; the commit may be repeated.
        """
        with self._lock:
            self._tried.add(nonce)
            while nonce not in self._committed:
                try:
                    self._append(nonce, secure())
                except _RetirementMet:
                    continue
                except (CommitRefused, DamageError):
                    self._meet_all()  # the parts of a fenced attempt may be gone: say that first
                    raise
            return self._committed[nonce]

    def _append(self, nonce: str, manifest: Manifest) -> None:
        def build(number: int) -> Record:
            newest = self.newest
            parent = Parent(id=newest.bundle.id, number=newest.number) if newest else None
            return CommitRecord(
                number=number,
                run=self.chain.run,
                nonce=nonce,
                written=utc_text(),
                attempt_ordinal=self.ordinal,
                bundle=msgspec.structs.replace(manifest, parent=parent),
            )

        made = self.chain.append(build, after=self.known, nonce=nonce, meet=self._meet)
        self._take(made)

    def _meet_all(self) -> None:
        for found in self.chain.following(self.known):
            with contextlib.suppress(_RetirementMet):
                self._meet(found)

    def _meet(self, found: Record) -> None:
        """Take in a record that others have appended."""
        if isinstance(found, AttemptRecord):
            raise FencedError(
                f"{self.id} may not commit any more: {found.attempt} registered as attempt "
                f"{found.attempt_ordinal} of {found.run} at {found.written}",
                hint="stop this process; what it has stored since is ignored and removed by prune",
            )
        if isinstance(found, CommitRecord) and found.nonce not in self._tried:
            raise FencedError(
                f"{self.id} may not commit any more: another process has committed {found.bundle.id} in its name",
                hint="an attempt lives in one process; register one attempt for each start",
            )
        self._take(found)
        if isinstance(found, RetireRecord):
            raise _RetirementMet

    def _take(self, found: Record) -> None:
        self.known = found.number
        if isinstance(found, CommitRecord):
            self.newest = found
            self._committed[found.nonce] = found
        if isinstance(found, RetireRecord):
            self._given_up |= {ref.id for ref in found.bundles}


class _RetirementMet(Exception):  # noqa: N818 - caught right above
    """Bundles were given up while a commit was being appended."""


def register(chain: Chain, decision: Decision | None, reason: str) -> Attempt:
    """Register a new attempt of the run; every older one is fenced from here on.

    Args:
        chain: of the run.
        decision: what was selected; None to begin from nothing, which a store that holds bundles allows only
            with a reason.
        reason: why the attempt starts there, for the record.

    Raises:
        DecisionOutdated: the store has changed since the decision in a way that could change it.
        AllDamaged: the decision is not one to go on from.
        StoreError: a store with bundles was to be begun afresh without a reason; or the place failed.
    """
    registration = _Registration(chain, decision, reason)
    record = chain.append(
        registration.build, after=registration.saw, nonce=registration.nonce, meet=registration.meet
    )
    return Attempt(chain, record, registration.continued())


class _Registration:
    """The record of an attempt while it looks for its place in the chain."""

    def __init__(self, chain: Chain, decision: Decision | None, reason: str) -> None:
        self.nonce = new_nonce()
        self._chain, self._decision, self._reason = chain, decision, reason
        self._attempt = new_attempt_id()
        self._resumed = decision.checked_ref() if decision else None
        self.saw = chain.head(at_least=decision.head if decision else 0)
        self._ordinal = sum(newest_ordinal(chain, self.saw))
        self._check_decision()

    def build(self, number: int) -> AttemptRecord:
        return AttemptRecord(
            number=number,
            run=self._chain.run,
            nonce=self.nonce,
            written=utc_text(),
            attempt_ordinal=self._ordinal + 1,
            attempt=self._attempt,
            saw=number - 1,
            resumed=self._resumed,
            reason=self._reason,
            host=_host_digest(),
        )

    def meet(self, found: Record) -> None:
        self._check(found)
        self._ordinal = found.attempt_ordinal

    def continued(self) -> CommitRecord | None:
        """Return the commit that the attempt continues."""
        if self._resumed is None:
            return None
        record = self._chain.read(self._resumed.number)
        if not isinstance(record, CommitRecord) or ref_of(record) != self._resumed:
            raise StoreError(f"record {record.number} of {record.run} does not commit {self._resumed.id}")
        return record

    def _check_decision(self) -> None:
        if self._decision is not None:
            for number in range(self._decision.head + 1, self.saw + 1):
                self._check(self._chain.look(number))
        elif not self._reason:
            kept = next(
                (mark.ref for mark in marks(self._chain, self.saw) if mark.ref and not mark.retired), None
            )
            if kept is not None:
                raise StoreError(
                    f"{self._chain.run} holds bundles, {kept.id} of step {kept.step} among them, "
                    "and was to be begun afresh",
                    hint="select one and register with the decision, or give the reason for beginning again",
                )

    def _check(self, found: Record | Unreadable) -> None:
        """Refuse to go on from a decision that ``found`` could have changed."""
        if self._decision is None and not self._reason and isinstance(found, CommitRecord):
            raise _outdated(f"{found.bundle.id} was committed")
        if self._decision is None:
            return
        if isinstance(found, Unreadable):
            raise _outdated(found.text)
        if isinstance(found, CommitRecord):
            raise _outdated(f"{found.bundle.id} of step {found.bundle.step} was committed")
        if isinstance(found, RetireRecord) and self._resumed and self._resumed not in found.survivors:
            raise _outdated(f"{self._resumed.id} was retired")


def _outdated(what: str) -> DecisionOutdated:
    return DecisionOutdated(
        f"{what} after it was decided from where to go on",
        hint="select again, and register with that decision",
    )


def _host_digest() -> str:
    return "sha256:" + hashlib.sha256(platform.node().encode()).hexdigest()[:16]
