"""Writes the trace of one process, a line per record, each in one append."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from ..trace import Header, records

if TYPE_CHECKING:
    from pathlib import Path


class TraceWriter:
    """Appends records to ``trace-r<rank>-<pid>.jsonl``.

    The file is opened anew for every record: a script may close or reuse any file descriptor it did not open.

    Args:
        folder: the attempt's trace folder.
        header: the first line.
    """

    def __init__(self, folder: Path, header: Header) -> None:
        self._folder = folder
        self.header = header
        self.path = self._create()
        self._lines: list[str] = []
        self.write(header)

    def write(self, record: records.Record) -> None:
        """Append one record; what was written survives the death of the process."""
        line = json.dumps(records.to_plain(record), separators=(",", ":")) + "\n"
        if not isinstance(record, records.StepRecord):
            self._lines.append(line)
        self._append(line)

    def reopen(self, header: Header) -> None:
        """Start again under a rank that became known late, keeping what was recorded before the first step."""
        old, self.header = self.path, header
        self.path = self._create()
        events = self._lines[1:]
        self._lines = []
        self.write(header)
        for line in events:
            self._append(line)
        old.unlink()

    def _create(self) -> Path:
        for suffix in ("", *(f"-{n}" for n in range(2, 100))):
            path = self._folder / f"trace-r{self.header.rank}-{self.header.pid}{suffix}.jsonl"
            try:
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
            except FileExistsError:
                continue
            return path
        raise FileExistsError(f"{self._folder} already holds 99 traces of process {self.header.pid}")

    def _append(self, line: str) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        try:
            data = line.encode()
            while data:
                data = data[os.write(descriptor, data) :]
        finally:
            os.close(descriptor)
