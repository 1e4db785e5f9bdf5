"""What a training loop can reach: plain counters, random generators of its own, and state nobody can follow.

A walk from the frames around the step finds paths (`self.state.global_step`); between walks only the paths are read
again, so nothing is kept alive. Only instance dictionaries and slots are read: no property, no ``__getattr__``
runs. Private data stays inside: numbers pass, strings leave as digests only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .walk import Reach, Reacher

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["Reach", "Reacher", "local_names", "observe"]

_REACHER = Reacher()


def observe(frame: FrameType) -> Reach:
    """Return what the loop around ``frame`` can reach; a note instead where looking failed.

    Args:
        frame: any frame inside the step; frames of torch, of the standard library and of samestep are passed over.
    """
    try:
        return _REACHER.observe(frame)
    except Exception as error:
        return Reach(untracked=[{"name": "(the loop)", "type": f"not looked at: {type(error).__name__}"}])


def local_names(frame: FrameType) -> list[dict[str, Any]]:
    """Return the names around ``frame`` as ``averages.find`` takes them: one dict per frame, outermost first.

    The result holds the script's objects: use it at once and let it go.
    """
    try:
        return _REACHER.roots(frame)
    except Exception:
        return []
