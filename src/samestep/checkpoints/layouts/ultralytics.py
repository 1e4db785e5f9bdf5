"""The ``last.pt`` and ``best.pt`` of ultralytics (``engine/trainer.py``, read at 8.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samestep.checkpoints.model import Presence
from samestep.contract import Component, Intent

if TYPE_CHECKING:
    from .draft import Draft


def examine(draft: Draft) -> None:
    """Report what one ultralytics checkpoint holds."""
    keys = next(iter(draft.contents.values())).mapping
    if not keys and draft.problems:
        return
    draft.weights_files |= set(draft.unit.files)
    weights = next((key for key in ("model", "ema") if keys.get(key) is not None), "")
    if not weights:
        draft.absent(Component.WEIGHTS)
        return
    draft.present(Component.WEIGHTS, weights)
    draft.present(Component.CONFIG, "train_args")
    if weights == "ema":
        draft.present(Component.EMA, "ema")
        draft.caveats[Intent.WEIGHTS].append("they are the averaged weights, in half precision")
        draft.caveats[Intent.RESUME].append(
            "the raw weights are not stored: it goes on from the averaged ones in half precision"
        )
    if keys.get("optimizer") is None:
        why = "the file was stripped at the end of training and cannot resume"
        draft.absent(Component.OPTIMIZER, why)
        draft.absent(Component.PROGRESS, why)
        return
    draft.present(Component.OPTIMIZER, "optimizer")
    draft.present(Component.PROGRESS, "epoch", "whole epochs only")
    draft.report(Component.SCHEDULE, Presence.REBUILT, note="from the epoch")
    if keys.get("scaler"):
        draft.present(Component.SCALER, "scaler")
    draft.report(Component.RNG, Presence.NOT_STORABLE)
    draft.report(Component.DATA_POSITION, Presence.NOT_STORABLE, note="the started epoch is repeated")
