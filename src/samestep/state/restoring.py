"""Putting a stored state back into live objects: all of it verified, or nothing touched."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from samestep.bundle.errors import DamageError
from samestep.errors import SamestepError
from samestep.state import leaves
from samestep.state.arena import ARENA, Arena
from samestep.state.document import STATE_PATH, parse
from samestep.state.dtypes import DTYPES, NAMES
from samestep.state.errors import RankFailed, StateError
from samestep.state.loading import transfers
from samestep.state.mismatches import Mismatches
from samestep.state.ranks import Alone
from samestep.state.reader import PartsReader, hold, put_in_place
from samestep.state.seam import Stored
from samestep.state.staging import local_part

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch

    from samestep.bundle.bundles import Bundle
    from samestep.bundle.storage.base import Storage
    from samestep.state.arena import Lease
    from samestep.state.document import Document, Entry, Record
    from samestep.state.loading import Transfer
    from samestep.state.ranks import Ranks
    from samestep.state.reader import Unit
    from samestep.state.seam import Source


@dataclasses.dataclass(frozen=True)
class Restored:
    """What was restored.

    Attributes:
        names: of the tracked objects that got their state back.
        kept: objects of which every rank has a state of its own, and none was stored for this rank: it has more
            ranks beside it now than when it was saved.
        read_bytes: how many bytes this rank read.
        needed_bytes: how many of them it needed for its tensors.
        held_bytes: how much memory it took until everything was verified.
    """

    names: tuple[str, ...]
    kept: tuple[str, ...]
    read_bytes: int
    needed_bytes: int
    held_bytes: int


def restore(
    tracked: Sequence[Source],
    bundle: Bundle,
    storage: Storage,
    *,
    strict: bool = True,
    allow_missing: Sequence[str] = (),
    allow_extra: Sequence[str] = (),
    ranks: Ranks | None = None,
    arena: Arena = ARENA,
) -> Restored:
    """Give the tracked objects the state that ``bundle`` holds.

    Everything that is needed is read and verified first. Only then are live tensors written.

    Args:
        tracked: the objects, in the order in which they are restored.
        bundle: to restore from.
        storage: the place that holds it.
        strict: refuse when objects or their entries are not exactly those of the bundle.
        allow_missing: patterns of objects and entries (``ema``, ``model.head.*``) that the bundle need not hold; they
            stay as they are.
        allow_extra: patterns of stored objects and entries that are left out.
        ranks: that restore together; all of them must call.
        arena: memory for what has to wait until everything is verified.

    Raises:
        StateError: what is stored does not fit the objects; nothing was changed.
        DamageError: stored bytes are not what was written; nothing was changed.
        StoreError: the place failed; nothing was changed.
    """
    ranks = ranks or Alone()
    restoring = _Restoring(PartsReader(storage, bundle), ranks)
    mismatches = Mismatches(strict=strict, allow_missing=allow_missing, allow_extra=allow_extra)
    failed: Exception | None = None
    try:
        try:
            restoring.load(tracked, bundle, mismatches, arena)
        except Exception as error:  # noqa: BLE001 - raised below, when the others know
            failed = error
        _agree(ranks, failed)
        return restoring.finish()
    finally:
        restoring.close()


class _Restoring:
    """A restore, in its two phases."""

    def __init__(self, reader: PartsReader, ranks: Ranks) -> None:
        self._reader, self._ranks = reader, ranks
        self._states: list[_State] = []
        self._kept: list[str] = []
        self._units: list[Unit] = []
        self._lease: Lease | None = None
        self._needed = self._held = self._world = 0

    def load(self, tracked: Sequence[Source], bundle: Bundle, mismatches: Mismatches, arena: Arena) -> None:
        """Read and verify everything; nothing live changes."""
        sizes = {part.path: part.size for part in bundle.manifest.parts}
        document = parse(self._reader.whole(STATE_PATH), sizes)
        self._world = document.world
        self._reader.use_blocks(document.blocks)
        for source in _matched(tracked, document, mismatches):
            self._add(source, document.records[source.name], mismatches)
        mismatches.check()
        wanted = [transfer for state in self._states for transfer in state.transfers()]
        fresh = {id(transfer) for state in self._states for transfer in state.fresh}
        self._needed = sum(transfer.target.nbytes for transfer in wanted)
        self._units = self._reader.planned(wanted)
        self._held = hold(self._units, lambda transfer: id(transfer) in fresh)
        self._lease = arena.spare(self._held)
        if self._lease is None:
            raise StateError(
                f"restoring {bundle.id} takes {self._held:,} bytes of memory beside the model's own, "
                "which are not free",
                hint="free memory, or restore before the model is moved and other programs are started",
            )
        self._reader.fetch(self._units, self._lease.slot)

    def finish(self) -> Restored:
        """Let the live objects take over what was loaded."""
        if self._lease is not None:
            put_in_place(self._units, self._lease.slot)
        for state in self._states:
            state.source.write(leaves.finish(state.prepared))
        names = tuple(state.source.name for state in self._states)
        return Restored(names, tuple(self._kept), self._reader.read_bytes, self._needed, self._held)

    def close(self) -> None:
        """Give the memory back."""
        if self._lease is not None:
            self._lease.end()

    def _add(self, source: Source, record: Record, mismatches: Mismatches) -> None:
        if record.per_rank and self._ranks.rank >= self._world:
            self._kept.append(source.name)
        else:
            self._states.append(_State(source, record, self._ranks.rank, mismatches))


class _State:
    """One tracked object and what is stored of it."""

    def __init__(self, source: Source, record: Record, rank: int, mismatches: Mismatches) -> None:
        self.source = source
        self.fresh: list[Transfer] = []
        self._table: dict[str, Entry] = record.of_rank(rank)
        self._stored: dict[str, Stored] = {}
        tree = record.trees[rank if rank < len(record.trees) else 0]
        self.stored = leaves.decode(tree, self._described, at=source.name)
        self.prepared = source.prepare(self.stored, mismatches)
        self._targets: dict[str, torch.Tensor] = {}
        self._match(self.stored, self.prepared)

    def _described(self, key: str) -> Stored:
        if key not in self._table:
            raise StateError(f"{key} of {self.source.name} is named in {STATE_PATH} and stored nowhere")
        entry = self._table[key]
        return self._stored.setdefault(key, Stored(entry.shape, DTYPES[entry.dtype], key))

    def _match(self, stored: Any, prepared: Any) -> None:
        """Find the tensor that was prepared for each stored one."""
        if isinstance(stored, Stored):
            self._targets[stored.key] = prepared
        elif isinstance(stored, dict):
            for key in stored.keys() & prepared.keys():
                self._match(stored[key], prepared[key])
        elif isinstance(stored, list | tuple):
            for one, other in zip(stored, prepared, strict=True):
                self._match(one, other)
        elif isinstance(stored, leaves.Coded):
            self._match(stored.payload, prepared.payload)

    def transfers(self) -> Iterator[Transfer]:
        """Yield what has to be read; those whose target is nothing live are ``fresh`` from then on."""
        live = {_home(tensor) for tensor in leaves.encode(self.source.read()).tensors.values()}
        for key, target in self._targets.items():
            entry = self._table[key]
            if tuple(target.shape) != entry.shape or NAMES.get(target.dtype) != entry.dtype:
                raise StateError(
                    f"{key} of {self.source.name} is stored as {entry.dtype} {list(entry.shape)}, "
                    f"and is {target.dtype} {list(target.shape)} here",
                    slug="state-mismatch",
                )
            found = list(transfers(entry, target))
            if _home(target) not in live:
                self.fresh += found
            yield from found


def _home(tensor: torch.Tensor) -> int:
    return local_part(tensor).untyped_storage().data_ptr()


def _agree(ranks: Ranks, failed: Exception | None) -> None:
    """Go on only when every rank has loaded and verified what it needs.

    Raises:
        DamageError: on every rank, when one found stored bytes damaged: all have to choose another bundle.
        Exception: the error of this rank, or a ``RankFailed`` that names the others'.
    """
    message = failed.message if isinstance(failed, SamestepError) else repr(failed)
    said = [message if failed else "", int(isinstance(failed, DamageError))]
    told = [json.loads(data) for data in ranks.exchange(json.dumps(said).encode())]
    if failed is not None:
        raise failed
    failures = [f"rank {rank}: {message}" for rank, (message, _) in enumerate(told) if message]
    if any(damaged for _, damaged in told):
        raise DamageError("; ".join(failures[:3]), hint="select again: an older bundle may be whole")
    if failures:
        raise RankFailed("; ".join(failures[:3]), hint="the logs of these ranks say more")


def _matched(tracked: Sequence[Source], document: Document, mismatches: Mismatches) -> list[Source]:
    """Return the objects that the bundle holds."""
    names = {source.name for source in tracked}
    for name in sorted(names - document.records.keys()):
        mismatches.missing(name)
    for name in sorted(document.records.keys() - names):
        mismatches.surplus(name)
    return [source for source in tracked if source.name in document.records]
