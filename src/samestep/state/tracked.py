"""What every tracked object can do: read its state as a tree, prepare to take one, take it."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor import empty as empty_sharded

from samestep.errors import SamestepError
from samestep.state import leaves
from samestep.state.errors import StateError
from samestep.state.mismatches import Mismatches
from samestep.state.seam import Stored

if TYPE_CHECKING:
    from collections.abc import Callable

    from samestep.contract.words import Component

Tree = Any


class Tracked(abc.ABC):
    """An object whose state is part of a bundle.

    Args:
        name: unique among the tracked objects of a run.
        thing: the live object.
        component: of the training state that it is.

    Attributes:
        kind: class of the object, as ``module.qualified.name``.
        per_rank: whether every rank has a state of its own.
        steady: whether the tensors of ``read`` change only within an optimizer update.
        whole: whether what is not sharded should lie in one part, for other programs to open.
        notes: what the bundle says about the object besides its state; plain values.
    """

    per_rank = False
    steady = False
    whole = False

    def __init__(self, name: str, thing: Any, component: Component) -> None:
        self.name = name
        self.thing = thing
        self.component = str(component)
        self.kind = class_name(thing)
        self.notes: dict[str, Any] = {}

    @abc.abstractmethod
    def read(self) -> Tree:
        """Return the state as a tree of live tensors and values; nothing is copied, drawn or changed.

        Raises:
            StateError: it cannot be read.
        """

    def prepare(self, stored: Tree, mismatches: Mismatches | None = None) -> Tree:
        """Return a tree like ``stored`` with a tensor to load into in the place of every ``Stored``.

        Nothing live changes. Entries that the object has no place for, and that ``mismatches`` allows, are left out.

        Args:
            stored: the tree that ``read`` returned when it was saved, with ``Stored`` in the place of tensors.
            mismatches: takes down what does not fit, for the caller to check; without it this method checks.

        Raises:
            StateError: what is stored does not fit the object; all that does not is named.
        """
        found = mismatches or Mismatches()
        try:
            tree = self._prepare(stored, found)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            found.differs(self.name, "the state of something else", f"a {self.kind}")
            tree = stored
        if mismatches is None:
            found.check()
        return tree

    @abc.abstractmethod
    def _prepare(self, stored: Tree, mismatches: Mismatches) -> Tree: ...

    @abc.abstractmethod
    def write(self, tree: Tree) -> None:
        """Take over a tree that ``prepare`` returned and whose tensors are loaded.

        Raises:
            StateError: the object did not take over all of it.
        """

    def place(self, *names: object) -> str:
        """Return how a user would name a place in the tree."""
        return leaves.joined(self.name, *names)


def class_name(thing: Any) -> str:
    """Return the class of an object as ``module.qualified.name``."""
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


class Fresh:
    """Makes the tensors that a state is loaded into: one for each stored tensor, however often it stands in a tree."""

    def __init__(self) -> None:
        self._made: dict[str, torch.Tensor] = {}

    def tensor(
        self, stored: Stored, like: torch.Tensor | None = None, *, device: torch.device | None = None
    ) -> torch.Tensor:
        """Return the tensor for ``stored``: placed, laid out and sharded as ``like``, if that has its shape.

        Args:
            stored: what will be loaded.
            like: a live tensor.
            device: where to put it if it is not made like another.
        """
        made = self._made.get(stored.key)
        if made is None:
            if like is not None and tuple(like.shape) == stored.shape:
                made = torch.empty_like(like, dtype=stored.dtype, requires_grad=False)
            elif isinstance(like, DTensor) and stored.shape:
                made = _sharded_along(stored, like)
            else:
                made = torch.empty(stored.shape, dtype=stored.dtype, device=device)
            self._made[stored.key] = made
        return made

    def tree(self, stored: Tree, live: Tree) -> Tree:
        """Return ``stored`` with fresh tensors, each like the one that ``live`` has at its place, if it has one."""
        waiting: list[Stored] = []
        leaves.map_leaves(
            stored, lambda leaf: waiting.append(leaf) if isinstance(leaf, Stored) else None, coded=True
        )
        if not waiting:
            return stored
        present = leaves.encode(live).tensors
        return leaves.map_leaves(
            stored,
            lambda leaf: self.tensor(leaf, present.get(leaf.key)) if isinstance(leaf, Stored) else leaf,
            coded=True,
        )


def _sharded_along(stored: Stored, like: DTensor) -> DTensor:
    """Return a tensor on the mesh of ``like`` for a statistic of it (of its rows, say), sharded where it can be."""
    placements = [
        placement
        if isinstance(placement, Shard) and _same_length(stored, like, placement.dim)
        else Replicate()
        for placement in like.placements
    ]
    return empty_sharded(
        stored.shape, dtype=stored.dtype, device_mesh=like.device_mesh, placements=placements
    )


def _same_length(stored: Stored, like: torch.Tensor, dim: int) -> bool:
    return len(stored.shape) == like.dim() and stored.shape[dim] == like.shape[dim]


def asked(name: str, method: Callable[[], Any]) -> Any:
    """Return what a method of a foreign object returns.

    Raises:
        StateError: it raised something.
    """
    try:
        return method()
    except SamestepError:
        raise
    except Exception as error:
        raise StateError(
            f"{name}: its state could not be exchanged: {type(error).__name__}: {error}",
            slug="state-refused",
        ) from error


def poured(value: Any, into: Any, taken: dict[int, int] | None = None) -> Any:
    """Return ``value``, in the very object ``into`` wherever that can take it: dicts, lists and tensors.

    Args:
        value: what to take over.
        into: the live object at its place.
        taken: which value each live object took already; one that stands at two places can take only one.
    """
    taken = {} if taken is None else taken
    if not _takes(into, value) or taken.setdefault(id(into), id(value)) != id(value):
        return value
    if isinstance(into, dict):
        content = {key: poured(item, into.get(key), taken) for key, item in value.items()}
        into.clear()
        into.update(content)
    elif isinstance(into, list):
        into[:] = [poured(item, into[at] if at < len(into) else None, taken) for at, item in enumerate(value)]
    else:
        with torch.no_grad():
            into.copy_(value)
    return into


def _takes(into: Any, value: Any) -> bool:
    if isinstance(into, torch.Tensor) and isinstance(value, torch.Tensor):
        return into.shape == value.shape and into.dtype == value.dtype
    return type(into) is type(value) and isinstance(into, dict | list)


def shown(value: Any) -> str:
    """Return how a message shows a stored or a live value."""
    if isinstance(value, Stored | torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
