"""Finds the tensors among the arguments of a forward, and tells data from what the models computed."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

_DEPTH = 6
_MOST_TENSORS = 256


def tensors_in(*items: Any) -> list[Any]:
    """Return the tensors in nested containers, dataclasses and batch objects, in a fixed order."""
    found: list[Any] = []
    for tensor in _walk(items, 0):
        found.append(tensor)
        if len(found) == _MOST_TENSORS:
            break
    return found


class Computed:
    """Remembers what forwards returned, so that a fake image fed to a discriminator is not taken for data."""

    def __init__(self) -> None:
        self._outputs: list[weakref.ref[Any]] = []

    def clear(self) -> None:
        """Forget the outputs of the last step."""
        self._outputs = []

    def add(self, outputs: Any) -> None:
        """Note the tensors that an outermost forward returned."""
        self._outputs.extend(weakref.ref(tensor) for tensor in tensors_in(outputs))

    def data_among(self, tensors: list[Any]) -> list[Any]:
        """Return those tensors that no model of this step computed."""
        alive = [output for reference in self._outputs if (output := reference()) is not None]
        places = {place for output in alive if (place := _place(output)) is not None}
        return [t for t in tensors if t.grad_fn is None and not t.requires_grad and _place(t) not in places]


def _place(tensor: Any) -> int | None:
    try:
        return int(tensor.untyped_storage().data_ptr()) or None
    except (RuntimeError, NotImplementedError):
        return None


def _walk(item: Any, depth: int) -> Iterator[Any]:
    if isinstance(item, torch.Tensor):
        yield item
    elif depth == _DEPTH or item is None or isinstance(item, (str, bytes, bool, int, float, torch.nn.Module)):
        return
    elif isinstance(item, Mapping):
        for value in item.values():
            yield from _walk(value, depth + 1)
    elif isinstance(item, (list, tuple)):
        for value in item:
            yield from _walk(value, depth + 1)
    elif type(item).__module__ != "builtins":
        for value in vars(item).values() if hasattr(item, "__dict__") else ():
            yield from _walk(value, depth + 1)
