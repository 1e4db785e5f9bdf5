"""How often to save: the best interval, the region around it where it hardly matters, and the first save of a life."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from .inputs import Empirical
from .result import IntervalAdvice
from .risk.lives import falling_hazard
from .simulation import best_first, best_interval, gain_ratio

if TYPE_CHECKING:
    from collections.abc import Callable

    from .inputs import Exponential, Weibull
    from .simulation import Plan

    Drawn = Exponential | Weibull | Empirical

FLAT = 1.01
"""An interval is as good as the best one while the run costs at most one percent more."""

_CURVE_POINTS = 61
_CURVE_REACH = 30.0
"""The curve goes from a thirtieth of the best interval to thirty times it."""

_HALVINGS = 40
_BLUR = 2000
"""Lives that stand for all observed ones together, at least."""

_LEAST_BLUR = 0.2
"""Their least scatter around one observed life, as a share of it."""


def advised_interval(plan: Plan, lives: Drawn, step_seconds: float) -> float:
    """Return the interval to save at: that of `advise`, in whole steps."""
    lives = smoothed(lives)
    best = _best(plan, lives, step_seconds)
    low, high = _flat(plan, lives, best, step_seconds)
    return min(_round_steps(low, high, best, step_seconds) * step_seconds, plan.work_seconds)


def advise(plan: Plan, lives: Drawn, step_seconds: float) -> IntervalAdvice:
    """Return how often to save.

    Args:
        plan: the run; its own interval does not matter.
        lives: between two interruptions of the run.
        step_seconds: productive seconds of one step.
    """
    falling, lives = falling_hazard(lives), smoothed(lives)
    best = _best(plan, lives, step_seconds)
    low, high = _flat(plan, lives, best, step_seconds)
    steps = _round_steps(low, high, best, step_seconds)
    return IntervalAdvice(
        seconds=best,
        flat_low=low,
        flat_high=high,
        steps=steps,
        first_seconds=_first(plan, lives, steps * step_seconds, step_seconds)
        if falling
        else steps * step_seconds,
        curve=_curve(plan, lives, best, step_seconds),
    )


def smoothed(lives: Drawn) -> Drawn:
    """Return observed lives blurred, others as they are.

    The next machines will not live exactly as long as those that were seen, and traces round lives to their ticks: the
    best interval for the very lives that were seen would be one that just fits them. Each life is replaced by some
    around it, log-normal with the bandwidth of Silverman's rule (Density Estimation, 1986, eq. 3.31), the mean kept.
    """
    if not isinstance(lives, Empirical) or not lives.lives_seconds:
        return lives
    logs = np.log(lives.lives_seconds)
    width = max(0.9 * float(logs.std()) * len(logs) ** -0.2, _LEAST_BLUR)
    each = max(3, math.ceil(_BLUR / len(logs)))
    around = np.exp(width * np.array([NormalDist().inv_cdf((n + 0.5) / each) for n in range(each)]))
    around /= around.mean()
    return Empirical(
        lives_seconds=np.outer(lives.lives_seconds, around).ravel().tolist(),
        censored_seconds=np.outer(lives.censored_seconds, around).ravel().tolist(),
    )


def _best(plan: Plan, lives: Drawn, step_seconds: float) -> float:
    """Return the best interval, no shorter than a step and no longer than the run."""
    shortest = min(max(step_seconds, plan.persist_seconds), plan.work_seconds)
    return min(max(best_interval(plan, lives), shortest), plan.work_seconds)


def _flat(plan: Plan, lives: Drawn, best: float, step_seconds: float) -> tuple[float, float]:
    allowed = FLAT * _cost(plan, lives, best)
    shortest = min(max(step_seconds, plan.persist_seconds), best)

    def dear(interval: float) -> bool:
        return _cost(plan, lives, interval) > allowed

    return _edge(dear, best, shortest), _edge(dear, best, max(plan.work_seconds, best))


def _cost(plan: Plan, lives: Drawn, interval: float) -> float:
    return gain_ratio(replace(plan, interval_seconds=interval, first_seconds=None), lives)


def _edge(dear: Callable[[float], bool], inside: float, outside: float) -> float:
    """Return where an interval becomes too dear, between one that is not and a limit that may be."""
    if not dear(outside):
        return outside
    for _ in range(_HALVINGS):
        middle = math.sqrt(inside * outside)
        if dear(middle):
            outside = middle
        else:
            inside = middle
        if abs(outside - inside) <= 1e-3 * inside:
            break
    return inside


def _round_steps(low: float, high: float, best: float, step_seconds: float) -> int:
    """Return the number of steps in the flat region that has the fewest digits, the nearest to the best of those."""
    first, last, aim = low / step_seconds, high / step_seconds, max(best / step_seconds, 1.0)
    for power in range(math.floor(math.log10(aim)), -1, -1):
        unit = int(10**power)
        near = {math.floor(aim / unit) * unit, math.ceil(aim / unit) * unit}
        found = [steps for steps in near if steps and first <= steps <= last]
        if found:
            return min(found, key=lambda steps: (abs(math.log(steps / aim)), steps))
    return max(1, round(aim))


def _first(plan: Plan, lives: Drawn, interval: float, step_seconds: float) -> float:
    found = best_first(replace(plan, interval_seconds=interval), lives)
    return min(max(found, step_seconds), interval)


def _curve(plan: Plan, lives: Drawn, best: float, step_seconds: float) -> list[tuple[float, float]]:
    low = max(best / _CURVE_REACH, min(step_seconds, best), min(plan.persist_seconds, best))
    high = max(min(best * _CURVE_REACH, plan.work_seconds), best)
    if high <= low:
        return [(best, _cost(plan, lives, best))]
    ratio = (high / low) ** (1 / (_CURVE_POINTS - 1))
    at = sorted({*(low * ratio**index for index in range(_CURVE_POINTS)), best})
    points = [(interval, _cost(plan, lives, interval)) for interval in at]
    return [point for point in points if math.isfinite(point[1])]
