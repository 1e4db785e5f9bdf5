"""Buffers that a model leaves out of its state dict, kept beside the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from samestep.contract.words import Component
from samestep.state.naming import bare, buffers_left_out
from samestep.state.seam import Stored
from samestep.state.tracked import Fresh, Tracked, class_name, poured, shown

if TYPE_CHECKING:
    from torch import nn

    from samestep.state.mismatches import Mismatches


class TrackedBuffers(Tracked):
    """The buffers of a module that its state dict leaves out.

    Most of them are masks and tables that the program makes again as they were. One that training changes is state like
    any other, and nothing tells which is which. They are no weights: other programs do not expect them among those.
    A buffer of another length is one that has grown (a cache), and takes the place of the one that was made here.

    Args:
        name: unique among the tracked objects of a run.
        module: whose buffers they are.
    """

    def __init__(self, name: str, module: nn.Module) -> None:
        super().__init__(name, module, Component.PROGRESS)
        self.kind = class_name(bare(module))
        self._homes = buffers_left_out(module)

    @property
    def names(self) -> list[str]:
        """Canonical names of the buffers; none for most modules."""
        return list(self._homes)

    def read(self) -> dict[str, torch.Tensor | None]:
        """Return the buffers themselves; see ``Tracked``."""
        return {name: getattr(owner, leaf) for name, (owner, leaf) in self._homes.items()}

    def _prepare(self, stored: dict[str, Any], mismatches: Mismatches) -> dict[str, Any]:
        live, fresh = self.read(), Fresh()
        for name in live.keys() - stored.keys():
            mismatches.missing(self.place(name))
        for name in stored.keys() - live.keys():
            mismatches.surplus(self.place(name))
        return {
            name: self._target(name, entry, live[name], fresh, mismatches)
            for name, entry in stored.items()
            if name in live
        }

    def _target(self, name: str, entry: Any, live: Any, fresh: Fresh, mismatches: Mismatches) -> Any:
        if not isinstance(entry, Stored):
            return entry
        if isinstance(live, torch.Tensor):
            if live.dtype != entry.dtype:
                mismatches.differs(self.place(name), shown(entry), shown(live))
            if tuple(live.shape) == entry.shape:
                return live
        return fresh.tensor(entry, live, device=self._device(live))

    def _device(self, live: torch.Tensor | None) -> torch.device | None:
        like = live if live is not None else next(self.thing.parameters(), None)
        return None if like is None else like.device

    def write(self, tree: dict[str, Any]) -> None:
        """Fill the buffers that are not loaded already, or put others in their places."""
        for name, value in tree.items():
            owner, leaf = self._homes[name]
            live = getattr(owner, leaf)
            taken = value if value is live else poured(value, live)
            if taken is not live:
                setattr(owner, leaf, taken if taken is None else taken.to(self._device(live)))
