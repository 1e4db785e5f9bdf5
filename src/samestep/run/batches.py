"""The batches of a run, and what happens between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .run import Run

_END = object()


class Batches:
    """Iterates a run. No generator: those are also closed, silently, when the loop's body raises.

    Args:
        run: that has begun.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._epoch: Iterator[Any] | None = None
        self._given = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        run = self._run
        if self._given:
            self._given = False
            run.came_back()
        while not run.finished:
            if self._epoch is None:
                self._epoch = run.batches()
            batch = self._next(self._epoch)
            if batch is not _END:
                self._given = True
                return batch
            self._epoch = None
        run.close()
        raise StopIteration

    def _next(self, epoch: Iterator[Any]) -> Any:
        try:
            return next(epoch, _END)
        except BaseException as error:
            self._run.fail(error)
            raise
