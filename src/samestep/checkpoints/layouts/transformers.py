"""The HF Trainer's ``checkpoint-N`` folder (``transformers/trainer.py``, read at 5.24)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from samestep.checkpoints.model import Presence, Problem
from samestep.checkpoints.state import is_empty_optimizer
from samestep.checkpoints.values import Built
from samestep.contract import Component, Intent

from .draft import missing_numbers
from .weights import report_weights

if TYPE_CHECKING:
    from .draft import Draft

_RNG_FILE = re.compile(r"^rng_state(?:_(\d+))?\.pth$")
_SHARDED_OPTIMIZER = re.compile(r"^(optimizer_\d+/|global_step\d+/.*optim_states\.pt$|optimizer\.bin$)")
_OWN_CALLBACK = "TrainerControl"


def examine(draft: Draft) -> None:
    """Report what one Trainer checkpoint holds."""
    report_weights(draft)
    arguments = _arguments(draft)
    _report_progress(draft)
    if _is_model_only(draft):
        _report_model_only(draft)
    else:
        _report_optimizer_and_schedule(draft)
        _report_rng(draft)
        _report_scaler(draft, arguments)
    _report_data(draft, arguments)
    _report_callbacks(draft, arguments)
    config = next(
        (name for name in ("config.json", "adapter_config.json", "training_args.bin") if name in draft.names),
        "",
    )
    report_config(draft, config)


def report_config(draft: Draft, where: str) -> None:
    """Report where the configuration is, if anywhere."""
    if where:
        draft.present(Component.CONFIG, where)
    else:
        draft.absent(Component.CONFIG)


def _arguments(draft: Draft) -> dict[Any, Any]:
    """Return the arguments of the run that wrote the checkpoint, as far as its pickle shows them."""
    facts = draft.file("training_args.bin")
    value = facts.value if facts else None
    return value.state if isinstance(value, Built) and isinstance(value.state, dict) else {}


def _report_progress(draft: Draft) -> None:
    if "checkpoint-is-incomplete.txt" in draft.names:
        where = draft.names["checkpoint-is-incomplete.txt"]
        draft.problems.append(Problem(where, "is there: the save on a termination signal did not end"))
    if "trainer_state.json" in draft.names:
        draft.present(Component.PROGRESS, "trainer_state.json")
    else:
        draft.missing("trainer_state.json", "the last file a save writes")
        draft.absent(Component.PROGRESS)


def _is_model_only(draft: Draft) -> bool:
    """Tell whether the save was finished and left out all training state, as ``save_only_model`` does."""
    parts = ("optimizer.pt", "scheduler.pt")
    state = (
        any(name in draft.names for name in parts)
        or draft.matching(_SHARDED_OPTIMIZER)
        or draft.matching(_RNG_FILE)
    )
    return "trainer_state.json" in draft.names and not state


def _report_model_only(draft: Draft) -> None:
    why = "the Trainer restarts it silently at this step (save_only_model)"
    for component in (Component.OPTIMIZER, Component.SCHEDULE, Component.RNG):
        draft.absent(component, why)


def _report_optimizer_and_schedule(draft: Draft) -> None:
    sharded = draft.matching(_SHARDED_OPTIMIZER)
    if sharded:
        draft.present(Component.OPTIMIZER, sharded[0])
        _report_schedule_alone(draft)
        return
    pair = {Component.OPTIMIZER: "optimizer.pt", Component.SCHEDULE: "scheduler.pt"}
    lacking = [name for name in pair.values() if name not in draft.names]
    for component, name in pair.items():
        if name in lacking:
            draft.missing(name)
            draft.absent(component)
        elif lacking:
            note = f"the Trainer loads it only together with {lacking[0]}"
            draft.report(component, Presence.SKIPPED, name, note)
        else:
            draft.present(component, name)
    facts = draft.file("optimizer.pt")
    if facts and is_empty_optimizer(facts.value):
        draft.caveats[Intent.RESUME].append("optimizer.pt holds no state for any parameter")


def _report_schedule_alone(draft: Draft) -> None:
    if "scheduler.pt" in draft.names:
        draft.present(Component.SCHEDULE, "scheduler.pt")
    else:
        draft.missing("scheduler.pt")
        draft.absent(Component.SCHEDULE)


def _report_rng(draft: Draft) -> None:
    files = draft.matching(_RNG_FILE)
    if not files:
        draft.missing("rng_state.pth", "the Trainer goes on without it and says so at level INFO only")
        draft.absent(Component.RNG)
        return
    for rank in missing_numbers(files, re.compile(r"rng_state_(\d+)")):
        draft.missing(f"rng_state_{rank}.pth", f"rank {rank} would draw other random numbers")
    draft.present(Component.RNG, files[0] if len(files) == 1 else f"{len(files)} ranks")
    draft.present(Component.WORLD, f"{len(files)} rank{'s' if len(files) > 1 else ''}")


def _report_scaler(draft: Draft, arguments: dict[Any, Any]) -> None:
    if "scaler.pt" in draft.names:
        draft.present(Component.SCALER, "scaler.pt")
    elif arguments.get("fp16") is True and arguments.get("deepspeed") is None:
        draft.missing("scaler.pt", "the run was trained in fp16; the Trainer goes on without it silently")
        draft.absent(Component.SCALER)


def _report_data(draft: Draft, arguments: dict[Any, Any]) -> None:
    if arguments.get("ignore_data_skip") is True:
        draft.absent(Component.DATA_POSITION, "ignore_data_skip is set: the epoch starts over")
    else:
        note = "from the step, by the batch size and accumulation of the new run; no loader state is kept"
        draft.report(Component.DATA_POSITION, Presence.REBUILT, note=note)
    if (
        arguments.get("group_by_length") is True
        or arguments.get("train_sampling_strategy") == "group_by_length"
    ):
        draft.absent(Component.DATA_ORDER, "group_by_length draws the order before the generator is restored")
    else:
        draft.report(
            Component.DATA_ORDER, Presence.REBUILT, note="from the seed of the new run and the epoch"
        )


def _report_callbacks(draft: Draft, arguments: dict[Any, Any]) -> None:
    state = draft.file("trainer_state.json")
    stored = state.mapping.get("stateful_callbacks") if state else None
    others = sorted(set(stored) - {_OWN_CALLBACK}) if isinstance(stored, dict) else []
    if not others:
        return
    if arguments.get("restore_callback_states_from_checkpoint") is True:
        draft.present(Component.CALLBACKS, "trainer_state.json", ", ".join(others))
        return
    note = f"{', '.join(others)} start over unless restore_callback_states_from_checkpoint is set"
    draft.report(Component.CALLBACKS, Presence.NOT_LOADED, "trainer_state.json", note)
