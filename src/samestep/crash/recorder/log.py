"""The log of a recording: what counts, what is refused, and what happens when it cannot be kept any more."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from samestep.crash.operations import Kind
from samestep.crash.recorder.order import counted

if TYPE_CHECKING:
    from samestep.crash.operations import Operation
    from samestep.crash.recorder.order import Fault, Order
    from samestep.crash.recording import RecordingWriter


class WorldStopsError(Exception):
    """The operation that the world is to stop before is about to happen."""


class Log:
    """Appends operations until it is switched off; nothing that goes wrong here disturbs the training.

    Attributes:
        writer: the recording.
        on: operations are still recorded.
    """

    def __init__(self, writer: RecordingWriter, order: Order) -> None:
        self.writer = writer
        self.on = True
        self._stop_at = order.stop_at
        self._faults = [_Remaining(fault) for fault in order.faults]
        self._total = 0
        self._by_rank: Counter[int | None] = Counter()

    def objection(self, operation: Operation) -> int:
        """Return the error number that an operation is to fail with; 0: let it happen.

        Raises:
            WorldStopsError: it is not to happen at all.
        """
        stop = self._stop_at
        if stop and stop.operation <= self._count(stop.rank) and stop.rank in {None, operation.rank}:
            raise WorldStopsError
        for remaining in self._faults:
            if number := remaining.strike(operation, self._total):
                operation.injected = True
                return number
        return 0

    def add(self, operation: Operation) -> None:
        """Append an operation."""
        if counted(operation):
            self._total += 1
            self._by_rank[operation.rank] += 1
        self.writer.append(operation)

    def _count(self, rank: int | None) -> int:
        return self._total if rank is None else self._by_rank[rank]

    def note(self, sentence: str) -> None:
        """Say, once, what could not be followed."""
        if sentence not in self.writer.header.notes:
            self.writer.header.notes.append(sentence)
            self.writer.save_header()

    def opaque(self, path: str) -> None:
        """Say that a file is stored to through memory."""
        if path not in self.writer.header.opaque:
            self.writer.header.opaque.append(path)
            self.writer.save_header()

    def switch_off(self, reason: str) -> None:
        """Stop recording, for a reason that the header tells."""
        self.note(f"the recording stops after {self.writer.count} operations: {reason}")
        self.on = False


class _Remaining:
    """A fault and how often it may still strike."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault
        self._left = fault.count

    def strike(self, operation: Operation, counted_before: int) -> int:
        if (
            self._left == 0
            or operation.kind is Kind.MARK
            or not self._fault.concerns(operation, counted_before)
        ):
            return 0
        if self._left is not None:
            self._left -= 1
        return self._fault.number
