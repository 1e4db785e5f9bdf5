"""Attempts: one life of a run registers, and from then on every older one is fenced."""

from __future__ import annotations

import contextlib
import hashlib
import platform
import threading
from typing import TYPE_CHECKING

import msgspec

from samestep.bundle.chain import Chain, Unreadable, is_zombie, marks, newest_ordinal, ref_of
from samestep.bundle.errors import (
    CommitRefused,
    DecisionOutdated,
    FencedError,
    FormatError,
    RequestError,
    StepBehind,
    StoreError,
)
from samestep.bundle.identity import new_attempt_id, new_nonce, utc_text
from samestep.bundle.manifest import Parent
from samestep.bundle.paths import part_key
from samestep.bundle.records import AttemptRecord, CommitRecord, Record, RetireRecord, record_key
from samestep.bundle.saving import Saving
from samestep.bundle.verifying import size_faults

if TYPE_CHECKING:
    from collections.abc import Callable

    from samestep.bundle.decisions import Decision
    from samestep.bundle.manifest import Manifest
    from samestep.bundle.records import BundleRef


class Attempt:
    """A registered life of the run: the only one that may commit, until a newer one registers.

    Commits may be made from several threads; they are put in order.

    Attributes:
        id: of the attempt.
        ordinal: how many attempts had registered, this one included.
        number: of its registration in the chain.
        known: the last number of the chain whose record it has taken into account.
        newest: the commit that the next one continues: resumed from, or made last. None at the beginning of a run.
        sound: keys of stored parts that it has written or verified, of the newest commit and of saves that are
            going on; see ``PartWriter``.
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
            NoRoom: there is none for it now.
            FencedError: a newer attempt has registered; nothing was written.
            StepBehind: ``step`` lies before the bundle that the attempt continues; nothing was written.
            StoreError: the place failed.
        """
        self.catch_up()
        newest = self.newest
        if newest is not None and step < newest.bundle.step:
            raise StepBehind(
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
            CommitRefused: a later step was committed meanwhile.
            FencedError: a newer attempt has registered; nothing was published.
            FormatError: a record on the way cannot be read.
            StoreError: the place failed; the commit may be repeated.
        """
        with self._lock:
            self._tried.add(nonce)
            while nonce not in self._committed:
                try:
                    self._append(nonce, self._secured(secure))
                except _RetirementMet:
                    continue
                except CommitRefused:
                    self._require_newest()
                    raise
            self._tried.discard(nonce)
            return self._committed.pop(nonce)

    def _append(self, nonce: str, manifest: Manifest) -> None:
        def build(number: int) -> Record:
            newest = self.newest
            _require_in_order(manifest, newest)
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

    def _secured(self, secure: Callable[[], Manifest]) -> Manifest:
        try:
            return secure()
        except StoreError:
            self._require_newest()  # the parts of a fenced attempt may be gone: say that first
            raise

    def _require_newest(self) -> None:
        """Raise a ``FencedError`` if a newer attempt has registered; a place that does not answer says nothing."""
        try:
            self._meet_all()
        except FencedError:
            raise
        except StoreError:
            return

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
        if isinstance(found, CommitRecord):  # its own, whose reply was lost: perhaps before it was durable
            self.chain.storage.settle([record_key(found.number)])
        self._take(found)
        if isinstance(found, RetireRecord):
            raise _RetirementMet

    def _take(self, found: Record) -> None:
        self.known = found.number
        if isinstance(found, CommitRecord):
            self.sound -= _keys_of(self.newest) - _keys_of(found)
            self.newest = found
            self._committed[found.nonce] = found
        if isinstance(found, RetireRecord):
            self._given_up |= {ref.id for ref in found.bundles}


class _RetirementMet(Exception):  # noqa: N818 - caught right above
    """Bundles were given up while a commit was being appended."""


def _keys_of(record: CommitRecord | None) -> set[str]:
    """Return where the parts of a bundle are stored, under its own names and those of the bundles that hold them."""
    if record is None:
        return set()
    bundle = record.bundle
    return {part_key(holder, part.path) for part in bundle.parts for holder in {part.stored_in or bundle.id}}


def _require_in_order(manifest: Manifest, newest: CommitRecord | None) -> None:
    if newest is not None and manifest.step < newest.bundle.step:
        raise CommitRefused(
            f"{manifest.id} of step {manifest.step} was not committed: {newest.bundle.id} of step "
            f"{newest.bundle.step} was committed meanwhile, and a run goes on from its newest commit",
            hint="commit saves in the order of their steps",
        )


def register(chain: Chain, decision: Decision | None, reason: str, *, begin_again: str = "") -> Attempt:
    """Register a new attempt of the run; every older one is fenced from here on.

    Args:
        chain: of the run.
        decision: what was selected; None to begin from nothing, which a store that holds bundles allows only
            when ``begin_again`` is said.
        reason: why the attempt starts there, for the record.
        begin_again: why nothing that the store holds is resumed from. Where the newest bundle is whole and only
            has open rows, as a sealed folder has, the attempt continues it all the same: its unchanged parts are
            shared, and its steps go on.

    Raises:
        DecisionOutdated: the store has changed since the decision in a way that could change it.
        AllDamaged: the decision is not one to go on from.
        StoreError: a store with bundles was to be begun again without ``begin_again``; the store holds bundles
            and has lost its chain; or the place failed.
    """
    registration = _Registration(chain, decision, reason, begin_again)
    record = chain.append(
        registration.build, after=registration.saw, nonce=registration.nonce, meet=registration.meet
    )
    return Attempt(chain, record, registration.continued())


class _Registration:
    """The record of an attempt while it looks for its place in the chain."""

    def __init__(self, chain: Chain, decision: Decision | None, reason: str, begin_again: str) -> None:
        self.nonce = new_nonce()
        self._chain, self._decision, self._begin_again = chain, decision, begin_again
        self._reason = "; ".join(filter(None, (reason, begin_again)))
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
            return
        self._require_chain()
        newest = self._newest()
        if newest is None:
            return
        if not self._begin_again:
            raise RequestError(
                f"{self._chain.run} holds bundles, {newest.id} of step {newest.step} among them, "
                "and was to be begun afresh",
                hint="select one and register with the decision, or say why it is begun again",
            )
        self._continue_unless_resumable(newest)

    def _require_chain(self) -> None:
        """Refuse bundles without a chain: an attempt registers before it stores anything, so it was lost."""
        found = None if self.saw else next(iter(self._chain.storage.entries("bundles/")), None)
        if found is not None:
            raise FormatError(
                f"{self._chain.storage.url} holds {found.key}, and the chain of {self._chain.run} is gone",
                hint="bring the folder chain back, or begin a new run in another place",
            )

    def _newest(self) -> BundleRef | None:
        """Return the newest bundle that was not given up and that no newer attempt had fenced."""
        for mark in marks(self._chain, self.saw):
            if mark.ref is None or mark.retired:
                continue
            record = mark.record or self._chain.look(mark.number)
            if not isinstance(record, CommitRecord) or not is_zombie(self._chain, record):
                return mark.ref
        return None

    def _continue_unless_resumable(self, newest: BundleRef) -> None:
        record = self._chain.look(newest.number)
        if isinstance(record, CommitRecord) and record.bundle.open_rows:
            whole = not size_faults(self._chain.storage, record.bundle)
            self._resumed = newest if whole else None

    def _check(self, found: Record | Unreadable) -> None:
        """Refuse to go on from a decision that ``found`` could have changed."""
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
