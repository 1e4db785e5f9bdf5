"""Which stored bytes a rank needs, and where they go: planned by torch.distributed.checkpoint's resharding."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import torch
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner_helpers import (
    _create_chunk_list,
    create_read_items_for_chunk_list,
)

from samestep.state.dtypes import DTYPES
from samestep.state.staging import local_part

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samestep.state.document import Entry, Extent


@dataclasses.dataclass(frozen=True, slots=True)
class Transfer:
    """One box of elements on its way from a stored piece into a tensor of this rank.

    Attributes:
        part: path of the part that holds the piece.
        begin: where in the part the first byte of the box is.
        end: where the last one ends; in between may lie bytes that do not belong to the box.
        sizes: of the stored piece.
        target: the region of the local tensor, of the shape of the box.
    """

    part: str
    begin: int
    end: int
    sizes: tuple[int, ...]
    target: torch.Tensor

    @property
    def dense(self) -> bool:
        """Whether the bytes of the box lie next to each other where they are stored and where they go."""
        return self.end - self.begin == self.target.nbytes and self.target.is_contiguous()


def transfers(entry: Entry, target: torch.Tensor) -> Iterator[Transfer]:
    """Yield what has to be read to fill the local part of ``target``.

    Args:
        entry: the stored tensor, of the same shape and type.
        target: a tensor of this rank; a DTensor needs only what it holds here.
    """
    local = local_part(target)
    if not local.numel():
        return
    if len(entry.extents) == 1 and entry.extents[0].sizes == entry.shape == tuple(local.shape):
        extent = entry.extents[0]
        yield Transfer(extent.part, extent.begin, extent.begin + local.nbytes, extent.sizes, local)
        return
    chunks = [ChunkStorageMetadata(torch.Size(one.offsets), torch.Size(one.sizes)) for one in entry.extents]
    stored = TensorStorageMetadata(TensorProperties(DTYPES[entry.dtype]), torch.Size(entry.shape), chunks)
    for item in create_read_items_for_chunk_list("", stored, _create_chunk_list(target)):
        extent = entry.extents[item.storage_index.index or 0]
        region = local
        for dim, (at, length) in enumerate(zip(item.dest_offsets, item.lengths, strict=True)):
            region = region.narrow(dim, at, length)
        yield box(extent, tuple(item.storage_offsets), tuple(item.lengths), region)


def box(extent: Extent, offsets: tuple[int, ...], lengths: tuple[int, ...], region: torch.Tensor) -> Transfer:
    """Return the transfer of a box of a stored piece.

    Args:
        extent: the piece.
        offsets: where the box begins in it.
        lengths: of the box.
        region: where it goes, a local tensor of that shape.
    """
    strides = strides_of(extent.sizes)
    first = sum(at * stride for at, stride in zip(offsets, strides, strict=True))
    last = first + sum((length - 1) * stride for length, stride in zip(lengths, strides, strict=True))
    begin = extent.begin + first * region.itemsize
    return Transfer(extent.part, begin, extent.begin + (last + 1) * region.itemsize, extent.sizes, region)


def strides_of(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides, in elements, of a piece whose elements lie next to each other."""
    return tuple(math.prod(sizes[dim + 1 :]) for dim in range(len(sizes)))
