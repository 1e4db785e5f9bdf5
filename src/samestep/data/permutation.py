"""A keyed permutation of ``range(length)`` that needs no table: every place can be asked for by itself.

A Feistel network (Luby and Rackoff, "How to construct pseudorandom permutations from pseudorandom functions", 1988)
permutes the next power of two; whatever falls outside ``range(length)`` is sent through again until it falls inside,
which keeps the mapping a permutation (cycle walking: Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA
2002). Fewer than two passes are needed on average. That such networks shuffle well enough for sampling was measured by
Mitchell, Stokes, Frank and Holmes, "Bandwidth-optimal random shuffling for GPUs" (2021). The round function multiplies
and folds as the finaliser of SplitMix64 does (Steele, Lea and Flood, 2014). It keeps no secrets and is not meant to.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST: Final = 1 << 62
"""Longest order: positions are 64-bit signed integers."""

_ROUNDS: Final = 12
_ROUNDS_OF_FEW: Final = 24
"""Halves of very few bits mix slowly: small orders take more rounds, which cost them nothing."""

_FEW: Final = 1 << 12
_BLOCK: Final = 1 << 13
"""Positions worked on at a time, so that all intermediate values stay in the cache."""

_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_FOLD = np.uint64(32)


class Permutation:
    """One permutation of ``range(length)``.

    Args:
        length: at least 1, at most 2**62.
        name: chooses the permutation; the same name and length give the same one on every machine.
    """

    def __init__(self, length: int, name: str) -> None:
        bits = max(2, (length - 1).bit_length())
        rounds = _ROUNDS if length > _FEW else _ROUNDS_OF_FEW
        digest = hashlib.shake_256(f"{name}|{length}".encode()).digest(8 * rounds)
        self._keys = np.frombuffer(digest, dtype="<u8").astype(np.uint64)
        self._length = np.uint64(length)
        self._low_bits = np.uint64(bits - bits // 2)
        self._low = np.uint64((1 << (bits - bits // 2)) - 1)
        self._folds = (np.uint64(64 - bits // 2), np.uint64(64 - (bits - bits // 2)))

    def at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return what stands at these positions, which must lie in ``range(length)``."""
        values = positions.astype(np.uint64)
        for start in range(0, len(values), _BLOCK):
            self._walk(values[start : start + _BLOCK])
        return values.view(np.int64)

    def _walk(self, values: NDArray[np.uint64]) -> None:
        """Permute in place, and again whatever is still outside."""
        values[:] = self._pass(values)
        outside = np.flatnonzero(values >= self._length)
        while outside.size:
            again = self._pass(values[outside])
            values[outside] = again
            outside = outside[again >= self._length]

    def _pass(self, values: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Send values through the network: its halves change in turn, each by a keyed hash of the other."""
        halves = (values >> self._low_bits, values & self._low)
        hashed = np.empty_like(values)
        folded = np.empty_like(values)
        for number, key in enumerate(self._keys):
            changed, other = halves[number & 1], halves[~number & 1]
            np.add(other, key, out=hashed)
            np.multiply(hashed, _FIRST, out=hashed)
            np.right_shift(hashed, _FOLD, out=folded)
            np.bitwise_xor(hashed, folded, out=hashed)
            np.multiply(hashed, _SECOND, out=hashed)
            np.right_shift(hashed, self._folds[number & 1], out=hashed)
            np.bitwise_xor(changed, hashed, out=changed)
        return (halves[0] << self._low_bits) | halves[1]
