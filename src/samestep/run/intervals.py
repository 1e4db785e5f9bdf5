"""The interval between saves that costs least, from what a save costs and how long a machine lives. Pure."""

from __future__ import annotations

import math


def best_interval(cost_seconds: float, mean_life_seconds: float) -> float:
    """Return the seconds of work between two saves that lose least time in all.

    Each save costs time, and each interruption costs on average half an interval. This is the higher-order optimum
    of J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", Future Generation
    Computer Systems 22 (2006), equation 37.

    Args:
        cost_seconds: what one save adds to the training.
        mean_life_seconds: between interruptions.
    """
    if cost_seconds <= 0:
        return 0.0
    if cost_seconds >= 2 * mean_life_seconds:
        return mean_life_seconds
    ratio = cost_seconds / (2 * mean_life_seconds)
    first_order = math.sqrt(2 * cost_seconds * mean_life_seconds)
    return first_order * (1 + math.sqrt(ratio) / 3 + ratio / 9) - cost_seconds


def mean_life(lives: list[float], *, assumed_seconds: float) -> float:
    """Return the mean time between interruptions, learned from the attempts that a run has had.

    The assumption counts as one interruption that was observed, so that a single early loss does not rule.

    Args:
        lives: seconds that each interrupted attempt is known to have lived.
        assumed_seconds: what is believed before anything was seen.
    """
    return (assumed_seconds + sum(lives)) / (1 + len(lives))
