"""The bytes of a part, as they are handed to a place: out of a slot, or out of live tensors."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from samestep.bundle.storage.base import Resting
from samestep.bundle.storage.contents import BufferContent
from samestep.state.blocks import BLOCK_BYTES, DIGEST_BYTES, block_count, digests_of_blocks
from samestep.state.dtypes import as_bits
from samestep.state.staging import plain_part

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from samestep.bundle.storage.base import Content
    from samestep.state.arena import Lease
    from samestep.state.layout import PartLayout


class DigestingContent:
    """A content whose blocks are digested as they are read, while they are in the processor's cache.

    Args:
        content: that is read; it must not change.
    """

    def __init__(self, content: Content) -> None:
        self.size = content.size
        self._content = content
        self._blocks: dict[int, bytes] = {}

    @property
    def memory(self) -> memoryview | None:
        """The bytes themselves; None: they do not lie in one piece."""
        return self._content.memory if isinstance(self._content, Resting) else None

    def read_into(self, offset: int, target: memoryview) -> None:
        """Fill ``target`` with the bytes from ``offset`` on."""
        self._content.read_into(offset, target)
        if offset % BLOCK_BYTES == 0 and (
            len(target) % BLOCK_BYTES == 0 or offset + len(target) == self.size
        ):
            self._blocks[offset] = digests_of_blocks(target)

    def blocks(self) -> bytes:
        """Return the digests of all blocks; what was not read yet is read now."""
        found = bytearray(block_count(self.size) * DIGEST_BYTES)
        at = 0
        buffer = memoryview(bytearray(min(self.size, 32 * BLOCK_BYTES)))
        while at < self.size:
            if at not in self._blocks:
                self.read_into(at, buffer[: min(len(buffer), self.size - at)])
            begin = at // BLOCK_BYTES * DIGEST_BYTES
            digests = self._blocks[at]
            found[begin : begin + len(digests)] = digests
            at += len(digests) // DIGEST_BYTES * BLOCK_BYTES
        return bytes(found)


class LeasedContent:
    """Bytes in a slot, which stays in use as long as they do.

    Args:
        lease: of the slot.
        begin: where in it they begin.
        size: how many there are.
    """

    def __init__(self, lease: Lease, begin: int, size: int) -> None:
        self.size = size
        self._lease = lease
        self._begin = begin
        self._address = lease.slot.address + begin

    @property
    def memory(self) -> memoryview:
        """The bytes themselves."""
        return self._lease.slot.view(self._begin, self.size)

    def read_into(self, offset: int, target: memoryview) -> None:
        """Fill ``target`` with the bytes from ``offset`` on, while other threads run."""
        if offset + len(target) > self.size:
            raise OSError(f"{self.size:,} bytes are there, {offset + len(target):,} were asked for")
        if not len(target):
            return
        wanted = ctypes.addressof(ctypes.c_char.from_buffer(target))
        if wanted != self._address + offset:
            ctypes.memmove(wanted, self._address + offset, len(target))


def live_content(part: PartLayout, tensors: Mapping[str, torch.Tensor]) -> BufferContent:
    """Return a part straight from the tensors; only what is not contiguous on the CPU is copied."""
    return BufferContent(part.header, *(elements(tensors[placed.piece.fqn]) for placed in part.placed))


def elements(tensor: torch.Tensor) -> memoryview:
    """Return the elements of this rank's part of a tensor, in order, as bytes."""
    bits = as_bits(plain_part(tensor).detach()).cpu().contiguous()
    if not bits.numel():
        return memoryview(b"")
    return memoryview(_memory_of(bits)).cast("B")


def _memory_of(bits: torch.Tensor) -> Any:
    """Return the memory of a contiguous tensor, which it keeps alive."""
    memory: Any = (ctypes.c_char * bits.nbytes).from_address(bits.data_ptr())
    memory.owner = bits
    return memory
