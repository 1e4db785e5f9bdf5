"""Models: their parameters and buffers under the names of the bare model, and gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.tensor import DTensor
from torch.optim.swa_utils import AveragedModel

from samestep.contract.words import Component
from samestep.state import leaves
from samestep.state.errors import StateError
from samestep.state.naming import bare, buffers_left_out, canonical_names, check_trained, live_entries
from samestep.state.seam import Stored
from samestep.state.tracked import Fresh, Tracked, asked, class_name, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn

    from samestep.state.mismatches import Mismatches

_FEW = 20


class TrackedModule(Tracked):
    """A module. Its tree is its state dict by canonical name; a tied weight stands under each of its names.

    The tensors that ``prepare`` hands out are those that the model computes with.
    """

    whole = True

    def __init__(self, name: str, module: nn.Module, component: Component | None = None) -> None:
        averaged = isinstance(module, AveragedModel)
        super().__init__(name, module, component or (Component.EMA if averaged else Component.WEIGHTS))
        self.steady = not averaged
        self.kind = class_name(bare(module))
        aliases = leaves.encode(self.read(), at=name).aliases
        self.notes = {"aliases": aliases} if aliases else {}
        check_trained(name, module)
        left_out = list(buffers_left_out(module))
        if left_out:
            self.notes["not_persistent"] = left_out[:_FEW]

    def read(self) -> dict[str, Any]:
        """Return the state dict with the parameters themselves; see ``Tracked``."""
        entries: dict[str, Any] = asked(self.name, lambda: live_entries(self.thing))
        return entries

    def _prepare(self, stored: dict[str, Any], mismatches: Mismatches) -> dict[str, Any]:
        live = self.read()
        for name in live:
            if name not in stored:
                mismatches.missing(self.place(name))
        tree, fresh = {}, Fresh()
        for name, entry in stored.items():
            if name not in live:
                mismatches.surplus(self.place(name))
            elif isinstance(entry, Stored) or isinstance(live[name], torch.Tensor):
                tree[name] = self._target(name, entry, live[name], mismatches)
            else:
                tree[name] = fresh.tree(entry, live[name])
        self._check_ties(stored, live, mismatches)
        return tree

    def _target(self, name: str, entry: Any, live: Any, mismatches: Mismatches) -> Any:
        """Return the live tensor, which an entry is loaded into if it fits."""
        both = isinstance(entry, Stored) and isinstance(live, torch.Tensor)
        if not both or tuple(live.shape) != entry.shape or live.dtype != entry.dtype:
            mismatches.differs(self.place(name), shown(entry), shown(live))
        return live

    def _check_ties(self, stored: dict[str, Any], live: dict[str, Any], mismatches: Mismatches) -> None:
        """Compare which names share one tensor."""
        ours: dict[int, str] = {}
        theirs: dict[str, str] = {}
        for name, entry in stored.items():
            if name in live and isinstance(entry, Stored) and isinstance(live[name], torch.Tensor):
                here = ours.setdefault(id(live[name]), name)
                there = theirs.setdefault(entry.key, name)
                if here != there:
                    mismatches.differs(
                        self.place(name),
                        f"the same tensor as {there}" if there != name else "a tensor of its own",
                        f"the same tensor as {here}" if here != name else "a tensor of its own",
                    )

    def write(self, tree: dict[str, Any]) -> None:
        """Take over what is no live tensor through ``load_state_dict``; live ones are loaded already."""
        live = self.read()
        if all(isinstance(entry, torch.Tensor) and entry is live[name] for name, entry in tree.items()):
            return
        entries = self.thing.state_dict()
        for key, name in canonical_names(self.thing, entries).items():
            entries[key] = tree.get(name, entries[key])
        self.thing.load_state_dict(entries)
        present = self.read()
        unlike = leaves.differences(tree, {name: present[name] for name in tree}, at=self.name)
        if unlike:
            raise not_taken(self, unlike)


class TrackedTensor(Tracked):
    """A single tensor or parameter that belongs to no module."""

    def read(self) -> dict[str, Any]:
        """Return the tensor itself; see ``Tracked``."""
        return {"value": self.thing}

    def _prepare(self, stored: dict[str, Any], mismatches: Mismatches) -> dict[str, Any]:
        entry = stored["value"]
        if tuple(self.thing.shape) != entry.shape or self.thing.dtype != entry.dtype:
            mismatches.differs(self.name, shown(entry), shown(self.thing))
        return {"value": self.thing}

    def write(self, tree: dict[str, Any]) -> None:
        """Do nothing: the tensor itself was loaded."""


class TrackedGradients(Tracked):
    """The gradients of models in the middle of an accumulation window, by parameter."""

    def __init__(self, name: str, models: Mapping[str, nn.Module]) -> None:
        super().__init__(name, models, Component.ACCUMULATION)
        self.kind = "gradients"
        # Ranks add up whole gradients only at the end of a window; sharded ones are added up at once.
        parameters = [p for own in self._parameters().values() for p in own.values()]
        self.per_rank = not any(isinstance(p, DTensor) for p in parameters)

    def read(self) -> dict[str, Any]:
        """Return the gradients there are; see ``Tracked``."""
        return {
            model: {name: p.grad for name, p in parameters.items() if p.grad is not None}
            for model, parameters in self._parameters().items()
        }

    def _prepare(self, stored: dict[str, Any], mismatches: Mismatches) -> dict[str, Any]:
        present = self._parameters()
        tree: dict[str, Any] = {}
        fresh = Fresh()
        for model, entries in stored.items():
            tree[model] = {}
            for name, entry in entries.items():
                parameter = present.get(model, {}).get(name)
                if parameter is None:
                    mismatches.surplus(self.place(model, name))
                elif tuple(parameter.shape) != entry.shape:
                    mismatches.differs(self.place(model, name), shown(entry), shown(parameter))
                else:
                    tree[model][name] = fresh.tensor(entry, parameter)
        return tree

    def write(self, tree: dict[str, Any]) -> None:
        """Give every parameter its gradient, and none to those that had none."""
        for model, parameters in self._parameters().items():
            for name, parameter in parameters.items():
                parameter.grad = tree.get(model, {}).get(name)

    def _parameters(self) -> dict[str, dict[str, torch.Tensor]]:
        return {
            model: {name: p for name, p in live_entries(module).items() if isinstance(p, torch.nn.Parameter)}
            for model, module in self.thing.items()
        }


def not_taken(tracked: Tracked, places: list[str]) -> StateError:
    """Return the error for an object that did not take over all of its state."""
    shown_places = ", ".join(places[:_FEW]) + (
        f" and {len(places) - _FEW} more" if len(places) > _FEW else ""
    )
    return StateError(
        f"{tracked.name} ({tracked.kind}) was given its state and does not hold it: {shown_places} "
        "read back otherwise than written",
        slug="state-not-taken",
        hint="Its load_state_dict ignores or converts these. Mend it, or wrap the object in one whose state is exact.",
    )
