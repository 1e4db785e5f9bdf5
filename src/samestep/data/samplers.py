"""Samplers that know no places: they are asked again from the start of the epoch, and what was used is passed over."""

from __future__ import annotations

import itertools
from collections import deque
from typing import TYPE_CHECKING, Any

from samestep.data.content import rows_in
from samestep.data.errors import NotFollowed
from samestep.data.generators import held_generators
from samestep.data.position import Position
from samestep.data.seeded import Draws
from samestep.data.streams import Streams

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from samestep.data.batches import Share, Tail

_PROBED = 256


class SamplerBatches:
    """Batches of a sampler that gives one index after another.

    Args:
        sampler: gives the indices of all ranks, or of this one, as ``share`` says.
        batch_size: of one rank.
        share: which rank of how many divide what the sampler gives; one alone when it gives this rank's indices only.
        ranks: how many ranks there are, all told.
        tail: what becomes of an incomplete batch.
        seed: of the run's data.
    """

    def __init__(
        self, sampler: Iterable[Any], batch_size: int, share: Share, tail: Tail, *, seed: int, ranks: int
    ) -> None:
        self.batch_size = batch_size
        self.tail = tail
        self._sampler = sampler
        self._share = share
        self._seed = seed
        self._others = ranks // share.size
        self._start = Position()

    def __len__(self) -> int:
        whole, rest = divmod(len(self._sampler), self.batch_size * self._share.size)  # type: ignore[arg-type]
        return whole + bool(self._share.of_tail(rest, self.tail))

    def seek(self, position: Position) -> None:
        """Let the next iteration begin after the draws that were used of its epoch."""
        self._start = position

    def after(self, position: Position, batch: Any) -> Position:  # noqa: ARG002 - ranks may differ by a sample
        """Return the position one batch later; the last one of an epoch counts as a full one."""
        return position.further(self.batch_size * self._share.size * self._others)

    def __iter__(self) -> Iterator[Draws]:
        return self._draws(self._start.epoch, self._start.samples // self._others)

    def _draws(self, epoch: int, place: int) -> Iterator[Draws]:
        asked = Asked(self._sampler, self._seed, epoch, skip=place)
        size, share = self.batch_size, self._share
        while drawn := asked.take(size * share.size):
            if len(drawn) == size * share.size:
                own = list(range(share.rank * size, (share.rank + 1) * size))
            else:
                own = share.of_tail(len(drawn), self.tail)
            if own:
                yield Draws([drawn[number] for number in own], epoch, place + own[0])
            place += len(drawn)


class OwnBatches:
    """Batches of a script's own batch sampler, which gives those of this rank.

    Args:
        sampler: gives lists of indices.
        seed: of the run's data.
        ranks: how many ranks there are.
    """

    def __init__(self, sampler: Iterable[Any], seed: int, ranks: int) -> None:
        self._sampler = sampler
        self._seed = seed
        self._ranks = ranks
        self._start = Position()

    def __len__(self) -> int:
        return len(self._sampler)  # type: ignore[arg-type]

    def seek(self, position: Position) -> None:
        """Let the next iteration begin after the batches that were used of its epoch."""
        self._start = position

    def after(self, position: Position, batch: Any) -> Position:
        """Return the position one batch later, as if all ranks had as many samples in it."""
        return position.further(rows_in(batch) * self._ranks)

    def __iter__(self) -> Iterator[Draws]:
        return self._draws(self._start.epoch, self._start.batches)

    def _draws(self, epoch: int, batches: int) -> Iterator[Draws]:
        asked = Asked(self._sampler, self._seed, epoch, skip=batches)
        number = batches
        while drawn := asked.take(1):
            yield Draws(drawn[0], epoch, number << 32)
            number += 1


class Asked:
    """One pass through a sampler, on random streams of its own, seeded by (seed, epoch) on all ranks alike.

    Args:
        sampler: whose ``set_epoch`` is called where there is one, and whose own generators are seeded too.
        seed: of the run's data.
        epoch: the epoch of the pass.
        skip: what is passed over at its start.
    """

    def __init__(self, sampler: Iterable[Any], seed: int, epoch: int, *, skip: int = 0) -> None:
        announce_epoch(epoch, sampler)
        self._streams = Streams("sampler", seed, epoch, held=held_generators(sampler))
        with self._streams:
            self._given = iter(sampler)
            deque(itertools.islice(self._given, skip), maxlen=0)

    def take(self, count: int) -> list[Any]:
        """Return what the sampler gives next, fewer than ``count`` only at its end."""
        with self._streams:
            return list(itertools.islice(self._given, count))


class Single:
    """Indices one by one, for a loader that makes no batches."""

    def __init__(self, batches: Any) -> None:
        self._batches = batches

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Draws]:
        return iter(self._batches)


def announce_epoch(epoch: int, *holders: object) -> None:
    """Call ``set_epoch`` of these and of the samplers that they wrap, as training scripts do."""
    for holder in holders:
        set_epoch = getattr(holder, "set_epoch", None)
        if callable(set_epoch):
            set_epoch(epoch)
        held = getattr(holder, "__dict__", {})
        announce_epoch(epoch, *(held[inner] for inner in ("batch_sampler", "sampler") if inner in held))


def check_replayable(sampler: Iterable[Any], seed: int) -> None:
    """Ask a sampler twice for the start of an epoch and compare.

    Raises:
        NotFollowed: it gives something else the second time, or can be asked only once.
    """
    named = type(sampler).__name__
    hint = (
        "let it depend on set_epoch(epoch) and on generators in its attributes alone, or accept that the run goes on "
        "with other samples after an interruption: replay=Replayability.none(because=...)"
    )
    if iter(sampler) is sampler:
        raise NotFollowed(
            f"the sampler {named} can be gone through only once, so it cannot be replayed", hint=hint
        )
    first, second = (Asked(sampler, seed, 0).take(_PROBED) for _ in range(2))
    if first != second:
        raise NotFollowed(
            f"the sampler {named} gives other indices when the same epoch is asked for again, so it cannot be replayed",
            hint=hint,
        )
