"""Checking a recording against what is really there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samestep.crash.image import Image
from samestep.crash.replay import differences, replay

if TYPE_CHECKING:
    from pathlib import Path

    from samestep.crash.recording import Recording


def prove(recording: Recording, real_root: Path, base: Path | None = None) -> list[str]:
    """Replay a recording on what was there before and compare with what is there now, byte by byte.

    Args:
        recording: complete, of a tree that has ended.
        real_root: its first watched folder, or a copy of it.
        base: copy of that folder from before the recording; None: it was empty, or not there.

    Returns:
        A sentence for each path that differs; none when every change was recorded exactly.
    """
    root = recording.header.roots[0]
    before = Image.load(base, root) if base else Image(root)
    return differences(replay(recording, before), real_root)
