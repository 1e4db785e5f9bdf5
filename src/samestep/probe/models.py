"""Finds the models that are trained and gives their tensors names that are the same in every run of a script."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

import torch

from .instances import Instances

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .content import Named

_WRAPPED_IN = {
    "OptimizedModule": "_orig_mod",
    "DistributedDataParallel": "module",
    "DataParallel": "module",
    "DeepSpeedEngine": "module",
    "FullyShardedDataParallel": "_fsdp_wrapped_module",
}
_INFIXES = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")


class Models:
    """The outermost modules that hold what optimizers update.

    They are looked for among all live objects, not only among the modules that were called: the first step of a
    resumed process must see the same models as the same step of an uninterrupted one.
    """

    def __init__(self) -> None:
        self._seen = Instances()
        self._roots: list[weakref.ref[Any]] = []
        self._basis: tuple[int, ...] | None = None
        self._covered: set[int] = set()

    def seen(self, module: Any) -> None:
        """Note a module that was called as an outermost one."""
        self._seen.remember(module)
        if id(module) not in self._covered:
            self._basis = None

    def roots(self, optimizers: list[Any]) -> list[Any]:
        """Return the models in a reproducible order: by the first of their parameters that an optimizer holds."""
        basis = tuple(id(optimizer) for optimizer in optimizers)
        alive = [root for reference in self._roots if (root := reference()) is not None]
        if basis != self._basis or len(alive) < len(self._roots):
            alive = _find_roots(optimizers, self._seen.alive())
            self._basis = basis
            self._roots = [weakref.ref(root) for root in alive]
            self._covered = {id(module) for root in alive for module in root.modules()}
            self._covered.update(id(module) for module in self._seen.alive())
        return alive

    def parameters(self, optimizers: list[Any]) -> Named:
        """Return all parameters, once each: those of the models, and those that only an optimizer holds."""
        named: Named = []
        known: set[int] = set()
        for name, parameter in _named(self.roots(optimizers), "named_parameters"):
            known.add(id(parameter))
            named.append((name, parameter))
        for place, parameter in _held(optimizers):
            if id(parameter) not in known:
                known.add(id(parameter))
                named.append(("optimizer." + ".".join(map(str, place)), parameter))
        return named

    def buffers(self, optimizers: list[Any]) -> Named:
        """Return the buffers that belong to the models' saved state; the others are caches."""
        caches = self._cache_ids(optimizers)
        return [named for named in self._all_buffers(optimizers) if id(named[1]) not in caches]

    def caches(self, optimizers: list[Any]) -> list[tuple[str, Any]]:
        """Return the buffers that no state_dict holds."""
        caches = self._cache_ids(optimizers)
        return [named for named in self._all_buffers(optimizers) if id(named[1]) in caches]

    def _all_buffers(self, optimizers: list[Any]) -> Iterator[tuple[str, Any]]:
        return _named(self.roots(optimizers), "named_buffers")

    def _cache_ids(self, optimizers: list[Any]) -> set[int]:
        return {
            id(module._buffers.get(name))
            for root in self.roots(optimizers)
            for module in root.modules()
            for name in module._non_persistent_buffers_set
        }


def _named(roots: list[Any], method: str) -> Iterator[tuple[str, Any]]:
    known: set[int] = set()
    for number, root in enumerate(roots):
        prefix = f"{number}:" if len(roots) > 1 else ""
        for name, tensor in getattr(root, method)():
            if id(tensor) not in known:
                known.add(id(tensor))
                yield prefix + _canonical(name), tensor


def _canonical(name: str) -> str:
    for infix in _INFIXES:
        name = name.replace(infix, "")
    return name


def _held(optimizers: Iterable[Any]) -> Iterator[tuple[tuple[int, int, int], Any]]:
    for number, optimizer in enumerate(optimizers):
        for group_number, group in enumerate(optimizer.param_groups):
            for position, parameter in enumerate(group["params"]):
                yield (number, group_number, position), parameter


def _find_roots(optimizers: list[Any], seen: Iterable[Any]) -> list[Any]:
    """Return the fewest outermost modules that hold every parameter of an optimizer that any module holds."""
    places = {id(parameter): place for place, parameter in reversed(list(_held(optimizers)))}
    if not places:
        return _unique(_unwrapped(module) for module in seen)
    ranked = []
    for root in _unique(_unwrapped(module) for module in _outermost_modules()):
        held = [places[id(p)] for p in root.parameters() if id(p) in places]
        if held:
            ranked.append((min(held), -len(held), type(root).__qualname__, root))
    ranked.sort(key=lambda item: item[:3])
    return _without_repeats([item[-1] for item in ranked], set(places))


def _without_repeats(roots: list[Any], wanted: set[int]) -> list[Any]:
    kept = []
    for root in roots:
        new = {id(parameter) for parameter in root.parameters()} & wanted
        if new:
            wanted = wanted - new
            kept.append(root)
    return kept


def _outermost_modules() -> list[Any]:
    # The type is asked, not the object: isinstance would wake lazy proxies.
    modules = [item for item in gc.get_objects() if issubclass(type(item), torch.nn.Module)]
    inner = {id(child) for module in modules for child in vars(module).get("_modules", {}).values()}
    return [module for module in modules if id(module) not in inner and "_modules" in vars(module)]


def _unwrapped(module: Any) -> Any:
    while (attribute := _WRAPPED_IN.get(type(module).__name__)) and attribute in module._modules:
        module = module._modules[attribute]
    return module


def _unique(modules: Iterable[Any]) -> list[Any]:
    return list({id(module): module for module in modules}.values())
