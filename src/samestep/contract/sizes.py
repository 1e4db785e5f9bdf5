"""Sizes as people read them: ``1.5 MiB``."""

from __future__ import annotations

_STEP_BYTES = 1024
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


def readable_bytes(size: float) -> str:
    """Return a size in the unit that suits it: ``1.5 MiB``."""
    unit = 0
    while size >= _STEP_BYTES and unit < len(_UNITS) - 1:
        size, unit = size / _STEP_BYTES, unit + 1
    return f"{size:.0f} {_UNITS[unit]}" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"
