"""The folder that ``accelerator.save_state`` writes (``accelerate/checkpointing.py``, read at 1.15)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from samestep.checkpoints.model import Presence
from samestep.checkpoints.state import find_components
from samestep.contract import Component

from .draft import missing_numbers
from .weights import report_weights

if TYPE_CHECKING:
    from .draft import Draft

_OPTIMIZER = re.compile(r"^optimizer(_\d+)?(\.bin$|/)|^pytorch_model/.*optim_states\.pt$")
_SCHEDULER = re.compile(r"^scheduler(_\d+)?\.bin$")
_LOADER = re.compile(r"^dl_state_dict(_\d+)?\.bin$")
_SAMPLER = re.compile(r"^sampler(_\d+)?\.bin$")
_RNG = re.compile(r"^random_states_(\d+)\.pkl$")
_CUSTOM = re.compile(r"^custom_checkpoint_\d+\.pkl$")


def examine(draft: Draft) -> None:
    """Report what one ``save_state`` folder holds."""
    report_weights(draft)
    _report_files(draft)
    _report_rng(draft)
    _report_data(draft)
    _report_progress(draft)


def _report_files(draft: Draft) -> None:
    if optimizers := draft.matching(_OPTIMIZER):
        draft.present(Component.OPTIMIZER, ", ".join(optimizers[:3]))
    else:
        draft.missing("optimizer.bin")
        draft.absent(Component.OPTIMIZER)
    if schedulers := draft.matching(_SCHEDULER):
        draft.present(Component.SCHEDULE, ", ".join(schedulers))
    else:
        draft.absent(Component.SCHEDULE, "right only if no schedule was given to accelerator.prepare")
    if "scaler.pt" in draft.names:
        draft.present(Component.SCALER, "scaler.pt")
    draft.report(
        Component.CONFIG, Presence.NOT_STORABLE, note="neither the model's configuration nor arguments"
    )


def _report_rng(draft: Draft) -> None:
    files = draft.matching(_RNG)
    if not files:
        draft.missing("random_states_0.pkl", "load_state goes on without it and says so at level INFO only")
        draft.absent(Component.RNG)
        return
    for rank in missing_numbers(files, _RNG):
        draft.missing(f"random_states_{rank}.pkl", f"rank {rank} would draw other random numbers")
    draft.present(Component.RNG, files[0] if len(files) == 1 else f"{len(files)} ranks")
    draft.present(Component.WORLD, f"{len(files)} rank{'s' if len(files) > 1 else ''}")


def _report_data(draft: Draft) -> None:
    if loaders := draft.matching(_LOADER):
        note = "after epoch 0 the order is that of epoch 0 unless the script sets the epoch"
        draft.present(Component.DATA_POSITION, ", ".join(loaders))
        draft.report(Component.DATA_ORDER, Presence.UNKNOWN, ", ".join(draft.matching(_SAMPLER)), note)
        return
    note = "the script must call skip_first_batches with a count it kept itself"
    draft.report(Component.DATA_POSITION, Presence.NOT_STORABLE, note=note)
    note = "the same shuffle comes back only with use_seedable_sampler and the epoch set by the script"
    draft.report(Component.DATA_ORDER, Presence.NOT_STORABLE, note=note)


def _report_progress(draft: Draft) -> None:
    custom = draft.matching(_CUSTOM)
    held = [name for name in custom if Component.PROGRESS in find_components(draft.contents[name].value)]
    if held:
        draft.present(Component.PROGRESS, held[0])
    elif custom:
        draft.report(Component.PROGRESS, Presence.UNKNOWN, custom[0], "a registered object may hold it")
    else:
        note = "neither epoch nor step is saved; scripts read them from the folder's name"
        draft.report(Component.PROGRESS, Presence.NOT_STORABLE, note=note)
