"""How much memory a process may still take, by the machine and by its control group."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

import psutil

MARGIN_BYTES: Final = 512 << 20
"""What has to stay free for the training itself."""

_GROUPS: Final = Path("/sys/fs/cgroup")
_OWN: Final = Path("/proc/self/cgroup")
_UNLIMITED: Final = 1 << 60


def free_bytes() -> int:
    """Return how much this process could take now without anything being swapped out or killed."""
    return min(
        [int(psutil.virtual_memory().available), *(left for left in _groups_left() if left is not None)]
    )


def fits(size_bytes: int) -> bool:
    """Say whether so much more memory may be taken."""
    return size_bytes <= 0 or size_bytes + MARGIN_BYTES <= free_bytes()


def _groups_left() -> list[int | None]:
    """Return what each control group that the process is in leaves of its limit."""
    with contextlib.suppress(OSError):
        return [left for line in _OWN.read_text().splitlines() for left in _along(*line.split(":", 2)[1:])]
    return []


def _along(controllers: str, path: str) -> list[int | None]:
    if controllers == "":
        root, limit, used = _GROUPS, "memory.max", "memory.current"
    elif "memory" in controllers.split(","):
        root, limit, used = _GROUPS / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
    else:
        return []
    own = root / path.lstrip("/")
    folders = [own, *own.parents][: len(own.parts) - len(root.parts) + 1]
    return [_left(folder, limit, used) for folder in folders]


def _left(folder: Path, limit: str, used: str) -> int | None:
    """Return the rest of one group's limit; what it caches of files can be given back and counts as free."""
    try:
        most = int((folder / limit).read_text())
        taken = int((folder / used).read_text())
        cached = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # no such group here, or its limit is "max"
        return None
    if most >= _UNLIMITED:
        return None
    return most - taken + int(cached.get("inactive_file", cached.get("total_inactive_file", 0)))
