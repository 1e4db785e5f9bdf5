"""Carries the state of one tracked object to another, by way of canonical JSON, without a bundle."""

from __future__ import annotations

import torch

from samestep.bundle import canonical
from samestep.state import leaves
from samestep.state.mismatches import Mismatches
from samestep.state.seam import Stored


class Kept:
    """The state of a tracked object as a bundle would hold it."""

    def __init__(self, source):
        encoded = leaves.encode(source.read(), at=source.name)
        self.text = canonical.encode(encoded.value)
        self.tensors = {name: tensor.detach().clone() for name, tensor in encoded.tensors.items()}
        self.aliases = encoded.aliases

    def stored(self, at=""):
        """The tree with descriptions in the place of tensors."""
        return leaves.decode(canonical.decode(self.text, what="the state"), self._described, at=at)

    def _described(self, name):
        tensor = self.tensors[name]
        return Stored(tuple(tensor.shape), tensor.dtype, name)

    def into(self, target, **allowed):
        """Restore it into another tracked object."""
        mismatches = Mismatches(**allowed)
        stored = self.stored(target.name)
        prepared = target.prepare(stored, mismatches)
        mismatches.check()
        self._load(stored, prepared)
        target.write(leaves.finish(prepared))

    def _load(self, stored, prepared):
        if isinstance(stored, Stored):
            with torch.no_grad():
                prepared.copy_(self.tensors[stored.key])
        elif isinstance(stored, dict):
            for key in stored.keys() & prepared.keys():
                self._load(stored[key], prepared[key])
        elif isinstance(stored, list | tuple):
            for one, other in zip(stored, prepared, strict=True):
                self._load(one, other)
        elif isinstance(stored, leaves.Coded):
            self._load(stored.payload, prepared.payload)


def carry(source, target, **allowed):
    """Give ``target`` the state of ``source``; return where they still differ."""
    Kept(source).into(target, **allowed)
    return leaves.differences(source.read(), target.read(), at=target.name)


def survives(tree):
    """Return a tree after it was written as text and read again, its tensors taken over."""
    encoded = leaves.encode(tree)
    text = canonical.encode(encoded.value)
    read = canonical.decode(text, what="the tree")
    return leaves.finish(leaves.decode(read, encoded.tensors.__getitem__))
