"""What the adapter asks of a Trainer, sets in it, and keeps beside the files that it writes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from safetensors.torch import load_file, save_file
from torch.utils.data import DataLoader
from transformers.trainer_callback import ExportableState

from samestep.bundle import canonical
from samestep.run.errors import RunError
from samestep.state import leaves
from samestep.state.buffers import TrackedBuffers
from samestep.state.tracking import track

from .loaders import require_batches_of_own

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from transformers import Trainer, TrainingArguments

    from samestep.state.tracked import Tracked

    from .loaders import Given

_EXTRA = "samestep-{rank:05}.json"
_TENSORS = "samestep-{rank:05}.safetensors"
_METHOD = (
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "max_steps",
    "num_train_epochs",
    "dataloader_drop_last",
    "train_sampling_strategy",
    "group_by_length",
    "seed",
    "data_seed",
    "learning_rate",
    "lr_scheduler_type",
    "lr_scheduler_kwargs",
    "warmup_steps",
    "warmup_ratio",
    "optim",
    "optim_args",
    "weight_decay",
    "adam_beta1",
    "adam_beta2",
    "adam_epsilon",
    "max_grad_norm",
    "label_smoothing_factor",
    "neftune_noise_alpha",
    "bf16",
    "fp16",
)
"""Arguments that an interrupted run is gone on with as they were."""


def check(arguments: TrainingArguments, tracked: Mapping[str, Any], trainer: Trainer) -> None:
    """Refuse what cannot be resumed exactly; say what a callback keeps to itself."""
    if arguments.save_only_model:
        raise RunError(
            "save_only_model leaves out the optimizer, the schedule and the generators",
            hint="take it out of the TrainingArguments, or seal such folders for their weights: "
            "samestep bundle seal --allow-open",
        )
    if arguments.auto_find_batch_size:
        raise RunError("auto_find_batch_size may change the batches of a run", hint="say the batch size")
    require_batches_of_own(trainer.get_tp_size() * trainer.get_cp_size() * trainer.get_sp_size())
    known = {id(thing) for thing in tracked.values()}
    for callback in trainer.callback_handler.callbacks:
        numbers = [name for name, value in vars(callback).items() if type(value) in (int, float)]
        own = not type(callback).__module__.startswith(("transformers.", "samestep."))
        if own and numbers and id(callback) not in known and not isinstance(callback, ExportableState):
            print(
                f"warning: {type(callback).__name__} keeps {', '.join(numbers)}, which the Trainer does not save: "
                "derive it from ExportableState as well, or give it state_dict and load_state_dict and say "
                "Bundles(..., tracked={'name': callback})",
                file=sys.stderr,
            )


def take_over(trainer: Trainer, given: Given) -> None:
    """Let the Trainer take its batches from the followed data, and the states of its callbacks from the folder."""
    loader: DataLoader[Any] = DataLoader(given, batch_size=None, collate_fn=_as_it_is)
    trainer.get_train_dataloader = lambda: loader
    trainer.args.ignore_data_skip = False
    trainer.args.restore_callback_states_from_checkpoint = True


def _as_it_is(batch: Any) -> Any:
    return batch


def described(trainer: Trainer) -> dict[str, Any]:
    """Return what the run is made by."""
    arguments = {name: getattr(trainer.args, name) for name in _METHOD if hasattr(trainer.args, name)}
    model = type(trainer.model)
    return {
        "model": {"kind": f"{model.__module__.partition('.')[0]}.{model.__qualname__}"},
        "arguments": {
            name: value if isinstance(value, bool | int | float | None) else str(value)
            for name, value in arguments.items()
        },
    }


def put_back(trainer: Trainer, tracked: Mapping[str, Any], extra: Mapping[str, Any]) -> None:
    """Set what the Trainer has set to its start, and what is tracked beside it."""
    trainer._tr_loss = extra["loss"].to(trainer.args.device)
    trainer._globalstep_last_logged = extra["logged_at"]
    _take(TrackedBuffers("model", trainer.model), extra["buffers"])
    for name, thing in tracked.items():
        if name not in extra["tracked"]:
            raise RunError(f"the bundle holds nothing under the name {name}", hint=f"leave {name} out")
        _take(track(name, thing), extra["tracked"][name])


def _take(kept: Tracked, state: Any) -> None:
    kept.write(leaves.finish(kept.prepare(state)))


def write_beside(folder: Path, rank: int, extra: Mapping[str, Any]) -> None:
    """Write what the Trainer's files leave out beside them: plain values as JSON, tensors as safetensors."""
    encoded = leaves.encode(dict(extra), at="bundles")
    content = {"value": encoded.value, "aliases": encoded.aliases}
    (folder / _EXTRA.format(rank=rank)).write_bytes(canonical.encode(content))
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in encoded.tensors.items()}
    save_file(tensors, folder / _TENSORS.format(rank=rank))


def require_all_ranks(folder: Path, ranks: int) -> None:
    """Refuse to seal a folder that lacks what some rank has written.

    Raises:
        RunError: the message names them.
    """
    absent = [rank for rank in range(ranks) if not (folder / _TENSORS.format(rank=rank)).exists()]
    if absent:
        raise RunError(
            f"what rank {', '.join(map(str, absent))} has written is not in {folder}: its machine has another one",
            hint="let output_dir lie on a file system that all machines share; only a whole checkpoint can be sealed",
        )


def read_beside(folder: Path, rank: int) -> dict[str, Any]:
    """Return what ``write_beside`` wrote.

    Raises:
        RunError: nothing was written there.
    """
    path = folder / _EXTRA.format(rank=rank)
    if not path.exists():
        raise RunError(
            f"{folder} was sealed without what this adapter adds to it",
            hint="resume it as it was made, with samestep bundle restore",
        )
    content = canonical.decode(path.read_bytes(), what=path.name)
    tensors = load_file(folder / _TENSORS.format(rank=rank))
    found: dict[str, Any] = leaves.finish(leaves.decode(content["value"], tensors.__getitem__, at="bundles"))
    return found
