"""What happened in an attempt: an append-only log of checksummed events, one line each.

Everything that is accounted later, money and wall time alike, is taken from here.
"""

from .events import EVENTS, EventKind
from .lines import JOURNAL_SCHEMA, Event, JournalError
from .reading import Dropped, Reading, read_journal
from .writing import Journal

__all__ = [
    "EVENTS",
    "JOURNAL_SCHEMA",
    "Dropped",
    "Event",
    "EventKind",
    "Journal",
    "JournalError",
    "Reading",
    "read_journal",
]
