"""Bundles as places that torch.distributed.checkpoint itself saves to and loads from. Nothing is pickled."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from samestep.bundle.parts import PartWriter
from samestep.bundle.storage.contents import BufferContent
from samestep.state.arena import ARENA
from samestep.state.blocks import blocks_path
from samestep.state.capture import Plan
from samestep.state.document import STATE_PATH, compose, parse
from samestep.state.dtypes import DTYPES
from samestep.state.errors import StateError
from samestep.state.layout import lay_out
from samestep.state.loading import box
from samestep.state.planning import full_name, pieces_of
from samestep.state.reader import PartsReader, hold, put_in_place
from samestep.state.spelling import Speller
from samestep.state.writer import DigestingContent, live_content

if TYPE_CHECKING:
    import io
    import os

    from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem, SavePlan, SavePlanner

    from samestep.bundle.bundles import Bundle
    from samestep.bundle.saving import Saving
    from samestep.bundle.storage.base import Storage
    from samestep.state.document import Entry, Extent
    from samestep.state.planning import Piece

    Place = str | os.PathLike[str] | None

T = TypeVar("T")


class BundleLoadPlanner(DefaultLoadPlanner):
    """Plans as torch does, for tensors. What is no tensor stands in state.json, and ``restore`` reads it."""

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> NoReturn:  # noqa: ARG002 - torch's signature
        """Refuse: torch would unpickle what it is given.

        Raises:
            StateError: always.
        """
        raise StateError(
            f"{read_item.dest_index.fqn} is no tensor", hint="restore it with samestep.state.restore"
        )


class BundleReader(StorageReader):
    """Lets ``torch.distributed.checkpoint.load`` read the tensors of a bundle, each under ``object.key``.

    Args:
        storage: the place that holds it.
        bundle: to read from.
    """

    def __init__(self, storage: Storage, bundle: Bundle) -> None:
        self._bundle = bundle
        self._reader = PartsReader(storage, bundle)
        self._extents: dict[MetadataIndex, Extent] = {}

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:
        """Return what tensors there are."""
        sizes = {part.path: part.size for part in self._bundle.manifest.parts}
        document = parse(self._reader.whole(STATE_PATH), sizes)
        self._reader.use_blocks(document.blocks)
        found: dict[str, Any] = {}
        for name, record in document.records.items():
            tables = {name: record.tensors} | {
                f"{name}.{rank}": table for rank, table in enumerate(record.own)
            }
            for prefix, table in tables.items():
                for key, entry in table.items():
                    found[f"{prefix}.{key}"] = self._described(f"{prefix}.{key}", entry)
        return Metadata(found, planner_data={name: (name,) for name in found})

    def _described(self, fqn: str, entry: Entry) -> TensorStorageMetadata:
        self._extents |= {MetadataIndex(fqn, one.offsets): one for one in entry.extents}
        chunks = [
            ChunkStorageMetadata(torch.Size(one.offsets), torch.Size(one.sizes)) for one in entry.extents
        ]
        return TensorStorageMetadata(
            TensorProperties(dtype=DTYPES[entry.dtype]), torch.Size(entry.shape), chunks
        )

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *_: Any, **__: Any) -> None:
        """Do nothing: all is known."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Return the plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Return the plans as they are."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read and verify everything, and only then fill the tensors.

        Raises:
            DamageError: stored bytes are not those that were written.
        """
        targets = [(item, planner.resolve_tensor(item).detach()) for item in plan.items]
        wanted = [
            box(self._extents[item.storage_index], tuple(item.storage_offsets), tuple(item.lengths), target)
            for item, target in targets
        ]
        units = self._reader.planned(transfer for transfer in wanted if transfer.target.numel())
        lease = ARENA.spare(hold(units, lambda _: False))
        if lease is None:
            raise StateError(f"there is not enough memory to load {self._bundle.id} verified")
        self._reader.fetch(units, lease.slot)
        put_in_place(units, lease.slot)
        lease.end()
        for item, target in targets:
            planner.commit_tensor(item, target)
        return _done(None)

    def reset(self, checkpoint_id: Place = None) -> None:
        """Do nothing: the bundle was given."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Place) -> bool:
        """Say that no folder's name stands for a bundle."""
        return checkpoint_id is None


class BundleWriter(StorageWriter):
    """Lets ``torch.distributed.checkpoint.save`` write a flat dict of tensors into a bundle. Use it with ``Planner``.

    Args:
        writer: the save on the first rank, a ``PartWriter`` for the same bundle on the others.
        name: that the tensors are tracked under.
        component: of the training state that they are.
    """

    per_rank = steady = whole = False
    kind = "builtins.dict"

    def __init__(self, writer: Saving | PartWriter, name: str, component: str) -> None:
        self.name, self.component = name, component
        self.notes: dict[str, Any] = {}
        self._writer = writer
        self._plan: Plan | None = None

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the writer was given."""

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Return the plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Lay the parts out; each rank's plan gets its own."""
        layout = lay_out([self], [[self._named(piece) for piece in pieces_of(plan)] for plan in plans])
        self._plan = Plan((), layout, [self], 0, len(plans))
        return [
            dataclasses.replace(plan, storage_data=(layout.of_rank(rank), blocks_path(rank, len(plans))))
            for rank, plan in enumerate(plans)
        ]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Store this rank's parts.

        Raises:
            StoreError: the place failed, or has no room.
        """
        parts, digests = plan.storage_data
        tensors = {
            self._full_name(item.index.fqn): cast("torch.Tensor", planner.resolve_data(item))
            for item in plan.items
        }
        contents = {part.path: DigestingContent(live_content(part, tensors)) for part in parts}
        stored = [
            self._writer.add(path, content, components=[self.component]) for path, content in contents.items()
        ]
        if contents:
            blocks = b"".join(content.blocks() for content in contents.values())
            stored.append(self._writer.add(digests, BufferContent(blocks), components=[self.component]))
        if isinstance(self._writer, PartWriter):
            self._writer.settle()
        return _done([WriteResult(MetadataIndex(part.path), part.size, part) for part in stored])

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Take the other ranks' parts in, and describe all; the caller commits."""
        if self._plan is None or isinstance(self._writer, PartWriter):
            raise StateError("only the first rank, which laid the parts out, finishes a save")
        for result in itertools.chain.from_iterable(results[1:]):
            self._writer.take(result.storage_data)
        tree = {key: {"@tensor": key} for key in sorted(metadata.state_dict_metadata)}
        text = compose(self._plan, [self], {self.name: [tree]}, Speller(STATE_PATH), len(results))
        self._writer.add(STATE_PATH, BufferContent(text), components=[self.component])

    def reset(self, checkpoint_id: Place = None) -> None:
        """Do nothing: the bundle was given."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Place) -> bool:
        """Say that no folder's name stands for a bundle."""
        return checkpoint_id is None

    def _full_name(self, key: str) -> str:
        return full_name(self.name, key)

    def _named(self, piece: Piece) -> Piece:
        return dataclasses.replace(piece, fqn=self._full_name(piece.fqn))


def _done(value: T) -> Future[T]:
    future: Future[T] = Future()
    future.set_result(value)
    return future
