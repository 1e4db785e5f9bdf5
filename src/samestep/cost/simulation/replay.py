"""Recorded capacity, lived through again from seeded starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .paths import MOST_LIVES, follow
from .supply import Recorded

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from samestep.cost.risk import Trace

    from .plan import Floats, Paths, Plan, Prices


def replay(
    plan: Plan,
    prices: Prices,
    traces: Sequence[Trace],
    *,
    starts: int,
    rng: np.random.Generator,
    max_lives: int = MOST_LIVES,
) -> Paths:
    """Run through a trace, or through several at once, from random starts.

    With several traces the run uses any of the zones: when it loses its machine, the zone takes over that has capacity
    first. A trace that ends before the run goes on from its own beginning. Where a trace has no capacity at the start,
    the run waits for it.

    Args:
        plan: how the run goes.
        prices: what it pays for, the same in all zones.
        traces: of the zones; the first named is preferred.
        starts: how many.
        rng: the starts, and which notices are usable, are drawn from it.
        max_lives: after so many a path is given up.

    Raises:
        CostError: the traces are of different kinds.
    """
    supply = Recorded(traces, offsets(traces, starts, rng), notice_seconds=plan.notice_seconds)
    return follow(plan, prices, supply, paths=starts, rng=rng, max_lives=max_lives)


def offsets(traces: Sequence[Trace], starts: int, rng: np.random.Generator) -> Floats:
    """Draw seconds at which to start, anywhere in the shortest of the traces."""
    return rng.uniform(0.0, min(trace.period_seconds for trace in traces), starts)
