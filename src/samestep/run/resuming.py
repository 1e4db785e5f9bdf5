"""Beginning an attempt: select, decide, say so, register, restore, record; in this order."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import msgspec

from samestep.bundle.bundles import Bundle
from samestep.bundle.errors import AllDamaged, DamageError, DecisionOutdated, FormatError, StoreMissing
from samestep.bundle.holds import restoring
from samestep.bundle.records import CommitRecord
from samestep.bundle.store import Store

from .errors import MethodChanged
from .method import require_same
from .ranks import from_first
from .session import process_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from samestep.bundle.attempts import Attempt
    from samestep.bundle.decisions import Decision
    from samestep.bundle.manifest import Manifest
    from samestep.bundle.storage.base import Storage
    from samestep.state.ranks import Ranks

    from .lineage import Origin
    from .session import Session

_TRIES = 20


@dataclasses.dataclass(frozen=True)
class Wishes:
    """How a run is to be gone on with.

    Attributes:
        policy: ``fallback`` or ``strict``, see ``Store.select``.
        transfer: another number of ranks or another kind of device is allowed.
        begin_again: why the run begins afresh although nothing in its store can be used.
        ranks_fixed: why the number of ranks may not change, not even where a transfer is allowed.
    """

    policy: str = "fallback"
    transfer: bool = False
    begin_again: str = ""
    ranks_fixed: str = ""


@dataclasses.dataclass(frozen=True)
class Here:
    """What goes on here, to be compared with what was interrupted.

    Attributes:
        method: as ``method.describe`` tells it.
        data_version: of the data, empty where it has none.
        device: kind of device that the model is on.
    """

    method: Mapping[str, Any]
    data_version: str
    device: str


@dataclasses.dataclass
class Begun:
    """An attempt that is registered.

    Attributes:
        session: of the attempt.
        bundle: that it was restored from; None at the beginning of a run.
    """

    session: Session
    bundle: Bundle | None


class Beginning:
    """Begins an attempt on all ranks together.

    Args:
        storage: the run's root.
        wishes: how to go on.
        here: what goes on.
        ranks: that train together.
        origin: of a new run that starts from another's weights.
        say: shows a text to the user.
        session: makes the session of a registered attempt.
    """

    def __init__(
        self,
        storage: Storage,
        wishes: Wishes,
        here: Here,
        ranks: Ranks,
        *,
        origin: Origin | None,
        say: Callable[[str], None],
        session: Callable[[Store, Attempt | None, str, int], Session],
    ) -> None:
        self._storage, self._wishes, self._here, self._ranks = storage, wishes, here, ranks
        self._origin, self._say, self._session = origin, say, session
        self._damaged: dict[str, str] = {}

    def begin(self, restore: Callable[[Bundle, Storage], None]) -> Begun:
        """Register an attempt and restore what it goes on from; what proves damaged on the way is set aside.

        Args:
            restore: puts the state of a bundle in place, whole or not at all.

        Raises:
            AllDamaged: nothing that is there can be used.
            MethodChanged: what would go on is not what was interrupted.
            StoreError: the place failed.
        """
        store = self._opened()
        while True:
            session, number = self._registered_together(store)
            if not number:
                return Begun(session, None)
            bundle = self._bundle(store, number)
            damage = self._restored(session, bundle, restore)
            if not damage:
                return Begun(session, bundle)
            self._damaged[bundle.id] = damage
            self._say(f"{bundle.id} is damaged: {damage}")
            session.close()

    def _registered_together(self, store: Store) -> tuple[Session, int]:
        """Register on the first rank; return this rank's session and the number of the bundle to go on from, or 0."""
        first: list[tuple[Decision, Attempt, str]] = []

        def register() -> dict[str, Any]:
            first.append(self._registered(store))
            decision, attempt, _ = first[0]
            number = decision.number if decision.outcome == "resume" else None
            return {"attempt": attempt.id, "ordinal": attempt.ordinal, "number": number or 0}

        made = from_first(self._ranks, register)
        session = self._session(store, first[0][1] if first else None, made["attempt"], made["ordinal"])
        for decision, attempt, reason in first:
            session.note(
                "attempt-started",
                run=store.run.id,
                ordinal=attempt.ordinal,
                reason=reason,
                process_seconds=process_seconds(),
            )
            session.note("decision", **msgspec.to_builtins(decision))
        return session, int(made["number"])

    def _opened(self) -> Store:
        origin = self._origin

        def create() -> None:
            try:
                store = Store.open(self._storage, writing=True)
            except StoreMissing:
                store = Store.create(self._storage, lineage=origin.lineage if origin else None)
            if origin is not None:
                origin.check(store)

        from_first(self._ranks, create)
        return Store.open(self._storage, writing=self._ranks.rank == 0)

    def _registered(self, store: Store) -> tuple[Decision, Attempt, str]:
        for _ in range(_TRIES):
            decision = store.select(policy=self._wishes.policy, damaged=self._damaged)
            self._say(decision.text())
            begin_again = self._begin_again(decision)
            transfer = "" if decision.number is None else self._checked(store, decision)
            reason = transfer or ("first start" if decision.outcome == "empty" else "restart")
            try:
                attempt = store.register(
                    None if begin_again else decision, f"samestep.Run: {reason}", begin_again=begin_again
                )
            except DecisionOutdated as outdated:
                self._say(outdated.message)
                continue
            return decision, attempt, reason
        raise DecisionOutdated(
            f"{store.run.id} changed {_TRIES} times while it was being resumed",
            hint="another process trains in it: stop that one first",
        )

    def _begin_again(self, decision: Decision) -> str:
        if decision.outcome in ("resume", "empty"):
            return ""
        if not self._wishes.begin_again:
            raise AllDamaged(
                decision.text(),
                hint="look at each with samestep bundle verify; to begin afresh all the same, say why: "
                "Run(..., begin_again='reason')",
            )
        return self._wishes.begin_again

    def _checked(self, store: Store, decision: Decision) -> str:
        """Refuse a changed run; return what is transferred, if anything."""
        bundle = self._bundle(store, decision.required().number)
        manifest = bundle.manifest
        progress = manifest.progress if isinstance(manifest.progress, dict) else {}
        require_same(progress.get("method", {}), self._here.method, bundle.id)
        if manifest.data.version != self._here.data_version:
            raise MethodChanged(
                f"{bundle.id} was made with data of version {manifest.data.version or 'unknown'}, and here is "
                f"{self._here.data_version or 'data without a version'}",
                hint="bring the data back that the run was trained on, or begin another run from its weights: "
                "samestep.new_run(root, from_=..., because=...)",
            )
        return self._transferred(manifest, bundle.id)

    def _transferred(self, manifest: Manifest, bundle: str) -> str:
        device = manifest.environment.get("device", self._here.device)
        changes = []
        if manifest.world.size != self._ranks.size:
            self._refuse_fixed(manifest, bundle)
            changes.append(f"from {manifest.world.size} to {self._ranks.size} ranks")
        if device != self._here.device:
            changes.append(f"from {device} to {self._here.device}")
        if changes and not self._wishes.transfer:
            raise MethodChanged(
                f"{bundle} would be transferred {' and '.join(changes)}",
                hint="Run(..., transfer=True) allows it, and the run keeps a record of it",
            )
        return f"transfer {' and '.join(changes)}" if changes else ""

    def _refuse_fixed(self, manifest: Manifest, bundle: str) -> None:
        if self._wishes.ranks_fixed:
            raise MethodChanged(
                f"{bundle} was made by {manifest.world.size} ranks and here are {self._ranks.size}: "
                f"{self._wishes.ranks_fixed}",
                hint=f"start it with {manifest.world.size} ranks, or begin another run from its weights: "
                "samestep.load_weights(model, root)",
            )

    def _bundle(self, store: Store, number: int) -> Bundle:
        record = store.chain.read(number)
        if not isinstance(record, CommitRecord):
            raise FormatError(f"record {number} of {store.run.id} commits no bundle")
        return Bundle(record)

    def _restored(self, session: Session, bundle: Bundle, restore: Callable[[Bundle, Storage], None]) -> str:
        """Restore; return what is damaged, on any rank."""
        session.note("restore-begun", bundle=bundle.id, step=bundle.step)
        damage, error = "", None
        try:
            if self._ranks.rank == 0:
                with restoring(session.store.chain, bundle.ref):
                    restore(bundle, self._storage)
            else:
                restore(bundle, self._storage)
        except DamageError as damaged:
            damage = damaged.message
        except Exception as failure:  # noqa: BLE001 - raised below, when the others know
            error = failure
        said = json.dumps([damage, str(error) if error else ""]).encode()
        told = [json.loads(text) for text in self._ranks.exchange(said)]
        damage = next((text for text, _ in told if text), "")
        failures = [f"rank {rank}: {text}" for rank, (_, text) in enumerate(told) if text]
        outcome = "damaged" if damage else "failed" if failures else "restored"
        session.note("restore-ended", bundle=bundle.id, step=bundle.step, outcome=outcome)
        if error is not None:
            raise error
        if failures and not damage:
            raise MethodChanged("; ".join(failures), hint="the log of that rank says more")
        return damage
