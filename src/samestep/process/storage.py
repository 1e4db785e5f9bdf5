"""What file system a folder lies on, and which interruptions it has to be judged by."""

from __future__ import annotations

import os
from pathlib import Path

_ALWAYS = frozenset({"kill", "machine-lost", "compound"})
_ALLOWED = {
    "tmpfs": _ALWAYS,
    "ramfs": _ALWAYS,
    "ext4": _ALWAYS | {"power-ext4"},
    "ext3": _ALWAYS | {"power-ext4"},
    "xfs": _ALWAYS | {"power-ext4", "power-xfs"},
    "nfs": _ALWAYS | {"nfs"},
    "nfs4": _ALWAYS | {"nfs"},
}
_ALLOWED["posix"] = _ALWAYS | {"nfs", "power-ext4", "power-xfs", "posix-worst"}
"""No file system by itself: what users name whose storage promises no more than POSIX does."""

_OTHERS = _ALWAYS | {"power-ext4", "power-xfs"}
"""Of a file system whose promises are not known here: no more than the common ones make."""


def storage_type(path: Path) -> str:
    """Return the type of the file system that ``path`` lies on, such as ``ext4``; empty where it is not known."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    real = os.path.realpath(path)
    best, found = "", ""
    for line in mounts.splitlines():
        fields, _, rest = line.partition(" - ")
        place = _unescaped(fields.split()[4])
        if (real == place or real.startswith(place.rstrip("/") + "/")) and len(place) >= len(best):
            best, found = place, rest.split()[0]
    return found


def allowed_models(storage: str) -> frozenset[str]:
    """Return the persistence models that a file system of this type allows; a stronger one is only noted."""
    return _ALLOWED.get(storage, _OTHERS)


def _unescaped(text: str) -> str:
    """Undo the octal escapes of proc(5)."""
    return text.encode().decode("unicode_escape") if "\\" in text else text
