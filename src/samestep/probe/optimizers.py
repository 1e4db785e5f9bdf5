"""State of optimizers, schedulers and loss scalers as a step finds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from .content import quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..trace import Quantity

Plain = Any

_NOT_HYPER = ("params", "param_names")
_NOT_COUNTERS = ("optimizer", "verbose", "_get_lr_called_within_step", "_is_initial", "_initial_step")
_MOST_ITEMS = 64


@dataclass
class OptimizerShot:
    """One optimizer at one moment.

    Attributes:
        optimizer: its identity.
        kinds: content per kind of state (``exp_avg``).
        groups: plain hyper-parameters per parameter group.
    """

    optimizer: int
    kinds: dict[str, Quantity]
    groups: list[dict[str, Plain]]


def shoot(optimizer: Any, names: dict[int, str], sample_values: int, *, full: bool) -> OptimizerShot:
    """Capture one optimizer.

    Args:
        optimizer: a ``torch.optim.Optimizer``.
        names: names of parameters by identity.
        sample_values: see ``quantity``.
        full: see ``quantity``.
    """
    kinds: dict[str, list[tuple[str, Any]]] = {}
    for owner, kind, item in _state_items(optimizer, names):
        kinds.setdefault(kind, []).append((owner, item))
    contents = {kind: quantity(named, sample_values, full=full) for kind, named in sorted(kinds.items())}
    return OptimizerShot(id(optimizer), contents, hyper_parameters(optimizer))


def hyper_parameters(optimizer: Any) -> list[dict[str, Plain]]:
    """Return the plain hyper-parameters of each group, the learning rate first."""
    return [_hyper(group) for group in optimizer.param_groups]


def looks_idle(optimizer: Any, *, has_closure: bool) -> bool:
    """Return whether a call cannot be meant to change weights: no closure, and every learning rate is 0."""
    rates = [group.get("lr") for group in optimizer.param_groups]
    return not has_closure and bool(rates) and all(rate is not None and float(rate) == 0 for rate in rates)


def schedule(scheduler: Any) -> dict[str, Plain]:
    """Return the type and the plain counters of a scheduler."""
    counters = {name: plain(value) for name, value in vars(scheduler).items() if name not in _NOT_COUNTERS}
    kept = {name: value for name, value in counters.items() if value is not None}
    return {"type": type(scheduler).__name__, **dict(sorted(kept.items()))}


def scaler_state(scaler: Any) -> dict[str, Plain]:
    """Return scale and growth counter of a loss scaler that is switched on."""
    tracker = scaler._growth_tracker
    return {
        "scale": float(scaler.get_scale()),
        "growth_tracker": int(scaler._init_growth_tracker if tracker is None else tracker),
    }


def plain(value: Any) -> Plain:
    """Return a JSON form of plain values and short lists of them, None for everything else."""
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, torch.Tensor):
        return value.item() if value.numel() == 1 else None
    if isinstance(value, (list, tuple)) and len(value) <= _MOST_ITEMS:
        items = [plain(item) for item in value]
        return None if None in items else items
    if isinstance(value, dict) and value and len(value) <= _MOST_ITEMS:
        entries = {str(name): plain(item) for name, item in value.items()}
        return None if None in entries.values() else entries
    return None


def _hyper(group: dict[str, Any]) -> dict[str, Plain]:
    names = sorted(name for name in group if name not in _NOT_HYPER)
    names.sort(key=lambda name: name != "lr")
    values = {name: plain(group[name]) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def _state_items(optimizer: Any, names: dict[int, str]) -> Iterator[tuple[str, str, Any]]:
    """Yield owner, kind and content of everything numeric in the state."""
    for key, state in optimizer.state.items():
        owner = names.get(id(key), "") if isinstance(key, torch.Tensor) else str(key)
        if isinstance(state, dict):
            for kind, value in state.items():
                for path, item in _numeric(value):
                    yield owner + path, str(kind), item
        else:
            for path, item in _numeric(state):
                yield path, owner, item


def _numeric(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, (torch.Tensor, bool, int, float)):
        yield path, value
    elif isinstance(value, (list, tuple)):
        for position, item in enumerate(value):
            yield from _numeric(item, f"{path}[{position}]")
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _numeric(item, f"{path}[{name}]")
