"""Canonical names of parameters and buffers: those of the bare model, whatever it is wrapped in."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import nn

from samestep.state.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Mapping

_INNER: Final = ("module", "_orig_mod", "_checkpoint_wrapped_module")
"""Where a wrapper keeps what it wraps."""


def wraps(module: nn.Module) -> str:
    """Return the attribute under which a wrapper keeps the module it wraps; empty for any other module."""
    return next((attribute for kind, attribute in _wrappers() if isinstance(module, kind)), "")


def bare(module: nn.Module) -> nn.Module:
    """Return the module without the wrappers around it."""
    while attribute := wraps(module):
        module = getattr(module, attribute)
    return module


def canonical_names(module: nn.Module, keys: Mapping[str, Any]) -> dict[str, str]:
    """Return the canonical name for every key of a state dict, in the order of the keys.

    Raises:
        StateError: two keys would have one name.
    """
    if not any(inner in key for key in keys for inner in _INNER):
        return {key: key for key in keys}
    wrapped = {
        f"{path}.{attribute}" if path else attribute
        for path, part in module.named_modules(remove_duplicate=False)
        if (attribute := wraps(part))
    }
    names = {key: _without(key, wrapped) for key in keys}
    if len(set(names.values())) != len(names):
        seen: set[str] = set()
        twice = next(name for name in names.values() if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise StateError(
            f"two entries of the model are called {twice} once wrappers are left out", slug="state-names"
        )
    return names


def live_entries(module: nn.Module) -> dict[str, Any]:
    """Return the module's state by canonical name: its own parameters and buffers, and what it adds itself.

    Raises:
        StateError: a parameter has no shape yet, or the module is wrapped in a way that changes its parameters.
    """
    _check_wrapping(module)
    entries = module.state_dict(keep_vars=True)
    names = canonical_names(module, entries)
    for key, value in entries.items():
        if nn.parameter.is_lazy(value):
            raise StateError(
                f"the parameter {names[key]} has no shape yet",
                slug="state-lazy",
                hint="Run one forward pass on a made-up batch before tracking the model.",
            )
    return {names[key]: value for key, value in entries.items()}


def buffers_left_out(module: nn.Module) -> dict[str, tuple[nn.Module, str]]:
    """Return the buffers that are no part of the state: by canonical name, the module and the attribute of each."""
    homes = {
        f"{path}.{leaf}" if path else leaf: (part, leaf)
        for path, part in module.named_modules(remove_duplicate=False)
        for leaf, buffer in part._buffers.items()  # noqa: SLF001 - named_buffers leaves out those that are None
        if buffer is not None or leaf in part._non_persistent_buffers_set  # noqa: SLF001
    }
    names = canonical_names(module, homes)
    kept = live_entries(module)
    return {names[key]: home for key, home in homes.items() if names[key] not in kept}


def check_trained(name: str, module: nn.Module) -> None:
    """Refuse a module that trains parameters which its state dict leaves out.

    Raises:
        StateError: the message names the first of them.
    """
    kept = live_entries(module).keys()
    parameters = dict(module.named_parameters(remove_duplicate=False))
    names = canonical_names(module, parameters)
    saved = {id(parameter) for key, parameter in parameters.items() if names[key] in kept}
    for key, parameter in parameters.items():
        if parameter.requires_grad and id(parameter) not in saved:
            raise StateError(
                f"{name}.{names[key]} is trained, and the model's state_dict leaves it out",
                slug="untrackable",
                hint="Let state_dict return it, or freeze it.",
            )


class Names:
    """Names of parameters by identity.

    Args:
        models: tracked modules and single tensors by the names they are tracked under.
    """

    def __init__(self, models: Mapping[str, nn.Module | torch.Tensor]) -> None:
        self._models = dict(models)
        self._found: dict[int, tuple[str, str]] = {}
        self._kept: list[torch.Tensor] = []
        self.look_again()

    def look_again(self) -> None:
        """Take notice of parameters that were replaced since."""
        self._found.clear()
        self._kept.clear()
        for model, thing in self._models.items():
            for name, tensor in _parameters(thing):
                self._found.setdefault(id(tensor), (model, name))
                self._kept.append(tensor)  # an id belongs to its object only while that lives

    def find(self, tensor: torch.Tensor) -> tuple[str, str] | None:
        """Return under which model and by which canonical name a parameter is known."""
        return self._found.get(id(tensor))


def _parameters(thing: nn.Module | torch.Tensor) -> list[tuple[str, torch.Tensor]]:
    if isinstance(thing, torch.Tensor):
        return [("", thing)]
    entries = [
        (name, value) for name, value in live_entries(thing).items() if isinstance(value, torch.Tensor)
    ]
    others = dict(thing.named_parameters(remove_duplicate=False))
    names = canonical_names(thing, others)
    return entries + [(names[key], value) for key, value in others.items()]


def _without(key: str, wrapped: set[str]) -> str:
    """Return ``key`` without the attributes of wrappers on its way."""
    parts = key.split(".")
    return ".".join(part for at, part in enumerate(parts) if ".".join(parts[: at + 1]) not in wrapped)


def _check_wrapping(module: nn.Module) -> None:
    if not torch.distributed.is_available():
        return
    from torch.distributed.fsdp import FullyShardedDataParallel

    if any(isinstance(part, FullyShardedDataParallel) for part in module.modules()):
        raise StateError(
            "the model is wrapped in FullyShardedDataParallel, which flattens its parameters",
            slug="state-unsupported",
            hint="Use torch.distributed.fsdp.fully_shard (FSDP2).",
        )


@functools.cache
def _wrappers() -> tuple[tuple[type, str], ...]:
    from torch._dynamo.eval_frame import OptimizedModule
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import ActivationWrapper

    return (
        (nn.parallel.DistributedDataParallel, "module"),
        (nn.DataParallel, "module"),
        (OptimizedModule, "_orig_mod"),
        (ActivationWrapper, "_checkpoint_wrapped_module"),
    )
