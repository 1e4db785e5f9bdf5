"""Reading a journal: a tail that an interruption tore is dropped and said, damage before it is an error."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from .lines import Event, JournalError, decode_line, stated_checksum

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Dropped:
    """The end of a journal that was never completely written.

    Attributes:
        line: number of the first line that is dropped, from 1.
        at_byte: where it begins.
        size_bytes: from there to the end.
    """

    line: int
    at_byte: int
    size_bytes: int

    def __str__(self) -> str:
        return (
            f"line {self.line} was not completely written; {self.size_bytes} bytes from there on are left out"
        )


@dataclasses.dataclass(frozen=True)
class Reading:
    """What a journal says.

    Attributes:
        events: in order, every one with the right checksum.
        problem: the torn tail, if there is one.
    """

    events: tuple[Event, ...]
    problem: Dropped | None = None


def read_journal(source: Path | bytes) -> Reading:
    """Read a journal from its beginning.

    Lines that were not yet synced when the machine died may be missing, torn or full of zeros, in any order:
    everything from the first of them on is dropped. A line that was durable once and cannot be verified any more
    is damage.

    Args:
        source: the file, or its bytes (segments of one attempt, joined in order).

    Raises:
        JournalError: a line that was durable is damaged, or the file cannot be read.
    """
    name = str(source) if isinstance(source, Path) else "the journal"
    data = _bytes_of(source) if isinstance(source, Path) else source
    lines = _split(data)
    events: list[Event] = []
    previous, offset = "", 0
    for index, line in enumerate(lines):
        event = decode_line(line, previous)
        if event is None or event.seq != index:
            return Reading(tuple(events), _tail(lines, index, offset, len(data), name))
        events.append(event)
        previous, offset = event.xxh3, offset + len(line)
    return Reading(tuple(events))


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise JournalError(f"cannot read the journal {path}: {error.strerror}") from error


def _split(data: bytes) -> list[bytes]:
    lines = data.split(b"\n")
    return [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _tail(lines: Sequence[bytes], index: int, offset: int, size: int, name: str) -> Dropped:
    """Return what is dropped from line ``index`` on, if nothing after it says that it was durable.

    Raises:
        JournalError: something does.
    """
    for line, following in zip(lines[index:], lines[index + 1 :], strict=False):
        event = decode_line(following, stated_checksum(line) or "")
        if event is not None and event.synced > index:
            raise JournalError(
                f"line {index + 1} of {name} is damaged: its checksum is not that of what stands there, and line "
                f"{event.seq + 1} was written when it was already durable",
                hint="the disk, or somebody, changed it: what comes after that line cannot be accounted",
            )
    return Dropped(index + 1, offset, size - offset)
