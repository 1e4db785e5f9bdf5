"""DeepSpeed's tag folder (``deepspeed/runtime/engine.py``, read only)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from samestep.checkpoints.model import Presence
from samestep.contract import Component, Intent

if TYPE_CHECKING:
    from .draft import Draft

_MODEL = re.compile(r"^(?:zero_pp_rank_\d+_)?mp_rank_(\d+)_model_states\.pt$")
_OPTIMIZER = re.compile(r"^(?:bf16_|fp16_)?zero_pp_rank_(\d+)_mp_rank_(\d+)_optim_states\.pt$")
_NO_POINTER = (
    'no file "latest" names this folder: load_checkpoint without a tag starts over with only a warning'
)


def examine(draft: Draft) -> None:
    """Report what one tag folder holds."""
    models = draft.matching(_MODEL)
    if not models:
        draft.missing("mp_rank_00_model_states.pt")
        draft.absent(Component.WEIGHTS)
    first = draft.contents[models[0]].mapping if models else {}
    if models:
        draft.weights_files |= {draft.names[name] for name in models}
        draft.present(Component.WEIGHTS, models[0], "in shards" if len(models) > 1 else "")
        draft.present(Component.PROGRESS, f"{models[0]}: global_steps")
    _report_optimizer(draft, first)
    _report_schedule(draft, first)
    _report_rest(draft, first)
    if not any(pointer.rsplit("/", 1)[-1] == "latest" for pointer in draft.unit.pointers):
        draft.caveats[Intent.RESUME].append(_NO_POINTER)


def _report_optimizer(draft: Draft, first: dict[Any, Any]) -> None:
    files = draft.matching(_OPTIMIZER)
    if files:
        draft.present(Component.OPTIMIZER, files[0] if len(files) == 1 else f"{len(files)} shards")
    elif first.get("optimizer"):
        draft.present(Component.OPTIMIZER, "mp_rank_00_model_states.pt: optimizer")
    else:
        draft.missing("zero_pp_rank_0_mp_rank_00_optim_states.pt")
        draft.absent(Component.OPTIMIZER)
        return
    ranks = first.get("dp_world_size")
    if files and isinstance(ranks, int):
        held = {int(match[1]) for name in files if (match := _OPTIMIZER.match(name))}
        for rank in sorted(set(range(ranks)) - held):
            draft.missing(
                files[0].replace("zero_pp_rank_0_", f"zero_pp_rank_{rank}_"), f"{ranks} ranks wrote it"
            )
        draft.present(Component.WORLD, f"{ranks} data-parallel rank{'s' if ranks != 1 else ''}")


def _report_schedule(draft: Draft, first: dict[Any, Any]) -> None:
    if first.get("lr_scheduler"):
        draft.present(Component.SCHEDULE, "mp_rank_00_model_states.pt: lr_scheduler")
    else:
        draft.absent(Component.SCHEDULE, "right only if the engine has no schedule")


def _report_rest(draft: Draft, first: dict[Any, Any]) -> None:
    draft.report(Component.RNG, Presence.NOT_STORABLE, note="unless the script puts it into client_state")
    if first.get("data_sampler"):
        draft.present(Component.DATA_POSITION, "data_sampler")
    else:
        note = "the script must keep it in client_state, or skip by global_samples"
        draft.report(Component.DATA_POSITION, Presence.NOT_STORABLE, note=note)
    draft.report(Component.CONFIG, Presence.NOT_STORABLE, note="the model's configuration is not part of it")
