"""The front door: a run's root, opened on a place."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import msgspec

from samestep.bundle import attempts, canonical, holds, restoring, retention, selection, verifying
from samestep.bundle.bundles import Bundle
from samestep.bundle.chain import Chain, Unreadable, marks
from samestep.bundle.checksums import CHECKSUM, require_sealed, sealed
from samestep.bundle.errors import (
    BundleRetired,
    DamageError,
    FormatError,
    RequestError,
    StoreError,
    StoreMissing,
)
from samestep.bundle.identity import check_id, check_time, new_run_id, utc_text
from samestep.bundle.records import CommitRecord, record_key
from samestep.bundle.storage.base import Absent, AlreadyThere
from samestep.bundle.storage.conditions import require_conditional_create

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from samestep.bundle.attempts import Attempt
    from samestep.bundle.decisions import Decision
    from samestep.bundle.retention import Policy, Pruning
    from samestep.bundle.storage.base import Storage

RUN_SCHEMA = "samestep.run/1"
RUN_KEY = "run.json"
_RUN_LIMIT = 1 << 20


class Run(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The identity of a run, written once."""

    schema: str = RUN_SCHEMA
    id: str
    created: str  #: UTC, ISO 8601
    lineage: dict[str, Any] = {}  #: for a new run from another's weights: where it comes from, and why


class Store:
    """A run's root on a place. Make one with ``create`` or ``open``.

    Attributes:
        storage: the place.
        run: the identity of the run.
        chain: its records.
        notes: what a user should be told although it did not stop anything.
    """

    def __init__(self, storage: Storage, run: Run, *, writing: bool) -> None:
        self.storage = storage
        self.run = run
        self.chain = Chain(storage, run.id)
        self.notes: list[str] = []
        self._writing = writing

    @classmethod
    def create(cls, storage: Storage, *, lineage: Mapping[str, Any] | None = None) -> Store:
        """Make the root of a new run.

        Args:
            storage: a place that holds no run yet.
            lineage: for a new run that starts from another's weights: where it comes from, and why.

        Raises:
            StoreError: the place holds a run already or what is left of one, overwrites names that it was told
                to keep, or failed.
        """
        require_conditional_create(storage)
        _require_empty(storage)
        run = Run(id=new_run_id(), created=utc_text(), lineage=dict(lineage or {}))
        try:
            storage.create(RUN_KEY, sealed(canonical.encode(msgspec.structs.asdict(run), what=RUN_KEY)))
        except AlreadyThere:
            there = _read_run(storage)
            if there.id != run.id:
                raise _taken(storage, there) from None
            storage.settle([RUN_KEY])
        return cls(storage, run, writing=True)

    @classmethod
    def open(cls, storage: Storage, *, writing: bool) -> Store:
        """Open the root of a run.

        Args:
            storage: the place.
            writing: whether this handle may register, prune and pin. One that may not leaves no trace at all.

        Raises:
            StoreMissing: the place holds no run.
            FormatError: what identifies the run cannot be read.
            StoreError: the place failed.
        """
        run = _read_run(storage)
        if writing:  # who made the root may have died before it was durable, and records must not outlive it
            storage.settle([RUN_KEY])
        return cls(storage, run, writing=writing)

    def select(self, **wishes: Any) -> Decision:
        """Decide from where to go on; see ``selection.select`` for the arguments."""
        return selection.select(self.chain, **wishes)

    def register(self, decision: Decision | None, reason: str, *, begin_again: str = "") -> Attempt:
        """Register a new attempt; see ``attempts.register``."""
        self._require_writing()
        return attempts.register(self.chain, decision, reason, begin_again=begin_again)

    def bundles(self) -> Iterator[Bundle]:
        """Yield the bundles that are not given up and can be read, newest first."""
        for mark in marks(self.chain, self.chain.head()):
            record = mark.record or (None if mark.retired else self.chain.look(mark.number))
            if isinstance(record, CommitRecord):
                yield Bundle(record)

    def unreadable(self) -> list[Unreadable]:
        """Read the whole chain and return the records that cannot be read, newest first."""
        return [
            record for record in self.chain.backwards(self.chain.head()) if isinstance(record, Unreadable)
        ]

    def bundle(self, name: str) -> Bundle:
        """Return the bundle of that id, or the only one whose id begins like that, or the ``latest``.

        Raises:
            StoreError: there is none, or more than one.
        """
        found: list[Bundle] = []
        for bundle in self.bundles():
            if name in ("latest", bundle.id):
                return bundle
            if bundle.id.startswith(name):
                found.append(bundle)
        if len(found) == 1 and name:
            return found[0]
        several = ", ".join(bundle.id for bundle in found[:3])
        raise RequestError(
            f"{len(found)} bundles of {self.run.id} have an id that begins with {name!r}: {several}"
            if found
            else f"{self.run.id} holds no bundle {name!r}",
            hint="samestep bundle ls shows them",
        )

    def chosen(self, decision: Decision) -> Bundle:
        """Return the bundle that a decision names.

        Raises:
            NothingToResume, AllDamaged: it names none.
        """
        ref = decision.required()
        record = self.chain.read(ref.number)
        if not isinstance(record, CommitRecord) or record.bundle.id != ref.id:
            raise FormatError(f"record {ref.number} of {self.run.id} does not commit {ref.id}")
        return Bundle(record)

    def restore(self, bundle: Bundle, *, to: Path) -> Path:
        """Write the parts of ``bundle`` as the folder ``to``, whole or not at all; see ``restoring.restore``.

        Raises:
            DamageError: stored bytes are not what the manifest says.
            BundleRetired: the bundle was given up.
            StoreError: ``to`` is in the way, or the place failed.
        """
        with self.reading(bundle) as alive:
            return restoring.restore(self.storage, bundle, to, alive=alive)

    @contextlib.contextmanager
    def reading(self, bundle: Bundle) -> Iterator[Callable[[], None]]:
        """Hold a bundle while it is read, where the place takes the hold; call what is yielded to renew it.

        Raises:
            BundleRetired: the bundle was given up.
        """
        if not self._writing:
            yield lambda: None
            return
        with holds.restoring(self.chain, bundle.ref) as hold:
            if hold.refused:
                self.notes.append(
                    f"{bundle.id} is read without a hold, so a prune could give it up meanwhile: {hold.refused}"
                )
            yield hold.renew

    def resume(self, *, to: Path, damaged: Mapping[str, str] | None = None, **wishes: Any) -> Decision:
        """Select and restore; a bundle found damaged on the way is set aside and selection asked again.

        Args:
            to: a folder that does not exist, or is empty.
            damaged: bundles that are known to be damaged, by id, with what was found.
            wishes: see ``selection.select``.

        Returns:
            The decision whose bundle was restored, or one that names none.

        Raises:
            StoreError: ``to`` is in the way, or the place failed.
        """
        found = dict(damaged or {})
        while True:
            decision = self.select(damaged=found, **wishes)
            if decision.outcome != "resume":
                return decision
            with contextlib.suppress(BundleRetired):
                try:
                    self.restore(self.chosen(decision), to=to)
                except DamageError as error:
                    found[str(decision.bundle)] = error.message
                else:
                    return decision

    def verify(self, bundle: Bundle, level: verifying.Level = verifying.Level.FULL) -> verifying.Verification:
        """Compare what is stored with the manifest of ``bundle``; see ``verifying.verify``."""
        return verifying.verify(self.storage, bundle, level)

    def prune(self, policy: Policy, *, dry_run: bool = False) -> Pruning:
        """Give up what ``policy`` does not keep; see ``retention.prune``."""
        if not dry_run:
            self._require_writing()
        return retention.prune(self.chain, policy, dry_run=dry_run)

    def pin(self, bundle: Bundle, *, name: str = "pin", because: str = "") -> None:
        """Keep a bundle until it is unpinned; see ``holds.pin``."""
        self._require_writing()
        holds.pin(self.chain, bundle.ref, name=name, because=because)

    def unpin(self, bundle: Bundle, *, name: str = "pin") -> bool:
        """Take a pin away; returns whether there was one."""
        self._require_writing()
        return holds.unpin(self.storage, bundle.ref, name=name)

    def _require_writing(self) -> None:
        if not self._writing:
            raise StoreError(f"{self.storage.url} was opened for reading only", hint="open it for writing")
        require_conditional_create(self.storage)


def _require_empty(storage: Storage) -> None:
    """Refuse a place with what is left of a run: a new one would take its bundles for garbage of its own."""
    for prefix in ("chain/", "bundles/"):
        found = next(iter(storage.entries(prefix)), None)
        if found is None:
            continue
        if storage.size(RUN_KEY) is not None:
            raise _taken(storage, _read_run(storage))
        raise RequestError(
            f"{storage.url} holds {found.key} and no {RUN_KEY}: the rest of another run",
            hint="give the new run another place, or bring back what is missing here",
        )


def _taken(storage: Storage, there: Run) -> StoreError:
    return RequestError(
        f"{storage.url} already holds {there.id}", hint="open it, or give the new run another place"
    )


def _read_run(storage: Storage) -> Run:
    what = f"{RUN_KEY} of {storage.url}"
    try:
        data = storage.read(RUN_KEY, limit=_RUN_LIMIT)
    except Absent:
        if storage.size(record_key(1)) is None:
            raise StoreMissing(
                f"{storage.url} holds no run", hint="give the root of a run, or make one by saving into it"
            ) from None
        raise FormatError(f"{what} is missing, though the run's records are there") from None
    return _checked_run(data, what)


def _checked_run(data: bytes, what: str) -> Run:
    tree = canonical.decode(data, what=what)
    schema = tree.get("schema") if isinstance(tree, dict) else None
    if schema != RUN_SCHEMA:
        raise FormatError(f"{what} is of format {ascii(schema)[:80]}; this version reads {RUN_SCHEMA}")
    tree.pop(CHECKSUM, None)
    try:
        run = msgspec.convert(tree, Run)
        check_id(run.id, "run")
        check_time(run.created)
    except msgspec.ValidationError as error:
        raise FormatError(f"{what} is malformed: {error}") from None
    except FormatError as error:
        raise FormatError(f"{what}: {error.message}", hint=error.hint) from None
    require_sealed(data, what)
    return run
