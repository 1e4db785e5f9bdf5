"""Finding the components of training state in values of any shape, by structure first and by name second."""

from __future__ import annotations

import re
from typing import Any

from samestep.contract import Component

from .values import Built, count_tensors, is_tensor, walk

_WORDS: dict[Component, tuple[str, ...]] = {
    Component.EMA: ("(^|_)ema($|_)", "ema_", "shadow", "averaged", "^swa", "polyak"),
    Component.SCALER: ("scaler", "loss_scale", "^amp$"),
    Component.RNG: (
        "(^|_)rngs?($|_)",
        "random_states?",
        "^random(_states?)?",
        "^(py|np|numpy|python|torch|cuda)_state$",
    ),
    Component.SCHEDULE: ("sched",),
    Component.OPTIMIZER: ("optim", "^opts?($|_)"),
    Component.DATA_POSITION: (
        "loader", "sampler", "samples_seen", "batch_idx", "batches", "cursor", "position", "consumed",
        "data_state", "iterator",
    ),
    Component.DATA_ORDER: ("^seed$", "data_seed", "permutation", "^perm$", "shuffle"),
    Component.CALLBACKS: ("callback", "early_stop", "patience", "^best(_|$)", "stopper"),
    Component.CONFIG: ("config", "^cfg$", "(^|_)args$", "hparams", "hyper_?param", "arguments"),
    Component.PROGRESS: (
        "^(global_?)?steps?$", "^epochs?(_|$)", "^iter", "^it$", "^step_", "global_step", "trainer_state",
        "^progress", "train_state", "^updates$",
    ),
    Component.WEIGHTS: (
        "model", "state_dict", "weights", "^net($|_)", "network", "module", "params", "^generator",
        "^discriminator", "actor", "critic",
    ),
}  # fmt: skip
_NAMES = {component: re.compile("|".join(words), re.IGNORECASE) for component, words in _WORDS.items()}
"""What keys and files are usually called; the first component that matches is meant."""

_STEP_KEYS = (
    "global_step", "step", "steps", "global_steps", "iteration", "iterations", "iter", "iter_num", "it",
    "num_steps", "num_updates", "updates", "completed_steps", "current_step", "train_step", "steps_run", "opt_step",
)  # fmt: skip
_MAX_NESTING = 3
_OWN_COMPONENTS = frozenset({Component.OPTIMIZER, Component.SCHEDULE, Component.SCALER})

Found = dict[Component, list[str]]
"""For each component the keys that hold it."""


def find_components(value: Any, name: str = "") -> Found:
    """Tell which components ``value`` holds, and under which keys.

    Args:
        value: what a file holds, as read by :mod:`~samestep.checkpoints.containers`.
        name: what the value is called: a file's stem or a key.
    """
    found: Found = {}
    _find(value, name, name, found, 0)
    return found


def _find(value: Any, name: str, path: str, found: Found, depth: int) -> None:
    component = classify(value, name)
    if component is not None:
        found.setdefault(component, []).append(path)
        return
    if isinstance(value, dict) and depth < _MAX_NESTING:
        for key, inner in value.items():
            if isinstance(key, str):
                _find(inner, key, f"{path}.{key}" if path else key, found, depth + 1)


def classify(value: Any, name: str, depth: int = 0) -> Component | None:
    """Return the component that ``value`` is, or None if it is a mixture or nothing known."""
    structural = _by_structure(value)
    named = component_named(name)
    if structural is Component.WEIGHTS:
        return named if named in (Component.EMA, Component.OPTIMIZER) else structural
    if structural is not None:
        return structural
    if isinstance(value, dict) and depth < _MAX_NESTING and _is_mixture(value, depth + 1):
        return None
    if named in (Component.OPTIMIZER, Component.WEIGHTS, Component.EMA) and not count_tensors(value):
        return named if named is Component.OPTIMIZER and _is_filled(value) else None
    return named if _is_filled(value) else None


def _by_structure(value: Any) -> Component | None:
    if isinstance(value, list | tuple) and value and all(is_optimizer(item) for item in value):
        return Component.OPTIMIZER
    if is_optimizer(value):
        return Component.OPTIMIZER
    if isinstance(value, dict):
        return _by_keys(value)
    if isinstance(value, Built) and _module_tensors(value):
        return Component.WEIGHTS
    return None


def _by_keys(value: dict[Any, Any]) -> Component | None:
    if "last_epoch" in value and ("_step_count" in value or "base_lrs" in value):
        return Component.SCHEDULE
    if {"scale", "growth_factor"} <= value.keys():
        return Component.SCALER
    if is_state_dict(value):
        return Component.EMA if "n_averaged" in value else Component.WEIGHTS
    return None


def is_optimizer(value: Any) -> bool:
    """Tell whether ``value`` is what ``Optimizer.state_dict()`` returns."""
    return isinstance(value, dict) and {"state", "param_groups"} <= value.keys()


def is_state_dict(value: Any) -> bool:
    """Tell whether ``value`` maps names to tensors, as a module's state does, or is a safetensors header."""
    if not isinstance(value, dict) or not value:
        return False
    tensors = sum(
        1 for item in value.values() if is_tensor(item) or _is_safetensors_entry(item) or item == "array"
    )
    return tensors * 10 >= len(value) * 8 and any("." in str(key) or _is_parameter(str(key)) for key in value)


def _is_parameter(key: str) -> bool:
    return key in ("weight", "bias", "w", "b") or key.endswith(("weight", "bias"))


def _is_safetensors_entry(item: Any) -> bool:
    return isinstance(item, dict) and "data_offsets" in item


def _module_tensors(value: Built) -> bool:
    state = value.state
    return isinstance(state, dict) and "_parameters" in state and "_modules" in state


def _is_mixture(value: dict[Any, Any], depth: int) -> bool:
    """Tell whether the parts of a mapping are components of their own."""
    inner = {
        classify(item, str(key), depth) for key, item in value.items() if isinstance(item, dict) and item
    }
    return len(inner - {None}) > 1 or not _OWN_COMPONENTS.isdisjoint(inner)


def component_named(name: str) -> Component | None:
    """Return the component that a key or a file name usually stands for."""
    return next((component for component, pattern in _NAMES.items() if pattern.search(name)), None)


def _is_filled(value: Any) -> bool:
    return value is not None and (not isinstance(value, dict | list | tuple) or bool(value))


def is_empty_optimizer(value: Any) -> bool:
    """Tell whether an optimizer's state was saved before its first step, or was never kept."""
    return is_optimizer(value) and not value["state"]


def find_step(value: Any) -> int | None:
    """Return the step count that a value states under one of the usual keys, top level first."""
    for item in walk(value, depth=3):
        if not isinstance(item, dict) or is_optimizer(item):
            continue
        for key in _STEP_KEYS:
            step = item.get(key)
            if isinstance(step, int) and not isinstance(step, bool) and step >= 0:
                return step
    return None
