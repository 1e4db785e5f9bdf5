"""A run's attempts, read from its store: what each did with its time, and how each ended."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from samestep.bundle.chain import Unreadable
from samestep.bundle.history import attempts_of
from samestep.bundle.records import CommitRecord
from samestep.bundle.storage.opening import open_storage
from samestep.bundle.store import Store
from samestep.contract.words import Word

from .timeline import timeline_of

if TYPE_CHECKING:
    from pathlib import Path

    from samestep.bundle.history import PastAttempt
    from samestep.bundle.records import Record

    from .timeline import Timeline

_BY_HAND = ("Ctrl-C", "Ctrl-C twice")


class End(Word):
    """How an attempt ended."""

    FINISHED = "finished"  #: by itself
    STOPPED = "stopped"  #: by a person
    FAILED = "failed"  #: by an error of the script
    INTERRUPTED = "interrupted"  #: its machine was taken away
    UNKNOWN = "unknown"  #: it is the newest and says nothing: it may still go on


@dataclasses.dataclass(frozen=True)
class RunHistory:
    """What a store tells of a run.

    Attributes:
        run: its id.
        place: where the store is.
        records: of its chain, oldest first.
        timelines: of its attempts, oldest first.
        notes: what could not be read, or is not known.
        on_objects: the store lies in an object store, where calls are paid.
    """

    run: str
    place: str
    records: tuple[Record, ...]
    timelines: tuple[Timeline, ...]
    notes: tuple[str, ...]
    on_objects: bool

    @property
    def commits(self) -> list[CommitRecord]:
        """The bundles that were made, oldest first."""
        return [record for record in self.records if isinstance(record, CommitRecord)]

    def end(self, index: int) -> End:
        """Return how the attempt with that index ended."""
        timeline = self.timelines[index]
        outcome, notice = timeline.outcome, timeline.notice
        if outcome in ("finished", "closed", "left"):
            return End.FINISHED
        if outcome == "interrupted" or (notice is not None and notice.source in _BY_HAND):
            return End.STOPPED
        if outcome in ("notice", "rank-lost"):
            return End.INTERRUPTED
        if outcome:
            return End.FAILED
        return End.INTERRUPTED if index + 1 < len(self.timelines) else End.UNKNOWN

    def name(self, index: int) -> str:
        """Return what a person calls the attempt with that index."""
        return f"attempt {self.timelines[index].past.record.attempt_ordinal}"


def history_of(root: str | Path) -> RunHistory:
    """Read what a store tells of its run.

    Args:
        root: folder or URL of the store.

    Raises:
        SamestepError: it cannot be read.
    """
    store = Store.open(open_storage(root), writing=False)
    found = list(store.chain.backwards(store.chain.head()))[::-1]
    records = tuple(record for record in found if not isinstance(record, Unreadable))
    notes = [
        f"{record.text}: what it says is not accounted" for record in found if isinstance(record, Unreadable)
    ]
    newest = {record.bundle.attempt: record for record in records if isinstance(record, CommitRecord)}
    timelines = []
    for past in attempts_of(store):
        if past.problem:
            notes.append(
                f"the journal of attempt {past.record.attempt_ordinal} cannot be read: {past.problem}"
            )
        timelines.append(_timeline(past, newest.get(past.record.attempt), notes))
    url = store.storage.url
    return RunHistory(
        store.run.id, url, records, tuple(timelines), tuple(notes), "://" in url and "file://" not in url
    )


def _timeline(past: PastAttempt, committed: CommitRecord | None, notes: list[str]) -> Timeline:
    """Return the timeline of an attempt; a journal that says what cannot be meant is left out, and that is noted."""
    try:
        return timeline_of(past, committed)
    except (KeyError, TypeError, ValueError) as error:
        notes.append(
            f"the journal of attempt {past.record.attempt_ordinal} says what cannot be meant: {error}"
        )
        return timeline_of(dataclasses.replace(past, events=()), committed)
