"""Durations as people write them: ``90 s``, ``10 min``, ``1h 30min``, ``2 days``."""

from __future__ import annotations

import re

_PIECE = re.compile(
    r"(\d+(?:\.\d+)?)\s*(seconds?|sec|s|minutes?|min|m|hours?|h|days?|d)(?![a-z])\s*", re.IGNORECASE
)
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def seconds_in(text: str) -> float | None:
    """Return the seconds that ``text`` stands for, or None if it is no duration."""
    rest, seconds = text.strip(), 0.0
    while match := _PIECE.match(rest):
        seconds += float(match[1]) * _SECONDS[match[2][0].lower()]
        rest = rest[match.end() :]
        if not rest:
            return seconds
    return None
