"""The order of map-style data: each epoch a permutation of all samples, any place in it within reach at once."""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING

import numpy as np

from samestep.data.errors import DataError
from samestep.data.permutation import MOST, Permutation

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


class SeekableOrder:
    """The order in which the samples of a data set are used, epoch by epoch.

    It depends on ``length``, ``seed`` and the epoch and on nothing else: no rank, no number of workers, no version of a
    library. Every sample stands exactly once in every epoch. It takes constant memory, and constant time for a place.

    Args:
        length: number of samples, 1 to 2**62.
        seed: any integer.
        shuffle: False leaves the samples in their own order in every epoch.

    Raises:
        DataError: the data set is empty or absurdly long.
    """

    def __init__(self, length: int, seed: int, *, shuffle: bool = True) -> None:
        if not 1 <= length <= MOST:
            raise DataError(
                f"an order of {length:,} samples cannot be made; it takes 1 to {MOST:,}",
                hint="is the data set empty, or not found where it was expected?",
            )
        self.length = length
        self.seed = operator.index(seed)
        self.shuffle = shuffle
        self._permutation = functools.lru_cache(maxsize=2)(self._make_permutation)

    def sample(self, epoch: int, position: int) -> int:
        """Return the sample at one position of an epoch, both counted from 0."""
        return int(self.at(epoch, [position])[0])

    def block(self, epoch: int, start: int, stop: int) -> NDArray[np.int64]:
        """Return the samples at positions ``start`` to ``stop - 1`` of an epoch."""
        return self.at(epoch, np.arange(start, stop, dtype=np.int64))

    def at(self, epoch: int, positions: ArrayLike) -> NDArray[np.int64]:
        """Return the samples at any positions of an epoch, in a one-dimensional array of as many.

        Raises:
            IndexError: a position lies outside ``range(length)``.
        """
        places = np.asarray(positions, dtype=np.int64)
        if places.size and not 0 <= places.min() <= places.max() < self.length:
            raise IndexError(f"a position outside range({self.length})")
        return self._permutation(epoch).at(places) if self.shuffle else places

    def _make_permutation(self, epoch: int) -> Permutation:
        return Permutation(self.length, f"samestep order 1|{self.seed}|{epoch}")

    def __reduce__(self) -> tuple[object, ...]:
        return functools.partial(SeekableOrder, shuffle=self.shuffle), (self.length, self.seed)
