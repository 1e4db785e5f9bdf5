"""Capture of training state into the parts of a bundle, and its restoration; imports torch."""

from __future__ import annotations

from samestep.state.capture import Capture
from samestep.state.codecs import register_codec
from samestep.state.errors import RankFailed, StateError
from samestep.state.generators import TrackedRng
from samestep.state.interchange import BundleLoadPlanner, BundleReader, BundleWriter
from samestep.state.modules import TrackedGradients
from samestep.state.ranks import Alone, Ranks
from samestep.state.restoring import Restored, restore
from samestep.state.seam import Source, Stored
from samestep.state.snapshot import Snapshot
from samestep.state.tracked import Tracked
from samestep.state.tracking import track

__all__ = [
    "Alone",
    "BundleLoadPlanner",
    "BundleReader",
    "BundleWriter",
    "Capture",
    "RankFailed",
    "Ranks",
    "Restored",
    "Snapshot",
    "Source",
    "StateError",
    "Stored",
    "Tracked",
    "TrackedGradients",
    "TrackedRng",
    "register_codec",
    "restore",
    "track",
]
