"""What the capture needs of a tracked object: the seam between live objects and the parts of a bundle.

A *tree* is nested dicts, lists and tuples. Its leaves are tensors and whatever ``leaves`` has a codec for.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

    from samestep.state.mismatches import Mismatches

Tree = Any


@dataclasses.dataclass(frozen=True, slots=True)
class Stored:
    """A tensor as a bundle holds it, in the place of the tensor in the tree that ``prepare`` is given.

    Attributes:
        shape: of the whole tensor, over all ranks.
        dtype: of its elements.
        key: its name within the tree.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    key: str = ""


class Described(Protocol):
    """What a bundle says of a tracked object beside its state.

    Attributes:
        name: unique among the tracked objects of a run; parts are named by it.
        component: of the training state, see ``samestep.contract.Component``.
        kind: the class of the object, compared at resume.
        per_rank: every rank has a state of its own (generators); otherwise plain tensors are the same on all ranks.
        steady: tensors of ``read`` change only within an optimizer update, so that copying them may overlap with
            forward and backward. Buffers of a module are no parameters and are never taken for steady.
        whole: keep all that is not sharded in one part (a model that other programs open), instead of dealing it
            out to the ranks.
        notes: what else the bundle says about the object, as values of canonical JSON: aliases of tied weights.
    """

    name: str
    component: str
    kind: str
    per_rank: bool
    steady: bool
    whole: bool
    notes: dict[str, Any]


class Source(Described, Protocol):
    """A tracked object, whose state can be read and put back."""

    def read(self) -> Tree:
        """Return the state as a tree of the live tensors, none of them copied.

        Parameters are the ``nn.Parameter`` objects themselves: by them buffers and frozen weights are told apart.
        """

    def prepare(self, stored: Tree, mismatches: Mismatches | None = None) -> Tree:
        """Return a tree like ``stored`` with a tensor to load into in the place of every ``Stored``.

        With ``mismatches`` all that does not fit is taken down there, for one error about all objects: check it before
        anything is loaded. What it allows to be left out has no place in the returned tree.

        Each is either live (a tensor of ``read``, of equal shape and type), or fresh and so far unknown to the
        object. Nothing live changes here.

        Raises:
            StateError: the object cannot take this state; the message names what is missing, extra or different.
        """

    def write(self, tree: Tree) -> None:
        """Take over the tree that ``prepare`` returned, whose tensors are loaded now."""
