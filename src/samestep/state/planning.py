"""Who writes which tensor into which part: planned by torch.distributed.checkpoint, once per structure.

Every rank describes what it holds, the descriptions are exchanged as JSON, and every rank computes the same plan from
them. Nothing is pickled.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType
from torch.distributed.tensor import DTensor

from samestep.state.dtypes import DTYPES, NAMES
from samestep.state.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from samestep.state.leaves import Encoded
    from samestep.state.seam import Source

SEPARATOR = "\0"
"""Between the name of a tracked object, the rank if it is per rank, and the key of a tensor."""


class Planner(DefaultSavePlanner):
    """Plans tensors only, each known by its object and key; everything else is spelled in state.json."""

    def __init__(self, lone: Iterable[str] = ()) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self._lone = frozenset(lone)

    def create_local_plan(self) -> SavePlan:
        """Return what this rank holds.

        Raises:
            StateError: something is no tensor.
        """
        for name, value in self.state_dict.items():
            if not isinstance(value, torch.Tensor):
                raise StateError(f"{name} is a {type(value).__qualname__}, and only tensors are planned")
        return super().create_local_plan()

    def lookup_object(self, index: MetadataIndex) -> Any:
        """Return the tensor of ``index``."""
        return self.state_dict[index.fqn]

    def transform_object(self, write_item: WriteItem, object: Any) -> Any:  # noqa: A002, ARG002 - torch's names
        """Return the local tensor; nothing else is ever planned."""
        return object.to_local() if isinstance(object, DTensor) else object

    def _dedup_save_plans(self, all_plans: list[SavePlan]) -> list[SavePlan]:
        """Leave every piece to one rank, the pieces of an undivided object to the first that has them."""
        seen: set[MetadataIndex] = set()
        plans = []
        for plan in all_plans:
            items = [item for item in plan.items if not self._is_lone(item) or item.index not in seen]
            seen.update(item.index for item in items if self._is_lone(item))
            plans.append(
                dataclasses.replace(plan, items=[item for item in items if _volume(item) or _is_whole(item)])
            )
        return super()._dedup_save_plans(plans)

    def _is_lone(self, item: WriteItem) -> bool:
        return item.type is WriteItemType.TENSOR and item.index.fqn.split(SEPARATOR)[0] in self._lone


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    """What one rank writes of one tensor, all of it or a shard."""

    fqn: str
    dtype: str
    shape: tuple[int, ...]  #: of the whole tensor
    offsets: tuple[int, ...]  #: where the piece begins in it
    sizes: tuple[int, ...]  #: of the piece
    frozen: bool = False

    @property
    def whole(self) -> bool:
        """Whether it is all of the tensor."""
        return self.sizes == self.shape

    @property
    def nbytes(self) -> int:
        """Length of its data."""
        return math.prod(self.sizes) * int(DTYPES[self.dtype].itemsize)


def full_name(name: str, key: str, rank: int | None = None) -> str:
    """Return the name by which all ranks know a tensor.

    Args:
        name: of the tracked object.
        key: of the tensor within it.
        rank: that it belongs to; None when all ranks have it, or a shard of it.
    """
    return SEPARATOR.join((name, "" if rank is None else f"{rank:05d}", key))


def split_name(fqn: str) -> tuple[str, int | None, str]:
    """Return the tracked object, the rank and the key of a full name."""
    name, rank, key = fqn.split(SEPARATOR)
    return name, int(rank) if rank else None, key


def check_storable(tensors: Mapping[str, torch.Tensor], name: str) -> None:
    """Refuse element types that have no name in a bundle.

    Raises:
        StateError: the message names the tensor.
    """
    for key, tensor in tensors.items():
        if tensor.dtype not in NAMES:
            raise StateError(
                f"{key} of {name} has elements of {tensor.dtype}, which cannot be stored",
                slug="unknown-leaf",
                hint="convert it in the object's state_dict, or register a codec for its type",
            )


def structure(source: Source, state: Encoded) -> list[Any]:
    """Return everything about an object that the plan depends on."""
    return [
        (source.name, source.per_rank, source.whole),
        *((key, t.dtype, t.shape, t.requires_grad, _placement(t)) for key, t in state.tensors.items()),
    ]


def _placement(tensor: torch.Tensor) -> Any:
    return (tensor.placements, tensor.device_mesh) if isinstance(tensor, DTensor) else None


def described(planner: Planner, state: Mapping[str, torch.Tensor], rank: int) -> list[Any]:
    """Return this rank's local plan as values of JSON."""
    planner.set_up_planner(dict(state), is_coordinator=rank == 0)
    plan = planner.create_local_plan()
    return [_described(item, state) for item in plan.items]


def agree(planner: Planner, descriptions: Sequence[list[Any]]) -> list[list[Piece]]:
    """Return what each rank writes: every rank computes the same.

    Raises:
        StateError: the ranks hold tensors that do not fit together.
    """
    plans: list[SavePlan] = []
    frozen: set[str] = set()
    for rows in descriptions:
        plans.append(SavePlan([_item(row) for row in rows]))
        frozen.update(row[0] for row in rows if row[6])
    try:
        planned, _ = planner.create_global_plan(plans)
    except (ValueError, AssertionError) as error:
        raise StateError(f"the ranks hold tensors that do not fit together: {error}") from error
    return [pieces_of(plan, frozen) for plan in planned]


def pieces_of(plan: SavePlan, frozen: Collection[str] = ()) -> list[Piece]:
    """Return what a rank writes by its plan."""
    return [_piece(item, frozen) for item in plan.items]


def _described(item: WriteItem, state: Mapping[str, torch.Tensor]) -> list[Any]:
    data = item.tensor_data
    if data is None:
        raise StateError(f"{item.index.fqn!a} is no tensor")
    shard = item.type is WriteItemType.SHARD
    frozen = isinstance(state[item.index.fqn], torch.nn.Parameter) and not state[item.index.fqn].requires_grad
    return [
        item.index.fqn,
        NAMES[data.properties.dtype],
        list(data.size),
        list(data.chunk.offsets),
        list(data.chunk.sizes),
        int(shard),
        int(frozen),
    ]


def _item(row: list[Any]) -> WriteItem:
    fqn, dtype, size, offsets, sizes, shard, _ = row
    return WriteItem(
        index=MetadataIndex(fqn, offsets),
        type=WriteItemType.SHARD if shard else WriteItemType.TENSOR,
        tensor_data=TensorWriteData(
            chunk=ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes)),
            properties=TensorProperties(dtype=DTYPES[dtype]),
            size=torch.Size(size),
        ),
    )


def _piece(item: WriteItem, frozen: Collection[str]) -> Piece:
    data = item.tensor_data
    if data is None:
        raise StateError(f"{item.index.fqn!a} is no tensor")
    return Piece(
        fqn=item.index.fqn,
        dtype=NAMES[data.properties.dtype],
        shape=tuple(data.size),
        offsets=tuple(data.chunk.offsets),
        sizes=tuple(data.chunk.sizes),
        frozen=item.index.fqn in frozen,
    )


def _volume(item: WriteItem) -> int:
    return math.prod(item.tensor_data.chunk.sizes) if item.tensor_data else 0


def _is_whole(item: WriteItem) -> bool:
    return item.tensor_data is not None and item.tensor_data.size == item.tensor_data.chunk.sizes
