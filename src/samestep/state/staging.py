"""Copying tensors into a slot, by threads of one's own.

The threads of torch's own copies wait for each other, which costs ten times the copy on a busy machine.
"""

from __future__ import annotations

import collections
import concurrent.futures
import ctypes
import dataclasses
import os
import threading
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import torch
from torch.distributed.tensor import DTensor

from samestep.state.dtypes import as_bits
from samestep.state.errors import CHANGED_MEANWHILE, StateError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from samestep.state.arena import Slot

SLICE_BYTES: Final = 8 << 20
"""Copied in one call."""
SMALL_BYTES: Final = 1 << 20
"""What is smaller is copied by the thread that asks: handing it over would take longer."""
HELPERS: Final = max(0, min(3, len(os.sched_getaffinity(0)) - 1))

_helpers = concurrent.futures.ThreadPoolExecutor(max(1, HELPERS), thread_name_prefix="samestep-copy")


def _renew() -> None:
    global _helpers  # noqa: PLW0603 - a forked child has none of the threads
    _helpers = concurrent.futures.ThreadPoolExecutor(max(1, HELPERS), thread_name_prefix="samestep-copy")


os.register_at_fork(after_in_child=_renew)


class Copy(NamedTuple):
    """A tensor and where in the slot its elements go."""

    tensor: torch.Tensor
    begin: int
    nbytes: int


class Staged:
    """What is still being copied.

    Attributes:
        futures: of copies by threads of this process.
        events: of copies by devices.
        watched: tensors that must not change before ``guard`` was called, with their versions.
    """

    def __init__(self) -> None:
        self.futures: list[concurrent.futures.Future[None]] = []
        self.events: list[torch.cuda.Event] = []
        self.watched: list[tuple[torch.Tensor, int]] = []
        self._changed: bool | None = None
        self._looking = threading.Lock()

    def guard(self) -> None:
        """Return when the tensors may change; a device is told to wait instead of this thread."""
        for event in self.events:
            torch.cuda.current_stream(event.device).wait_event(event)
        self._join()
        with self._looking:  # who calls second must not change anything before the first has looked
            if self._changed is None:
                self._changed = self._differs()

    def wait(self) -> None:
        """Return when everything is copied."""
        for event in self.events:
            event.synchronize()
        self._join()

    def check(self) -> None:
        """Wait, and see that nothing was changed meanwhile.

        Raises:
            StateError: something was.
        """
        self.wait()
        differs = self._differs()  # first: what changes after the guard was called does no harm
        if differs and self._changed is not False:
            raise StateError(
                "parameters were changed outside of an optimizer update while they were copied",
                slug=CHANGED_MEANWHILE,
                hint='Run(..., asynchronous="stage") copies them before the training goes on',
            )

    def _differs(self) -> bool:
        return any(version_of(tensor) != version for tensor, version in self.watched)

    def _join(self) -> None:
        for future in self.futures:
            future.result()


def stage(now: Sequence[Copy], later: Sequence[Copy], slot: Slot) -> Staged:
    """Copy tensors into a slot.

    Args:
        now: copied when this returns, or, on a device, before anything that it is asked to do later.
        later: what may still be on its way then.
        slot: large enough for all of them.
    """
    staged = Staged()
    staged.events = _on_devices([copy for copy in now if copy.tensor.is_cuda], slot)
    # The devices' own order keeps later changes out; this thread need not wait for them.
    for event in staged.events:
        torch.cuda.current_stream(event.device).wait_event(event)
    staged.events += _on_devices([copy for copy in later if copy.tensor.is_cuda], slot)
    _together(_tasks(now, slot))
    staged.watched = [(copy.tensor, version_of(copy.tensor)) for copy in later]
    tasks = _tasks(later, slot)
    if tasks:
        staged.futures = [_helpers.submit(_work, collections.deque(tasks))]
    return staged


def version_of(tensor: torch.Tensor) -> int:
    """Return how often a tensor was changed in place, as far as torch counts it: not by ``tensor.data``."""
    return 0 if tensor.is_inference() else int(tensor._version)  # noqa: SLF001 - torch has no other count


def run_together(tasks: Sequence[Callable[[], None]]) -> None:
    """Run large copies, the helpers taking part."""
    _together(tasks)


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a tensor, detached."""
    tensor = tensor.detach()
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def plain_part(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part as elements in memory: not lazily negated or conjugated."""
    if type(tensor) not in _PLAIN:
        tensor = local_part(tensor)
    return tensor.detach().resolve_conj().resolve_neg() if tensor.is_conj() or tensor.is_neg() else tensor


_PLAIN: Final = frozenset({torch.Tensor, torch.nn.Parameter})


def _tasks(copies: Iterable[Copy], slot: Slot) -> list[Callable[[], None]]:
    """Copy what is small, and return what is left to do."""
    tasks: list[Callable[[], None]] = []
    base, move = slot.address, ctypes.memmove
    for tensor, begin, nbytes in copies:
        if tensor.is_cuda:
            continue
        here = tensor if tensor.is_cpu else tensor.detach().cpu()
        if not here.is_contiguous():
            tasks.append(_Regular(here, slot.view(begin, nbytes)))
        elif nbytes <= SMALL_BYTES:
            move(base + begin, here.data_ptr(), nbytes)
        else:
            tasks += slices(base + begin, here, nbytes)
    return tasks


def slices(target: int, source: torch.Tensor, nbytes: int) -> list[Callable[[], None]]:
    """Return the copy of a contiguous tensor to an address, in tasks of a size that can be shared out."""
    return [
        _Slice(target + at, source, at, min(SLICE_BYTES, nbytes - at)) for at in range(0, nbytes, SLICE_BYTES)
    ]


@dataclasses.dataclass(frozen=True, slots=True)
class _Slice:
    target: int
    source: torch.Tensor
    at: int
    nbytes: int

    def __call__(self) -> None:
        ctypes.memmove(self.target, self.source.data_ptr() + self.at, self.nbytes)


@dataclasses.dataclass(frozen=True, slots=True)
class _Regular:
    """A tensor whose elements do not lie next to each other."""

    source: torch.Tensor
    target: memoryview

    def __call__(self) -> None:
        bits = as_bits(self.source.detach()).numpy()
        np.copyto(np.frombuffer(self.target, bits.dtype).reshape(bits.shape), bits)


def _together(tasks: Sequence[Callable[[], None]]) -> None:
    waiting = collections.deque(tasks)
    helpers = min(HELPERS, len(waiting) - 1)
    futures = [_helpers.submit(_work, waiting) for _ in range(helpers)]
    try:
        _work(waiting)
    finally:
        waiting.clear()
        for future in futures:
            future.result()


def _work(waiting: collections.deque[Callable[[], None]]) -> None:
    while waiting:
        try:
            task = waiting.popleft()
        except IndexError:
            return
        task()


_streams: dict[torch.device, torch.cuda.Stream] = {}
_streams_lock = threading.Lock()


def _on_devices(copies: Sequence[Copy], slot: Slot) -> list[torch.cuda.Event]:
    """Begin copies from CUDA devices on streams of their own; return an event for the end of each device's."""
    if not copies:
        return []
    slot.pin()
    by_device: dict[torch.device, list[Copy]] = collections.defaultdict(list)
    for copy in copies:
        by_device[copy.tensor.device].append(copy)
    return [_on_device(device, some, slot) for device, some in by_device.items()]


def _on_device(device: torch.device, copies: Iterable[Copy], slot: Slot) -> torch.cuda.Event:
    with _streams_lock:
        stream = _streams.setdefault(device, torch.cuda.Stream(device))  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        for copy in copies:
            bits = as_bits(copy.tensor.detach())
            target = torch.frombuffer(slot.view(copy.begin, copy.nbytes), dtype=bits.dtype).view(bits.shape)
            target.copy_(bits, non_blocking=True)
            copy.tensor.record_stream(stream)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(stream)
    return event
