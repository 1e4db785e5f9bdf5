"""Random generators that a data set or a sampler keeps for itself."""

from __future__ import annotations

import random
from collections import deque
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

_KINDS = (random.Random, np.random.Generator, np.random.RandomState, torch.Generator)
_NUMBERS_AND_TEXTS = (str, bytes, int, float, complex, type(None), np.ndarray, torch.Tensor)
_CODE = (type, ModuleType, FunctionType, BuiltinFunctionType)
_MOST_VISITS = 2000
_MOST_ENTRIES = 64
"""A longer list holds samples, not transforms."""


def held_generators(*holders: object) -> dict[str, Any]:
    """Return the generators found in the attributes of ``holders`` and of what those hold, each by its path.

    The path says whose seed it gets, whatever else is found. The global generators are none of them. The search ends
    after 2,000 objects.
    """
    found: dict[str, Any] = {}
    todo = deque((str(number), holder) for number, holder in enumerate(holders))
    seen = set(map(id, _global_generators()))
    while todo and len(seen) < _MOST_VISITS:
        path, holder = todo.popleft()
        if id(holder) in seen or isinstance(holder, (*_NUMBERS_AND_TEXTS, *_CODE)):
            continue
        seen.add(id(holder))
        if isinstance(holder, _KINDS):
            found[path] = holder
        else:
            todo.extend((f"{path}.{name}", entry) for name, entry in _entries(holder))
    return found


def reseed(generator: Any, seed: int) -> None:
    """Set a generator of Python, NumPy or torch to the start of the stream of ``seed`` (at least 64 bits are used)."""
    if isinstance(generator, torch.Generator):
        generator.manual_seed(seed & 0xFFFFFFFFFFFFFFFF)
    elif isinstance(generator, np.random.RandomState):
        generator.seed(seed & 0xFFFFFFFF)
    elif isinstance(generator, np.random.Generator):
        bits = generator.bit_generator
        bits.state = type(bits)(seed).state
    else:
        generator.seed(seed)


def _entries(holder: Any) -> Iterable[tuple[Any, Any]]:
    """Return what an object holds, by name; sets are left out: they have no order."""
    if isinstance(holder, list | tuple):
        return () if len(holder) > _MOST_ENTRIES else enumerate(holder)
    entries = holder if isinstance(holder, dict) else getattr(holder, "__dict__", {})
    return () if isinstance(holder, dict) and len(holder) > _MOST_ENTRIES else list(entries.items())


def _global_generators() -> tuple[object, ...]:
    return random._inst, np.random.mtrand._rand, torch.default_generator  # noqa: SLF001
