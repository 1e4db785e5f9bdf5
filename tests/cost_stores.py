"""Stores with attempts whose times are chosen: real records and real journals, written as by a clock of one's own."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from bundle_samples import again, save, started
from samestep.bundle.identity import utc_text
from samestep.bundle.storage.local import LocalStorage
from samestep.journal.lines import JOURNAL_SCHEMA, encode_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samestep.bundle.attempts import Attempt

EPOCH = 1_800_000_000.0
ROOT = Path(__file__).parents[1]


class JournalOf:
    """Writes the journal of an attempt; times are seconds since the run began.

    Args:
        path: of the journal; None to keep its lines only.
        attempt: id of the attempt.
        began: when the process began.
        zero: of the monotonic clock.
    """

    def __init__(self, path: Path | None, attempt: str, began: float, *, zero: float = 50.0) -> None:
        self.lines: list[bytes] = []
        self.path, self._previous, self._zero = path, "", zero - began
        self.note(began, "journal-opened", schema=JOURNAL_SCHEMA, attempt=attempt)

    def note(self, at: float, event: str, **values: Any) -> None:
        fields = {
            "seq": len(self.lines),
            "at": utc_text(EPOCH + at),
            "monotonic": at + self._zero,
            "event": event,
            "values": values,
            "synced": 0,
        }
        line, self._previous = encode_line(fields, self._previous)
        self.lines.append(line)
        if self.path is not None:
            self.path.parent.mkdir(exist_ok=True)
            self.path.write_bytes(b"".join(self.lines))

    def steps(self, begin: float, end: float, first: int, last: int, **values: float) -> None:
        self.note(end, "steps", first=first, last=last, seconds=end - begin, **values)

    def saved(
        self, asked: float, ready: float, step: int, *, committed: float | None = None, **values: Any
    ) -> None:
        self.note(asked, "save-asked", step=step, **values)
        self.note(ready, "save-state-ready", step=step)
        if committed is not None:
            said = {"bundle": "b", "number": 1, "size_bytes": 1, "written_bytes": 1}
            self.note(committed, "save-committed", step=step, **said)


class Stored:
    """A run in a folder, attempt by attempt."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.storage = LocalStorage(root)
        self.attempt: Attempt | None = None
        self.store: Any = None

    def begin(self, at: float, *, process_seconds: float = 0.0) -> JournalOf:
        """Register an attempt at that time and return its journal."""
        with clock(at):
            self.store, self.attempt = (again if self.attempt else started)(self.storage)
        journal = JournalOf(self.root / "logs" / f"{self.attempt.id}.jsonl", self.attempt.id, at)
        journal.note(
            at,
            "attempt-started",
            run=self.store.run.id,
            ordinal=self.attempt.ordinal,
            process_seconds=process_seconds,
        )
        return journal

    def commit(self, at: float, step: int) -> None:
        """Commit a bundle at that time."""
        with clock(at):
            save(self.attempt, step)

    def show(self, at: float, step: int) -> None:
        """Let the odometer show a step."""
        from samestep.journal.odometer import Odometer, odometer_path

        with mock.patch("time.time", return_value=EPOCH + at):
            Odometer(odometer_path(self.root / "logs", self.attempt.id)).show(step)


@contextlib.contextmanager
def clock(at: float) -> Iterator[None]:
    """Let records be written at that time."""
    with mock.patch("samestep.bundle.attempts.utc_text", return_value=utc_text(EPOCH + at)):
        yield


def three_hundred_steps(root: Path) -> Stored:
    """The run of the example: cut at step 300 while the save of step 280 is still being written."""
    run = Stored(root)
    first = run.begin(0.0, process_seconds=0.0)
    at = 10.0
    for step in range(40, 281, 40):
        first.steps(at, at + 40, step - 39, step)
        committed = at + 42 if step < 280 else None
        if committed:
            run.commit(committed, step)
        first.saved(at + 40, at + 41, step, committed=committed)
        at += 41
    run.show(at + 20, 300)
    second = run.begin(400.0)
    second.steps(430.0, 510.0, 241, 320)
    run.commit(512.0, 320)
    second.saved(510.0, 511.0, 320, committed=512.0, waits=True)
    second.note(512.5, "ended", outcome="finished", step=320)
    return run
