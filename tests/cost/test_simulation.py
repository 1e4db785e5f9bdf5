"""Simulated runs: every second and cent in one row, the same as one run at a time, and what is never dearer."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_runs import HOUR, spread_over
from plain_runs import Machine, plain_run
from samestep.cost.billing import RULES, rule_named
from samestep.cost.errors import CostError
from samestep.cost.inputs import Empirical, Exponential, Weibull
from samestep.cost.risk import sampler
from samestep.cost.simulation import (
    Plan,
    Prices,
    best_first,
    best_interval,
    gain_ratio,
    simulate,
    uninterrupted,
)
from samestep.cost.simulation.paths import follow
from samestep.cost.simulation.supply import Machines
from samestep.ledger import Row
from samestep.ledger.intervals import exact_interval, extended, lasting_gain

TWO_HOURS = Exponential(mean_seconds=2 * HOUR)
DAY = Plan(work_seconds=24 * HOUR, interval_seconds=1200.0, save_seconds=30.0, restart_seconds=600.0)
HOURLY = Prices(hour=1.0)


def runs(plan=DAY, lives=TWO_HOURS, *, paths=2000, seed=0, wait=0.0, prices=HOURLY):
    return simulate(
        plan, prices, sampler(lives), paths=paths, rng=np.random.default_rng(seed), wait_seconds=wait
    )


plans = st.builds(
    Plan,
    work_seconds=st.sampled_from([500.0, 3600.0, 7777.7]),
    interval_seconds=st.sampled_from([60.0, 100.0, 333.3, 1e5]),
    save_seconds=st.sampled_from([0.0, 5.0, 30.0]),
    persist_seconds=st.sampled_from([0.0, 20.0, 150.0]),
    persist_share=st.sampled_from([0.0, 0.3, 1.0]),
    restart_seconds=st.sampled_from([0.0, 50.0, 400.0]),
    stall_share=st.sampled_from([0.0, 0.1]),
    usable_notice=st.sampled_from([0.0, 1.0]),
    notice_seconds=st.sampled_from([0.0, 7.0]),
    first_seconds=st.sampled_from([None, 20.0, 500.0]),
)
prices = st.builds(
    Prices,
    hour=st.sampled_from([0.0, 0.7, 31.0]),
    storage_hour=st.sampled_from([0.0, 0.01]),
    save_transfer=st.sampled_from([0.0, 0.2]),
    restore_transfer=st.sampled_from([0.0, 0.1]),
    save_requests=st.sampled_from([0.0, 0.003]),
    rule=st.sampled_from([rule_named(name, first_hour=True) for name in sorted(RULES)]),
)
lives = st.sampled_from(
    [
        Exponential(mean_seconds=900.0),
        Weibull(shape=0.6, scale_seconds=900.0),
        Empirical(lives_seconds=[30.0, 400.0, 2500.0, 6000.0], censored_seconds=[5000.0]),
    ]
)


@given(plan=plans, prices=prices, lives=lives, seed=st.integers(0, 10**6), usable=st.floats(0, 1))
@settings(max_examples=150, deadline=None)
def test_every_second_and_every_cent_of_every_path_stands_in_exactly_one_row(
    plan, prices, lives, seed, usable
):
    plan = dataclasses.replace(plan, usable_notice=usable)
    rng = np.random.default_rng(seed)
    found = simulate(plan, prices, sampler(lives), paths=20, rng=rng, wait_seconds=100.0, max_lives=300)
    assert np.abs(sum(found.time.values()) - found.wall).max() < 1e-6
    assert np.abs(sum(found.money.values()) - found.cost).max() < 1e-6
    assert min(amounts.min() for amounts in (*found.time.values(), *found.money.values())) > -1e-9
    whole = found.unique_seconds[found.finished]
    assert whole == pytest.approx(plan.work_seconds, abs=1e-6)
    assert found.time[Row.UNIQUE] == pytest.approx(found.unique_seconds)
    assert found.executed_seconds == pytest.approx(found.unique_seconds + found.time[Row.REPEATED])


class Given:
    """Machines that were drawn before, so that others can live through them too."""

    def __init__(self, waits, lives, tail):
        self.waits, self.lives, self.tail, self.number = waits, lives, tail, -1

    def next(self, paths, now, *, first):
        self.number += 1
        life = self.lives[paths, self.number]
        return Machines(self.waits[paths, self.number], life, np.full(life.size, self.tail))


@given(plan=plans, prices=prices, seed=st.integers(0, 10**6))
@settings(max_examples=120, deadline=None)
def test_all_at_once_comes_to_the_same_as_one_run_at_a_time_phase_by_phase(plan, prices, seed):
    prices = dataclasses.replace(
        prices, storage_hour=0.0, save_transfer=0.0, restore_transfer=0.0, save_requests=0.0
    )
    rng = np.random.default_rng(seed)
    waits, lives = rng.exponential(60, (4, 3000)), rng.exponential(1500, (4, 3000))
    supply = Given(waits, lives, plan.notice_seconds)
    found = follow(plan, prices, supply, paths=4, rng=rng, max_lives=3000)
    for path in range(4):
        machines = (
            Machine(wait, life, plan.notice_seconds, plan.usable_notice == 1)
            for wait, life in zip(waits[path], lives[path], strict=True)
        )
        time, money, wall, paid, counts = plain_run(plan, prices, machines)
        for row in Row:
            assert found.time.get(row, np.zeros(4))[path] == pytest.approx(time[row], abs=1e-6), row
            assert found.money.get(row, np.zeros(4))[path] == pytest.approx(money[row], abs=1e-6), row
        assert found.wall[path] == pytest.approx(wall, abs=1e-6)
        assert found.cost[path] == pytest.approx(paid, abs=1e-6)
        assert found.executed_seconds[path] == pytest.approx(counts["executed"], abs=1e-6)
        assert (found.interruptions[path], found.saves[path]) == (counts["interruptions"], counts["saves"])


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others():
    first, second, other = runs(seed=1), runs(seed=1), runs(seed=2)
    assert first.wall.tobytes() == second.wall.tobytes()
    assert first.cost.tobytes() == second.cost.tobytes()
    assert first.wall.tobytes() != other.wall.tobytes()


def test_a_run_that_nothing_happens_to_pays_one_start_its_work_and_its_saves():
    found = uninterrupted(dataclasses.replace(DAY, stall_share=0.1), Prices(hour=2.0))
    assert found.wall[0] == pytest.approx(600 + 1.1 * 86_400 + 72 * 30)
    assert found.cost[0] == pytest.approx(2 * found.wall[0] / 3600)
    assert found.time[Row.DATA_STALL][0] == pytest.approx(8640)
    assert (found.saves[0], found.interruptions[0]) == (72, 0)


def test_storage_transfer_and_requests_are_paid_for_wall_time_saves_and_restores():
    priced = Prices(hour=1.0, storage_hour=0.5, save_transfer=2.0, restore_transfer=3.0, save_requests=0.1)
    found = runs(prices=priced, paths=50, wait=1000.0)
    assert found.money[Row.STORAGE] == pytest.approx(found.wall / 3600 * 0.5)
    assert found.money[Row.TRANSFER] == pytest.approx(2 * found.saves + 3 * found.interruptions)
    assert found.money[Row.REQUESTS] == pytest.approx(0.1 * found.saves)


def test_waiting_for_capacity_delays_the_end_and_costs_nothing():
    at_once, later = runs(wait=0.0), runs(wait=HOUR)
    assert later.wall.mean() > at_once.wall.mean() + 10 * HOUR
    assert abs(spread_over(later.cost, at_once.cost.mean())) < 4
    assert Row.CAPACITY_WAIT not in later.money


DEARER = {
    "longer restarts": ({"restart_seconds": 300.0}, {"restart_seconds": 900.0}),
    "longer saves": ({"save_seconds": 5.0}, {"save_seconds": 120.0}),
    "slower persisting": ({"persist_seconds": 10.0}, {"persist_seconds": 900.0}),
    "slower training while persisting": (
        {"persist_seconds": 300.0, "persist_share": 0.0},
        {"persist_seconds": 300.0, "persist_share": 0.5},
    ),
    "fewer usable notices": ({"usable_notice": 0.9}, {"usable_notice": 0.1}),
    "longer tails": ({"notice_seconds": 0.0}, {"notice_seconds": 120.0}),
    "slower data": ({"stall_share": 0.0}, {"stall_share": 0.05}),
    "a far longer interval than the best": ({}, {"interval_seconds": 7200.0}),
    "a far shorter interval than the best": ({}, {"interval_seconds": 60.0}),
}


@pytest.mark.parametrize(("better", "worse"), DEARER.values(), ids=DEARER)
def test_what_is_worse_is_never_cheaper(better, worse):
    cheap, dear = runs(dataclasses.replace(DAY, **better)), runs(dataclasses.replace(DAY, **worse))
    assert spread_over(dear.cost, cheap.cost.mean()) > 3


def test_shorter_lives_are_never_cheaper():
    assert spread_over(runs(lives=Exponential(mean_seconds=HOUR)).cost, runs().cost.mean()) > 3


def test_restarts_that_are_interrupted_themselves_take_nothing_back():
    plan = dataclasses.replace(DAY, work_seconds=100.0, interval_seconds=100.0, save_seconds=0.0)
    found = runs(plan, Exponential(mean_seconds=300.0), paths=4000)
    said = 300 * np.expm1(700 / 300)
    assert abs(spread_over(found.billed_seconds, said)) < 3
    assert found.time[Row.RESTART].max() > 5 * 600


def test_a_run_that_cannot_get_through_is_given_up_and_says_so():
    found = simulate(
        DAY,
        Prices(hour=1.0),
        sampler(Empirical(lives_seconds=[300.0, 1500.0])),
        paths=5,
        rng=np.random.default_rng(0),
        max_lives=50,
    )
    assert not found.finished.any()
    assert np.isinf(found.finish).all()
    assert found.unique_seconds.max() == 0
    assert sum(found.time.values()) == pytest.approx(found.wall)


def test_after_a_usable_notice_the_rest_of_the_interval_is_not_repeated():
    announced = runs(dataclasses.replace(DAY, usable_notice=1.0))
    assert announced.time[Row.REPEATED].max() == 0
    assert announced.executed_seconds == pytest.approx(86_400)


@pytest.mark.parametrize("usable", [0.0, 0.4, 1.0], ids=str)
@pytest.mark.parametrize(
    "model",
    [
        TWO_HOURS,
        Weibull(shape=0.6, scale_seconds=2 * HOUR),
        Weibull(shape=2.0, scale_seconds=3 * HOUR),
        Empirical(lives_seconds=[200.0, 900.0, 1500.0, 4000.0, 9000.0, 50_000.0]),
    ],
    ids=["exponential", "falling hazard", "rising hazard", "observed"],
)
def test_the_long_run_is_that_of_renewal_theory_for_any_lives(model, usable):
    """The ends of a run are not in it: the difference of a long run and a longer one is free of them."""
    plan = dataclasses.replace(DAY, persist_seconds=100.0, persist_share=0.2, usable_notice=usable)
    short, long = (
        runs(dataclasses.replace(plan, work_seconds=days * 24 * HOUR), model, paths=600, seed=days)
        for days in (4, 20)
    )
    steps = (long.billed_seconds - short.billed_seconds) / (16 * 24 * HOUR)
    assert abs(spread_over(steps, gain_ratio(plan, model))) < 3.5


def test_the_long_run_of_exponential_lives_is_the_closed_form():
    plan = dataclasses.replace(
        DAY, persist_seconds=100.0, persist_share=0.2, usable_notice=0.4, first_seconds=300.0
    )
    gain = lasting_gain(
        interval_seconds=1200.0,
        save_seconds=30.0,
        life_seconds=2 * HOUR,
        restart_seconds=600.0,
        persist_seconds=100.0,
        persist_share=0.2,
        usable_notice=0.4,
        first_seconds=300.0,
    )
    assert gain_ratio(plan, TWO_HOURS) == pytest.approx(2 * HOUR / gain, rel=1e-4)


def test_the_best_interval_for_lives_without_memory_is_the_exact_one():
    assert best_interval(DAY, TWO_HOURS) == pytest.approx(exact_interval(30.0, 2 * HOUR), rel=0.01)


def test_where_fresh_machines_are_risky_a_first_save_that_comes_early_is_cheaper():
    heavy = Weibull(shape=0.5, scale_seconds=HOUR)
    plan = dataclasses.replace(DAY, interval_seconds=best_interval(DAY, heavy))
    early = dataclasses.replace(plan, first_seconds=best_first(plan, heavy))
    assert early.first_seconds < 0.8 * plan.interval_seconds
    assert gain_ratio(early, heavy) < gain_ratio(plan, heavy)
    assert runs(early, heavy, paths=20_000).cost.mean() < runs(plan, heavy, paths=20_000).cost.mean()


def test_where_they_are_not_the_first_save_comes_like_the_others():
    assert best_first(DAY, TWO_HOURS) == DAY.interval_seconds


def test_a_run_of_exponential_lives_comes_to_what_the_closed_form_says():
    found, said = (
        runs(paths=20_000),
        extended(
            work_seconds=DAY.work_seconds,
            interval_seconds=1200.0,
            save_seconds=30.0,
            restart_seconds=600.0,
            life_seconds=2 * HOUR,
        ),
    )
    assert abs(spread_over(found.billed_seconds, said.billed_seconds)) < 3


@pytest.mark.parametrize(
    "nonsense",
    [
        {"work_seconds": 0.0},
        {"interval_seconds": -1.0},
        {"usable_notice": 1.5},
        {"save_seconds": float("nan")},
        {"restart_seconds": float("inf")},
        {"persist_share": -0.1},
    ],
    ids=lambda numbers: next(iter(numbers)),
)
def test_a_plan_with_a_number_that_makes_no_sense_is_refused(nonsense):
    with pytest.raises(CostError):
        dataclasses.replace(DAY, **nonsense)


def test_ledgers_of_many_paths_are_their_mean():
    found = runs(paths=100, wait=60.0)
    assert found.mean_time().total == pytest.approx(found.wall.mean())
    assert found.mean_money("EUR").total == pytest.approx(found.cost.mean())
    assert found.mean_money("EUR").unit == "EUR"
