"""Marks of completed steps, set by the probe where a recorder of file operations sees them.

A mark is an attempt to open a file that never exists: the recorder recognises the name and answers that there is no
such file, which is also what happens when nobody records.
"""

from __future__ import annotations

import contextlib
import os

MARK_FOLDER = "/samestep-mark"


def mark_path(rank: int, step: int) -> str:
    """Path to open for writing, with ``O_CREAT``, when ``rank`` has completed ``step`` steps."""
    return f"{MARK_FOLDER}/{rank}/{step}"


def set_mark(rank: int, step: int) -> None:
    """Tell whoever records this process that ``rank`` has completed ``step`` steps."""
    with contextlib.suppress(OSError):  # there never is such a folder
        os.open(mark_path(rank, step), os.O_WRONLY | os.O_CREAT)
