"""The events that accounting rests on, and what each of them must say."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class EventKind:
    """One kind of event.

    Attributes:
        name: as it stands in the journal.
        meaning: what has happened when it is written.
        values: what it must say; more may be said.
        also: what accounting uses where it is said.
        urgent: whether it is made durable at once, because what follows may not wait for the next batch.
    """

    name: str
    meaning: str
    values: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    urgent: bool = False


OPENED = "journal-opened"
REOPENED = "journal-reopened"

EVENTS: dict[str, EventKind] = {
    kind.name: kind
    for kind in (
        EventKind(OPENED, "the journal was begun; always the first line", ("schema", "attempt")),
        EventKind(
            REOPENED, "another process goes on; its monotonic clock has another zero", ("dropped_bytes",)
        ),
        EventKind(
            "attempt-started",
            "the attempt was registered, so many seconds after its process began",
            ("run", "ordinal"),
            also=("process_seconds",),
            urgent=True,
        ),
        EventKind("decision", "where to start was decided, and why", ("outcome",), urgent=True),
        EventKind("restore-begun", "the chosen bundle is being read", ("bundle", "step")),
        EventKind("restore-ended", "its state is in place, or is not", ("bundle", "step", "outcome")),
        EventKind(
            "steps",
            "these steps were executed: a range, both ends included, the seconds they took, and how many of these "
            "they waited for their data",
            ("first", "last", "seconds"),
            also=("waited",),
        ),
        EventKind(
            "save-asked",
            "a save was asked for: training stands still from here on, perhaps until the bundle exists",
            ("step",),
            also=("waits",),
        ),
        EventKind("save-state-ready", "the state is captured: training goes on", ("step",)),
        EventKind("save-durable", "every part would survive a power cut", ("step", "bundle")),
        EventKind(
            "save-committed",
            "the bundle exists",
            ("step", "bundle", "number", "size_bytes", "written_bytes"),
            urgent=True,
        ),
        EventKind("save-failed", "the save left no bundle", ("step", "reason"), urgent=True),
        EventKind(
            "notice", "a warning of the machine's end arrived", ("source",), also=("step",), urgent=True
        ),
        EventKind("ended", "the attempt ended by itself", ("outcome", "step"), urgent=True),
    )
}
"""Every event that is known; others may be written, too."""
