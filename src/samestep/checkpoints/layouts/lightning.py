"""Lightning's ``.ckpt`` file (``checkpoint_connector.py``, read at 2.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from samestep.checkpoints.model import Presence
from samestep.contract import Component, Intent

from .weights import note_prefixes

if TYPE_CHECKING:
    from .draft import Draft

_SCALER_KEYS = ("MixedPrecision", "MixedPrecisionPlugin", "native_amp_scaling_state")
_DATA_NOTE = (
    "a plain loader starts its epoch over while batch_idx goes on; a loader with state_dict is stored"
)


def examine(draft: Draft) -> None:
    """Report what one Lightning checkpoint holds."""
    facts = next(iter(draft.contents.values()))
    keys = facts.mapping
    if not keys:
        if not facts.problem:
            draft.absent(Component.WEIGHTS)
        return
    _report_weights(draft, keys)
    _report_training_state(draft, keys)
    draft.report(Component.RNG, Presence.NOT_STORABLE, note="dropout and shuffling differ after a restart")
    draft.present(Component.PROGRESS, "loops")
    _report_data_position(draft, keys)
    if "hyper_parameters" in keys:
        draft.present(Component.CONFIG, "hyper_parameters")
    else:
        draft.absent(Component.CONFIG, "the module did not call save_hyperparameters")


def _report_weights(draft: Draft, keys: dict[Any, Any]) -> None:
    draft.weights_files |= set(draft.unit.files)
    if not keys.get("state_dict"):
        draft.absent(Component.WEIGHTS)
        return
    draft.present(Component.WEIGHTS, "state_dict")
    if "current_model_state" in keys:
        draft.present(Component.WEIGHTS, "current_model_state")
        draft.present(Component.EMA, "state_dict")
        draft.caveats[Intent.WEIGHTS].append(
            "state_dict holds the averaged weights, current_model_state the raw ones"
        )
    if isinstance(keys["state_dict"], dict):
        note_prefixes(draft, keys["state_dict"])


def _report_training_state(draft: Draft, keys: dict[Any, Any]) -> None:
    if "optimizer_states" not in keys:
        why = "the file was saved with weights only; a resume stops with a KeyError"
        draft.absent(Component.OPTIMIZER, why)
        draft.absent(Component.SCHEDULE, why)
        return
    if keys["optimizer_states"]:
        draft.present(Component.OPTIMIZER, "optimizer_states")
    else:
        draft.absent(Component.OPTIMIZER, "optimizer_states is empty")
    if keys.get("lr_schedulers"):
        draft.present(Component.SCHEDULE, "lr_schedulers")
    if keys.get("callbacks"):
        draft.present(Component.CALLBACKS, "callbacks", _callback_names(keys["callbacks"]))
    if scaler := next((key for key in _SCALER_KEYS if keys.get(key)), None):
        draft.present(Component.SCALER, scaler)


def _callback_names(callbacks: Any) -> str:
    names = (str(key).split("{", maxsplit=1)[0] for key in callbacks) if isinstance(callbacks, dict) else ()
    return ", ".join(sorted(names))


def _report_data_position(draft: Draft, keys: dict[Any, Any]) -> None:
    fit_loop = _inside(keys, "loops", "fit_loop")
    if _inside(fit_loop, "state_dict").get("combined_loader"):
        draft.present(Component.DATA_POSITION, "loops.fit_loop.state_dict.combined_loader")
    elif _at_epoch_boundary(fit_loop):
        draft.report(Component.DATA_POSITION, Presence.REBUILT, note="it was saved at the end of an epoch")
    else:
        draft.absent(Component.DATA_POSITION, _DATA_NOTE)


def _at_epoch_boundary(fit_loop: dict[Any, Any]) -> bool:
    return _inside(fit_loop, "epoch_loop.batch_progress").get("is_last_batch") is True


def _inside(value: Any, *keys: str) -> dict[Any, Any]:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}
