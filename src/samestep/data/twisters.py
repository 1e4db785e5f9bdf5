"""The global random streams of Python and NumPy, read and written as what they are: memory.

To read and write them as they offer it takes 12 and 70 microseconds, more than to fetch a batch of small samples. Both
are Mersenne twisters of 624 words and a place, which is copied in less than one. Where the memory does not lie as it
does in the CPython and NumPy that are known, which is seen when this is imported, they are asked the long way.
"""

from __future__ import annotations

import ctypes
import random
import struct
import sys
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    Memory = ctypes.Array[ctypes.c_char]

_WORDS: Final = 625
_WORDS_BYTES: Final = _WORDS * 4
_HELD: Final = struct.Struct("id")
"""Whether NumPy holds the second of a pair of normal numbers, and which."""

_python: Final[Any] = random._inst  # noqa: SLF001 - the global stream
_numpy: Final[Any] = np.random.mtrand._rand  # noqa: SLF001 - the global stream
_is_cpython: Final = sys.implementation.name == "cpython"


def read_python() -> Any:
    """Return the state of Python's stream."""
    return random.getstate() if _python_words is None else (_python_words.raw, _python.gauss_next)


def write_python(state: Any) -> None:
    """Set the state of Python's stream."""
    if _python_words is None:
        random.setstate(state)
    else:
        _python_words.raw, _python.gauss_next = state


def read_numpy() -> Any:
    """Return the state of NumPy's stream."""
    if _numpy_held is None or not _is_as_imported():
        return np.random.get_state()  # noqa: NPY002
    return _numpy_words.raw, _numpy_held.raw


def write_numpy(state: Any) -> None:
    """Set the state of NumPy's stream, whose bit generator is still the one that it was read with."""
    if _numpy_held is None or not _is_as_imported():
        np.random.set_state(state)  # noqa: NPY002
    else:
        _numpy_words.raw, _numpy_held.raw = state


def numpy_words() -> bytes:
    """Return what changes with every draw from NumPy's stream after it was seeded."""
    return _numpy_words.raw if _is_as_imported() else _words_of_numpy().raw


def _is_as_imported() -> bool:
    """Say whether NumPy's stream has the bit generator still that it had when this was imported."""
    return np.random.mtrand.get_bit_generator() is _numpy_bits


def _memory_at(address: int, size: int) -> Memory:
    return (ctypes.c_char * size).from_address(address)


def _words_of_numpy() -> Memory:
    return _memory_at(np.random.mtrand.get_bit_generator().ctypes.state_address, _WORDS_BYTES)


def _words_of_python() -> Memory | None:
    """Return the words of Python's stream; None where they do not lie right behind the object's head."""
    head = object.__basicsize__
    if not _is_cpython or type(_python).__basicsize__ < head + _WORDS_BYTES:
        return None
    memory = _memory_at(id(_python) + head, _WORDS_BYTES)
    place, *words = struct.unpack(f"{_WORDS}I", memory)
    return memory if (*words, place) == _python.getstate()[1] else None


def _held_by_numpy() -> Memory | None:
    """Return what NumPy's stream holds beside its words; None where not all of it lies where it is looked for."""
    if not _is_cpython or type(_numpy_bits) is not np.random.MT19937:
        return None
    words = _numpy.get_state(legacy=False)["state"]
    like = np.random.RandomState(0)
    like.standard_normal()
    held = _HELD.pack(1, like.get_state(legacy=False)["gauss"])
    begin = ctypes.string_at(id(like), type(like).__basicsize__).find(held)
    if begin < 0 or _numpy_words.raw != struct.pack(f"{_WORDS}I", *words["key"], words["pos"]):
        return None
    return _memory_at(id(_numpy) + begin, _HELD.size)


_python_words: Final = _words_of_python()
_numpy_bits: Final = np.random.mtrand.get_bit_generator()
_numpy_words: Final = _words_of_numpy()
_numpy_held: Final = _held_by_numpy()
