"""Where machines come from: drawn from models, or as recorded."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Protocol

import numpy as np

from samestep.cost.errors import CostError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from samestep.cost.risk import Draw, Trace

    from .plan import Floats

_INSTANT = 1e-6
"""Seconds that a machine must have left: sums of floating point are off by less."""


@dataclasses.dataclass(frozen=True)
class Machines:
    """The next machine of each path.

    Attributes:
        wait: unbilled seconds until it is there.
        life: from then until its notice.
        tail: from the notice to its end.
    """

    wait: Floats
    life: Floats
    tail: Floats


class Supply(Protocol):
    """Gives the next machine."""

    def next(self, paths: NDArray[np.intp], now: Floats, *, first: bool) -> Machines:
        """Return the next machine of paths, given by number, at their wall seconds ``now``."""


class Drawn:
    """Machines whose lives and waits are drawn; a run begins with one that is there.

    Args:
        life: draws seconds until the notice.
        wait: draws seconds until capacity is there again.
        notice_seconds: from each notice to the end, on top of the life.
    """

    def __init__(
        self, rng: np.random.Generator, life: Draw, wait: Draw | None, *, notice_seconds: float
    ) -> None:
        self._rng, self._life, self._wait, self._tail = rng, life, wait, notice_seconds

    def next(self, paths: NDArray[np.intp], now: Floats, *, first: bool) -> Machines:  # noqa: ARG002 - of the protocol
        """See ``Supply``."""
        size = paths.size
        wait = np.zeros(size) if first or self._wait is None else self._wait(self._rng, size)
        return Machines(wait, self._life(self._rng, size), np.full(size, self._tail))


class Recorded:
    """Machines of one zone, or of any of several, as traces have them; each trace goes on from its own beginning.

    A machine is held until its zone loses it. Then the zone that has capacity first takes over, the one that is named
    first among several.

    Args:
        traces: of the zones.
        offsets: the second of the trace at which each path begins.
        notice_seconds: from each notice to the end, inside the life that was recorded.
    """

    def __init__(self, traces: Sequence[Trace], offsets: Floats, *, notice_seconds: float) -> None:
        if len({trace.kind for trace in traces}) > 1:
            kinds = ", ".join(f"{trace.name} is {trace.kind!r}" for trace in traces)
            raise CostError(f"zones of different kinds cannot stand in for one another: {kinds}")
        self._traces, self._offsets, self._tail = traces, offsets, notice_seconds

    def next(self, paths: NDArray[np.intp], now: Floats, *, first: bool) -> Machines:  # noqa: ARG002 - of the protocol
        """See ``Supply``."""
        times = self._offsets[paths] + now
        zones = [_from(trace, times) for trace in self._traces]
        starts = np.stack([start for start, _ in zones])
        chosen = starts.argmin(axis=0)
        columns = np.arange(times.size)
        start = starts[chosen, columns]
        lived = np.stack([end for _, end in zones])[chosen, columns] - start
        tail = np.minimum(self._tail, lived)
        return Machines(start - times, lived - tail, tail)


def _from(trace: Trace, times: Floats) -> tuple[Floats, Floats]:
    """Return from when on a zone has capacity at or after each time, and until when."""
    starts, ends = trace.circle
    rounds = np.floor(times / trace.period_seconds) * trace.period_seconds
    inside = times - rounds
    index = np.searchsorted(ends, inside + _INSTANT, side="right")
    over = index == ends.size
    index = np.where(over, 0, index)
    rounds = np.where(over, rounds + trace.period_seconds, rounds)
    return np.maximum(starts[index] + rounds, times), ends[index] + rounds
