"""Memory into which a state is copied, kept and used again: fresh memory costs ten times as much as the copy."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import threading
import weakref
from typing import TYPE_CHECKING, Any, Final

import torch

from samestep.bundle.storage.direct import aligned
from samestep.state.errors import StateError
from samestep.state.memory import fits

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE: Final = mmap.PAGESIZE
SLOTS: Final = 2
TOUCHED: Final = 16 << 20
"""Bytes touched in one call, which other threads need not wait for."""
WAIT_SECONDS: Final = 60.0


class Slot:
    """One buffer for one snapshot, growing when it must."""

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None
        self._pinned = False
        self.size = 0
        self.address = 0

    def may_reserve(self, size: int) -> bool:
        """Say whether there is memory for ``size`` bytes."""
        return fits(size - self.size)

    def reserve(self, size: int) -> None:
        """Make room for ``size`` bytes; what was there is gone when it has to grow."""
        if size <= self.size:
            return
        self._unpin()
        self._memory = None
        self.size = size + -size % PAGE
        self._memory = aligned(self.size)
        # A forked child would make every later write of the training copy the page first.
        with contextlib.suppress(OSError):
            self._memory.madvise(mmap.MADV_DONTFORK)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))

    def release(self) -> None:
        """Give the memory back to the system, as soon as nothing refers to a part of it."""
        self._unpin()
        self._memory, self.size, self.address = None, 0, 0

    def touch(self) -> None:
        """Let the system provide all of the memory now; what was there is gone."""
        for begin in range(0, self.size, TOUCHED):
            ctypes.memset(self.address + begin, 0, min(TOUCHED, self.size - begin))

    def pin(self) -> None:
        """Let CUDA devices copy into the memory by themselves; without it they do so more slowly."""
        if self.size and not self._pinned:
            self._pinned = int(_runtime().cudaHostRegister(self.address, self.size, 0)) == 0

    def view(self, begin: int, length: int) -> memoryview:
        """Return a part of the memory."""
        return memoryview(self._memory or b"")[begin : begin + length]

    def _unpin(self) -> None:
        if self._pinned:
            _runtime().cudaHostUnregister(self.address)
            self._pinned = False


def _runtime() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]


class Lease:
    """A slot in use. It goes back when it is ended, or when nothing refers to the lease any more."""

    def __init__(self, slot: Slot, give_back: Callable[[Slot], None]) -> None:
        self.slot = slot
        self.end = weakref.finalize(self, give_back, slot)
        self.end.atexit = False


class Arena:
    """A few slots. Whoever wants one more waits: a save that lags behind must not cost memory.

    Args:
        slots: how many.
    """

    def __init__(self, slots: int = SLOTS) -> None:
        self._free = [Slot() for _ in range(slots)]
        self._changed = threading.Condition()

    def borrow(self, size: int) -> Lease | None:
        """Lend a slot of ``size`` bytes; None when there is not enough memory for it.

        Raises:
            StateError: all slots have been in use for a long time.
        """
        with self._changed:
            if size and not self._changed.wait_for(lambda: self._free, WAIT_SECONDS):
                raise StateError(
                    f"no memory for another snapshot became free within {WAIT_SECONDS:g} seconds",
                    hint="close a snapshot before taking the next one",
                )
            return self._lent(size)

    def spare(self, size: int) -> Lease | None:
        """Lend ``size`` bytes for a short time, out of a slot if one is free; None when there is not enough memory."""
        with self._changed:
            return self._lent(size)

    def _lent(self, size: int) -> Lease | None:
        slot = max(self._free, key=lambda free: free.size) if self._free and size else Slot()
        if not slot.may_reserve(size):
            return None
        slot.reserve(size)
        if slot not in self._free:
            return Lease(slot, _drop)
        self._free.remove(slot)
        return Lease(slot, self._give_back)

    def _give_back(self, slot: Slot) -> None:
        with self._changed:
            self._free.append(slot)
            self._changed.notify_all()


def _drop(slot: Slot) -> None:
    """Let go of a slot that was made for once."""
    slot.release()


ARENA: Final = Arena()
"""Shared by restores and captures of the process: what a restore made warm, the first save finds warm."""
