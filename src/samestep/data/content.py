"""Digests of samples and batches, whatever they are made of, and how many rows a batch has."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import xxhash

WHOLE = 1 << 62
BATCH_BYTES = 1 << 16
"""Bytes read from each end of a tensor when a batch is only to be told from others."""


def digest(value: object, *, most: int = WHOLE) -> str:
    """Return the XXH3 (128 bits, hex) of the content of a sample or batch.

    Args:
        value: tensors, arrays, numbers, texts, and containers of these; of other objects the attributes count.
        most: bytes read from either end of a longer tensor or array.
    """
    hasher = xxhash.xxh3_128()
    _feed(hasher, value, most, depth=0)
    return hasher.hexdigest()


def rows_in(batch: Any) -> int:
    """Return how many samples a batch holds, by its first tensor or list; 1 where that says nothing."""
    if isinstance(batch, torch.Tensor | np.ndarray):
        return int(batch.shape[0]) if batch.ndim else 1
    if isinstance(batch, Mapping):
        return rows_in(next(iter(batch.values()))) if batch else 1
    if isinstance(batch, list | tuple) and batch:
        first = batch[0]
        return rows_in(first) if isinstance(first, torch.Tensor | np.ndarray | Mapping) else len(batch)
    return 1


def _feed(hasher: Any, value: Any, most: int, depth: int) -> None:
    hasher.update(f"\0{type(value).__name__}\0".encode())
    if depth > 32:
        return
    if isinstance(value, torch.Tensor):
        _feed_array(hasher, _as_array(value, most), f"{value.dtype}{tuple(value.shape)}", most)
    elif isinstance(value, np.ndarray | np.generic):
        _feed_array(hasher, np.asarray(value), f"{value.dtype}{value.shape}", most)
    elif isinstance(value, str | bytes | int | float | complex | None):
        hasher.update(value if isinstance(value, bytes) else repr(value).encode())
    else:
        for part in _parts(value):
            _feed(hasher, part, most, depth + 1)


def _parts(value: Any) -> list[Any]:
    """Return what an object is made of, in an order that does not depend on chance."""
    if isinstance(value, Mapping):
        return [part for item in value.items() for part in item]
    if isinstance(value, list | tuple):
        return [len(value), *value]
    if isinstance(value, set | frozenset):
        return sorted(map(digest, value))
    if hasattr(value, "__array__"):
        return [np.asarray(value)]
    if dataclasses.is_dataclass(value):
        return [getattr(value, field.name) for field in dataclasses.fields(value)]
    return [part for item in sorted(getattr(value, "__dict__", {}).items()) for part in item]


def _as_array(tensor: torch.Tensor, most: int) -> np.ndarray[Any, Any]:
    """Return a tensor's bytes; of a long one those of its ends, so that little is copied from a device."""
    flat = tensor.detach().resolve_conj().resolve_neg()
    if flat.layout is not torch.strided:
        flat = flat.to_dense()
    flat = flat.reshape(-1)
    count = most // max(1, flat.element_size())
    if flat.numel() > 2 * count:
        flat = torch.cat((flat[:count], flat[-count:]))
    return flat.cpu().contiguous().view(torch.uint8).numpy()


def _feed_array(hasher: Any, array: np.ndarray[Any, Any], described: str, most: int) -> None:
    hasher.update(described.encode())
    if array.dtype.hasobject:
        for part in array.reshape(-1).tolist():
            _feed(hasher, part, most, 1)
        return
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    if flat.size > 2 * most:
        flat = np.concatenate((flat[:most], flat[-most:]))
    hasher.update(flat)


def length_of(thing: Any) -> int | None:
    """Return how many samples a data set has, or batches a loader gives in an epoch; None where it does not know."""
    try:
        return len(thing)
    except (TypeError, NotImplementedError):
        return None
