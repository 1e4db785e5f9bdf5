"""Runs with a deadline: it is met whenever it can be, and nobody is cheaper than who knows the future."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_runs import HOUR, shared
from samestep.cost.billing import rule_named
from samestep.cost.errors import CostError
from samestep.cost.inputs import Exponential, Weibull
from samestep.cost.risk import read_zones, sampler
from samestep.cost.simulation import (
    Plan,
    Prices,
    Spans,
    clairvoyant,
    feasible,
    spans_drawn,
    spans_replayed,
    with_deadline,
)
from samestep.ledger import Row

PRICES = Prices(hour=0.3, on_demand_hour=1.0)
LOSSLESS = Plan(work_seconds=24 * HOUR, interval_seconds=24 * HOUR, restart_seconds=600.0, usable_notice=1.0)
policies = pytest.mark.parametrize("uniform", [False, True], ids=["greedy", "uniform progress"])


def race(plan, spans, deadline, *, uniform, prices=PRICES, seed=0):
    rng = np.random.default_rng(seed)
    return with_deadline(plan, prices, spans, deadline_seconds=deadline, uniform=uniform, rng=rng)


def drawn(lives, wait, deadline, *, paths=20, seed=0, notice=0.0):
    return spans_drawn(
        sampler(lives),
        wait_seconds=wait,
        paths=paths,
        horizon_seconds=deadline,
        rng=np.random.default_rng(seed),
        notice_seconds=notice,
    )


def spans_of(*pairs):
    starts, ends = np.array(pairs, dtype=float).T
    return Spans(starts[None, :], ends[None, :])


@given(
    work=st.sampled_from([HOUR, 6 * HOUR]),
    interval=st.sampled_from([300.0, 1800.0, 1e5]),
    save=st.sampled_from([0.0, 60.0]),
    persist=st.sampled_from([0.0, 200.0]),
    share=st.sampled_from([0.0, 0.3, 1.0]),
    restart=st.sampled_from([0.0, 60.0, 900.0]),
    usable=st.sampled_from([0.0, 0.5, 1.0]),
    notice=st.sampled_from([0.0, 120.0]),
    first=st.sampled_from([None, 60.0]),
    slack=st.floats(1.0, 3.0),
    life=st.sampled_from([600.0, 2 * HOUR]),
    wait=st.sampled_from([0.0, 900.0, 4 * HOUR]),
    uniform=st.booleans(),
    seed=st.integers(0, 10**6),
)
@settings(max_examples=80, deadline=None)
def test_every_deadline_is_met_that_on_demand_capacity_alone_can_meet(  # noqa: PLR0917
    work, interval, save, persist, share, restart, usable, notice, first, slack, life, wait, uniform, seed
):
    plan = Plan(
        work_seconds=work,
        interval_seconds=interval,
        save_seconds=save,
        persist_seconds=persist,
        persist_share=share,
        restart_seconds=restart,
        usable_notice=usable,
        notice_seconds=notice,
        first_seconds=first,
    )
    deadline = slack * work
    spans = drawn(Exponential(mean_seconds=life), wait, deadline, paths=10, seed=seed, notice=notice)
    found = race(plan, spans, deadline, uniform=uniform, seed=seed)
    if feasible(plan, deadline):
        assert found.finish.max() <= deadline + 1e-6
    assert found.finished.all()
    assert np.abs(sum(found.time.values()) - found.wall).max() < 1e-6
    assert np.abs(sum(found.money.values()) - found.cost).max() < 1e-6
    assert min(amounts.min() for amounts in (*found.time.values(), *found.money.values())) > -1e-9
    assert found.unique_seconds == pytest.approx(work)
    assert (found.cost >= clairvoyant(plan, PRICES, spans, deadline_seconds=deadline) - 1e-9).all()


@policies
def test_a_run_that_always_has_capacity_never_falls_back(uniform):
    found = race(LOSSLESS, spans_of((0, 1e7)), 30 * HOUR, uniform=uniform)
    assert found.time[Row.FALLBACK][0] == 0
    assert found.cost[0] == pytest.approx(0.3 * (24 + 1 / 6))


@policies
def test_a_run_that_never_has_capacity_falls_back_and_is_in_time(uniform):
    found = race(LOSSLESS, spans_of((1e7, 2e7)), 30 * HOUR, uniform=uniform)
    assert found.finish[0] <= 30 * HOUR
    assert found.money[Row.FALLBACK][0] == found.cost[0]
    assert found.time[Row.FALLBACK][0] >= 24 * HOUR + 600


def test_greedy_waits_as_long_as_another_try_could_still_be_lost():
    found = race(LOSSLESS, spans_of((1e7, 2e7)), 30 * HOUR, uniform=False)
    assert found.time[Row.CAPACITY_WAIT][0] == pytest.approx(6 * HOUR - 2 * 600)
    assert found.time[Row.FALLBACK][0] == pytest.approx(24 * HOUR + 600)


def test_uniform_progress_does_not_wait_while_it_is_behind():
    found = race(LOSSLESS, spans_of((2 * HOUR, 1e7)), 30 * HOUR, uniform=True)
    assert found.time[Row.CAPACITY_WAIT][0] == 0
    assert found.time[Row.FALLBACK][0] == pytest.approx(2 * HOUR, abs=600)
    greedy = race(LOSSLESS, spans_of((2 * HOUR, 1e7)), 30 * HOUR, uniform=False)
    assert greedy.time[Row.CAPACITY_WAIT][0] == pytest.approx(2 * HOUR)
    assert greedy.cost[0] < found.cost[0]


def test_uniform_progress_gives_on_demand_capacity_back_when_it_is_ahead():
    found = race(LOSSLESS, spans_of((1e7, 2e7)), 48 * HOUR, uniform=True)
    assert found.time[Row.CAPACITY_WAIT][0] > HOUR
    assert found.finish[0] <= 48 * HOUR


@policies
def test_a_deadline_that_cannot_be_met_is_missed_by_as_little_as_can_be(uniform):
    plan = dataclasses.replace(LOSSLESS, work_seconds=10 * HOUR)
    assert not feasible(plan, 9 * HOUR)
    found = race(plan, spans_of((0, 1e7)), 9 * HOUR, uniform=uniform)
    assert found.wall[0] == pytest.approx(10 * HOUR + 600)
    assert found.finished.all()


@pytest.mark.parametrize("numbers", [(0.0, 300.0), (-5.0, 300.0), (3600.0, 0.0)], ids=str)
def test_without_time_nothing_can_be_kept(numbers):
    deadline, tick = numbers
    with pytest.raises(CostError):
        with_deadline(
            LOSSLESS,
            PRICES,
            spans_of((0, 1)),
            deadline_seconds=deadline,
            uniform=True,
            rng=np.random.default_rng(0),
            tick_seconds=tick,
        )


def test_what_is_lost_without_notice_is_repeated_and_still_in_time():
    plan = Plan(work_seconds=6 * HOUR, interval_seconds=1800.0, save_seconds=60.0, restart_seconds=300.0)
    spans = drawn(Weibull(shape=0.7, scale_seconds=HOUR), 1200.0, 9 * HOUR, paths=300)
    found = race(plan, spans, 9 * HOUR, uniform=False)
    assert found.time[Row.REPEATED].mean() > 600
    assert found.finish.max() <= 9 * HOUR


def test_both_capacities_are_billed_by_their_rules():
    prices = dataclasses.replace(PRICES, rule=rule_named("per-hour"), fallback_rule=rule_named("per-hour"))
    found = race(LOSSLESS, spans_of((0, 5400), (1e7, 2e7)), 30 * HOUR, uniform=False, prices=prices)
    assert found.money[Row.FALLBACK][0] == 23
    assert found.cost[0] == pytest.approx(23 + 2 * 0.3)
    assert found.money[Row.IDLE][0] == pytest.approx(0.5 * 0.3)


def test_the_same_seed_gives_the_same_bytes():
    plan = dataclasses.replace(LOSSLESS, usable_notice=0.5)
    spans = drawn(Exponential(mean_seconds=HOUR), 1800.0, 40 * HOUR)
    first, second = (race(plan, spans, 40 * HOUR, uniform=True, seed=4) for _ in range(2))
    assert first.cost.tobytes() == second.cost.tobytes()


def test_who_knows_the_future_uses_the_longest_spans_and_buys_the_rest():
    plan = Plan(work_seconds=10_000, interval_seconds=1e5, restart_seconds=100.0)
    spans = spans_of((0, 2100), (3000, 3120), (4000, 8100))
    least = clairvoyant(plan, PRICES, spans, deadline_seconds=20_000)
    assert least[0] == pytest.approx((0.3 * (4100 + 2100) + 4000) / 3600)


PUBLISHED = {30: (0.644, 0.585), 36: (0.563, 0.565), 48: (0.483, 0.550)}
"""Deadline in hours; mean cost of greedy and of uniform progress over that of on-demand, found independently."""


@pytest.mark.parametrize("hours", PUBLISHED, ids=str)
def test_recorded_zones_cost_what_an_independent_replay_found(hours):
    folder = shared("spot-traces", "availability", "1-node", "aws-02-15-2023")
    costs = {False: [], True: []}
    for number, zone in enumerate(read_zones(sorted(folder.glob("*.json")), "available")):
        rng = np.random.default_rng(number)
        spans = spans_replayed([zone], starts=100, horizon_seconds=hours * HOUR, rng=rng)
        least = clairvoyant(LOSSLESS, PRICES, spans, deadline_seconds=hours * HOUR)
        for uniform, found in costs.items():
            runs = race(LOSSLESS, spans, hours * HOUR, uniform=uniform)
            assert runs.finish.max() <= hours * HOUR
            assert (runs.cost >= least - 1e-9).all()
            found.append(runs.cost.mean() / 24)
    assert (np.mean(costs[False]), np.mean(costs[True])) == pytest.approx(PUBLISHED[hours], abs=0.025)
