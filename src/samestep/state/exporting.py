"""Bundles for other programs: weights as one safetensors file, weights and optimizers as torch's own checkpoint."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any, Final

import msgspec
import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_saver import save

from samestep.bundle.copying import (
    CONFIGURATIONS,
    DESCRIBED,
    WEIGHTS_FILE,
    exported_parts,
    is_captured,
)
from samestep.bundle.errors import StoreError
from samestep.bundle.restoring import folder_for
from samestep.contract import Component
from samestep.errors import UsageError
from samestep.state import leaves
from samestep.state.arena import ARENA
from samestep.state.document import STATE_PATH, Entry, Extent, parse
from samestep.state.dtypes import DTYPES, NAMES_IN_FILES, as_bits, header_type
from samestep.state.errors import StateError
from samestep.state.layout import file_header
from samestep.state.loading import transfers
from samestep.state.memory import fits
from samestep.state.reader import PartsReader, hold, put_in_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from samestep.bundle.bundles import Bundle
    from samestep.bundle.manifest import Part
    from samestep.bundle.store import Store
    from samestep.state.document import Document, Record

_AT_ONCE: Final = 256 << 20
"""Bytes of tensors held in memory while a file is written."""
_LENGTH_BYTES: Final = 8
_OF_OTHERS: Final = (Component.WEIGHTS, Component.EMA, Component.OPTIMIZER)
"""Components that another trainer can take over."""


def export_file(store: Store, bundle: Bundle, into: Path, *, configured: bool = False) -> Path:
    """Write the weights as one safetensors file in a folder of its own, verified, whole or not at all.

    Shards are joined. Tied weights are in it once; its metadata names their other names, as
    ``safetensors.torch.load_model`` expects.

    Args:
        store: of the run.
        bundle: what to export.
        into: a folder that does not exist, or is empty.
        configured: also bring the model's configuration, so that ``from_pretrained`` opens the folder.

    Returns:
        The folder.

    Raises:
        UsageError: there are no weights, or some of them are in no safetensors file.
        DamageError: stored bytes are not what was written.
        StoreError: ``into`` is in the way or cannot be written, or the place failed.
    """
    with store.reading(bundle) as alive, folder_for(into) as (folder, place):
        source = _Source(store, bundle)
        _write(folder / WEIGHTS_FILE, source, alive)
        for path in source.paths & CONFIGURATIONS if configured else ():
            (folder / path).write_bytes(source.reader.whole(path))
    return place


def export_dcp(store: Store, bundle: Bundle, into: Path) -> Path:
    """Write weights, averaged weights and optimizers as a folder that ``torch.distributed.checkpoint.load`` reads.

    Names are those of ``torch.distributed.checkpoint.state_dict``: ``model.WEIGHT``, ``optimizer.state.WEIGHT.exp_avg``
    and ``optimizer.param_groups``, each under the name that the object was tracked by. Of a sealed checkpoint it
    holds the weights, under ``model``. All of it is in memory meanwhile.

    Args:
        store: of the run.
        bundle: what to export.
        into: a folder that does not exist, or is empty.

    Returns:
        The folder.

    Raises:
        UsageError: there are no weights, or some of them are in no safetensors file.
        StateError: there is not enough memory, or an object needs a codec that is not registered here.
        DamageError: stored bytes are not what was written.
        StoreError: ``into`` is in the way or cannot be written, or the place failed.
    """
    with store.reading(bundle) as alive, folder_for(into) as (folder, place):
        state = _Source(store, bundle).trees()
        alive()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there is no process group is intended
            try:
                save(state, checkpoint_id=folder, no_dist=True)
            except CheckpointException as error:
                raise StoreError(f"{place} could not be written: {error}") from error
    return place


class _Source:
    """The tensors of a bundle, captured or sealed."""

    def __init__(self, store: Store, bundle: Bundle) -> None:
        self.reader = PartsReader(store.storage, bundle)
        self.paths = {part.path for part in bundle.manifest.parts}
        self._bundle = bundle
        self._document: Document | None = None
        if is_captured(bundle.manifest):
            sizes = {part.path: part.size for part in bundle.manifest.parts}
            self._document = parse(self.reader.whole(STATE_PATH), sizes)
            self.reader.use_blocks(self._document.blocks)

    def weights(self) -> tuple[dict[str, Entry], dict[str, str]]:
        """Return the weights by name, each once, and the other names that some of them have."""
        if self._document is None:
            return dict(self._sealed()), {}
        models = {name: one for name, one in self._records() if one.component == Component.WEIGHTS}
        if not models:
            raise UsageError(f"{self._bundle.id} holds no weights")
        entries: dict[str, Entry] = {}
        aliases: dict[str, str] = {}
        for name, record in models.items():
            prefix = f"{name}." if len(models) > 1 else ""
            entries |= {f"{prefix}{key}": entry for key, entry in record.of_rank(0).items()}
            tied = record.notes.get("aliases", {})
            aliases |= {f"{prefix}{other}": f"{prefix}{key}" for other, key in tied.items()}
        return entries, aliases

    def trees(self) -> dict[str, Any]:
        """Return what other trainers can take over, by the names of its objects, all of it loaded."""
        if self._document is None:
            return {"model": self.loaded(dict(self._sealed()))}
        records = {name: one for name, one in self._records() if one.component in _OF_OTHERS}
        tables = {
            f"{name}.{key}": one for name, record in records.items() for key, one in record.of_rank(0).items()
        }
        tensors = self.loaded(tables)
        return {name: _tree(name, record, tensors) for name, record in records.items()}

    def loaded(self, entries: Mapping[str, Entry]) -> dict[str, torch.Tensor]:
        """Return tensors, read and verified.

        Raises:
            StateError: there is not enough memory for them.
        """
        size = sum(map(_nbytes, entries.values()))
        if not fits(size):
            raise StateError(
                f"{self._bundle.id} takes {size:,} bytes of memory to export, which are not free"
            )
        tensors = {name: torch.empty(one.shape, dtype=DTYPES[one.dtype]) for name, one in entries.items()}
        wanted = (one for name, entry in entries.items() for one in transfers(entry, tensors[name]))
        units = self.reader.planned(wanted)
        lease = ARENA.spare(hold(units, lambda _: True))
        if lease is None:
            raise StateError(f"there is not enough memory to join the pieces of {self._bundle.id}")
        try:
            self.reader.fetch(units, lease.slot)
            put_in_place(units, lease.slot)
        finally:
            lease.end()
        return tensors

    def _records(self) -> Iterator[tuple[str, Record]]:
        return iter(self._document.records.items()) if self._document else iter(())

    def _sealed(self) -> Iterator[tuple[str, Entry]]:
        """Yield the tensors in the safetensors files of a checkpoint that a framework wrote."""
        seen: dict[str, str] = {}
        for part in exported_parts(self._bundle.manifest):
            if Component.WEIGHTS not in part.components or part.path.endswith(DESCRIBED):
                continue
            if not part.path.endswith(".safetensors"):
                raise UsageError(
                    f"the weights of {self._bundle.id} are in {part.path}, which only its framework opens",
                    hint="export --format hf brings the file as it is",
                )
            for name, entry in self._entries(part):
                if name in seen:
                    raise UsageError(
                        f"{name} is in {seen[name]} and in {part.path}: two models cannot be one file"
                    )
                seen[name] = part.path
                yield name, entry

    def _entries(self, part: Part) -> Iterator[tuple[str, Entry]]:
        """Yield what the header of a safetensors file says."""
        what = f"{part.path} of {self._bundle.id}"
        length = int.from_bytes(self.reader.beginning(part.path, _LENGTH_BYTES), "little")
        data = _LENGTH_BYTES + length
        if data > part.size:
            raise UsageError(f"{what} is no safetensors file: its header would be longer than it is")
        for name, field in _fields(self.reader.beginning(part.path, data)[_LENGTH_BYTES:], what).items():
            if field.dtype not in NAMES_IN_FILES:
                raise UsageError(f"{name} in {what} has elements of {field.dtype}, which are unknown here")
            extent = Extent(part.path, data + field.data_offsets[0], (0,) * len(field.shape), field.shape)
            entry = Entry(NAMES_IN_FILES[field.dtype], field.shape, (extent,))
            if extent.begin + _nbytes(entry) > part.size:
                raise UsageError(f"{name} in {what} lies outside of the file")
            yield name, entry


def _tree(name: str, record: Record, tensors: Mapping[str, torch.Tensor]) -> Any:
    """Return the state of an object as torch names it."""
    tree = leaves.finish(leaves.decode(record.trees[0], lambda key: tensors[f"{name}.{key}"], at=name))
    if (
        record.component == Component.OPTIMIZER
        and isinstance(tree, dict)
        and {"state", "groups"} <= tree.keys()
    ):
        return {"state": tree["state"], "param_groups": tree["groups"]}
    return tree


class _Field(msgspec.Struct, frozen=True):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def _fields(header: bytes, what: str) -> dict[str, _Field]:
    try:
        raw = msgspec.json.decode(header, type=dict[str, msgspec.Raw])
        return {
            name: msgspec.json.decode(one, type=_Field) for name, one in raw.items() if name != "__metadata__"
        }
    except msgspec.DecodeError as error:
        raise UsageError(f"{what} is no safetensors file: {error}") from None


def _write(path: Path, source: _Source, alive: Callable[[], None]) -> None:
    entries, aliases = source.weights()
    ordered = dict(sorted(entries.items(), key=lambda item: -DTYPES[item[1].dtype].itemsize))
    with path.open("wb") as file:
        file.write(_header(ordered, aliases))
        for some in _in_batches(ordered):
            for tensor in source.loaded(some).values():
                file.write(as_bits(tensor).numpy().reshape(-1).data.cast("B"))
            alive()


def _header(entries: Mapping[str, Entry], aliases: Mapping[str, str]) -> bytes:
    fields: dict[str, object] = {"__metadata__": {"format": "pt", **aliases}}
    begin = 0
    for name, entry in entries.items():
        dtype, shape = header_type(entry.dtype, entry.shape)
        end = begin + _nbytes(entry)
        fields[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
        begin = end
    return file_header(fields)


def _in_batches(entries: Mapping[str, Entry]) -> Iterator[dict[str, Entry]]:
    batch: dict[str, Entry] = {}
    size = 0
    for name, entry in entries.items():
        if batch and size + _nbytes(entry) > _AT_ONCE:
            yield batch
            batch, size = {}, 0
        batch[name] = entry
        size += _nbytes(entry)
    yield batch


def _nbytes(entry: Entry) -> int:
    return int(math.prod(entry.shape) * DTYPES[entry.dtype].itemsize)
