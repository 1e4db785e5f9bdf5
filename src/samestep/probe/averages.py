"""Averaged weights: `AveragedModel`s and copies that scripts and libraries keep beside the trained model."""

from __future__ import annotations

import functools
import gc
import re
import sys
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

COUNTERS = ("n_averaged", "updates", "num_updates", "n_updates", "optimization_step", "update_count", "step")
"""Names under which averaging classes count their updates."""

HEAP_SCANS = frozenset({1, 17})
"""Calls at which the whole heap is looked through for copies of a model (about 0.1 s); a new model asks for it too."""

PATH_SCANS = frozenset({1, 2, 3, 5, 9, 17, 33, 65, 129})
"""Calls at which names are looked through; in between, known paths are read again."""

_TELLING = re.compile(r"ema|avg|averag|shadow|swa|teacher|target|momentum|polyak|slow", re.IGNORECASE)
_TRANSIENT = re.compile(r"grad|ckpt|checkpoint|state|loaded|payload|init|param|weights", re.IGNORECASE)
_BARREN = ("torch.optim", "torch.utils", "builtins", "logging", "types")
_MOST_HOLDERS = 512
_MOST_ATTRIBUTES = 256

Found = tuple[str, dict[str, Any], "int | None"]


@dataclass
class _Shape:
    """What a copy of a trained model looks like: its shapes by name, all of them sorted, those that are trained."""

    names: dict[str, tuple[int, ...]]
    shapes: list[tuple[int, ...]]
    trainable: list[tuple[int, ...]]


class Averages:
    """Finds averaged weights again and again at little cost; keeps none of them alive."""

    def __init__(self) -> None:
        self._calls = 0
        self._models = 0
        self._modules: list[weakref.ref[Any]] = []
        self._paths: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._made: weakref.WeakSet[Any] = weakref.WeakSet()
        self._container_paths: list[str] = []
        self._seen: dict[str, int] = {}

    def find(self, models: list[Any], optimizers: list[Any], roots: list[dict[str, Any]]) -> list[Found]:
        """See the module's ``find``."""
        torch = sys.modules.get("torch")
        if torch is None or not models:
            return []
        self._calls += 1
        trained = {
            id(p) for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]
        }
        if self._calls == 1:
            self._notice_new_averaged_models(torch)
        if self._calls in HEAP_SCANS or len(models) > self._models:
            self._scan_heap(torch, models, trained)
        found = [*self._found_modules(roots), *self._found_containers(torch, models, trained, roots)]
        return _without_repeats(found)

    # -- modules ---------------------------------------------------------------------------------------------

    def _notice_new_averaged_models(self, torch: Any) -> None:
        kind = torch.optim.swa_utils.AveragedModel
        original = kind.__init__
        made = self._made

        @functools.wraps(original)
        def patched(model: Any, *args: Any, **keywords: Any) -> None:
            original(model, *args, **keywords)
            made.add(model)

        kind.__init__ = patched

    def _scan_heap(self, torch: Any, models: list[Any], trained: set[int]) -> None:
        self._models = len(models)
        shapes = [_shape(model, trained) for model in models]
        modules = _heap_of(torch.nn.Module)
        inside = {id(part) for model in models for part in model.modules()}
        known = {id(module) for ref in self._modules if (module := ref()) is not None}
        fresh = [module for module in modules if id(module) not in inside and id(module) not in known]
        copies = [module for module in fresh if _is_copy(module, trained, shapes)]
        nested = {id(part) for module in copies for part in module.modules() if part is not module}
        self._modules += [weakref.ref(module) for module in copies if id(module) not in nested]

    def _found_modules(self, roots: list[dict[str, Any]]) -> Iterator[Found]:
        known = [module for ref in self._modules if (module := ref()) is not None]
        fresh = [module for module in list(self._made) if all(module is not other for other in known)]
        self._modules += [weakref.ref(module) for module in fresh]
        for module in known + fresh:
            if not self._paths.get(module) and self._calls in PATH_SCANS:
                self._paths[module] = next((path for path, thing, _ in _things(roots) if thing is module), "")
            path = self._paths.get(module, "")
            holder = _resolve(path.rpartition(".")[0], roots)
            yield _title(path, module), _tensors_of(module), _counter(module, holder)

    # -- dicts and lists of tensors --------------------------------------------------------------------------

    def _found_containers(
        self, torch: Any, models: list[Any], trained: set[int], roots: list[dict[str, Any]]
    ) -> Iterator[Found]:
        if self._calls in PATH_SCANS:
            shapes = [_shape(model, trained) for model in models]
            addresses = {p.data_ptr() for model in models for p in model.parameters()}
            self._container_paths = list(_container_paths(torch, roots, shapes, addresses))
        before, self._seen = self._seen, {}
        for path in self._container_paths:
            container = _resolve(path, roots)
            tensors = _as_tensors(container, torch.Tensor)
            if not tensors:
                continue
            self._seen[path] = id(container)
            holder = _resolve(path.rpartition(".")[0], roots)
            # A bare local that is made anew all the time (a list of gradients) is no average.
            if holder is not None or _TELLING.search(path) or before.get(path) == id(container):
                yield _title(path, holder if holder is not None else container), tensors, _counter(holder)


_AVERAGES = Averages()


def find(models: list[Any], optimizers: list[Any], roots: list[dict[str, Any]]) -> list[Found]:
    """Return averaged weights as ``(name, tensors by name, updates)``.

    Reported are modules and held dicts or lists of tensors that have the names or shapes of a trained model
    and that no optimizer updates: a frozen teacher too, since only watching tells whether it follows the model.

    Args:
        models: modules that are trained.
        optimizers: their optimizers.
        roots: the names of the frames around the step, outermost first.
    """
    try:
        return _AVERAGES.find(models, optimizers, roots)
    except Exception:
        return []


# -- modules -----------------------------------------------------------------------------------------------------


class _Subclasses(dict[type, bool]):
    """Remembers which types derive from a base: the heap holds many things of few types."""

    def __init__(self, base: type) -> None:
        super().__init__()
        self._base = base

    def __missing__(self, cls: type) -> bool:
        self[cls] = issubclass(cls, self._base)
        return self[cls]


def _heap_of(base: type) -> list[Any]:
    is_module = _Subclasses(base)
    found = [thing for thing in gc.get_objects() if is_module[type(thing)]]
    return [module for module in found if "_parameters" in module.__dict__]


def _plain_name(name: str) -> str:
    """Drop the prefixes that wrappers add (DDP, ``AveragedModel``, ``torch.compile``)."""
    return re.sub(r"(?:^|(?<=\.))(?:module|_orig_mod)\.", "", name)


def _shape(model: Any, trained: set[int]) -> _Shape:
    parameters = dict(model.named_parameters())
    names = {_plain_name(name): tuple(tensor.shape) for name, tensor in parameters.items()}
    trainable = sorted(tuple(p.shape) for p in parameters.values() if id(p) in trained or p.requires_grad)
    return _Shape(names, sorted(names.values()), trainable)


def _is_copy(module: Any, trained: set[int], shapes: list[_Shape]) -> bool:
    parameters = dict(module.named_parameters())
    if not parameters or any(id(parameter) in trained for parameter in parameters.values()):
        return False
    names = {_plain_name(name): tuple(tensor.shape) for name, tensor in parameters.items()}
    return any(names == shape.names for shape in shapes)


def _tensors_of(module: Any) -> dict[str, Any]:
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return {name: tensor for name, tensor in tensors.items() if name not in COUNTERS}


# -- names -------------------------------------------------------------------------------------------------------


def _title(path: str, thing: Any) -> str:
    kind = type(thing).__name__
    return f"{path} ({kind})" if path else kind


def _things(roots: list[dict[str, Any]]) -> Iterator[tuple[str, Any, Any]]:
    """Yield ``(path, thing, holder)`` for local names, their attributes, and the attributes of those."""
    level: list[tuple[str, Any]] = []
    for names in roots:
        level += [(name, thing) for name, thing in names.items() if not name.startswith("__")]
    yield from ((path, thing, None) for path, thing in level)
    for _ in range(2):
        deeper = [
            (f"{path}.{name}", thing, holder)
            for path, holder in level[:_MOST_HOLDERS]
            for name, thing in _attributes(holder).items()
        ]
        yield from deeper
        level = [(path, thing) for path, thing, _ in deeper]


def _resolve(path: str, roots: list[dict[str, Any]]) -> Any:
    """Return what lies at a path that ``_things`` gave, None when it is gone."""
    first, *rest = path.split(".")
    thing = next((names[first] for names in roots if first in names), None)
    for name in rest:
        thing = _attributes(thing).get(name)
    return thing


def _attributes(holder: Any) -> dict[str, Any]:
    module = str(type(holder).__module__)
    if isinstance(holder, type) or (module.startswith(_BARREN) and module != "torch.optim.swa_utils"):
        return {}
    try:
        attributes = object.__getattribute__(holder, "__dict__")
    except (AttributeError, TypeError):
        return {}
    found = {name: attributes[name] for name in list(attributes)[:_MOST_ATTRIBUTES]}
    submodules = attributes.get("_modules")
    return {**found, **submodules} if isinstance(submodules, dict) else found


# -- containers --------------------------------------------------------------------------------------------------


def _container_paths(
    torch: Any, roots: list[dict[str, Any]], shapes: list[_Shape], addresses: set[int]
) -> Iterator[str]:
    seen: set[int] = set()
    for path, thing, holder in _things(roots):
        if not isinstance(thing, (dict, list)) or id(thing) in seen:
            continue
        seen.add(id(thing))
        last = path.rpartition(".")[2]
        if holder is None and _TRANSIENT.search(last) and not _TELLING.search(last):
            continue
        if isinstance(holder, torch.nn.Module) and last.startswith("_"):
            continue  # a module's own tables of parameters and buffers
        tensors = _as_tensors(thing, torch.Tensor)
        # The parameters themselves, in a list or a state dict, are no copy of them.
        if (
            tensors
            and _matches(tensors, shapes)
            and addresses.isdisjoint(t.data_ptr() for t in tensors.values())
        ):
            yield path


def _as_tensors(container: Any, tensor: type) -> dict[str, Any] | None:
    if not isinstance(container, (dict, list)) or not container:
        return None
    items = container.items() if isinstance(container, dict) else enumerate(container)
    tensors: dict[str, Any] = {}
    for name, value in items:
        if not isinstance(value, tensor):
            return None
        tensors[str(name)] = value
    return tensors


def _matches(tensors: dict[str, Any], shapes: list[_Shape]) -> bool:
    found = {_plain_name(name): tuple(tensor.shape) for name, tensor in tensors.items()}
    ordered = sorted(found.values())
    return any(
        shape.names.items() <= found.items() or ordered in (shape.trainable, shape.shapes)
        for shape in shapes
        if shape.names
    )


def _counter(*holders: Any) -> int | None:
    for holder in holders:
        attributes = _attributes(holder)
        buffers = attributes.get("_buffers") or {}
        for name in COUNTERS:
            number = _as_count(attributes.get(name, buffers.get(name)))
            if number is not None:
                return number
    return None


def _as_count(value: Any) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if callable(getattr(value, "numel", None)) and value.numel() == 1:
        return int(value.item())
    return None


def _without_repeats(found: Iterable[Found]) -> list[Found]:
    """Keep the first of several names for the same tensors."""
    kept: list[Found] = []
    seen: set[int] = set()
    for name, tensors, updates in found:
        first = next(iter(tensors.values())).data_ptr()
        if first not in seen:
            seen.add(first)
            kept.append((name, tensors, updates))
    return kept
