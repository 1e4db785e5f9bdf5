"""Folders and files that are still there after a power cut, outside a store."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def make_folder(folder: Path) -> None:
    """Make a folder and what leads to it, so that none of the names is lost in a power cut.

    The folders that are there are synced as well, up to where their file system begins: whoever made them may not
    have come to that yet.

    Raises:
        OSError: it cannot be made.
    """
    folder = folder.absolute()
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for place in reversed(made):
        sync(place.parent)
    place = made[-1].parent if made else folder
    while place != place.parent and place.stat().st_dev == place.parent.stat().st_dev:
        with contextlib.suppress(PermissionError):
            sync(place.parent)
        place = place.parent


def sync(path: Path) -> None:
    """Return when a file's bytes, or a folder's names, have reached the disk.

    Raises:
        OSError: they have not.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
