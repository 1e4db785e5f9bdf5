"""What a person sees while a run goes on: where it starts, how fast it goes, what is saved, what it came to."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, NamedTuple, TextIO, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_Batch = TypeVar("_Batch")

_ON_TERMINAL_SECONDS = 0.5
_IN_LOG_SECONDS = 30.0


class Progress:
    """Lines on stderr; on a terminal the last one is written over.

    Args:
        shown: whether to show anything; one rank does.
        total: steps of the whole run, if known.
        stream: where to.
    """

    def __init__(self, *, shown: bool = True, total: int | None = None, stream: TextIO | None = None) -> None:
        self.total = total
        self._shown = shown
        self._stream = stream if stream is not None else sys.stderr
        self._over = self._stream.isatty()
        self._pause = _ON_TERMINAL_SECONDS if self._over else _IN_LOG_SECONDS
        self._since: tuple[float, int] | None = None
        self._open = False

    def say(self, text: str) -> None:
        """Show a line that stays."""
        if self._shown:
            self._end_line()
            print(text, file=self._stream, flush=True)

    def step(self, step: int, now: float, numbers: Mapping[str, float]) -> None:
        """Show how far the run is, now and then."""
        if not self._shown:
            return
        if self._since is None:
            self._since = (now, step)
        begun, first = self._since
        if now - begun < self._pause:
            return
        self._since = (now, step)
        self._line(self.text(step, (step - first) / (now - begun), numbers))

    def text(self, step: int, rate: float, numbers: Mapping[str, float]) -> str:
        """Return the line of a moment.

        Args:
            step: completed.
            rate: steps per second.
            numbers: what was logged last.
        """
        of_all = f"/{self.total}" if self.total else ""
        words = [f"step {step}{of_all}", f"{rate:.3g} steps/s"]
        if self.total and rate > 0:
            words.append(f"{_duration((self.total - step) / rate)} left")
        words += [f"{name} {number:.4g}" for name, number in list(numbers.items())[:4]]
        return " · ".join(words)

    def close(self) -> None:
        """End the line that is written over."""
        self._end_line()

    def _line(self, text: str) -> None:
        if self._over:
            print(f"\r\x1b[K{text}", end="", file=self._stream, flush=True)
            self._open = True
        else:
            print(text, file=self._stream, flush=True)

    def _end_line(self) -> None:
        if self._open:
            print(file=self._stream, flush=True)
            self._open = False


class Taken(NamedTuple):
    """Steps that were executed.

    Attributes:
        first, last: both ends included.
        seconds: that they took.
        waited: of these, for their data; None when the run does not give the batches.
    """

    first: int
    last: int
    seconds: float
    waited: float | None


class Pace:
    """Which steps were executed and how long they took, summed up until somebody takes it."""

    def __init__(self, step: int) -> None:
        self._first = step + 1
        self._last = step
        self._seconds = 0.0
        self._waited: float | None = None
        self._mark = time.monotonic()

    def begin(self) -> None:
        """Work on a step goes on from here."""
        self._mark = time.monotonic()

    def pause(self) -> None:
        """What follows is no work on a step."""
        now = time.monotonic()
        self._seconds += now - self._mark
        self._mark = now

    def finished(self, step: int) -> None:
        """A step is finished."""
        self._last = step

    def batches(self, source: Iterable[_Batch]) -> Iterator[_Batch]:
        """Yield what ``source`` gives, and take note of how long it is waited for; up to the first is no step yet."""
        asked = time.monotonic()
        for batch in source:
            if self._waited is None:
                self._waited = 0.0
                self.begin()
            else:
                self._waited += time.monotonic() - asked
            yield batch
            asked = time.monotonic()

    def take(self) -> Taken | None:
        """Return what was executed since the last call; None when there was nothing."""
        if self._last < self._first:
            return None
        taken = Taken(self._first, self._last, self._seconds, self._waited)
        self._first, self._seconds = self._last + 1, 0.0
        self._waited = None if self._waited is None else 0.0
        return taken


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
