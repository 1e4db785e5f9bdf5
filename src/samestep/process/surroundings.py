"""Environment of an attempt: its own home, temporary folder and caches, and no way to trackers or hubs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

OFFLINE_VARIABLES: dict[str, str] = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_EVALUATE_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "WANDB_MODE": "offline",
    "COMET_START_ONLINE": "0",
    "COMET_OFFLINE_DIRECTORY": "{tmp}/comet",
    "NEPTUNE_MODE": "offline",
    "MLFLOW_TRACKING_URI": "file://{tmp}/mlruns",
    "CLEARML_OFFLINE_MODE": "1",
    "SWANLAB_MODE": "offline",
    "AIM_TRACKING_DISABLED": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "YOLO_OFFLINE": "true",
    "DO_NOT_TRACK": "1",
    "PIP_NO_INDEX": "1",
    "UV_OFFLINE": "1",
}
"""Set for every attempt unless the network is allowed; ``{tmp}`` is the attempt's temporary folder."""

FOLDER_VARIABLES: dict[str, str] = {
    "HOME": "home",
    "TMPDIR": "tmp",
    "TEMP": "tmp",
    "TMP": "tmp",
    "XDG_CACHE_HOME": "cache",
    "XDG_CONFIG_HOME": "home/.config",
    "XDG_DATA_HOME": "home/.local/share",
    "XDG_STATE_HOME": "home/.local/state",
    "TRITON_CACHE_DIR": "cache/triton",
    "TORCHINDUCTOR_CACHE_DIR": "cache/inductor",
    "TORCH_EXTENSIONS_DIR": "cache/torch_extensions",
    "CUDA_CACHE_PATH": "cache/cuda",
    "NUMBA_CACHE_DIR": "cache/numba",
    "MPLCONFIGDIR": "cache/matplotlib",
    "YOLO_CONFIG_DIR": "home/.config",
    "WANDB_CACHE_DIR": "cache/wandb",
    "WANDB_CONFIG_DIR": "home/.config/wandb",
    "WANDB_DATA_DIR": "cache/wandb/data",
}
"""Folders of a machine by the variable that names them."""

MODEL_CACHES: dict[str, tuple[str, str]] = {
    "HF_HOME": ("cache/huggingface", ".cache/huggingface"),
    "TORCH_HOME": ("cache/torch", ".cache/torch"),
    "KERAS_HOME": ("home/.keras", ".keras"),
    "NLTK_DATA": ("home/nltk_data", "nltk_data"),
}
"""Caches of models and data: the machine's own folder, and where the user's is by default below the home
folder. When the user's is declared as an input, it is the one that is used."""

CACHE_OVERRIDES = (
    "HF_HUB_CACHE",
    "HUGGINGFACE_HUB_CACHE",
    "HF_DATASETS_CACHE",
    "HF_ASSETS_CACHE",
    "HF_MODULES_CACHE",
    "TRANSFORMERS_CACHE",
    "PYTORCH_TRANSFORMERS_CACHE",
    "PYTORCH_PRETRAINED_BERT_CACHE",
    "XDG_RUNTIME_DIR",
    "WANDB_DIR",
)
"""Variables that would lead back to the user's folders: taken away unless they name a declared input."""


def environment(
    base_env: Mapping[str, str], seat: Path, *, inputs: Collection[Path] = (), offline: bool = True
) -> dict[str, str]:
    """Environment of an attempt, from the environment of the user.

    Args:
        base_env: the user's.
        seat: where the machine's folders appear.
        inputs: declared read-only inputs (absolute).
        offline: keep it from trackers and hubs.
    """
    home = Path(base_env.get("HOME", "/nonexistent"))
    env = {
        name: value
        for name, value in base_env.items()
        if name not in CACHE_OVERRIDES or _is_input(Path(value), inputs)
    }
    env |= {name: str(seat / folder) for name, folder in FOLDER_VARIABLES.items()}
    for name, (own, usual) in MODEL_CACHES.items():
        theirs = Path(base_env.get(name) or home / usual)
        env[name] = str(theirs if _is_input(theirs, inputs) else seat / own)
    if offline:
        env |= {name: value.format(tmp=seat / "tmp") for name, value in OFFLINE_VARIABLES.items()}
    env |= {"PWD": str(seat / "project"), "UV_NO_SYNC": "1"}
    env.pop("OLDPWD", None)
    return env


def _is_input(path: Path, inputs: Collection[Path]) -> bool:
    """Whether a declared input holds ``path`` or lies in it."""
    return any(path.is_relative_to(entry) or entry.is_relative_to(path) for entry in inputs)
