"""How often to save, and what a run comes to: the formulas against print, search, limits, and simulated runs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_grid import GRID, deviations
from cost_runs import HOUR, MINUTE
from samestep.ledger.intervals import (
    daly_interval,
    daly_wall,
    exact_interval,
    extended,
    lasting_gain,
    young_interval,
)


@pytest.mark.parametrize(
    ("life", "printed", "decimals"),
    [(24 * HOUR, 117, 0), (6 * HOUR, 57, 0), (15 * MINUTE, 9.1, 1)],
    ids=["24 h", "6 h", "15 min"],
)
def test_intervals_are_those_that_daly_printed(life, printed, decimals):
    assert round(daly_interval(5 * MINUTE, life) / MINUTE, decimals) == printed


@pytest.mark.parametrize("life", [900.0, 6 * HOUR, 24 * HOUR], ids=str)
@pytest.mark.parametrize("save", [1.0, 300.0, 5000.0], ids=str)
def test_the_exact_interval_is_where_a_search_finds_the_least_running_time(save, life):
    low, high = save / 100, 10 * life
    for _ in range(12):
        tried = np.geomspace(low, high, 41)
        best = int(np.argmin([daly_wall(1.0, tau, save, life) for tau in tried]))
        low, high = tried[max(best - 1, 0)], tried[min(best + 1, 40)]
    assert exact_interval(save, life) == pytest.approx(tried[best], rel=1e-5)


def test_the_exact_interval_is_lamberts():
    lambertw = pytest.importorskip("scipy.special").lambertw
    for ratio in np.geomspace(1e-3, 20, 50):
        assert exact_interval(ratio, 1.0) == pytest.approx(1 + lambertw(-math.exp(-1 - ratio)).real, rel=1e-9)


def test_the_exact_interval_keeps_its_digits_where_saves_cost_next_to_nothing():
    for ratio in (1e-6, 1e-9, 1e-12):
        root = math.sqrt(2 * ratio)
        assert exact_interval(ratio, 1.0) == pytest.approx(root - root**2 / 3 + root**3 / 36, rel=1e-6)


def test_young_daly_and_the_exact_interval_agree_where_saves_are_short():
    young, daly, exact = (f(1.0, 1e6) for f in (young_interval, daly_interval, exact_interval))
    assert young == pytest.approx(exact, rel=1e-2)
    assert daly == pytest.approx(exact, rel=1e-6)


def test_a_save_longer_than_two_lives_is_made_once_a_life():
    assert daly_interval(5000, 1000) == 1000
    assert exact_interval(5000, 1000) == pytest.approx(1000, rel=0.01)


def test_saves_that_cost_nothing_are_as_close_as_they_can_follow_one_another():
    assert daly_interval(0, 1000) == exact_interval(0, 1000) == 0
    assert exact_interval(0, 1000, persist_seconds=40) == 40


def test_where_every_interruption_is_announced_no_periodic_save_pays():
    assert exact_interval(10, 1000, usable_notice=1.0) == math.inf


SETTING = {"interval_seconds": 600.0, "save_seconds": 20.0, "life_seconds": 2 * HOUR}


@given(
    save=st.floats(1, 300),
    life=st.floats(HOUR, 48 * HOUR),
    restart=st.floats(0, 1800),
    notice=st.floats(0, 300),
    usable=st.floats(0, 0.9),
)
@settings(deadline=None)
def test_neither_restart_nor_notice_nor_price_moves_the_best_interval(save, life, restart, notice, usable):
    def least(restart, notice, price):
        taus = np.geomspace(30, 100_000, 400)
        costs = [
            price
            * (1 + notice / life)
            * life
            / lasting_gain(
                interval_seconds=tau,
                save_seconds=save,
                life_seconds=life,
                restart_seconds=restart,
                usable_notice=usable,
            )
            for tau in taus
        ]
        return taus[int(np.argmin(costs))]

    assert least(0, 0, 1.0) == least(restart, notice, 7.5)


@given(usable=st.floats(0, 0.9), save=st.floats(1, 100), life=st.floats(2 * HOUR, 100 * HOUR))
@settings(deadline=None)
def test_the_interval_with_notices_costs_hardly_more_than_the_least_possible(usable, save, life):
    def lost(tau):
        return (
            tau
            / lasting_gain(interval_seconds=tau, save_seconds=save, life_seconds=life, usable_notice=usable)
            * life
            / tau
        )

    best = exact_interval(save, life, usable_notice=usable)
    assert lost(best) <= min(lost(best * factor) for factor in (0.5, 0.8, 0.9, 1.1, 1.25, 2)) * 1.002


def test_without_asynchrony_and_notices_it_is_dalys_time_and_the_first_start():
    found = extended(work_seconds=6000, restart_seconds=300, **SETTING)
    daly = daly_wall(6000, 600, 20, 2 * HOUR, 300)
    assert found.run_seconds == pytest.approx(daly + 2 * HOUR * math.expm1(300 / (2 * HOUR)))
    assert found.interruptions == pytest.approx(found.run_seconds / (2 * HOUR))


def test_with_a_life_that_never_ends_only_the_saves_and_one_start_are_left():
    found = extended(
        work_seconds=6000, interval_seconds=600, save_seconds=20, restart_seconds=300, life_seconds=1e12
    )
    assert found.run_seconds == pytest.approx(6000 + 10 * 20 + 300, rel=1e-6)


def test_with_notices_that_are_always_of_use_only_restarts_and_saves_are_paid():
    found = extended(work_seconds=1e7, restart_seconds=300, usable_notice=1.0, **SETTING)
    restarts = math.exp(300 / (2 * HOUR))
    assert 1e7 * restarts < found.run_seconds < 1e7 * (1 + 20 / 600) * restarts * 1.001


def test_billed_and_wall_seconds_add_tails_and_waits_for_every_interruption():
    found = extended(work_seconds=6000, notice_seconds=30, wait_seconds=900, **SETTING)
    assert found.billed_seconds == pytest.approx(found.run_seconds + 30 * found.interruptions)
    assert found.wall_seconds == pytest.approx(found.run_seconds + 930 * found.interruptions)


def test_an_asynchronous_save_makes_every_useful_second_dearer_by_the_time_it_takes_to_persist():
    blocking, lagging = lasting_gain(**SETTING), lasting_gain(persist_seconds=500, **SETTING)
    assert blocking / lagging == pytest.approx(math.exp(500 / (2 * HOUR)))


def test_a_run_that_never_gets_through_takes_for_ever():
    hopeless = {
        "interval_seconds": 600.0,
        "save_seconds": 20.0,
        "restart_seconds": 3600.0,
        "life_seconds": 1.0,
    }
    assert extended(work_seconds=6000, **hopeless).wall_seconds == math.inf
    assert daly_wall(6000, 600, 20, 1.0, 3600) == math.inf


@pytest.mark.parametrize("usable", [0.0, 0.5, 0.9], ids=str)
def test_for_short_intervals_it_is_the_simple_form(usable):
    life, lossy = 20 * HOUR, 1 - usable
    each = life / lossy * math.exp(600 / life) * math.expm1(lossy * 630 / life) * math.exp(lossy * 300 / life)
    gain = lasting_gain(
        interval_seconds=600.0,
        save_seconds=30.0,
        life_seconds=life,
        restart_seconds=600.0,
        persist_seconds=300.0,
        usable_notice=usable,
    )
    assert life / gain == pytest.approx(each / 600, rel=5e-4)


def test_saves_that_overlap_are_refused():
    with pytest.raises(ValueError, match="overlap"):
        extended(work_seconds=6000, persist_seconds=700, **SETTING)


def test_the_closed_form_is_within_three_standard_errors_of_simulated_runs_over_the_whole_grid():
    """Of 600 comparisons chance takes one or two beyond: those must hold in four times as many runs of another seed."""
    assert len(GRID) == 200
    off = np.array([deviations(number, paths=2500, seed=5) for number in range(200)])
    beyond = np.flatnonzero(np.abs(off).max(axis=1) >= 3)
    assert len(beyond) <= 6
    for number in beyond:
        assert np.abs(deviations(int(number), paths=10_000, seed=6)).max() < 3, GRID[number]
    assert np.abs(off.mean(axis=0)).max() < 0.3, "they are off to one side"
    assert off.std(axis=0) == pytest.approx(1, abs=0.15)
