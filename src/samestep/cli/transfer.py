"""How far a transfer is: a bar with rate and remaining time on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Self, cast

import click

from samestep.contract.sizes import readable_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.progress import Progress

    from samestep.bundle.storage.base import Storage

LINE_SECONDS = 10.0
"""How long a transfer says nothing where there is no terminal."""


class Transfer:
    """Shows how many bytes are through, on stderr.

    Args:
        doing: in words, such as ``restoring``.
        total: bytes that there are, as far as known.
    """

    def __init__(self, doing: str, total: int = 0) -> None:
        self._doing = doing
        self._total = total
        self._done = 0
        self._lock = threading.Lock()
        self._begun = self._said = time.monotonic()
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        self._begun = self._said = time.monotonic()
        if sys.stderr.isatty():
            self._bar = _new_bar()
            self._bar.start()
            self._bar.add_task(self._doing, total=self._total or None)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        if kind is None and self._done:
            seconds = time.monotonic() - self._begun
            rate = readable_bytes(self._done / max(seconds, 1e-3))
            click.echo(f"{self._doing}: {readable_bytes(self._done)} in {seconds:.1f} s, {rate}/s", err=True)

    def expect(self, total: int) -> None:
        """Say how many bytes there are, once that is known."""
        with self._lock:
            self._total, self._done = total, 0
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], total=total, completed=0)

    def report(self, count: int) -> None:
        """Say that so many more bytes are through; may be called from any thread."""
        with self._lock:
            self._done += count
            line = self._bar is None and time.monotonic() - self._said >= LINE_SECONDS
            if line:
                self._said = time.monotonic()
        if self._bar is not None:
            self._bar.advance(self._bar.task_ids[0], count)
        elif line:
            click.echo(self._line(), err=True)

    def _line(self) -> str:
        rate = self._done / max(time.monotonic() - self._begun, 1e-3)
        left = max(0, self._total - self._done) / max(rate, 1.0)
        of_total = f" of {readable_bytes(self._total)}" if self._total else ""
        remaining = f", {left:.0f} s left" if self._total else ""
        return f"{self._doing}: {readable_bytes(self._done)}{of_total}, {readable_bytes(rate)}/s{remaining}"


def counted(storage: Storage, report: Callable[[int], None]) -> Storage:
    """Return the same place, with every byte that is read in bulk reported."""
    return cast("Storage", _Counted(storage, report))


class _Counted:
    def __init__(self, storage: Storage, report: Callable[[int], None]) -> None:
        self._storage, self._report = storage, report

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def read_into(self, key: str, offset: int, target: memoryview) -> None:
        self._storage.read_into(key, offset, target)
        self._report(len(target))


def _new_bar() -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=Console(stderr=True), transient=True)
