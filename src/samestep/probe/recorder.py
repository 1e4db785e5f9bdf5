"""Keeps the trace file of one process: when it begins, what belongs into it, what happens to it in a forked child."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ..trace import EventRecord
from . import surroundings
from .leaves import CPU_ALGORITHM
from .writer import TraceWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ..trace import EndRecord, StepRecord


class Recorder:
    """Writes records; a forked child gets a trace of its own with its first step, and none if it never trains.

    Args:
        folder: the attempt's trace folder.
        attempt: its name.

    Attributes:
        rank, world_size: of this process, as far as known.
    """

    def __init__(self, folder: Path, attempt: str) -> None:
        self._folder = folder
        self._attempt = attempt
        self._writer: TraceWriter | None = None
        self._waiting: list[EventRecord] = []
        self._told: set[str] = set()
        self.rank, self.world_size = surroundings.ranks()

    def begin(self) -> None:
        """Write the header."""
        header = surroundings.header(self._attempt, CPU_ALGORITHM)
        self.rank, self.world_size = header.rank, header.world_size
        self._writer = TraceWriter(self._folder, header)

    def settle_rank(self) -> None:
        """Look at the process group again, which may be younger than the header."""
        self.rank, self.world_size = surroundings.ranks()
        writer = self._writer
        if writer is not None and (writer.header.rank, writer.header.world_size) != (
            self.rank,
            self.world_size,
        ):
            writer.reopen(surroundings.header(self._attempt, CPU_ALGORITHM))

    def forget(self, at_exit: Callable[[], None]) -> None:
        """Leave the trace to the parent: this is a forked child."""
        self._writer = None
        self._waiting = []
        self._told = set()
        self._at_exit = at_exit

    def event(self, name: str, step: int, detail: dict[str, Any]) -> None:
        """Write an event, in a forked child as soon as it has a trace."""
        record = EventRecord(name, step, time.monotonic(), detail)
        if self._writer is None:
            self._waiting.append(record)
        else:
            self._writer.write(record)

    def event_once(self, name: str, step: int, detail: dict[str, Any]) -> None:
        """Write an event unless the same one was written before."""
        key = f"{name}{sorted(detail.items())}"
        if key not in self._told:
            self._told.add(key)
            self.event(name, step, detail)

    def step(self, record: StepRecord) -> None:
        """Write a step."""
        if self._writer is None:
            self._begin_late()
        if self._writer is not None:
            self._writer.write(record)

    def end(self, record: EndRecord) -> None:
        """Write the end, if there is a trace."""
        if self._writer is not None:
            self._writer.write(record)

    @property
    def has_trace(self) -> bool:
        """Whether a trace was begun."""
        return self._writer is not None

    def _begin_late(self) -> None:
        self.begin()
        self.settle_rank()
        for record in self._waiting:
            self.event(record.name, record.step, record.detail)
        self._waiting = []
        # Children of multiprocessing leave without the interpreter's exit functions.
        from multiprocessing.util import Finalize

        Finalize(None, self._at_exit, exitpriority=-100)
