"""What the name of a file or folder says: state, log, leftovers, and the step it claims."""

from __future__ import annotations

import re
from pathlib import PurePath

STATE_SUFFIXES = frozenset({
    ".bin", ".ckpt", ".distcp", ".h5", ".joblib", ".msgpack", ".npy", ".npz", ".pickle", ".pkl",
    ".pt", ".pth", ".safetensors", ".tar",
})  # fmt: skip
"""Endings of files that hold tensors or other state."""

SIDECAR_SUFFIXES = frozenset({"", ".json", ".txt", ".toml", ".yaml", ".yml"})
"""Endings of small files that may belong to a checkpoint lying beside them."""

_LOG_SUFFIXES = frozenset({
    ".csv", ".err", ".gif", ".html", ".jpeg", ".jpg", ".jsonl", ".log", ".md", ".ndjson", ".out",
    ".pdf", ".png", ".svg", ".tsv", ".wandb",
})  # fmt: skip
_LOG_FOLDERS = frozenset({
    "wandb", "runs", "mlruns", "tensorboard", "tb_logs", "tb", "logs", "lightning_logs", "aim",
    ".aim", ".neptune", "comet", "__pycache__", ".git", ".cache", "profiler",
})  # fmt: skip
_LOG_NAMES = re.compile(
    r"events\.out\.tfevents|^(all|train|eval|test|predict)_results\.json$"
    r"|^(train|eval|log)?_?(metrics|history)\b.*\.json$|^hparams\.ya?ml$|^(std(out|err)|nohup)\b|^log(s)?(\.txt)?$|^(train|training|eval)[-_]?log\.(txt|json)$"
)
_RANDOM_STATE = re.compile(r"^(random_states?|rng_states?|rng)([-_.]?(rank)?[-_]?\d+)?\.(pkl|pt|pth|bin)$")
_LEFTOVER = re.compile(
    r"\.(tmp|temp|part|partial|incomplete|lock|bak|swp)(\d*|\.\w+)$|^(\.?tmp[-_.]|\.~|~)|^tmp\w{8}$|~$"
)
_SHARD_OR_RANK = re.compile(r"-\d+-of-\d+|[-_.]?(?:mp_|dp_|zero_pp_)?rank[-_]?\d+")
_NUMBER = re.compile(
    r"(?P<word>epochs?|ep|e|global[-_]?step|steps?|iter(?:ation)?s?|it|checkpoint|ckpt|chkpt)?(?P<join>[-_=.]?)"
    r"(?P<digits>\d+)(?=$|[-_=.])",
    re.IGNORECASE,
)
_STEP_FOLDER = re.compile(
    r"^(?:.*[-_.=])?(?:global[-_]?step|steps?|iter(?:ation)?s?|epochs?|checkpoint|ckpt|chkpt|save)[-_=.]?\d+$|^\d+$",
    re.IGNORECASE,
)


def is_log(path: str | PurePath) -> bool:
    """Tell whether a file is a log, an event file or a picture: neither checkpoint nor part of one.

    Args:
        path: relative to the output folder; parent folders such as ``wandb`` count.
    """
    path = PurePath(path)
    if _LOG_NAMES.search(path.name) or path.suffix.lower() in _LOG_SUFFIXES:
        return True
    in_log_folder = not _LOG_FOLDERS.isdisjoint(path.parts[:-1])
    return in_log_folder and path.suffix.lower() not in STATE_SUFFIXES


def holds_only_random_state(name: str) -> bool:
    """Tell whether a file of that name holds the state of random generators and nothing else."""
    return bool(_RANDOM_STATE.search(name))


def is_leftover(name: str) -> bool:
    """Tell whether a name is one of a write that was still under way."""
    return bool(_LEFTOVER.search(name))


def is_state(name: str) -> bool:
    """Tell whether a file's ending says that it holds state."""
    return PurePath(name).suffix.lower() in STATE_SUFFIXES


def is_sidecar(name: str) -> bool:
    """Tell whether a file may describe a checkpoint that lies beside it."""
    return PurePath(name).suffix.lower() in SIDECAR_SUFFIXES and not name.startswith(".")


def is_step_folder(name: str) -> bool:
    """Tell whether a folder is named after a step, an iteration or an epoch."""
    return bool(_STEP_FOLDER.match(name))


def number_in(name: str) -> int | None:
    """Return the last separate number in a name, leaving out shard and rank numbers."""
    found = _last_number(name)
    return int(found["digits"]) if found else None


def step_in(name: str) -> int | None:
    """Return the number in a name unless it counts epochs."""
    found = _last_number(name)
    if found is None or (found["word"] or "").lower() in ("epoch", "epochs", "ep", "e"):
        return None
    return int(found["digits"])


def _last_number(name: str) -> re.Match[str] | None:
    stem = base_of(name)
    matches = [
        found for found in _NUMBER.finditer(stem) if found["word"] or found["join"] or found.start() == 0
    ]
    return matches[-1] if matches else None


def base_of(name: str) -> str:
    """Return a file's stem without shard and rank numbers: equal for the parts that all ranks write."""
    return _SHARD_OR_RANK.sub("", stem_of(name))


def stem_of(name: str) -> str:
    """Return a file name without its state endings: ``last.pth.tar`` gives ``last``."""
    path = PurePath(name)
    while path.suffix.lower() in STATE_SUFFIXES | SIDECAR_SUFFIXES - {""}:
        path = path.with_suffix("")
    return path.name
