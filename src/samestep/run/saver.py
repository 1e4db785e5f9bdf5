"""Saves in the background: one in flight, back-pressure instead of memory, errors that are never swallowed."""

from __future__ import annotations

import dataclasses
import json
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import msgspec

from samestep.bundle.bundles import Bundle
from samestep.bundle.errors import FormatError, StoreError
from samestep.bundle.manifest import Data, Part, Row, World
from samestep.bundle.parts import PartWriter
from samestep.bundle.records import CommitRecord
from samestep.bundle.retention import prune
from samestep.errors import ExitCode, SamestepError
from samestep.state.errors import CHANGED_MEANWHILE, StateError

from .ranks import from_first

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from samestep.bundle.retention import Policy
    from samestep.bundle.saving import Saving
    from samestep.state import Snapshot
    from samestep.state.ranks import Ranks

    from .session import Session


@dataclasses.dataclass(frozen=True)
class Facts:
    """What a bundle says beside its parts."""

    step: int
    contract: Mapping[str, Row]
    progress: Any
    data: Data
    environment: Mapping[str, str]
    code: Mapping[str, str]
    world: World


@dataclasses.dataclass
class Outcome:
    """What became of a save.

    Attributes:
        step: that it is of.
        asked: when it was asked for; this and the next two are of the monotonic clock, in seconds.
        ready: when the training could go on.
        done: when it was committed, or had failed.
        bundle: that it made; None when it failed.
        error: why it failed.
        note: what else the user should know: bundles that could not be pruned.
        met: set when the training has taken note of it.
    """

    step: int
    asked: float
    ready: float
    done: float = 0.0
    bundle: Bundle | None = None
    error: BaseException | None = None
    note: str = ""
    met: threading.Event = dataclasses.field(default_factory=threading.Event)


class Saver:
    """Makes bundles of snapshots, one at a time.

    Args:
        session: of the attempt.
        ranks: that save together; used by nobody else while a save is in flight.
        keep: which bundles stay; None to keep all.
        alarm: called in the background when a save has failed.
        abandon_after: seconds after which the process is ended when another rank is silent and the training has not
            come back, because it waits for that rank, too; None to go on waiting.
    """

    def __init__(
        self,
        session: Session,
        ranks: Ranks,
        keep: Policy | None,
        alarm: Callable[[Outcome], None],
        abandon_after: float | None = None,
    ) -> None:
        self._session, self._ranks, self._keep, self._alarm = session, ranks, keep, alarm
        self._abandon_after = abandon_after
        self._thread: threading.Thread | None = None
        self._outcome: Outcome | None = None
        self._sound: set[str] = set()

    @property
    def in_flight(self) -> bool:
        """Whether a save is being written, or has not been asked about."""
        return self._thread is not None

    def start(self, snapshot: Snapshot, facts: Facts, *, asked: float, state_ready: float) -> None:
        """Write a snapshot in the background.

        Args:
            snapshot: of the state.
            facts: for the manifest.
            asked: when the save was asked for, by the monotonic clock.
            state_ready: when the training could go on, in seconds since 1970.
        """
        if self._thread is not None:
            raise ValueError("a save is in flight")
        outcome = self._outcome = Outcome(facts.step, asked, time.monotonic())
        self._thread = threading.Thread(
            target=self._work, args=(outcome, snapshot, facts, state_ready), name="samestep-save", daemon=True
        )
        self._thread.start()
        if not snapshot.copied:  # there was no memory for a copy: what is written is live
            self._thread.join()

    def finished(self) -> Outcome | None:
        """Return what became of the save in flight, once; None while it goes on and when there is none."""
        if self._thread is None or self._thread.is_alive():
            return None
        return self.wait()

    def wait(self) -> Outcome | None:
        """Wait for the save in flight and return what became of it; None when there is none."""
        if self._thread is None:
            return None
        if self._outcome is not None:
            self._outcome.met.set()
        self._thread.join()
        self._thread = None
        outcome, self._outcome = self._outcome, None
        return outcome

    def _leave_the_silent(self, outcome: Outcome) -> None:
        """End the process when a rank is silent and the training hangs, too, in an operation with that rank."""
        silent = getattr(self._ranks, "silent", False)
        if silent and self._abandon_after is not None and not outcome.met.wait(self._abandon_after):
            self._session.note("ended", outcome="rank-lost", step=outcome.step)
            os._exit(ExitCode.INCONCLUSIVE)

    def _work(self, outcome: Outcome, snapshot: Snapshot, facts: Facts, state_ready: float) -> None:
        try:
            snapshot.wait_staged()
            outcome.bundle = self._written(snapshot, facts, state_ready)
            outcome.done = time.monotonic()
            outcome.note = self._pruned()
        except BaseException as error:  # noqa: BLE001 - raised at the next boundary
            outcome.error, outcome.done = error, time.monotonic()
            reason = error.message if isinstance(error, SamestepError) else f"{type(error).__name__}: {error}"
            self._session.note("save-failed", step=facts.step, reason=reason)
            self._alarm(outcome)
            self._leave_the_silent(outcome)
        finally:
            snapshot.close()  # an error that somebody keeps would keep its memory, too

    def _written(self, snapshot: Snapshot, facts: Facts, state_ready: float) -> Bundle:
        saving: Saving | None = None

        def begin() -> list[Any]:
            nonlocal saving
            attempt = self._attempt
            saving = attempt.begin(step=facts.step, size_bytes=snapshot.size_bytes)
            return [saving.id, attempt.newest.number if attempt.newest else 0]

        try:
            bundle, base = from_first(self._ranks, begin)
            parts = self._parts(snapshot, saving or self._writer(bundle, base))
            number = from_first(self._ranks, lambda: self._committed(saving, parts, facts, state_ready))
        except BaseException:
            if saving is not None:
                saving.__exit__()
            raise
        return _bundle(self._session, number)

    def _parts(self, snapshot: Snapshot, writer: Saving | PartWriter) -> list[Part]:
        """Write this rank's parts; return those of the other ranks on the first.

        Raises:
            RankFailed: a rank could not write its parts.
        """
        error: BaseException | None = None
        own: list[Part] = []
        try:
            own = snapshot.write(writer)
            if isinstance(writer, PartWriter):
                writer.settle()
        except Exception as failure:  # noqa: BLE001 - raised below, when the others know
            error = failure
        slug = getattr(error, "slug", "")
        said = {"error": str(error) if error else "", "slug": slug, "parts": msgspec.to_builtins(own)}
        told = [json.loads(text) for text in self._ranks.exchange(json.dumps(said).encode())]
        if error is not None:
            raise error
        failures = [f"rank {rank}: {one['error']}" for rank, one in enumerate(told) if one["error"]]
        if any(one["slug"] == CHANGED_MEANWHILE for one in told):
            raise StateError("; ".join(failures), slug=CHANGED_MEANWHILE)
        if failures:
            raise StoreError("; ".join(failures), hint="the log of that rank says more")
        others = [one["parts"] for rank, one in enumerate(told) if rank != self._ranks.rank]
        return [msgspec.convert(part, Part) for parts in others for part in parts]

    def _committed(self, saving: Saving | None, parts: list[Part], facts: Facts, state_ready: float) -> int:
        if saving is None:
            raise ValueError("only the first rank commits")
        for part in parts:
            saving.take(part)
        bundle = saving.commit(
            contract=facts.contract,
            progress=facts.progress,
            data=facts.data,
            environment=facts.environment,
            code=facts.code,
            world=facts.world,
            state_ready=state_ready,
            journal=self._session.carry(),
        )
        self._session.note_commit(bundle)
        return bundle.number

    def _writer(self, bundle: str, base: int) -> PartWriter:
        manifest = _bundle(self._session, base).manifest if base else None
        storage = self._session.store.storage
        self._sound = {key for key in self._sound if manifest is not None and manifest.id in key}
        return PartWriter(storage, bundle, manifest, self._sound)

    def _pruned(self) -> str:
        """Give up what retention does not keep; return what went wrong, for that loses nothing."""
        if self._keep is None or self._session.attempt is None:
            return ""
        try:
            prune(self._session.store.chain, self._keep)
        except SamestepError as error:
            return f"older bundles stay: {error.message}"
        return ""

    @property
    def _attempt(self) -> Any:
        return self._session.attempt


def _bundle(session: Session, number: int) -> Bundle:
    record = session.store.chain.read(number)
    if not isinstance(record, CommitRecord):
        raise FormatError(f"record {number} of {session.store.run.id} commits no bundle")
    return Bundle(record)
