# ruff: noqa: D102 - what the methods of a way do is said once, in ``Way``
"""Samestep's way: a section of the state is one part, a safetensors file that is never built in memory.

The header is made from names, dtypes and shapes; behind it comes the memory of the tensors, which the store gathers,
digests and writes chunk by chunk. Restoring goes the same way back, each chunk verified before a tensor sees it.
"""

from __future__ import annotations

import bisect
import ctypes
import itertools
import shutil
import struct
from json.encoder import encode_basestring_ascii as _quoted
from typing import TYPE_CHECKING, Any, Final

import torch
from peers.ways import TorchState

from samestep.bundle import holds
from samestep.bundle.digests import CHUNK_BYTES, chunk_count, chunk_range
from samestep.bundle.manifest import COMPONENTS, Row
from samestep.bundle.retention import Policy
from samestep.bundle.storage import direct, system
from samestep.bundle.storage.local import LocalStorage
from samestep.bundle.store import Store
from samestep.bundle.verifying import checked_chunk, chunks_of, in_parallel
from samestep.journal.durable import sync

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy as np
    from peers.states import Arrays
    from torch import Tensor

    from samestep.bundle.manifest import Part

_COMPONENT: Final = {"model": "weights", "base": "weights", "adapter": "weights", "optimizer": "optimizer"}
_SMALL_BYTES: Final = 64 << 10
_move_at_once = ctypes.PyDLL(None).memmove
_move_at_once.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
_move_at_once.restype = None
_NAME: Final = {torch.float32: "F32", torch.float16: "F16", torch.int64: "I64"}


class Samestep(TorchState):
    """The bundle store: durable, digested, committed; restores are verified.

    A run opens its store once and saves many times, so the store is opened before anything is measured. The bundle
    before stays until its successor is committed; then it is pruned, which is not measured.
    """

    def __init__(self, arrays: Arrays) -> None:
        super().__init__(arrays)
        self._step = 0

    def prepare(self, place: Path) -> None:
        self._store = Store.create(LocalStorage(place / "run"))
        self._attempt = self._store.register(None, "benchmark")

    def save(self, folder: Path) -> None:
        del folder
        self._step += 1
        files = {f"{section}.safetensors": _File(tensors) for section, tensors in self.state.items()}
        size = sum(file.size for file in files.values())
        with self._attempt.begin(step=self._step, size_bytes=size) as saving:

            def add(name: str) -> None:
                saving.add(name, files[name], components=[_COMPONENT[name.partition(".")[0]]])

            for _ in in_parallel(add, files):
                pass
            saving.commit(contract=_contract(self.state))

    def restore(self, folder: Path) -> None:
        del folder
        bundle = self._store.chosen(self._store.select())
        parts = bundle.manifest.parts
        files = {part.path: _File(self.state[part.path.partition(".")[0]]) for part in parts}

        def fetch(chunk: tuple[Part, int]) -> None:
            part, number = chunk
            with checked_chunk(self._store.storage, bundle, part, number) as data:
                files[part.path].put(number * CHUNK_BYTES, data)

        with holds.restoring(self._store.chain, bundle.ref) as hold:
            # What is first in each file says whether it fits the live tensors.
            for first in (True, False):
                for _ in in_parallel(
                    fetch, (chunk for chunk in chunks_of(parts) if (chunk[1] == 0) is first)
                ):
                    hold.renew()

    def clean(self, folder: Path) -> None:
        del folder
        self._store.prune(Policy(keep_last=1))


class _File:
    """A safetensors file that is nowhere but in live tensors: read from to save it, put into to restore it.

    It moves bytes between addresses, because 16,000 views are more work than the bytes behind them.

    Args:
        tensors: contiguous, on the CPU; they keep their memory as long as this is used.
    """

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self._header = _header(tensors)
        pieces = [torch.frombuffer(bytearray(self._header), dtype=torch.uint8), *tensors.values()]
        self._pieces = [piece for piece in pieces if piece.nbytes]
        self._addresses = [piece.data_ptr() for piece in self._pieces]
        self._starts = [0, *itertools.accumulate(piece.nbytes for piece in self._pieces)]
        self.size = self._starts[-1]

    def read_into(self, offset: int, target: memoryview) -> None:
        """Fill ``target`` with the bytes from ``offset`` on; see ``samestep.bundle.storage.base.Content``."""
        address = _address_of(target)
        for begin, piece, length in self._between(offset, len(target)):
            _move(address + begin, piece, length)

    def put(self, offset: int, data: memoryview) -> None:
        """Take what stands at ``offset`` in a file into the tensors, if the file has the header of this one."""
        expected = self._header[offset : offset + len(data)]
        if data[: len(expected)] != expected:
            raise ValueError("the file has other tensors, shapes or dtypes than the state")
        address = _address_of(data)
        for begin, piece, length in self._between(offset, len(data)):
            _move(piece, address + begin, length)

    def _between(self, offset: int, length: int) -> Iterator[tuple[int, int, int]]:
        """Yield for each piece where among the bytes from ``offset`` on it stands, its address and its length."""
        end = offset + length
        if end > self.size:
            raise OSError(f"{self.size:,} bytes are there, {end:,} were asked for")
        index, at = bisect.bisect_right(self._starts, offset) - 1, offset
        while at < end:
            start, stop = self._starts[index], min(end, self._starts[index + 1])
            yield at - offset, self._addresses[index] + at - start, stop - at
            index, at = index + 1, stop


def _move(to: int, source: int, length: int) -> None:
    """Move bytes; other threads may go on only while many are moved: to let them costs more than a small move."""
    (ctypes.memmove if length > _SMALL_BYTES else _move_at_once)(to, source, length)


def _address_of(buffer: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


class Disk:
    """No peer but the ceiling: as many bytes, whole blocks from one buffer, as many threads as the store uses."""

    def __init__(self, arrays: Arrays) -> None:
        size = sum(array.nbytes for named in arrays.values() for array in named.values())
        self._size = size + -size % direct.BLOCK_BYTES

    def save(self, folder: Path) -> None:
        folder.mkdir()
        descriptor = system.open_file(str(folder / "raw"), system.MAKING)
        with direct.Ring(1).borrow() as buffer:
            buffer[:] = bytes([1]) * CHUNK_BYTES
            system.set_direct(descriptor, direct=True)
            system.reserve(descriptor, self._size)

            def write(number: int) -> None:
                offset, length = chunk_range(number, self._size)
                system.write_all(descriptor, buffer[:length], offset)

            for _ in in_parallel(write, range(chunk_count(self._size)), direct.WRITERS):
                pass
        system.sync(descriptor)
        system.close(descriptor)
        sync(folder)

    def arrays(self) -> Iterator[np.ndarray[Any, Any]]:
        return iter(())

    def train(self) -> None:
        """Nothing is trained."""

    def clean(self, folder: Path) -> None:
        shutil.rmtree(folder)


def _header(tensors: dict[str, Tensor]) -> bytes:
    """Return what says where each tensor begins; text throughout, for 16,000 dicts would be collected as garbage."""
    entries, begin = [], 0
    for name, tensor in tensors.items():
        end = begin + tensor.nbytes
        shape = ",".join(map(str, tensor.shape))
        entries.append(
            f'{_quoted(name)}:{{"dtype":"{_NAME[tensor.dtype]}","shape":[{shape}],"data_offsets":[{begin},{end}]}}'
        )
        begin = end
    text = ("{" + ",".join(entries) + "}").encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def _contract(state: dict[str, Any]) -> dict[str, Row]:
    """Close the rows of what no benchmark has; those of what it saves come from the parts."""
    saved = {_COMPONENT[section] for section in state}
    row = Row(state="irrelevant", because="nothing is trained here")
    return {name: row for name in COMPONENTS if name not in saved}
