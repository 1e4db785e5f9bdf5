"""What is known of every attempt of a run: its record, its journal, and the last step that it executed."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from samestep.bundle.carrying import read_carried
from samestep.bundle.errors import StoreError
from samestep.bundle.records import AttemptRecord
from samestep.bundle.storage.local import LocalStorage
from samestep.journal import JournalError, read_journal
from samestep.journal.odometer import NOT_SHOWN, Shown, odometer_path, read_odometer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from samestep.bundle.storage.base import Storage
    from samestep.bundle.store import Store
    from samestep.journal import Event

LOGS = "logs"
"""Folder of a run's root on local disk with what no bundle rests on: journals as written, scalars."""

_MOST_ATTEMPTS = 1000


@dataclasses.dataclass(frozen=True)
class PastAttempt:
    """One attempt of a run.

    Attributes:
        record: of its registration.
        events: of its journal, in order; empty when it is lost.
        whole: the journal is the one that was written on this machine; otherwise it is what commits carried into the
            store, and ends with the last of them.
        shown: the last step that it executed, where that is known beyond the journal.
        problem: why its journal could not be read.
    """

    record: AttemptRecord
    events: tuple[Event, ...]
    whole: bool
    shown: Shown = NOT_SHOWN
    problem: str = ""

    @property
    def resumed(self) -> int:
        """The step that it went on from."""
        return self.record.resumed.step if self.record.resumed else 0

    @property
    def ranges(self) -> list[tuple[int, int, float]]:
        """First step, last step and seconds of every range of steps that its journal tells of."""
        return [
            (int(event.values["first"]), int(event.values["last"]), float(event.values["seconds"]))
            for event in self.events
            if event.event == "steps"
        ]

    @property
    def reached(self) -> int:
        """The last step that it is known to have executed."""
        return max([self.resumed, self.shown.step, *(last for _, last, _ in self.ranges)])


def attempts_of(store: Store, folder: Path | None = None) -> list[PastAttempt]:
    """Return the attempts of a run, oldest first; at most the newest thousand records are looked at for them.

    Args:
        store: of the run.
        folder: where journals of attempts on this machine lie; they reach further than what commits carried.
            By default the one that a run on this machine uses.
    """
    place = logs_folder(store.storage, store.run.id) if folder is None else folder
    records = [
        record
        for record, _ in zip(store.chain.backwards(store.chain.head()), range(_MOST_ATTEMPTS), strict=False)
        if isinstance(record, AttemptRecord)
    ]
    return past_attempts(store.storage, reversed(records), place)


def past_attempts(storage: Storage, records: Iterable[AttemptRecord], folder: Path) -> list[PastAttempt]:
    """Return what is known of the attempts that ``records`` register."""
    return [_past(storage, record, folder) for record in records]


def unix(text: str) -> float:
    """Return the seconds since 1970 of a time as records and journals write it."""
    return datetime.fromisoformat(text).timestamp()


def logs_folder(storage: Storage, run: str) -> Path:
    """Return where journals and scalars of a run lie on this machine."""
    if isinstance(storage, LocalStorage):
        return storage.root / LOGS
    return Path(".samestep") / LOGS / run


def _past(storage: Storage, record: AttemptRecord, folder: Path) -> PastAttempt:
    local = folder / f"{record.attempt}.jsonl"
    whole = local.exists()
    shown = read_odometer(odometer_path(folder, record.attempt))
    try:
        reading = read_journal(local) if whole else read_carried(storage, record.attempt)
    except (JournalError, StoreError) as error:
        return PastAttempt(record, (), whole, shown, error.message)
    return PastAttempt(record, reading.events, whole, shown)
