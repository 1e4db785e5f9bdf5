"""The last step that was executed, in a file that outlives the process: it shows what an interruption took."""

from __future__ import annotations

import mmap
import os
import struct
from typing import TYPE_CHECKING

from samestep.journal.durable import make_folder

if TYPE_CHECKING:
    from pathlib import Path

_FORMAT = struct.Struct("<q")


class Odometer:
    """Keeps the number of the last step in shared memory backed by a file: a write costs nothing worth measuring.

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
        """Note that ``step`` was executed."""
        if self._memory is not None:
            _FORMAT.pack_into(self._memory, 0, step)


def read(path: Path) -> int:
    """Return the step that an odometer showed last; 0 when there is none."""
    try:
        return int(_FORMAT.unpack(path.read_bytes())[0])
    except (OSError, struct.error):
        return 0
