"""Tracked objects made of a tree, for tests of what becomes of trees."""

from __future__ import annotations

import torch

from samestep.state import leaves
from samestep.state.seam import Stored
from samestep.state.tracked import Tracked


class TrackedTree(Tracked):
    """A tree. Tensors are restored into fresh ones, or, if ``in_place``, into those that are there."""

    def __init__(self, name, tree, component="progress", *, in_place=False, **settings):
        super().__init__(name, tree, component)
        self.tree, self._in_place = tree, in_place
        for setting, value in settings.items():
            setattr(self, setting, value)

    def read(self):
        return self.tree

    def _prepare(self, stored, mismatches):
        live = leaves.encode(self.tree).tensors if self._in_place else {}
        made = {}

        def target(leaf):
            if not isinstance(leaf, Stored):
                return leaf
            fresh = torch.empty(leaf.shape, dtype=leaf.dtype)
            return made.setdefault(leaf.key, live.get(leaf.key, fresh))

        return leaves.map_leaves(stored, target, coded=True)

    def write(self, tree):
        self.tree = tree


def zeroed(tree):
    """Return a tree whose tensors are zero."""
    return leaves.map_leaves(
        tree, lambda leaf: torch.zeros_like(leaf) if isinstance(leaf, torch.Tensor) else leaf
    )
