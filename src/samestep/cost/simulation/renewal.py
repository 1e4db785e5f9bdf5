"""What a useful second costs in the long run, for any lives: the curve over which an interval is chosen.

Lives of machines are independent of one another, so that by the renewal-reward theorem a long run needs ``E[life +
tail]`` billed seconds for each ``E[lasting productive seconds of a life]``. Neither is simulated: there is no noise.
What a run adds at its two ends (its first start, its last save) is not in it.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from samestep.cost.errors import CostError
from samestep.cost.inputs import Empirical, Exponential
from samestep.cost.risk.lives import Modelled, falling_hazard, mean_seconds, observed, survival
from samestep.ledger.intervals import young_interval

from .course import Course

if TYPE_CHECKING:
    from collections.abc import Callable

    from samestep.cost.billing import Rule

    from .plan import Floats, Plan

_ATOMS = 4096
"""Equally likely lives that stand for a continuous distribution."""

_SAVES = 200_000
"""Of one life, after which its contribution is neglected."""


def gain_ratio(plan: Plan, lives: Modelled) -> float:
    """Return billed seconds for each productive second that counts, in the long run.

    Exact for exponential and observed lives; for Weibull lives the part that usable notices rescue is summed over
    a few thousand lives.

    Returns:
        At least 1; infinite where no life ever gets to a durable save.

    Raises:
        CostError: no life was seen to end.
    """
    course, stretch = Course.of(plan), 1 + plan.stall_share
    kept, lost = plan.usable_notice, 1 - plan.usable_notice
    gain = lost * _durable(course, plan, lives) if lost else 0.0
    if kept:
        gain += kept * _trained(course, plan, lives)
    return machine_seconds(plan, lives) * stretch / gain if gain > 0 else math.inf


def machine_seconds(plan: Plan, lives: Modelled) -> float:
    """Return how long a machine is there on average, from its start to its end."""
    return mean_seconds(lives) + (0.0 if plan.notice_inside else plan.notice_seconds)


def charged_share(plan: Plan, lives: Modelled, rule: Rule) -> float:
    """Return billed seconds for each second of machines that the provider ends, by a billing rule."""
    if rule.plain:
        return 1.0
    seconds, masses = _atoms(lives)
    seconds = seconds if plan.notice_inside else seconds + plan.notice_seconds
    billed = rule.billed_seconds(seconds, np.ones(seconds.size, dtype=bool))
    return float(billed @ masses) / float(seconds @ masses)


def _used(plan: Plan) -> float:
    """Return by how much a life is shorter for training than it was recorded."""
    return plan.notice_seconds if plan.notice_inside else 0.0


def _durable(course: Course, plan: Plan, lives: Modelled) -> float:
    """Return how much training of a life is durable when it ends, on average."""
    begin = _used(plan) + plan.restart_seconds + course.first + course.save + course.persist
    if isinstance(lives, Empirical):
        longest = max(*lives.lives_seconds, *lives.censored_seconds, 0.0)
    else:
        longest = 40 * mean_seconds(lives) if isinstance(lives, Exponential) else _longest(lives)
    count = int(min(max((longest - begin) / course.cycle + 2, 1), _SAVES))
    reached = survival(lives, begin + course.cycle * np.arange(count, dtype=np.float64))
    return course.first * float(reached[0]) + course.interval * float(reached[1:].sum())


def _longest(lives: Modelled) -> float:
    """Return the age that one of 10^17 lives reaches."""
    return float(_quantiles(lives, np.array([1 - 1e-16]))[0])


def _trained(course: Course, plan: Plan, lives: Modelled) -> float:
    """Return how much training a life does until its end, on average."""
    seconds, masses = _atoms(lives)
    ages = np.maximum(seconds - _used(plan) - plan.restart_seconds, 0.0)
    return float(course.trained(ages, np.full(ages.size, np.inf)) @ masses)


def _atoms(lives: Modelled) -> tuple[Floats, Floats]:
    """Return lives that stand for all of them, and the probability of each."""
    if isinstance(lives, Empirical):
        return observed(lives)
    return _quantiles(lives, (np.arange(_ATOMS) + 0.5) / _ATOMS), np.full(_ATOMS, 1 / _ATOMS)


def _quantiles(lives: Modelled, shares: Floats) -> Floats:
    if isinstance(lives, Empirical):
        raise CostError("observed lives have no quantiles beyond those that were seen")
    hazards = -np.log1p(-shares)
    if isinstance(lives, Exponential):
        return lives.mean_seconds * hazards
    return np.asarray(lives.scale_seconds * hazards ** (1 / lives.shape))


def best_interval(plan: Plan, lives: Modelled) -> float:
    """Return the interval that costs least with these lives; ``plan.interval_seconds`` does not matter.

    Returns:
        Productive seconds; the whole work where saves within it do not pay, the shortest possible where they cost
        nothing.

    Raises:
        CostError: no life was seen to end.
    """
    floor = (1 - plan.persist_share) * plan.persist_seconds / (1 + plan.stall_share)
    cost = plan.save_seconds + plan.persist_share * plan.persist_seconds
    if cost <= 0:
        return max(floor, 1.0)
    around = young_interval(cost, mean_seconds(lives))
    low, high = max(floor, around / 50), plan.work_seconds
    if low >= high:
        return max(floor, min(low, high))

    def ratio(seconds: float) -> float:
        return gain_ratio(dataclasses.replace(plan, interval_seconds=seconds, first_seconds=None), lives)

    return _least(ratio, low, high)


def best_first(plan: Plan, lives: Modelled) -> float:
    """Return when the first save of a life should come, the interval between the others held.

    Returns:
        Productive seconds; ``plan.interval_seconds`` where the hazard does not fall with age.

    Raises:
        CostError: no life was seen to end.
    """
    if not falling_hazard(lives):
        return plan.interval_seconds
    low = plan.interval_seconds / 50

    def ratio(seconds: float) -> float:
        return gain_ratio(dataclasses.replace(plan, first_seconds=seconds), lives)

    return _least(ratio, low, plan.interval_seconds)


def _least(ratio: Callable[[float], float], low: float, high: float) -> float:
    """Return where a function is least, over a grid that is then refined; it may have several dips."""
    tried = np.geomspace(low, high, 61)
    for _ in range(3):
        values = [ratio(float(seconds)) for seconds in tried]
        best = int(np.argmin(values))
        around, least = (tried[max(best - 1, 0)], tried[min(best + 1, tried.size - 1)]), float(tried[best])
        tried = np.geomspace(*around, 13)
    return least
