"""How lives are charged: edges, minima, and the hour that is free where asked for."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_runs import HOUR
from samestep.cost.billing import RULES, rule_named
from samestep.cost.errors import CostError
from samestep.cost.inputs import Exponential
from samestep.cost.risk import sampler
from samestep.cost.simulation import Plan, Prices, simulate

EDGES = np.array([3599.0, 3600.0, 3601.0])


def billed(rule, seconds, *, lost):
    seconds = np.asarray(seconds, dtype=float)
    return rule.billed_seconds(seconds, np.full(seconds.shape, lost)).tolist()


def test_the_first_hour_is_billed_unless_its_going_free_was_asked_for():
    assert billed(rule_named("aws-linux"), EDGES, lost=True) == [3599, 3600, 3601]


def test_a_machine_that_is_taken_away_within_the_first_hour_is_free_and_after_it_billed_from_its_start():
    assert billed(rule_named("aws-linux", first_hour=True), EDGES, lost=True) == [0, 3600, 3601]


def test_a_machine_that_ends_by_itself_is_billed_in_its_first_hour_too():
    assert billed(rule_named("aws-linux", first_hour=True), EDGES, lost=False) == [3599, 3600, 3601]


def test_begun_hours_are_whole_ones():
    assert billed(rule_named("per-hour"), EDGES, lost=True) == [3600, 3600, 7200]


def test_begun_minutes_are_whole_ones_and_sums_of_floating_point_begin_none():
    assert billed(rule_named("per-minute"), [59, 60, 61, 0.1 + 0.2 + 59.7], lost=True) == [60, 60, 120, 60]


def test_at_least_a_minute_is_billed_where_that_is_the_rule():
    assert billed(rule_named("aws-linux"), [0.5, 59, 60, 61], lost=False) == [60, 60, 60, 61]


def test_a_machine_that_google_takes_away_in_its_first_minute_is_free():
    assert billed(rule_named("gcp"), [59, 60, 61], lost=True) == [0, 60, 61]
    assert billed(rule_named("gcp"), [59, 60, 61], lost=False) == [60, 60, 61]


@pytest.mark.parametrize("name", sorted(RULES))
def test_a_machine_that_never_was_is_not_billed(name):
    assert billed(rule_named(name, first_hour=True), [0.0], lost=True) == [0]


@given(st.lists(st.floats(1e-3, 1e6), min_size=1), st.sampled_from(sorted(RULES)))
@settings(deadline=None)
def test_nothing_is_billed_below_its_time_but_what_is_free(seconds, name):
    found = np.array(billed(rule_named(name, first_hour=True), seconds, lost=True))
    assert ((found == 0) | (found >= np.array(seconds) - 1e-3)).all()


def test_an_unknown_rule_names_the_nearest_one():
    with pytest.raises(CostError) as caught:
        rule_named("per-secnd")
    assert "per-second" in caught.value.hint


def test_every_rule_says_where_it_comes_from():
    assert all(rule.source and rule.name == name for name, rule in RULES.items())


@pytest.mark.parametrize("life", [0.5, 1.0, 2.0, 4.0], ids=str)
def test_with_the_free_hour_the_share_of_time_that_is_charged_is_the_known_one(life):
    """(1 + h/M) exp(-h/M) of the running time of exponential lives, with h one hour."""
    plan = Plan(work_seconds=200 * HOUR, interval_seconds=300.0, usable_notice=1.0)
    prices = Prices(hour=1.0, rule=rule_named("aws-linux", first_hour=True))
    draw = sampler(Exponential(mean_seconds=life * HOUR))
    runs = simulate(plan, prices, draw, paths=400, rng=np.random.default_rng(1))
    charged = runs.billed_seconds.sum() / runs.wall.sum()
    assert charged == pytest.approx((1 + 1 / life) * math.exp(-1 / life), abs=0.01)
