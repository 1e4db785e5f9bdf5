"""Carrying the journal of an attempt into the store, so that it outlives the machine together with the bundles."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from samestep.bundle.errors import StoreError
from samestep.bundle.identity import check_id
from samestep.bundle.storage.base import AlreadyThere
from samestep.journal import JournalError, read_journal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from samestep.bundle.bundles import Bundle
    from samestep.bundle.storage.base import Storage
    from samestep.journal import Journal, Reading

SEGMENT_LIMIT = 1 << 30
"""Most bytes of a segment that are read."""

_SEGMENT = re.compile(r"journal/[^/]+/(\d{10})\.jsonl")


class Carrier:
    """Notes events in a journal, and stores what it has gained since the last commit.

    A journal that cannot be written keeps no bundle from being made: ``problem`` says what happened.

    Args:
        journal: of the attempt, begun by this process.
        storage: of the run.
        attempt: id of the attempt.

    Attributes:
        path: of the journal.
        problem: what kept the journal from being written; empty while nothing has.
    """

    def __init__(self, journal: Journal, storage: Storage, attempt: str) -> None:
        self.problem = ""
        self.path = journal.path
        self._journal = journal
        self._storage = storage
        self._attempt = check_id(attempt, "attempt")
        self._carried = 0

    def note(self, event: str, /, **values: Any) -> None:
        """Append an event; see ``Journal.append``."""
        try:
            self._journal.append(event, **values)
        except JournalError as error:
            self.problem = self.problem or error.message

    def note_commit(self, bundle: Bundle) -> None:
        """Note that a bundle exists, and since when its parts would survive a power cut."""
        manifest = bundle.manifest
        self.note("save-durable", step=bundle.step, bundle=bundle.id, at=manifest.timings.parts_durable)
        self.note(
            "save-committed",
            step=bundle.step,
            bundle=bundle.id,
            number=bundle.number,
            size_bytes=manifest.size,
            written_bytes=sum(part.size for part in manifest.parts if not part.share_depth),
        )

    def carry(self) -> tuple[str, ...]:
        """Store the lines since the last segment and return its key; nothing when there are none.

        Raises:
            StoreError: the place failed, or holds other lines under that key.
        """
        try:
            data = self._journal.segment_since(self._carried)
        except JournalError as error:
            self.problem = self.problem or error.message
            return ()
        if not data:
            return ()
        key = segment_key(self._attempt, self._carried)
        try:
            self._storage.create(key, data)
        except AlreadyThere:
            self._require_same(key, data)
        self._carried += data.count(b"\n")
        return (key,)

    def _require_same(self, key: str, data: bytes) -> None:
        """A lost reply makes one's own success look like a conflict."""
        if self._storage.read(key, limit=SEGMENT_LIMIT) != data:
            raise StoreError(
                f"{key} of {self._storage.url} holds other lines than the journal here",
                hint="an attempt has one writer: register a new attempt",
            )
        self._storage.settle([key])


def segment_key(attempt: str, first: int) -> str:
    """Return the key of the segment that begins with line ``first``."""
    return f"journal/{attempt}/{first:010}.jsonl"


def read_carried(storage: Storage, attempt: str) -> Reading:
    """Read the journal of an attempt from the segments that its commits have carried.

    Raises:
        JournalError: a segment is damaged or missing.
        StoreError: the place failed.
    """
    keys = [entry.key for entry in storage.entries(f"journal/{check_id(attempt, 'attempt')}/")]
    return read_journal(b"".join(storage.read(key, limit=SEGMENT_LIMIT) for key in _in_order(keys)))


def _in_order(keys: Iterable[str]) -> list[str]:
    numbered = [(int(match[1]), key) for key in keys if (match := _SEGMENT.fullmatch(key))]
    return [key for _, key in sorted(numbered)]
