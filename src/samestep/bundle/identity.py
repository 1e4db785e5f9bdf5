"""Ids of runs, attempts and bundles: sortable by time, unique, readable, strict."""

from __future__ import annotations

import datetime as dt
import re
import secrets
import time
from typing import Literal

from samestep.bundle.errors import FormatError

Kind = Literal["run", "attempt", "bundle"]

_PREFIX: dict[Kind, str] = {"run": "r", "attempt": "a", "bundle": "b"}
_SHAPE = re.compile(r"[rab]-(\d{8}t\d{9})-[0-9a-f]{10}", re.ASCII)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|\+00:00)", re.ASCII)
_RANDOM_BYTES = 5
_LONGEST_SHOWN = 80


def new_run_id(now: float | None = None) -> str:
    """Return a new id of a run; ``now`` is in seconds since 1970."""
    return _new("run", now)


def new_attempt_id(now: float | None = None) -> str:
    """Return a new id of an attempt; ``now`` is in seconds since 1970."""
    return _new("attempt", now)


def new_bundle_id(now: float | None = None) -> str:
    """Return a new id of a bundle; ``now`` is in seconds since 1970."""
    return _new("bundle", now)


def new_nonce() -> str:
    """Return 32 random hex digits, by which a writer knows its own record again."""
    return secrets.token_hex(16)


def check_id(text: str, kind: Kind) -> str:
    """Return ``text`` when it is an id of that kind.

    Raises:
        FormatError: it is not, and so must not become part of a path.
    """
    match = _SHAPE.fullmatch(text)
    if match is None or text[0] != _PREFIX[kind] or not _parses(match[1][:15].upper()):
        raise FormatError(
            f"{_shortened(text)} is not the id of {_with_article(kind)}",
            hint=f"It looks like {_PREFIX[kind]}-20260131t235959123-0123456789.",
        )
    return text


def utc_text(now: float | None = None) -> str:
    """Return a time as records write it: ``2026-01-31T23:59:59.123Z``; ``now`` is in seconds since 1970."""
    moment = dt.datetime.fromtimestamp(time.time() if now is None else now, tz=dt.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def check_time(text: str) -> str:
    """Return ``text`` when it is a time in UTC, ISO 8601.

    Raises:
        FormatError: it is not.
    """
    if _TIME.fullmatch(text) and _parses(text):
        return text
    raise FormatError(
        f"{_shortened(text)} is not a time in UTC", hint="It looks like 2026-01-31T23:59:59.123Z."
    )


def _new(kind: Kind, now: float | None) -> str:
    milliseconds = int((time.time() if now is None else now) * 1000)
    moment = dt.datetime.fromtimestamp(milliseconds // 1000, tz=dt.UTC)
    return (
        f"{_PREFIX[kind]}-{moment:%Y%m%dt%H%M%S}{milliseconds % 1000:03}-{secrets.token_hex(_RANDOM_BYTES)}"
    )


def _parses(text: str) -> bool:
    try:
        dt.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _shortened(text: str) -> str:
    return repr(text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…")


def _with_article(kind: Kind) -> str:
    return f"an {kind}" if kind == "attempt" else f"a {kind}"
