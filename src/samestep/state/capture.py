"""Taking the state of a boundary: what there is, who writes what of it, and a copy."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any, Final

import torch
import xxhash
from torch import nn

from samestep.state import leaves
from samestep.state.agreement import Agreement, exchanged
from samestep.state.arena import ARENA, PAGE, Arena
from samestep.state.document import STATE_PATH, spelled_tables
from samestep.state.dtypes import as_bits
from samestep.state.frozen import Frozen, fast_digest
from samestep.state.layout import WEIGHTS, Layout, lay_out
from samestep.state.planning import Planner, agree, described, full_name
from samestep.state.ranks import Alone
from samestep.state.snapshot import Setting, Share, Snapshot
from samestep.state.spelling import Speller
from samestep.state.staging import SMALL_BYTES, Copy, Staged, plain_part, stage, version_of
from samestep.state.writer import elements

if TYPE_CHECKING:
    from collections.abc import Sequence

    from samestep.state.agreement import Agreed
    from samestep.state.arena import Lease, Slot
    from samestep.state.layout import PartLayout
    from samestep.state.ranks import Ranks
    from samestep.state.seam import Described, Source

_LATER_BYTES: Final = SMALL_BYTES // 16
"""Smaller tensors are copied at once also when copying may overlap with the training."""


class Plan:
    """What stays the same from save to save while the structure of the state does.

    Args:
        of: what the ranks held that it is the plan for.
        layout: of all parts with tensors.
        sources: the tracked objects.
        rank: of this process.
        world: how many ranks there are.

    Attributes:
        own: the parts of this rank, each with where it begins in a slot.
        size: of a slot.
    """

    def __init__(self, of: Any, layout: Layout, sources: Sequence[Described], rank: int, world: int) -> None:
        self.of, self.layout = of, layout
        self._sources, self._world = sources, world
        self.own: list[tuple[PartLayout, int]] = []
        self.size = 0
        for part in layout.of_rank(rank):
            self.own.append((part, self.size))
            self.size += part.size + -part.size % PAGE

    @functools.cached_property
    def tables(self) -> dict[str, tuple[bytes, bytes]]:
        """The tensors of each tracked object, as state.json spells them: those of all ranks, and of each."""
        return spelled_tables(self.layout, self._sources, self._world)


class Capture:
    """Takes snapshots of tracked objects; keeps its plan and its memory from one to the next.

    Args:
        tracked: the objects, in the order in which they are restored.
        ranks: that train together; None for a process by itself.
        arena: the memory that snapshots are copied into.
    """

    def __init__(
        self, tracked: Sequence[Source], ranks: Ranks | None = None, *, arena: Arena = ARENA
    ) -> None:
        self._setting = Setting(tuple(tracked), ranks or Alone(), Speller(STATE_PATH), Frozen())
        self._agreement = Agreement(self._setting.sources, self._setting.ranks, self._setting.speller)
        self._arena = arena
        self._plan: Plan | None = None
        self._warming: threading.Thread | None = None

    def prepare(self, *, wait: bool = True) -> None:
        """Plan, and make the memory of a snapshot ready, so that the first one takes no longer than the next.

        Every rank must call.

        Args:
            wait: return when the memory is ready; otherwise the next ``take`` waits for it.
        """
        plan = self._planned(self._agreement.reach())
        lease = self._arena.borrow(plan.size)
        if lease is None:
            return
        self._warming = threading.Thread(target=_warm, args=(lease,), name="samestep-warm", daemon=True)
        self._warming.start()
        if wait:
            self._warmed()

    def _warmed(self) -> None:
        """Return when no memory is being made ready: what is would not be there to borrow."""
        if self._warming is not None:
            self._warming.join()
            self._warming = None

    def take(self, *, overlap: bool = False) -> Snapshot:
        """Return a copy of the state as it is now. Every rank must call, and no save may be in flight.

        When there is not enough memory for a copy, the snapshot is not ``copied`` and has to be written before the
        training goes on.

        Args:
            overlap: return while parameters and optimizer state are still being copied; ``wait_staged`` must be
                called before the next optimizer update. Everything else is copied on return.

        Raises:
            StateError: something cannot be stored; the message names it.
            RankFailed: that is so on another rank.
        """
        self._warmed()
        agreed = self._agreement.reach()
        plan, tensors = self._planned(agreed), self._tensors(agreed)
        shares = [self._share(part, begin, tensors) for part, begin in plan.own]
        lease = self._arena.borrow(plan.size)
        staged = Staged()
        if lease is not None:
            staged = self._staged(shares, tensors, lease.slot, overlap=overlap)
        return Snapshot(self._setting, plan, agreed.trees, shares, lease=lease, staged=staged)

    def marks(self) -> list[tuple[int, int]]:
        """Return, for each tensor whose copy may overlap with the training, what tells whether it has changed."""
        found: list[tuple[int, int]] = []
        for source in self._setting.sources:
            tensors = leaves.encode(source.read(), at=source.name).tensors if source.steady else {}
            steady = [plain_part(tensor) for tensor in tensors.values() if _is_steady(source, tensor)]
            found += [(version_of(tensor), _mark(tensor)) for tensor in steady]
        return found

    def _share(self, part: PartLayout, begin: int, tensors: dict[str, torch.Tensor]) -> Share:
        """Return what this rank has to do for one of its parts."""
        fast = fast_digest(part, tensors) if part.frozen else b""
        known = self._setting.frozen.unchanged(part.path, fast)
        return Share(part, begin, {p.piece.fqn: tensors[p.piece.fqn] for p in part.placed}, fast, known)

    def _staged(
        self, shares: Sequence[Share], tensors: dict[str, torch.Tensor], slot: Slot, *, overlap: bool
    ) -> Staged:
        """Copy what changed; return what is copied while the training goes on."""
        sources = {source.name: source for source in self._setting.sources}
        now: list[Copy] = []
        later: list[Copy] = []
        for share in shares:
            if share.known is not None:
                continue
            slot.view(share.begin, len(share.part.header))[:] = share.part.header
            source = sources[share.part.source]
            for placed in share.part.placed:
                tensor = tensors[placed.piece.fqn]
                waits = overlap and placed.nbytes > _LATER_BYTES and _is_steady(source, tensor)
                (later if waits else now).append(
                    Copy(plain_part(tensor), share.begin + placed.begin, placed.nbytes)
                )
        return stage(now, later, slot)

    def _planned(self, agreed: Agreed) -> Plan:
        if self._plan is None or self._plan.of != (agreed.structures, agreed.own):
            self._plan = self._new_plan(agreed)
            self._setting.frozen.forget()
        return self._plan

    def _new_plan(self, agreed: Agreed) -> Plan:
        sources, ranks = self._setting.sources, self._setting.ranks
        planner = Planner(source.name for source in sources if source.whole)
        local: list[Any] = []
        failed: Exception | None = None
        try:
            local = described(planner, self._tensors(agreed), ranks.rank)
        except Exception as error:  # noqa: BLE001 - raised on every rank
            failed = error
        told = exchanged(ranks, {"plan": local}, failed)
        layout = lay_out(sources, agree(planner, [one["plan"] for one in told]))
        return Plan((agreed.structures, agreed.own), layout, sources, ranks.rank, ranks.size)

    def _tensors(self, agreed: Agreed) -> dict[str, torch.Tensor]:
        rank = self._setting.ranks.rank
        return {
            full_name(
                source.name, key, rank if source.per_rank or (source.name, key) in agreed.own else None
            ): tensor
            for source, state in zip(self._setting.sources, agreed.states, strict=True)
            for key, tensor in state.tensors.items()
        }


def _warm(lease: Lease) -> None:
    lease.slot.touch()
    lease.end()


def _mark(tensor: torch.Tensor) -> int:
    """Return a digest of a tensor's bits; of what is on a device their sum, which is made there."""
    if tensor.is_cpu:
        return xxhash.xxh3_64_intdigest(elements(tensor))
    return int(as_bits(tensor.detach()).sum(dtype=torch.int64))


def _is_steady(source: Source, tensor: torch.Tensor) -> bool:
    """Whether a tensor changes only within an optimizer update; buffers, and weights that are not trained, need not."""
    if source.component != WEIGHTS:
        return source.steady
    return source.steady and isinstance(tensor, nn.Parameter) and tensor.requires_grad
