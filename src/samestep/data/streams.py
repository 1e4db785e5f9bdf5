"""The random streams of Python, NumPy and torch (CPU), seeded for the data and kept apart from the training's."""

from __future__ import annotations

import contextlib
import random
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import xxhash

from samestep.data.generators import reseed
from samestep.data.twisters import numpy_words, read_numpy, read_python, write_numpy, write_python

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


class Outside:
    """The streams of the process; whatever is drawn or seeded inside ``with``, they are as they were after it."""

    __slots__ = ("_states",)

    def __enter__(self) -> None:
        self._states = _read()

    def __exit__(self, *_: object) -> None:
        _write(self._states)


@contextlib.contextmanager
def isolated(*key: object, held: Mapping[str, Any] = _NONE) -> Iterator[None]:
    """Run a piece of code on streams seeded by ``key``; those of the process stay as they are."""
    with Outside():
        seed_streams(*key, held=held)
        yield


def marks() -> tuple[Any, ...]:
    """Return what is not the same any more as soon as something was drawn from streams that were just seeded."""
    return read_python(), numpy_words(), torch.default_generator.get_state().numpy().tobytes()


def _read() -> tuple[Any, ...]:
    return read_python(), read_numpy(), torch.default_generator.get_state()


def _write(states: tuple[Any, ...]) -> None:
    write_python(states[0])
    write_numpy(states[1])
    torch.default_generator.set_state(states[2])
