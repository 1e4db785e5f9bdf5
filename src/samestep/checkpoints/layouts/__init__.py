"""What each framework puts into a checkpoint, and what its restart makes of it: one module per layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samestep.checkpoints.bundles import SAMESTEP
from samestep.checkpoints.recognise import (
    ACCELERATE,
    DEEPSPEED,
    LIGHTNING,
    TIMM,
    TORCH_DCP,
    TRANSFORMERS,
    ULTRALYTICS,
)

from . import accelerate, bundle, dcp, deepspeed, lightning, plain, timm, transformers, ultralytics
from .draft import Draft

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from samestep.checkpoints.model import Unit

__all__ = ["Draft", "examine"]

_LAYOUTS: dict[str, Callable[[Draft], None]] = {
    TRANSFORMERS: transformers.examine,
    ACCELERATE: accelerate.examine,
    LIGHTNING: lightning.examine,
    TORCH_DCP: dcp.examine,
    DEEPSPEED: deepspeed.examine,
    ULTRALYTICS: ultralytics.examine,
    TIMM: timm.examine,
    SAMESTEP: bundle.examine,
}


def examine(root: Path, unit: Unit) -> Draft:
    """Take notes on one unit, by the layout of its framework.

    Args:
        root: the folder that the unit's paths are relative to.
        unit: the unit to examine.
    """
    draft = Draft(root, unit)
    draft.check_files()
    _LAYOUTS.get(unit.framework, plain.examine)(draft)
    return draft
