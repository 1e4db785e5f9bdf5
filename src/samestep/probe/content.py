"""Content of groups of tensors: one digest and a few sampled numbers per group."""

from __future__ import annotations

import hashlib
import struct
from typing import Any

from ..trace import Quantity
from .leaves import CPU_ALGORITHM, Leaf, TensorLeaf, leaves_of, undisturbed

__all__ = ["CPU_ALGORITHM", "Named", "has_nonzero", "quantity", "tensor_digest"]

Named = list[tuple[str, Any]]
"""Unique names with the tensors or numbers they stand for."""

_BROUGHT_BYTES = 1 << 26
"""Inputs on accelerators up to this size are digested in main memory, so that they compare with the loader's batch."""


def quantity(named: Named, sample_values: int, *, full: bool = True) -> Quantity:
    """Return digest and sample of tensors and numbers, independent of the order they come in.

    Args:
        named: unique names and contents.
        sample_values: most numbers in the sample, if there are not more tensors than that; 0: none.
        full: digest every byte; otherwise only the sample.
    """
    with undisturbed():
        leaves = [leaf for name, item in sorted(named, key=_name) for leaf in leaves_of(name, item)]
        sample = _sample([leaf for _, leaf in leaves], sample_values)
        outer = hashlib.blake2b(digest_size=16)
        for name, leaf in leaves:
            outer.update(f"{name}|{leaf.label}|".encode())
            outer.update(leaf.digest() if full else b"")
    if not full:
        outer.update(struct.pack(f"<{len(sample)}d", *sample))
    return Quantity(
        digest=f"{_algorithm(leaves) if full else 'sample'}:{outer.hexdigest()}",
        tensors=len(named),
        elements=sum(leaf.elements for _, leaf in leaves),
        sample=Quantity.encode(sample) if sample else "",
    )


def tensor_digest(tensor: Any) -> str:
    """Return the content digest of one tensor, wherever it lives."""
    with undisturbed():
        if tensor.device.type not in ("cpu", "meta") and _size(tensor) <= _BROUGHT_BYTES:
            tensor = tensor.detach().cpu()
        outer = hashlib.blake2b(digest_size=16)
        for name, leaf in leaves_of("", tensor):
            outer.update(f"{name}|{leaf.label}|".encode())
            outer.update(leaf.digest())
    return outer.hexdigest()


def has_nonzero(tensor: Any) -> bool:
    """Return whether any element differs from zero."""
    with undisturbed():
        return any(
            isinstance(leaf, TensorLeaf) and bool(leaf.tensor.count_nonzero())
            for _, leaf in leaves_of("", tensor)
        )


def _name(item: tuple[str, Any]) -> str:
    return item[0]


def _size(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


def _algorithm(leaves: list[tuple[str, Leaf]]) -> str:
    used = {leaf.algorithm for _, leaf in leaves} - {""}
    return "+".join(sorted(used)) or CPU_ALGORITHM


def _sample(leaves: list[Leaf], budget: int) -> list[float]:
    """Take one number of each tensor, and more of the larger ones as far as the budget reaches."""
    if budget == 0:
        return []
    total = sum(leaf.elements for leaf in leaves)
    spare = max(0, budget - sum(1 for leaf in leaves if leaf.elements))
    shares = [1 + spare * leaf.elements // total if leaf.elements else 0 for leaf in leaves]
    return [value for leaf, share in zip(leaves, shares, strict=True) for value in leaf.values(share)]
