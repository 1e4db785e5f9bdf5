"""How long a machine lives: draw it, and what is known of it.

Lives that were cut short by the end of watching are censored: they count as survived until then (Kaplan and Meier,
JASA 53, 1958). Where the longest observation is a censored one, it is taken for an end (Efron's rule), so that what
was never seen is not promised: means err on the short side.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec
import numpy as np
from numpy.typing import NDArray

from samestep.cost.errors import CostError
from samestep.cost.inputs import Empirical, Exponential, Weibull

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Floats]
"""Draws as many lives, in seconds."""

Modelled = Exponential | Weibull | Empirical

_FEW = 10
"""Lives below which nothing is said of how the hazard changes with age."""


def sampler(lives: Modelled) -> Draw:
    """Return what draws lives, in seconds.

    Raises:
        CostError: no life was seen to end.
    """
    if isinstance(lives, Exponential):
        mean = lives.mean_seconds
        return lambda rng, size: rng.exponential(mean, size)
    if isinstance(lives, Weibull):
        shape, scale = lives.shape, lives.scale_seconds
        return lambda rng, size: scale * rng.weibull(shape, size)
    seconds, masses = observed(lives)
    bounds = np.cumsum(masses)[:-1]
    return lambda rng, size: seconds[np.searchsorted(bounds, rng.random(size), side="right")]


def mean_seconds(lives: Modelled) -> float:
    """Return the mean life, in seconds.

    Raises:
        CostError: no life was seen to end.
    """
    if isinstance(lives, Exponential):
        return lives.mean_seconds
    if isinstance(lives, Weibull):
        return lives.scale_seconds * math.gamma(1 + 1 / lives.shape)
    seconds, masses = observed(lives)
    return float(seconds @ masses)


def survival(lives: Modelled, ages: Floats) -> Floats:
    """Return the share of lives that reach each age, given in seconds."""
    if isinstance(lives, Exponential):
        return np.exp(-ages / lives.mean_seconds)
    if isinstance(lives, Weibull):
        return np.exp(-((ages / lives.scale_seconds) ** lives.shape))
    seconds, masses = observed(lives)
    reached = np.concatenate([[0.0], np.cumsum(masses)])
    return np.asarray(1 - reached[np.searchsorted(seconds, ages, side="left")])


def falling_hazard(lives: Modelled) -> bool:
    """Say whether a fresh machine is the risky one, so that a first save should come early.

    Observed lives say so when they scatter more than lives without memory do (coefficient of variation above 1), by
    more than twice what as many of those would by chance.
    """
    if isinstance(lives, Exponential):
        return False
    if isinstance(lives, Weibull):
        return lives.shape < 1
    count = len(lives.lives_seconds)
    if count < _FEW:
        return False
    seconds, masses = observed(lives)
    mean = float(seconds @ masses)
    variation = math.sqrt(float((seconds - mean) ** 2 @ masses)) / mean
    return variation > 1 + 2 / math.sqrt(count)


def scaled(lives: Modelled, factor: float) -> Modelled:
    """Return the same lives, each ``factor`` times as long; what was observed of them stays as it is."""
    if isinstance(lives, Exponential):
        return msgspec.structs.replace(lives, mean_seconds=lives.mean_seconds * factor)
    if isinstance(lives, Weibull):
        return msgspec.structs.replace(lives, scale_seconds=lives.scale_seconds * factor)
    return msgspec.structs.replace(
        lives,
        lives_seconds=[life * factor for life in lives.lives_seconds],
        censored_seconds=[life * factor for life in lives.censored_seconds],
    )


def correlated_bounds(lives: Modelled, nodes: int) -> tuple[Modelled, Modelled]:
    """Return the shortest and the longest lives of a job on several machines, from the lives of one machine.

    A job stands still when one of its machines is lost. Losses that have nothing to do with one another come ``nodes``
    times as often; losses that always come together come as often as with one machine. The truth lies between.
    """
    return scaled(lives, 1 / nodes), lives


def life_interval(
    interruptions: int, observed_seconds: float, confidence: float = 0.9
) -> tuple[float, float | None]:
    """Return the interval in which the mean life lies, given how often it was seen to end.

    Exact for lives without memory (the count is Poisson, the bounds are quantiles of Gamma distributions).

    Args:
        interruptions: that were seen.
        observed_seconds: running time in which they were seen.
        confidence: that it lies inside; half of the rest is on each side.

    Returns:
        Lower and upper bound in seconds; the upper one is None when no interruption was seen.
    """
    tail = (1 - confidence) / 2
    low = observed_seconds / _expected_count(interruptions, tail)
    if interruptions == 0:
        return low, None
    return low, observed_seconds / _expected_count(interruptions - 1, 1 - tail)


def _expected_count(count: int, probability: float) -> float:
    """Return the mean of the Poisson distribution that yields at most ``count`` with that probability."""
    low, high = (
        0.0,
        10.0 + 2.0 * count - 2 * math.log(min(probability, 1 - probability)) * math.sqrt(count + 1),
    )
    steps = np.arange(count + 1)
    factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, count + 1)))])
    for _ in range(200):
        middle = (low + high) / 2
        at_most = float(np.exp(steps * math.log(middle) - middle - factorials).sum())
        low, high = (middle, high) if at_most > probability else (low, middle)
        if high - low <= 1e-13 * high:
            break
    return (low + high) / 2


def observed(lives: Empirical) -> tuple[Floats, Floats]:
    """Return distinct lives in ascending order, in seconds, and the probability of each.

    Raises:
        CostError: no life was seen to end.
    """
    if not lives.lives_seconds:
        raise CostError(
            "no life was seen to end: from these observations none can be drawn",
            hint='say what you assume: model = "exponential" with a mean; how sure that is is reported',
        )
    ended, censored = np.asarray(lives.lives_seconds), np.asarray(lives.censored_seconds, dtype=float)
    times, ends = np.unique(ended, return_counts=True)
    everyone = np.sort(np.concatenate([ended, censored]))
    watched = everyone.size - np.searchsorted(everyone, times, side="left")
    surviving = np.cumprod(1 - ends / watched)
    masses = -np.diff(surviving, prepend=1.0)
    if surviving[-1] > 0:
        times, masses = np.append(times, everyone[-1]), np.append(masses, surviving[-1])
    return times, masses
