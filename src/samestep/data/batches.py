"""Which samples make a batch: batch samplers for `torch.utils.data.DataLoader` that start wherever they are told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from samestep.contract.words import Word
from samestep.data.position import Position
from samestep.data.seeded import Draws

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from samestep.data.order import SeekableOrder

_CHUNK = 1024
"""Positions asked of the order at a time: enough to make NumPy's calls cheap, few enough to start at once."""


class Tail(Word):
    """What becomes of the samples at the end of an epoch that do not fill a batch of every rank."""

    DROP = "drop"  #: they are left out; others next epoch, since the order is another
    PAD = "pad"  #: a smaller batch; where ranks would differ, its first samples are used twice
    UNEVEN = (
        "uneven"  #: a smaller batch; ranks may differ by one sample, or have none and end a batch earlier
    )


class Share(NamedTuple):
    """One rank among all."""

    rank: int = 0
    size: int = 1

    def of_tail(self, count: int, tail: Tail) -> list[int]:
        """Return which of ``count`` remaining samples this rank takes, by the tail rule."""
        if tail is Tail.DROP or not count:
            return []
        total = -(-count // self.size) * self.size if tail is Tail.PAD else count
        first, last = (-(-total * rank // self.size) for rank in (self.rank, self.rank + 1))
        return [place % count for place in range(first, last)]


class Batches(Protocol):
    """What a rebuilt loader asks for the indices of its batches."""

    def seek(self, position: Position) -> None:
        """Let the next iteration begin there."""

    def after(self, position: Position, batch: Any) -> Position:
        """Return the position after ``batch``, which was this rank's next one."""

    def __iter__(self) -> Iterator[Draws]: ...


class OrderBatches:
    """Batches of a seekable order: a global batch is the next samples of the order, cut into one piece a rank.

    Args:
        order: of all samples, or of places in ``members``.
        batch_size: of one rank.
        share: which rank of how many.
        tail: what becomes of an incomplete global batch.
        members: the samples that take part, where these are not all.
    """

    def __init__(
        self,
        order: SeekableOrder,
        batch_size: int,
        share: Share,
        tail: Tail,
        members: Sequence[int] | None = None,
    ) -> None:
        self.order = order
        self.batch_size = batch_size
        self.tail = tail
        self._share = share
        self._members = members
        self._start = Position()

    @property
    def _global(self) -> int:
        return self.batch_size * self._share.size

    def __len__(self) -> int:
        whole, rest = divmod(self.order.length, self._global)
        return whole + bool(self._share.of_tail(rest, self.tail))

    def seek(self, position: Position) -> None:
        """Let the next iteration begin at ``position.samples`` of its epoch."""
        self._start = position

    def after(self, position: Position, batch: Any) -> Position:  # noqa: ARG002 - the order knows its length
        """Return the position one global batch later."""
        return position.further(min(self._global, self.order.length - position.samples))

    def __iter__(self) -> Iterator[Draws]:
        return self._draws(self._start.epoch, self._start.samples)

    def _draws(self, epoch: int, start: int) -> Iterator[Draws]:
        whole, rest = divmod(self.order.length - start, self._global)
        own = np.arange(self.batch_size, dtype=np.int64) + (start + self._share.rank * self.batch_size)
        chunk = max(1, _CHUNK // self.batch_size)
        for first in range(0, whole, chunk):
            numbers = np.arange(first, min(first + chunk, whole), dtype=np.int64)
            places = numbers[:, None] * self._global + own
            samples = self.order.at(epoch, places.reshape(-1)).reshape(places.shape)
            for row in samples:
                yield self._draw(row, epoch)
        left = self._share.of_tail(rest, self.tail)
        if left:
            places = np.asarray(left, dtype=np.int64) + (start + whole * self._global)
            yield self._draw(self.order.at(epoch, places), epoch)

    def _draw(self, samples: NDArray[np.int64], epoch: int) -> Draws:
        drawn = samples.tolist()
        members = self._members
        return Draws(drawn if members is None else [int(members[place]) for place in drawn], epoch)
