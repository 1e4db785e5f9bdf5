"""When saves are due: fixed intervals, and the one that costs least."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samestep.ledger.intervals import daly_interval, mean_life
from samestep.run.errors import RunError
from samestep.run.policies import Auto, AutoTimer, Every, EveryTimer, policy_of


def loss_per_second(interval, cost, life):
    """Expected share of lost time with an exponential life: work between saves, each of them paid."""
    return life * (math.exp((interval + cost) / life) - 1) / interval - 1


@given(cost=st.floats(0.1, 60), life=st.floats(600, 100_000))
def test_the_best_interval_loses_hardly_more_than_the_true_optimum(cost, life):
    best = daly_interval(cost, life)
    tried = [best * factor for factor in (0.25, 0.5, 0.8, 0.9, 0.95, 1.05, 1.1, 1.25, 2, 4)]
    least = min(loss_per_second(interval, cost, life) for interval in tried)
    assert loss_per_second(best, cost, life) <= least * 1.005


def test_a_save_that_costs_more_than_a_machine_lives_is_made_once_a_life():
    assert daly_interval(5000, 1000) == 1000


def test_a_save_that_costs_nothing_can_always_be_made():
    assert daly_interval(0, 1000) == 0


def test_what_is_assumed_of_a_life_counts_as_one_observation():
    assert mean_life([], assumed_seconds=3600) == 3600
    assert mean_life([600, 1200], assumed_seconds=3600) == 1800


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (500, Every(steps=500)),
        ("500 steps", Every(steps=500)),
        ("30s", Every(seconds=30)),
        ("10 min", Every(seconds=600)),
        ("1.5 hours", Every(seconds=5400)),
        ("auto", Auto()),
        (None, Auto()),
        (Every(seconds=3), Every(seconds=3)),
    ],
    ids=str,
)
def test_a_policy_is_read_as_it_is_written(written, meant):
    assert policy_of(written) == meant


@pytest.mark.parametrize("written", ["soon", "10 parsecs", 0, -5, True, 2.5, "0 s"], ids=str)
def test_what_says_no_interval_is_refused_by_name(written):
    with pytest.raises(RunError):
        policy_of(written)


def test_steps_are_counted_from_the_beginning_of_the_run_whatever_step_an_attempt_begins_at():
    timer = EveryTimer(Every(steps=10), 7, 0.0)
    assert [step for step in range(8, 32) if timer.due(step, 0.0) and timer.saved(step, 0.0) is None] == [
        10,
        20,
        30,
    ]


def test_seconds_are_counted_from_the_beginning_of_the_last_save():
    timer = EveryTimer(Every(seconds=60), 0, 100.0)
    assert not timer.due(1, 159.0)
    assert timer.due(2, 160.0)
    timer.saved(2, 160.0)
    assert not timer.due(3, 219.0)


def test_the_first_automatic_save_comes_early_and_then_as_often_as_costs_least():
    timer = AutoTimer(Auto(max_loss_seconds=900, first_steps=3), 0, 0.0, mean_life_seconds=36_000)
    assert [timer.due(step, step * 1.0) for step in (1, 2, 3)] == [False, False, True]
    timer.saved(3, 3.0)
    timer.learned(1.0, 2.0)
    assert timer.interval_seconds == pytest.approx(daly_interval(1.0, 36_000))
    assert not timer.due(4, 3.0 + timer.interval_seconds - 1)
    assert timer.due(5, 3.0 + timer.interval_seconds)


def test_a_second_automatic_save_waits_for_what_the_first_costs_unless_that_failed():
    timer = AutoTimer(Auto(first_steps=3), 0, 0.0, mean_life_seconds=36_000)
    timer.saved(3, 3.0)
    assert not timer.due(30, 30.0)
    timer.failed(30)
    assert [timer.due(step, step * 1.0) for step in (32, 33)] == [False, True]


def test_an_automatic_interval_never_risks_more_than_was_accepted():
    timer = AutoTimer(Auto(max_loss_seconds=120), 0, 0.0, mean_life_seconds=1e6)
    timer.learned(30.0, 40.0)
    assert timer.interval_seconds + 40.0 <= 120


def test_automatic_saves_take_at_most_the_share_that_was_allowed_unless_the_accepted_loss_demands_more():
    timer = AutoTimer(Auto(max_loss_seconds=10_000, max_share=0.01), 0, 0.0, mean_life_seconds=60)
    timer.learned(5.0, 5.0)
    assert timer.interval_seconds >= 500


def test_what_saves_cost_is_the_mean_of_the_last_ones():
    timer = AutoTimer(Auto(max_loss_seconds=1e6, max_share=1), 0, 0.0, mean_life_seconds=10_000)
    for cost in (100.0, 1.0, 1.0, 1.0, 1.0, 1.0):
        timer.learned(cost, 0.1)
    assert timer.interval_seconds == pytest.approx(daly_interval(1.0, 10_000))


@pytest.mark.parametrize("numbers", [{"max_loss_seconds": 0}, {"first_steps": 0}, {"max_share": -1}], ids=str)
def test_a_policy_with_a_number_that_makes_no_sense_is_refused(numbers):
    with pytest.raises(RunError):
        Auto(**numbers)
