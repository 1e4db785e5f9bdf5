"""The last step that was executed, in a file that outlives the process: it shows what an interruption took."""

from __future__ import annotations

import mmap
import os
import struct
import time
from typing import TYPE_CHECKING, NamedTuple

from .durable import make_folder

if TYPE_CHECKING:
    from pathlib import Path

_FORMAT = struct.Struct("<qd")


class Shown(NamedTuple):
    """What an odometer showed last.

    Attributes:
        step: that was executed; 0 when there is no odometer.
        at: when, in seconds since 1970; 0.0 when that is not known.
    """

    step: int = 0
    at: float = 0.0


NOT_SHOWN = Shown()


class Odometer:
    """Keeps the last step in shared memory backed by a file: a write costs nothing worth measuring.

    It survives the end of the process, however sudden; a power cut it may not.

    Args:
        path: of the file. Where it cannot be written nothing is kept.
    """

    def __init__(self, path: Path) -> None:
        self._memory: mmap.mmap | None = None
        try:
            make_folder(path.parent)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                os.ftruncate(descriptor, _FORMAT.size)
                self._memory = mmap.mmap(descriptor, _FORMAT.size)
            finally:
                os.close(descriptor)
        except OSError:
            return

    def show(self, step: int) -> None:
        """Note that ``step`` was executed, and that it was now."""
        if self._memory is not None:
            _FORMAT.pack_into(self._memory, 0, step, time.time())


def odometer_path(folder: Path, attempt: str) -> Path:
    """Return the file with the last step that an attempt executed."""
    return folder / f"{attempt}.step"


def read_odometer(path: Path) -> Shown:
    """Return what an odometer showed last."""
    try:
        return Shown(*_FORMAT.unpack(path.read_bytes()))
    except (OSError, struct.error):
        return NOT_SHOWN
