"""When capacity is there, whether a run uses it or not: what deadline policies decide by."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from .replay import offsets
from .supply import Drawn, Recorded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from samestep.cost.risk import Draw, Trace

    from .plan import Floats
    from .supply import Supply


@dataclasses.dataclass(frozen=True)
class Spans:
    """Spans of capacity, one row for each path, in wall seconds from the start of the run.

    Attributes:
        starts, ends: ascending; where a path has fewer, infinite. Ends are those of machines, notices come before.
    """

    starts: Floats
    ends: Floats


def spans_drawn(
    draw_life: Draw,
    *,
    wait_seconds: float,
    paths: int,
    horizon_seconds: float,
    rng: np.random.Generator,
    notice_seconds: float = 0.0,
) -> Spans:
    """Draw spans until a horizon: capacity is there at first, comes after exponential waits, and goes as drawn.

    Args:
        draw_life: draws seconds from the start of a machine to its notice.
        wait_seconds: mean wait until capacity is there again.
        paths: how many.
        horizon_seconds: no span begins later.
        rng: every draw is made from it.
        notice_seconds: from each notice to the end, on top of the life.
    """

    def draw_wait(rng: np.random.Generator, size: int) -> Floats:
        return rng.exponential(wait_seconds, size)

    wait = draw_wait if wait_seconds > 0 else None
    supply = Drawn(rng, draw_life, wait, notice_seconds=notice_seconds)
    return _until(supply, paths, horizon_seconds)


def spans_replayed(
    traces: Sequence[Trace], *, starts: int, horizon_seconds: float, rng: np.random.Generator
) -> Spans:
    """Return the spans of a trace, or of any of several, from random starts until a horizon; see ``replay``."""
    supply = Recorded(traces, offsets(traces, starts, rng), notice_seconds=0.0)
    return _until(supply, starts, horizon_seconds)


def _until(supply: Supply, paths: int, horizon: float) -> Spans:
    everyone, now = np.arange(paths), np.zeros(paths)
    starts: list[Floats] = []
    ends: list[Floats] = []
    while (now < horizon).any():
        machines = supply.next(everyone, now, first=not starts)
        start = now + machines.wait
        now = start + machines.life + machines.tail
        starts.append(start)
        ends.append(now)
    begins, until = np.stack(starts, axis=1), np.stack(ends, axis=1)
    later = begins >= horizon
    return Spans(np.where(later, np.inf, begins), np.where(later, np.inf, until))
