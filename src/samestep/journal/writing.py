"""Writing a journal: one writer, whole lines, durable in batches."""

from __future__ import annotations

import fcntl
import os
import re
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

from .durable import make_folder, sync
from .events import EVENTS, OPENED, REOPENED
from .lines import JOURNAL_SCHEMA, JournalError, encode_line
from .reading import read_journal

if TYPE_CHECKING:
    from pathlib import Path

    from .reading import Reading

_NAME = re.compile(r"[a-z][a-z0-9-]{0,63}")
_ATTEMPT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")


class Journal:
    """The journal of one attempt, open for appending; made by `Journal.open`.

    A line that was appended survives the process at once and a power cut after the next `flush`. Batches are
    flushed by ``append`` itself: after ``batch_lines`` lines, or ``batch_seconds`` after the first of them, or
    with an event that is urgent. All methods may be called from several threads.
    """

    def __init__(
        self, path: Path, descriptor: int, reading: Reading, *, batch_lines: int, batch_seconds: float
    ) -> None:
        self.path = path
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._syncing = threading.Lock()  #: taken before the other one
        self._previous = reading.events[-1].xxh3 if reading.events else ""
        self._seq = len(reading.events)
        self._size = os.fstat(descriptor).st_size
        self._starts = _line_starts(path)
        self._synced = 0
        self._unsynced_since: float | None = None
        self._batch_lines = batch_lines
        self._batch_seconds = batch_seconds
        self._failure = ""

    @classmethod
    def open(
        cls, folder: Path, attempt: str, *, batch_lines: int = 64, batch_seconds: float = 5.0
    ) -> Journal:
        """Begin the journal of an attempt, or go on with it after dropping a torn tail.

        Args:
            folder: where journals lie; created if it is missing.
            attempt: id of the attempt; the file is named after it.
            batch_lines: most lines that a power cut may take.
            batch_seconds: most seconds a line stays without fsync while others follow.

        Raises:
            JournalError: another process writes it, it is damaged, or it cannot be written.
        """
        if not _ATTEMPT.fullmatch(attempt):
            raise JournalError(f"{attempt!r} cannot name a journal: letters, digits, - and _ can")
        path = folder / f"{attempt}.jsonl"
        try:
            make_folder(folder)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise JournalError(f"cannot write the journal {path}: {error.strerror}") from error
        try:
            return cls._begin(path, descriptor, attempt, batch_lines, batch_seconds)
        except BaseException:
            os.close(descriptor)
            raise

    @classmethod
    def _begin(
        cls, path: Path, descriptor: int, attempt: str, batch_lines: int, batch_seconds: float
    ) -> Journal:
        _lock_file(path, descriptor)
        reading = read_journal(path)
        dropped = reading.problem
        if dropped is not None:
            os.ftruncate(descriptor, dropped.at_byte)
        journal = cls(path, descriptor, reading, batch_lines=batch_lines, batch_seconds=batch_seconds)
        if not reading.events:
            journal.append(OPENED, schema=JOURNAL_SCHEMA, attempt=attempt)
        if reading.events or dropped is not None:
            journal.append(REOPENED, dropped_bytes=dropped.size_bytes if dropped else 0)
        journal.flush()
        sync(path.parent)
        return journal

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def next_seq(self) -> int:
        """Return the sequence number of the next line."""
        return self._seq

    def append(self, event: str, /, **values: Any) -> int:
        """Append an event and return its sequence number.

        Args:
            event: one of `EVENTS`, or any other name in lower case with dashes.
            values: what is known of it: anything that JSON can hold, NaN and infinities, too.

        Raises:
            ValueError: the name cannot be one, or a known event lacks a value.
            TypeError: a value is nothing that JSON can hold.
            JournalError: the line could not be written. The journal is as it was before.
        """
        _check(event, values)
        kind = EVENTS.get(event)
        with self._lock:
            self._require_open()
            seq = self._seq
            self._append(event, values)
            due = (kind is not None and kind.urgent) or self._batch_is_full()
        if due:
            self.flush()
        return seq

    def flush(self) -> None:
        """Return when every line would survive a power cut.

        Raises:
            JournalError: the disk failed; nothing can be appended any more.
        """
        with self._syncing:
            with self._lock:
                self._require_open()
                lines = self._seq
            self._sync(lines)

    def segment_since(self, seq: int) -> bytes:
        """Return the lines from sequence number ``seq`` on, durable; empty when there are none yet.

        Joined in order, the segments of an attempt are its journal.

        Raises:
            JournalError: the disk failed.
        """
        with self._syncing:
            with self._lock:
                self._require_open()
                lines, size = self._seq, self._size
            self._sync(lines)
            if seq >= lines:
                return b""
            begin = self._starts[max(seq, 0)]
            return os.pread(self._descriptor, size - begin, begin)

    def close(self) -> None:
        """Make everything durable and let go of the file; closing twice is no error."""
        with self._syncing, self._lock:
            if self._descriptor < 0:
                return
            try:
                if not self._failure:
                    self._sync(self._seq)
            finally:
                os.close(self._descriptor)
                self._descriptor = -1

    def _append(self, event: str, values: dict[str, Any]) -> None:
        fields = {
            "seq": self._seq,
            "at": datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "monotonic": time.monotonic(),
            "event": event,
            "values": values,
            "synced": self._synced,
        }
        line, checksum = encode_line(fields, self._previous)
        self._write(line)
        self._starts.append(self._size)
        self._size += len(line)
        self._previous = checksum
        self._seq += 1
        if self._unsynced_since is None:
            self._unsynced_since = time.monotonic()

    def _write(self, line: bytes) -> None:
        """Write a whole line or nothing of it."""
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError as error:
            self._take_back()
            raise JournalError(f"cannot write the journal {self.path}: {error.strerror}") from error
        except BaseException:
            self._take_back()
            raise

    def _take_back(self) -> None:
        try:
            os.ftruncate(self._descriptor, self._size)
        except OSError as error:
            self._failure = f"a line is torn and could not be taken back: {error.strerror}"

    def _sync(self, lines: int) -> None:
        """Make the first ``lines`` durable. Others are appended meanwhile: who appends does not wait for the disk."""
        if self._synced >= lines:
            return
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            # The kernel may have dropped the pages: a later fsync that succeeds would prove nothing.
            self._failure = f"fsync failed: {error.strerror}"
            raise JournalError(f"cannot write the journal {self.path}: {self._failure}") from error
        self._synced = lines
        self._unsynced_since = None if lines == self._seq else time.monotonic()

    def _batch_is_full(self) -> bool:
        waiting = time.monotonic() - (self._unsynced_since or time.monotonic())
        return self._seq - self._synced >= self._batch_lines or waiting >= self._batch_seconds

    def _require_open(self) -> None:
        if self._descriptor < 0:
            raise JournalError(f"the journal {self.path} is closed")
        if self._failure:
            raise JournalError(f"the journal {self.path} cannot be continued: {self._failure}")


def _check(event: str, values: dict[str, Any]) -> None:
    if not _NAME.fullmatch(event):
        raise ValueError(f"{event!r} is no name of an event: lower case, digits and dashes")
    kind = EVENTS.get(event)
    missing = [name for name in kind.values if name not in values] if kind else []
    if missing:
        raise ValueError(f"the event {event} must say {', '.join(missing)}")


def _lock_file(path: Path, descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise JournalError(
            f"another process writes the journal {path}", hint="an attempt has one writer"
        ) from error
    except OSError:
        # A file system without locks cannot tell two writers apart; the chain of checksums still does.
        return


def _line_starts(path: Path) -> list[int]:
    starts, offset = [], 0
    with path.open("rb") as file:
        for line in file:
            starts.append(offset)
            offset += len(line)
    return starts
