"""One line of a journal: an event as JSON, with a checksum that is chained to the line before."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import msgspec
import xxhash

from samestep.errors import SamestepError

JOURNAL_SCHEMA = "samestep.journal/1"
MAX_LINE_BYTES = 1 << 20

_NOT_FINITE = ("nan", "inf", "-inf")
_SEAL = re.compile(rb'^(\{.+),"xxh3":"([0-9a-f]{16})"\}\n$', re.DOTALL)


class JournalError(SamestepError):
    """A journal cannot be written, or is damaged where a torn write is no explanation."""

    slug = "journal"


class Event(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One event.

    Attributes:
        seq: 0 for the first line, then one more for every line.
        at: UTC, ISO 8601.
        monotonic: seconds of a clock that never jumps; its zero is the writing process's own.
        event: what happened.
        values: what is known of it.
        synced: every line below this number was durable when this one was written.
        xxh3: XXH3 (64 bits, hex) of the previous line's checksum followed by this line up to its own.
    """

    seq: int
    at: str
    monotonic: float
    event: str
    values: dict[str, Any]
    synced: int
    xxh3: str


def encode_line(fields: dict[str, Any], previous: str) -> tuple[bytes, str]:
    """Return a line and its checksum.

    Args:
        fields: everything that `Event` holds except the checksum.
        previous: the checksum of the line before; empty for the first.

    Raises:
        JournalError: the line would be longer than 1 MiB.
        TypeError: a value is nothing that JSON can hold.
    """
    text = json.dumps(
        _tagged(fields), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    body = text.encode("utf-8", "backslashreplace")[:-1]  # a lone surrogate becomes its own JSON escape
    checksum = _checksum(body, previous)
    line = body + b',"xxh3":"' + checksum.encode() + b'"}\n'
    if len(line) > MAX_LINE_BYTES:
        raise JournalError(
            f"the event {fields['event']} needs a line of {len(line)} bytes, at most {MAX_LINE_BYTES} are kept",
            hint="write large values to a file, and its name to the journal",
        )
    return line, checksum


def decode_line(line: bytes, previous: str) -> Event | None:
    """Return the event of a line, or None if its bytes are not what was once written after ``previous``."""
    sealed = _SEAL.match(line)
    if sealed is None or _checksum(sealed[1], previous) != sealed[2].decode():
        return None
    try:
        plain = _untagged(json.loads(line))
        return msgspec.convert(plain, Event)
    except (ValueError, RecursionError, msgspec.ValidationError):
        return None


def stated_checksum(line: bytes) -> str | None:
    """Return the checksum that a line carries, whether it is right or not."""
    sealed = _SEAL.match(line)
    return sealed[2].decode() if sealed else None


def _checksum(body: bytes, previous: str) -> str:
    return xxhash.xxh3_64_hexdigest(previous.encode() + body)


def _tagged(value: Any) -> Any:
    """Return ``value`` with the floats that JSON cannot hold in the typed form of the bundle format."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": str(value)}
    if isinstance(value, dict):
        return {key: _tagged(item) for key, item in value.items()}
    return [_tagged(item) for item in value] if isinstance(value, list | tuple) else value


def _untagged(value: Any) -> Any:
    if isinstance(value, list):
        return [_untagged(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"$float"} and value["$float"] in _NOT_FINITE:
        return float(value["$float"])
    return {key: _untagged(item) for key, item in value.items()}
