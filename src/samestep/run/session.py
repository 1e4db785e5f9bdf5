"""One attempt of a run: its store, its journal, and where its local files lie."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from samestep.bundle.carrying import Carrier
from samestep.bundle.history import logs_folder
from samestep.journal import Journal, JournalError
from samestep.journal.odometer import Odometer, odometer_path

if TYPE_CHECKING:
    from samestep.bundle.attempts import Attempt
    from samestep.bundle.bundles import Bundle
    from samestep.bundle.store import Store

_FLUSH_SECONDS = 5.0
"""Most seconds of the journal that a power cut takes, as long as something is noted."""
_NEVER = 1 << 62


class Session:
    """A registered attempt.

    Args:
        store: of the run.
        attempt: the handle that commits; None on all ranks but the first, which do not commit.
        attempt_id: its id.
        ordinal: how many attempts there were, this one included.

    Attributes:
        folder: where its local files lie.
    """

    def __init__(self, store: Store, attempt: Attempt | None, attempt_id: str, ordinal: int) -> None:
        self.store = store
        self.attempt = attempt
        self.attempt_id = attempt_id
        self.ordinal = ordinal
        self.folder = logs_folder(store.storage, store.run.id)
        self._journal: Journal | None = None
        self._carrier: Carrier | None = None
        self._odometer: Odometer | None = None
        self._flushed = time.monotonic()
        self._flusher: threading.Thread | None = None
        if attempt is not None:
            self._odometer = Odometer(odometer_path(self.folder, attempt_id))
            self._journal = Journal.open(self.folder, attempt_id, batch_lines=_NEVER, batch_seconds=_NEVER)
            self._carrier = Carrier(self._journal, store.storage, attempt_id)

    @property
    def carrier(self) -> Carrier | None:
        """What carries the journal into the store; None on all ranks but the first."""
        return self._carrier

    def note(self, event: str, /, **values: Any) -> None:
        """Append an event to the journal; the first rank keeps it."""
        if self._carrier is not None:
            self._carrier.note(event, **values)
            self._flush_now_and_then()

    def _flush_now_and_then(self) -> None:
        """Make the journal durable in the background: the training does not wait for the disk."""
        now = time.monotonic()
        if now - self._flushed < _FLUSH_SECONDS or (self._flusher is not None and self._flusher.is_alive()):
            return
        self._flushed = now
        self._flusher = threading.Thread(target=self._flush, name="samestep-journal", daemon=True)
        try:
            self._flusher.start()
        except RuntimeError:  # the interpreter is shutting down
            self._flush()

    def _flush(self) -> None:
        with contextlib.suppress(JournalError):  # the next line that is written says so
            if self._journal is not None:
                self._journal.flush()

    def note_commit(self, bundle: Bundle) -> None:
        """Note that a bundle exists, and since when its parts would survive a power cut."""
        if self._carrier is not None:
            self._carrier.note_commit(bundle)
            self._flush_now_and_then()

    def executed(self, step: int) -> None:
        """Note that a step was executed, where it outlives the process."""
        if self._odometer is not None:
            self._odometer.show(step)

    def carry(self) -> tuple[str, ...]:
        """Store the journal's new lines and return their keys."""
        return self._carrier.carry() if self._carrier is not None else ()

    @property
    def problem(self) -> str:
        """What kept the journal from being written."""
        return self._carrier.problem if self._carrier is not None else ""

    def close(self) -> None:
        """Make the journal durable and let go of it."""
        if self._journal is not None:
            self._journal.close()


def process_seconds() -> float:
    """Return how long ago this process began; 0.0 where the system does not say so."""
    try:
        started = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - int(started) / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, AttributeError, IndexError):
        return 0.0
