"""How long machines live: drawn, averaged, censored, and how well the mean is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_runs import HOUR, spread_over
from samestep.cost.errors import CostError
from samestep.cost.inputs import Empirical, Exponential, Weibull
from samestep.cost.risk import (
    correlated_bounds,
    falling_hazard,
    life_interval,
    mean_seconds,
    sampler,
    scaled,
    survival,
)

MODELS = {
    "exponential": Exponential(mean_seconds=4 * HOUR),
    "weibull, fresh machines are risky": Weibull(shape=0.6, scale_seconds=2 * HOUR),
    "weibull, old machines are risky": Weibull(shape=3.0, scale_seconds=2 * HOUR),
    "observed": Empirical(lives_seconds=[60.0, 600.0, 600.0, 7200.0, 30_000.0]),
    "observed, some still alive": Empirical(
        lives_seconds=[60.0, 600.0, 7200.0], censored_seconds=[300.0, 9000.0]
    ),
}
models = pytest.mark.parametrize("lives", MODELS.values(), ids=MODELS)


@models
def test_drawn_lives_have_the_mean_that_is_said(lives):
    drawn = sampler(lives)(np.random.default_rng(2), 20_000)
    assert abs(spread_over(drawn, mean_seconds(lives))) < 4


@models
def test_drawn_lives_survive_as_long_as_is_said(lives):
    drawn = sampler(lives)(np.random.default_rng(3), 20_000)
    ages = np.array([0.0, 59.0, 601.0, 3600.0, 8000.0])
    shares = (drawn[None, :] >= ages[:, None]).mean(axis=1)
    assert shares == pytest.approx(survival(lives, ages), abs=0.015)


def test_a_life_reaches_the_age_at_which_it_ends():
    assert survival(MODELS["observed"], np.array([60.0, 600.0, 601.0])) == pytest.approx([1.0, 0.8, 0.4])


@models
def test_the_same_seed_draws_the_same_lives(lives):
    first, second = (sampler(lives)(np.random.default_rng(5), 50) for _ in range(2))
    assert (first == second).all()


@models
def test_lives_twice_as_long_are_twice_as_long(lives):
    assert mean_seconds(scaled(lives, 2.0)) == pytest.approx(2 * mean_seconds(lives))


def test_censored_lives_count_as_survived_until_then():
    """By hand: 1 of 5 ends at 60, 1 of 3 at 600 (one was lost sight of at 300), 1 of 2 at 7200; the rest at 9000."""
    lives = MODELS["observed, some still alive"]
    expected = 0.2 * 60 + 0.8 / 3 * 600 + 0.8 * 2 / 3 / 2 * 7200 + 0.8 * 2 / 3 / 2 * 9000
    assert mean_seconds(lives) == pytest.approx(expected)


def test_nothing_beyond_the_longest_observation_is_promised():
    drawn = sampler(Empirical(lives_seconds=[10.0], censored_seconds=[500.0] * 9))(
        np.random.default_rng(0), 1000
    )
    assert set(drawn) == {10.0, 500.0}


def test_from_lives_of_which_none_ended_none_is_drawn():
    with pytest.raises(CostError, match="no life was seen to end"):
        sampler(Empirical(lives_seconds=[], censored_seconds=[3600.0]))


def test_fresh_machines_are_the_risky_ones_only_where_the_evidence_says_so():
    rng = np.random.default_rng(4)
    steady = Empirical(lives_seconds=rng.exponential(3600, 200).tolist())
    heavy = Empirical(lives_seconds=(3600 * rng.weibull(0.5, 200)).tolist())
    few = Empirical(lives_seconds=heavy.lives_seconds[:5])
    verdicts = [falling_hazard(lives) for lives in (*list(MODELS.values())[:3], steady, heavy, few)]
    assert verdicts == [False, True, False, False, True, False]


def test_several_machines_are_lost_as_often_as_one_or_each_on_its_own():
    short, long = correlated_bounds(MODELS["exponential"], 8)
    assert (mean_seconds(short), mean_seconds(long)) == (HOUR / 2, 4 * HOUR)


@pytest.mark.parametrize("count", [0, 1, 3, 10, 250], ids=str)
def test_the_interval_of_the_mean_life_is_that_of_the_gamma_distribution(count):
    chi2 = pytest.importorskip("scipy.stats").chi2
    low, high = life_interval(count, 100 * HOUR)
    assert low == pytest.approx(200 * HOUR / chi2.ppf(0.95, 2 * count + 2), rel=1e-9)
    if count:
        assert high == pytest.approx(200 * HOUR / chi2.ppf(0.05, 2 * count), rel=1e-9)
    else:
        assert high is None


def test_no_interruption_in_a_time_means_a_life_of_a_third_of_it_or_more():
    low, high = life_interval(0, 90.0)
    assert high is None
    assert low == pytest.approx(30, rel=0.01)


@given(count=st.integers(1, 5000), confidence=st.floats(0.5, 0.99))
@settings(deadline=None)
def test_the_interval_contains_the_estimate_and_shrinks_with_evidence(count, confidence):
    low, high = life_interval(count, float(count), confidence)
    assert low < 1 < high
    more = life_interval(4 * count, 4.0 * count, confidence)
    assert low < more[0]
    assert more[1] < high
