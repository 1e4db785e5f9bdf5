"""Reading what is needed of a bundle: every byte verified before anything live is touched."""

from __future__ import annotations

import bisect
import collections
import ctypes
import dataclasses
import functools
from typing import TYPE_CHECKING, Final

import numpy as np
import torch

from samestep.bundle.digests import CHUNK_BYTES, chunk_range, verify_chunk
from samestep.bundle.errors import DamageError, UnreadableError
from samestep.bundle.storage.base import Absent
from samestep.bundle.storage.direct import RING
from samestep.bundle.verifying import in_parallel
from samestep.state.blocks import BLOCK_BYTES, DIGEST_BYTES, block_count, first_wrong
from samestep.state.dtypes import as_bits
from samestep.state.loading import strides_of
from samestep.state.staging import run_together

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from samestep.bundle.bundles import Bundle
    from samestep.bundle.manifest import Part
    from samestep.bundle.storage.base import Storage
    from samestep.state.arena import Slot
    from samestep.state.loading import Transfer

_SELECT_AGAIN: Final = "select again: an older bundle may be whole"
_WORTH_WHOLE: Final = 0.95
"""A chunk of which at least so much is needed is read whole."""


@dataclasses.dataclass(slots=True)
class Unit:
    """A range of a part that is read and verified in one piece."""

    part: Part
    begin: int
    end: int
    held: int = -1  #: where in the slot it is kept; negative: it goes straight into fresh tensors
    transfers: list[Transfer] = dataclasses.field(default_factory=list)

    @property
    def length(self) -> int:
        """Bytes of it."""
        return self.end - self.begin


class PartsReader:
    """Reads parts of one bundle.

    Args:
        storage: the place.
        bundle: to read from.

    Attributes:
        read_bytes: how many were read so far.
    """

    def __init__(self, storage: Storage, bundle: Bundle) -> None:
        self._storage, self._bundle = storage, bundle
        self._parts: Mapping[str, Part] = {part.path: part for part in bundle.manifest.parts}
        self._blocks: Mapping[str, tuple[str, int]] = {}
        self._digests: dict[str, memoryview] = {}
        self.read_bytes = 0

    def use_blocks(self, blocks: Mapping[str, tuple[str, int]]) -> None:
        """Read less than whole chunks where that is worth it.

        Args:
            blocks: for each part, the part with the digests of its blocks, and where they begin in it.
        """
        self._blocks = blocks

    def whole(self, path: str) -> bytes:
        """Return a small part, verified.

        Raises:
            DamageError: it is missing, or not what was written.
        """
        return self.beginning(path, self._part(path).size)

    def beginning(self, path: str, length: int) -> bytes:
        """Return the first ``length`` bytes of a part, or all of a shorter one, verified.

        Raises:
            DamageError: it is missing, or not what was written.
        """
        part = self._part(path)
        data = bytearray()
        for number in range(len(part.chunks) or 1):
            if number and len(data) >= length:
                break
            begin, size = chunk_range(number, part.size)
            data += bytes(size)
            self._read(Unit(part, begin, begin + size), memoryview(data)[begin:])
        self.read_bytes += len(data)
        return bytes(data[:length])

    def planned(self, wanted: Iterable[Transfer]) -> list[Unit]:
        """Return what has to be read for all that is wanted."""
        by_part: dict[str, list[Transfer]] = collections.defaultdict(list)
        for transfer in wanted:
            by_part[transfer.part].append(transfer)
        return [unit for path, some in by_part.items() for unit in self._planned(self._part(path), some)]

    def fetch(self, units: Sequence[Unit], slot: Slot) -> None:
        """Read and verify units, into the slot or straight into the fresh tensors they are for.

        Raises:
            DamageError: stored bytes are not those that were written; the message names the part.
            StoreError: the place failed.
        """
        for path in {self._blocks[unit.part.path][0] for unit in units if not _is_chunks(unit)}:
            self._digests[path] = memoryview(self.whole(path))
        collections.deque(in_parallel(lambda unit: self._fetch(unit, slot), units), maxlen=0)
        self.read_bytes += sum(unit.length for unit in units)

    def _planned(self, part: Part, some: list[Transfer]) -> list[Unit]:
        some.sort(key=_begin)
        units = [Unit(part, begin, end) for begin, end in self._ranges(part, some)]
        begins = [unit.begin for unit in units]
        for transfer in some:
            at = bisect.bisect_right(begins, transfer.begin) - 1
            while at < len(units) and units[at].begin < transfer.end:
                units[at].transfers.append(transfer)
                at += 1
        return units

    def _ranges(self, part: Part, some: Sequence[Transfer]) -> Iterator[tuple[int, int]]:
        """Yield what to read of a part: whole chunks, and whole blocks of those of which little is needed."""
        for number, ranges in _by_chunk(_in_blocks(some, part.size)).items():
            begin, length = chunk_range(number, part.size)
            needed = sum(stop - start for start, stop in ranges)
            if part.path not in self._blocks or needed >= _WORTH_WHOLE * length:
                yield begin, begin + length
            else:
                yield from ranges

    def _fetch(self, unit: Unit, slot: Slot) -> None:
        if unit.held >= 0:
            self._read(unit, slot.view(unit.held, unit.length))
            return
        with RING.borrow() as buffer:
            self._read(unit, buffer[: unit.length])
            address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
            for transfer in unit.transfers:
                _move(unit, address, transfer)

    def _read(self, unit: Unit, target: memoryview) -> None:
        part, what = unit.part, f"{unit.part.path} of {self._bundle.id}"
        try:
            self._storage.read_into(self._bundle.key_of(part), unit.begin, target)
        except Absent:
            raise DamageError(f"{what} is missing", hint=_SELECT_AGAIN) from None
        except UnreadableError as error:
            raise DamageError(f"{what} cannot be read: {error.message}", hint=_SELECT_AGAIN) from error
        if _is_chunks(unit):
            verify_chunk(target, (part.chunks or (part.digest,))[unit.begin // CHUNK_BYTES], what=what)
        else:
            self._verify_blocks(unit, target, what)

    def _verify_blocks(self, unit: Unit, target: memoryview, what: str) -> None:
        path, begin = self._blocks[unit.part.path]
        digests = self._digests[path][begin : begin + block_count(unit.part.size) * DIGEST_BYTES]
        wrong = first_wrong(target, unit.begin, digests)
        if wrong is not None:
            raise DamageError(
                f"{what} was changed after it was written, at byte {wrong:,}", hint=_SELECT_AGAIN
            )

    def _part(self, path: str) -> Part:
        if path not in self._parts:
            raise DamageError(f"{self._bundle.id} has no part {path}", hint=_SELECT_AGAIN)
        return self._parts[path]


def hold(units: Iterable[Unit], fresh: Callable[[Transfer], bool]) -> int:
    """Decide which units have to be held until everything is verified; return how much memory that takes.

    Ranges that follow one another in a part do so in the slot.

    Args:
        units: in the order of ``planned``.
        fresh: whether a transfer's target is nothing live, so that it can be filled at once.
    """
    size, last = 0, None
    for unit in units:
        if not all(fresh(transfer) and _is_simple(transfer) for transfer in unit.transfers):
            follows = (
                last is not None and last.held >= 0 and last.part is unit.part and last.end == unit.begin
            )
            unit.held = size if follows else size + -size % BLOCK_BYTES
            size = unit.held + unit.length
        last = unit
    return size


def put_in_place(units: Iterable[Unit], slot: Slot) -> None:
    """Copy what was held into the tensors it is for."""
    begun: set[int] = set()
    tasks: list[Callable[[], None]] = []
    for unit in units:
        for transfer in unit.transfers if unit.held >= 0 else ():
            if _is_simple(transfer):
                tasks.append(functools.partial(_move, unit, slot.address + unit.held, transfer))
            elif id(transfer) not in begun:
                begun.add(id(transfer))
                held = slot.view(unit.held + transfer.begin - unit.begin, transfer.end - transfer.begin)
                tasks.append(functools.partial(_spread, held, transfer))
    run_together(tasks)


def _is_chunks(unit: Unit) -> bool:
    """Whether a unit is verified by the digest of a chunk."""
    return unit.begin % CHUNK_BYTES == 0 and unit.end == min(unit.begin + CHUNK_BYTES, unit.part.size)


def _is_simple(transfer: Transfer) -> bool:
    """Whether the bytes can be copied as they are, in any pieces."""
    return transfer.dense and transfer.target.device.type == "cpu"


def _move(unit: Unit, address: int, transfer: Transfer) -> None:
    """Copy that part of a simple transfer which is in ``unit``."""
    begin, end = max(unit.begin, transfer.begin), min(unit.end, transfer.end)
    target = transfer.target.data_ptr() + begin - transfer.begin
    ctypes.memmove(target, address + begin - unit.begin, end - begin)


def _spread(held: memoryview, transfer: Transfer) -> None:
    """Copy a box whose elements do not lie next to each other, or that goes to a device."""
    stored = torch.frombuffer(held, dtype=torch.uint8).view(transfer.target.dtype)
    box = as_bits(stored.as_strided(transfer.target.shape, strides_of(transfer.sizes)))
    target = as_bits(transfer.target)
    if target.device.type == "cpu":
        np.copyto(target.numpy(), box.numpy())
    else:
        target.copy_(box)


def _begin(transfer: Transfer) -> int:
    return transfer.begin


def _in_blocks(some: Iterable[Transfer], size: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of whole blocks that are needed, in order and apart from each other."""
    start = stop = 0
    for transfer in some:
        begin = transfer.begin - transfer.begin % BLOCK_BYTES
        end = min(size, transfer.end + -transfer.end % BLOCK_BYTES)
        if begin > stop:
            if stop > start:
                yield start, stop
            start = begin
        stop = max(stop, end)
    if stop > start:
        yield start, stop


def _by_chunk(ranges: Iterable[tuple[int, int]]) -> dict[int, list[tuple[int, int]]]:
    """Cut ranges at the chunks and return them by the chunk's number."""
    cut: dict[int, list[tuple[int, int]]] = {}
    for begin, end in ranges:
        at = begin
        while at < end:
            number = at // CHUNK_BYTES
            stop = min(end, (number + 1) * CHUNK_BYTES)
            cut.setdefault(number, []).append((at, stop))
            at = stop
    return cut
