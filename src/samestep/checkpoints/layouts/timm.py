"""The ``.pth.tar`` files of timm's training script (``utils/checkpoint_saver.py``, read at 1.0)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samestep.checkpoints.model import Presence
from samestep.contract import Component

from .weights import note_prefixes

if TYPE_CHECKING:
    from .draft import Draft

_KEYS = {
    Component.OPTIMIZER: ("optimizer",),
    Component.SCALER: ("amp_scaler", "scaler"),
    Component.EMA: ("state_dict_ema",),
    Component.CONFIG: ("args", "arch"),
    Component.CALLBACKS: ("metric",),
    Component.PROGRESS: ("epoch",),
}
_NEEDED = (Component.OPTIMIZER, Component.PROGRESS)


def examine(draft: Draft) -> None:
    """Report what one timm checkpoint holds."""
    keys = next(iter(draft.contents.values())).mapping
    if not keys and draft.problems:
        return
    draft.weights_files |= set(draft.unit.files)
    if keys.get("state_dict"):
        draft.present(Component.WEIGHTS, "state_dict")
        note_prefixes(draft, keys["state_dict"])
    else:
        draft.absent(Component.WEIGHTS)
    for component, names in _KEYS.items():
        held = next((name for name in names if keys.get(name) is not None), "")
        if held:
            draft.present(component, held)
        elif component in _NEEDED:
            draft.absent(component)
    draft.report(Component.SCHEDULE, Presence.REBUILT, note="from the epoch")
    draft.report(Component.RNG, Presence.NOT_STORABLE)
    draft.report(Component.DATA_POSITION, Presence.NOT_STORABLE, note="the started epoch is repeated")
