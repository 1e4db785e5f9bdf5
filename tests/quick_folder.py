"""A folder in memory, for tests in which nothing depends on what would survive a power cut."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")


@contextlib.contextmanager
def quick_folder(otherwise):
    """Lend a folder in memory; where there is no such thing, the one that ``otherwise`` makes."""
    if not os.access(MEMORY, os.W_OK):
        yield otherwise()
        return
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="samestep-") as folder:
        yield Path(folder)
