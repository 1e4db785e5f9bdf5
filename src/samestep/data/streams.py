"""The random streams of Python, NumPy and torch (CPU), seeded for the data and kept apart from the training's."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import random
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import xxhash

from samestep.data.generators import reseed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_NONE: Mapping[str, Any] = MappingProxyType({})


def seed_of(*key: object) -> int:
    """Return 128 bits that depend on ``key`` alone, on every machine."""
    return xxhash.xxh3_128_intdigest("|".join(map(str, key)).encode())


def seed_streams(*key: object, held: Mapping[str, Any] = _NONE) -> None:
    """Seed the global streams of this process, and the generators in ``held``, each by its path."""
    seed = seed_of(*key)
    random.seed(seed >> 64)
    np.random.seed(seed & 0xFFFFFFFF)  # noqa: NPY002 - the global stream is what data sets draw from
    torch.default_generator.manual_seed(seed & 0xFFFFFFFFFFFFFFFF)
    for path, generator in held.items():
        reseed(generator, seed_of(*key, "held", path))


class Streams:
    """Random streams beside those of the process; inside ``with`` they take their place.

    Args:
        key: seeds them, when they are used first.
        held: generators seeded at the same time.
    """

    def __init__(self, *key: object, held: Mapping[str, Any] = _NONE) -> None:
        self._key = key
        self._held = held
        self._own: tuple[Any, ...] | None = None
        self._outside: tuple[Any, ...] = ()

    def __enter__(self) -> None:
        self._outside = _read()
        if self._own is None:
            seed_streams(*self._key, held=self._held)
        else:
            _write(self._own)

    def __exit__(self, *_: object) -> None:
        self._own = _read()
        _write(self._outside)


@contextlib.contextmanager
def isolated(*key: object, held: Mapping[str, Any] = _NONE) -> Iterator[None]:
    """Run a piece of code on streams seeded by ``key``; those of the process stay as they are."""
    outside = _read()
    try:
        seed_streams(*key, held=held)
        yield
    finally:
        _write(outside)


def mark_streams() -> None:
    """Put the global streams to a known start, so that `streams_are_marked` can tell whether they were drawn from."""
    seed_streams("mark")


def streams_are_marked() -> bool:
    """Say whether nothing was drawn from the global streams since `mark_streams`; draws from them itself."""
    return _draw() == _marked_draw()


@functools.cache
def _marked_draw() -> tuple[float, ...]:
    with isolated("mark"):
        return _draw()


def _draw() -> tuple[float, ...]:
    return random.random(), np.random.random_sample(), torch.rand((), dtype=torch.float64).item()  # noqa: S311, NPY002


def _read() -> tuple[Any, ...]:
    """Return the states of the global streams; what is drawn before the next `_write` or seeding is not defined."""
    return random.getstate(), _read_numpy(), torch.default_generator.get_state()


def _write(states: tuple[Any, ...]) -> None:
    random.setstate(states[0])
    _write_numpy(states[1])
    torch.default_generator.set_state(states[2])


# NumPy takes 70 µs to read and write its state, more than all the rest; its memory is copied in two. Beside it NumPy
# may hold the second of a pair of normal numbers: then that is what comes next, and the memory stays as it is.
_NUMPY_BYTES = 625 * 4


def _read_numpy() -> Any:
    bits = np.random.mtrand.get_bit_generator()
    if type(bits) is not np.random.MT19937:
        return np.random.get_state()  # noqa: NPY002
    memory = ctypes.string_at(bits.ctypes.state_address, _NUMPY_BYTES)
    normal = np.random.standard_normal()  # noqa: NPY002
    if ctypes.string_at(bits.ctypes.state_address, _NUMPY_BYTES) != memory:
        return memory
    words = np.frombuffer(memory, dtype=np.uint32)
    return "MT19937", words[:624], int(words[624]), 1, normal


def _write_numpy(state: Any) -> None:
    if isinstance(state, bytes):
        np.random.seed(0)  # noqa: NPY002 - forgets a held normal number
        ctypes.memmove(np.random.mtrand.get_bit_generator().ctypes.state_address, state, _NUMPY_BYTES)
    else:
        np.random.set_state(state)  # noqa: NPY002
