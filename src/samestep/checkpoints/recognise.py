"""Which framework wrote a folder or a file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .model import UNKNOWN
from .naming import is_state
from .values import Built

if TYPE_CHECKING:
    from collections.abc import Collection

    from .containers import FileFacts

TRANSFORMERS = "transformers"
ACCELERATE = "accelerate"
LIGHTNING = "lightning"
TORCH_DCP = "torch-dcp"
DEEPSPEED = "deepspeed"
ULTRALYTICS = "ultralytics"
TIMM = "timm"

TRANSFORMERS_FOLDER = re.compile(r"^checkpoint-(\d+)$")
ACCELERATE_FOLDER = re.compile(r"^checkpoint_(\d+)$")
MODEL_FILE = re.compile(
    r"^((pytorch_)?model|adapter_model|tf_model|diffusion_pytorch_model)(_\d+)?(-\d+-of-\d+)?\.(safetensors|bin)$"
)
TRANSFORMERS_FILE = re.compile(
    r"^(optimizer|scheduler|scaler)\.pt$|^rng_state(_\d+)?\.pth$|^training_args\.bin$"
)
ACCELERATE_FILE = re.compile(
    r"^random_states_\d+\.pkl$|^(optimizer|scheduler|sampler|dl_state_dict)(_\d+)?\.bin$|^custom_checkpoint_\d+\.pkl$|^scaler\.pt$"
)
_DEEPSPEED_FILE = re.compile(r"mp_rank_\d+_(model|optim)_states\.pt$")


def recognise_folder(name: str, files: Collection[str], subfolders: Collection[str]) -> str | None:
    """Return the framework whose checkpoint a folder is, or None if it is none that is known.

    Args:
        name: the folder's name.
        files: names of the files right inside it.
        subfolders: names of the folders right inside it.
    """
    if any(TRANSFORMERS_FOLDER.match(inner) or ACCELERATE_FOLDER.match(inner) for inner in subfolders):
        return None
    rules = {
        TRANSFORMERS: "trainer_state.json" in files or "training_args.bin" in files,
        ACCELERATE: any(ACCELERATE_FILE.match(file) and file != "scaler.pt" for file in files),
        DEEPSPEED: any(_DEEPSPEED_FILE.search(file) for file in files),
        TORCH_DCP: ".metadata" in files or any(file.endswith(".distcp") for file in files),
    }
    by_files = next((framework for framework, holds in rules.items() if holds), None)
    return by_files or _recognise_name(name, files)


def _recognise_name(name: str, files: Collection[str]) -> str | None:
    if TRANSFORMERS_FOLDER.match(name) and _only(TRANSFORMERS_FILE, files):
        return TRANSFORMERS
    if ACCELERATE_FOLDER.match(name) and _only(ACCELERATE_FILE, files):
        return ACCELERATE
    return None


def _only(pattern: re.Pattern[str], files: Collection[str]) -> bool:
    """Tell whether all state in a folder goes by a framework's names; an empty folder may be a torn save."""
    return all(pattern.match(file) or MODEL_FILE.match(file) for file in files if is_state(file))


def recognise_file(facts: FileFacts) -> str:
    """Return the framework that wrote a single-file checkpoint; ``unknown`` if it is none that is known."""
    keys = facts.mapping.keys()
    if "pytorch-lightning_version" in keys:
        return LIGHTNING
    if "train_args" in keys and {"ema", "model"} & keys:
        return ULTRALYTICS
    if {"state_dict", "arch", "epoch"} <= keys:
        return TIMM
    if isinstance(facts.value, Built) and facts.value.type_name.startswith("ultralytics."):
        return ULTRALYTICS
    return UNKNOWN
