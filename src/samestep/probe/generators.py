"""Digests of the global random generators; looking at one never draws from it."""

from __future__ import annotations

import hashlib
import random
import sys
from typing import Any

import torch

from .leaves import undisturbed

_ACCELERATORS = ("cuda", "xpu")


def global_generators() -> dict[str, str]:
    """Return a digest per generator: ``python``, ``numpy``, ``torch``, and one per initialised accelerator."""
    with undisturbed():
        states = {"python": repr(random.getstate()).encode(), "torch": _bytes(torch.get_rng_state())}
        states.update(_numpy())
        for kind in _ACCELERATORS:
            states.update(_accelerator(kind))
    return {name: hashlib.blake2b(state, digest_size=16).hexdigest() for name, state in states.items()}


def _numpy() -> dict[str, bytes]:
    numpy_random: Any = sys.modules.get("numpy.random")
    if numpy_random is None:
        return {}
    return {"numpy": repr(_plain(numpy_random.get_state(legacy=False))).encode()}


def _plain(state: Any) -> Any:
    if isinstance(state, dict):
        return {name: _plain(value) for name, value in state.items()}
    return state.tobytes() if hasattr(state, "tobytes") else state


def _accelerator(kind: str) -> dict[str, bytes]:
    module = getattr(torch, kind, None)
    if module is None or not module.is_initialized() or _capturing(module):
        return {}
    return {f"{kind}:{i}": _bytes(module.get_rng_state(i)) for i in range(module.device_count())}


def _capturing(module: Any) -> bool:
    """Return whether a graph is being recorded, which forbids asking for states."""
    check = getattr(module, "is_current_stream_capturing", None)
    return bool(check and check())


def _bytes(tensor: Any) -> bytes:
    return bytes(tensor.tolist())
