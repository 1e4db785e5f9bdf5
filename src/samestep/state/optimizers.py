"""Optimizers: their state and groups by the names of parameters, never by position."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

import torch

from samestep.contract.words import Component
from samestep.state import leaves
from samestep.state.groups import check_groups, option_keys, parameter_labels, set_options
from samestep.state.modules import not_taken
from samestep.state.naming import Names
from samestep.state.seam import Stored
from samestep.state.tracked import Fresh, Tracked, asked

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import nn
    from torch.optim import Optimizer

    from samestep.state.mismatches import Mismatches

_HOOKS = (
    "_optimizer_state_dict_pre_hooks",
    "_optimizer_state_dict_post_hooks",
    "_optimizer_load_state_dict_pre_hooks",
    "_optimizer_load_state_dict_post_hooks",
)


@dataclasses.dataclass(frozen=True)
class _Labelled:
    """The parameters of an optimizer and their names, as long as the groups hold these very objects."""

    identities: list[list[int]]
    labels: list[list[str]]
    shapes: list[list[str]]
    owners: dict[str, tuple[torch.Tensor, dict[str, Any]]]


class TrackedOptimizer(Tracked):
    """An optimizer.

    Its tree is ``{"state": {PARAMETER: {…}}, "groups": [{"params": [PARAMETER…], option: value…}]}``, with
    ``"shapes"`` of the parameters, and ``"more"`` for what an optimizer keeps beside them.

    Args:
        name: that it is tracked under.
        optimizer: of torch, or any subclass.
        models: tracked modules, and single tensors, that own its parameters.
        component: of the training state.

    Raises:
        StateError: a parameter belongs to none of the models; the message says which group and index it has.
    """

    steady = True

    def __init__(
        self,
        name: str,
        optimizer: Optimizer,
        models: Mapping[str, nn.Module | torch.Tensor],
        component: Component = Component.OPTIMIZER,
    ) -> None:
        inner = getattr(optimizer, "optimizer", None)
        if type(optimizer).__name__ == "AcceleratedOptimizer" and isinstance(inner, torch.optim.Optimizer):
            optimizer = inner
        super().__init__(name, optimizer, component)
        self._names = Names(models)
        self._known: _Labelled | None = None
        self._labelled()

    def read(self) -> dict[str, Any]:
        """Return state and groups by name; see ``Tracked``."""
        known = self._labelled()
        groups = [
            {key: group[key] for key in option_keys(group)} | {"params": own}
            for group, own in zip(self.thing.param_groups, known.labels, strict=True)
        ]
        state: dict[Any, Any] = self.thing.state
        more: dict[str, Any] = {}
        if _is_special(self.thing):
            state, more = self._given()
        named = {
            label: entry for label, (parameter, _) in known.owners.items() if (entry := state.get(parameter))
        }
        loose = {key: entry for key, entry in state.items() if not isinstance(key, torch.Tensor)}
        more = more | ({"state": loose} if loose else {})
        tree: dict[str, Any] = {
            "kind": self.kind,
            "devices": self._devices(named),
            "groups": groups,
            "shapes": known.shapes,
            "state": named,
        }
        return tree | ({"more": more} if more else {})

    def _devices(self, state: dict[str, Any]) -> list[str]:
        """Return the kinds of device that parameters with state are on, and which entries are on the CPU."""
        found: set[str] = set()
        for own in self._labelled().labels:
            label = next((label for label in own if label in state), None)
            if label is not None:
                found.add(self._labelled().owners[label][0].device.type)
                found |= {f"cpu:{key}" for key, item in _items(state[label]) if _is_on_cpu(item)}
        return sorted(found)

    def _labelled(self) -> _Labelled:
        groups = self.thing.param_groups
        identities = [list(map(id, group["params"])) for group in groups]
        if self._known is None or self._known.identities != identities:
            labels = parameter_labels(self.name, groups, self._names)
            owners = {
                label: (parameter, group)
                for group, own in zip(groups, labels, strict=True)
                for parameter, label in zip(group["params"], own, strict=True)
            }
            shapes = [[_shape(parameter) for parameter in group["params"]] for group in groups]
            self._known = _Labelled(identities, labels, shapes, owners)
        return self._known

    def _given(self) -> tuple[dict[Any, Any], dict[str, Any]]:
        """Return what an optimizer's own ``state_dict`` gives: state by parameter, and what else there is."""
        given = asked(self.name, self.thing.state_dict)
        parameters = [parameter for parameter, _ in self._labelled().owners.values()]
        owner = dict(zip(_places(given), parameters, strict=True))
        state = {owner.get(key, key): entry for key, entry in given["state"].items()}
        return state, {key: value for key, value in given.items() if key not in ("state", "param_groups")}

    def _prepare(self, stored: dict[str, Any], mismatches: Mismatches) -> dict[str, Any]:
        if stored["kind"] != self.kind:
            mismatches.differs(self.name, stored["kind"], self.kind)
            return stored
        known = self._labelled()
        check_groups(self.place, stored["groups"], known.labels, mismatches)
        self._check_shapes(stored, mismatches)
        fresh = Fresh()
        state = {
            label: _materialised(entry, *known.owners[label], stored["devices"], fresh)
            for label, entry in stored["state"].items()
            if label in known.owners
        }
        rest = {key: value for key, value in stored.items() if key != "state"}
        return {**fresh.tree(rest, {"groups": self.read()["groups"]}), "state": state}

    def _check_shapes(self, stored: dict[str, Any], mismatches: Mismatches) -> None:
        owners = self._labelled().owners
        for group, shapes in zip(stored["groups"], stored["shapes"], strict=True):
            for label, shape in zip(group["params"], shapes, strict=True):
                present = owners.get(label)
                if present is not None and _shape(present[0]) != shape and label in stored["state"]:
                    place = self.place("state", label)
                    mismatches.differs(place, f"for a parameter of shape {shape}", _shape(present[0]))

    def write(self, tree: dict[str, Any]) -> None:
        """Give every parameter its state, and every group its options; see ``Tracked``."""
        if _is_special(self.thing):
            self._load(tree)
        else:
            self.thing.state.clear()
            self._assign(tree)
            self.thing.state.update(tree.get("more", {}).get("state", {}))
        set_options(self.thing.param_groups, tree["groups"])

    def _assign(self, tree: dict[str, Any]) -> None:
        owners = self._labelled().owners
        for label, entry in tree["state"].items():
            self.thing.state[owners[label][0]] = entry

    def _load(self, tree: dict[str, Any]) -> None:
        """Give the state to an optimizer's own ``load_state_dict``, and see that it took all of it.

        torch's own converts state to the type of the parameters; what it changed is put right.
        """
        given = asked(self.name, self.thing.state_dict)
        index = dict(zip(self._labelled().owners, _places(given), strict=True))
        more = dict(tree.get("more", {}))
        state = {index[label]: entry for label, entry in tree["state"].items()} | more.pop("state", {})
        groups = [
            {**kept, **{key: options[key] for key in option_keys(options)}}
            for kept, options in zip(given["param_groups"], tree["groups"], strict=False)
        ]
        whole = {**given, **more, "state": state, "param_groups": groups}
        asked(self.name, lambda: self.thing.load_state_dict(leaves.finish(whole)))
        if self._unlike(tree):
            self._assign(tree)
        unlike = self._unlike(tree)
        if unlike:
            raise not_taken(self, unlike)

    def _unlike(self, tree: dict[str, Any]) -> list[str]:
        """Return where the optimizer's state is not the one in ``tree``."""
        present = self.read()
        state = {label: entry for label, entry in present["state"].items() if label in tree["state"]}
        return leaves.differences(
            {"state": tree["state"], "more": tree.get("more", {})},
            {"state": state, "more": present.get("more", {})},
            at=self.name,
        )


def _is_special(optimizer: Optimizer) -> bool:
    """Whether an optimizer's ``state_dict`` or ``load_state_dict`` does more than torch's own."""
    plain, kind = torch.optim.Optimizer, type(optimizer)
    return (
        kind.state_dict is not plain.state_dict
        or kind.load_state_dict is not plain.load_state_dict
        or any(getattr(optimizer, hook, None) for hook in _HOOKS)
    )


def _shape(tensor: torch.Tensor) -> str:
    """Return a tensor's shape as text, such as ``8x16``."""
    return "x".join(map(str, tensor.shape))


def _places(given: dict[str, Any]) -> list[Any]:
    """Return the keys of the parameters in an optimizer's state dict, in the order of its groups."""
    return [key for group in given["param_groups"] for key in group["params"]]


def _materialised(
    entry: Any, parameter: torch.Tensor, group: dict[str, Any], devices: list[str], fresh: Fresh
) -> Any:
    """Return the state of one parameter with tensors to load into: like the parameter where they have its shape.

    What was on the CPU while the parameters were not stays there. After a training on the CPU alone, the step count
    does, unless the optimizer counts on the device itself (capturable, fused).
    """
    on_cpu = {device.removeprefix("cpu:") for device in devices}
    if all(device.startswith("cpu") for device in devices):
        counts_on_device = group.get("capturable") or group.get("fused")
        on_cpu = set() if counts_on_device else {"step"}

    def fill(leaf: Any, key: object) -> Any:
        if not isinstance(leaf, Stored):
            return leaf
        if str(key) in on_cpu:
            return fresh.tensor(leaf, device=torch.device("cpu"))
        return fresh.tensor(leaf, None if key == "step" else parameter, device=parameter.device)

    filled = {
        key: leaves.map_leaves(item, functools.partial(fill, key=key), coded=True)
        for key, item in _items(entry)
    }
    return filled if isinstance(entry, dict) else filled[None]


def _items(entry: Any) -> Iterable[tuple[Any, Any]]:
    """Return what the state of one parameter consists of; some optimizers keep a single thing."""
    return entry.items() if isinstance(entry, dict) else [(None, entry)]


def _is_on_cpu(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and item.device.type == "cpu"
