"""From a case to an answer: reproducible, complete, and honest about what was left out."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from cost_samples import HOUR, case, offer, quantity, seen
from samestep.cost.answering import MOST_COMPARED, answer
from samestep.cost.errors import CaseError
from samestep.cost.inputs import Capacity, Empirical, Exponential, Replay
from samestep.cost.interval import smoothed
from samestep.cost.predicting import expected_money, interruptible, simulated, threats
from samestep.cost.simulation import gain_ratio
from samestep.ledger.intervals import exact_interval


@pytest.fixture(scope="module")
def plain():
    return answer(case())


def test_the_same_case_gives_the_same_answer(plain):
    assert answer(case()) == plain
    other = answer(case(seed=8))
    assert other.offers[0].spot.cost.mean != plain.offers[0].spot.cost.mean


def test_the_ledgers_add_up_to_cost_and_finish(plain):
    for way in (plain.offers[0].spot, plain.offers[0].on_demand):
        assert way.money.total == pytest.approx(way.cost.mean, abs=1e-6)
        assert way.time.total == pytest.approx(way.finish_seconds.mean, abs=1e-6)


def test_the_advised_interval_is_the_best_one_and_round(plain):
    advice = plain.interval
    assert advice.seconds == pytest.approx(exact_interval(20.0, HOUR), rel=0.01)
    assert advice.flat_low < advice.seconds < advice.flat_high
    assert advice.flat_low <= advice.steps <= advice.flat_high
    assert len(str(advice.steps).rstrip("0")) == 1
    assert plain.offers[0].spot.interval_seconds == advice.steps


def test_the_flat_region_costs_at_most_one_percent_more(plain):
    least = min(cost for _, cost in plain.interval.curve)
    inside = [
        cost for at, cost in plain.interval.curve if plain.interval.flat_low <= at <= plain.interval.flat_high
    ]
    outside = [
        cost
        for at, cost in plain.interval.curve
        if not 0.97 * plain.interval.flat_low <= at <= 1.03 * plain.interval.flat_high
    ]
    assert max(inside) <= 1.01 * least * (1 + 1e-9)
    assert min(outside) > 1.01 * least


@pytest.mark.parametrize(
    ("field", "value"), [("restart_seconds", quantity(900.0)), ("wait_seconds", quantity(7200.0))]
)
def test_neither_restart_time_nor_wait_nor_price_moves_the_interval(plain, field, value):
    moved = answer(case(**{field: value}, offers=[offer(spot=2.9)]))
    assert moved.interval.seconds == pytest.approx(plain.interval.seconds, rel=0.02)


def test_lives_rounded_to_ticks_do_not_make_an_interval_that_just_fits_them():
    """Lives in whole ten minutes, as traces have them: the advice is that for the lives they were rounded from."""
    drawn = np.random.default_rng(3).exponential(HOUR, 300)
    ticks = np.maximum(np.round(drawn / 600), 1) * 600
    results = [answer(case(lives=Empirical(lives_seconds=lives.tolist()))) for lives in (drawn, ticks)]
    exact, rounded = (result.interval for result in results)
    assert rounded.flat_high / rounded.flat_low > 1.8
    assert rounded.seconds == pytest.approx(exact.seconds, rel=0.2)


def test_the_run_is_predicted_with_the_advised_interval():
    """Also where all observed lives are the same, and the very best interval would end just before each of them."""
    result = answer(case(lives=Empirical(lives_seconds=[1.5 * HOUR] * 20)))
    assert result.offers[0].spot.interval_seconds == result.interval.steps
    assert result.interval.steps < 1000


def test_blurred_lives_have_the_same_mean_and_other_lives_stay():
    lives = Empirical(lives_seconds=[100.0, 4000.0, 9000.0], censored_seconds=[500.0])
    blurred = smoothed(lives)
    assert np.mean(blurred.lives_seconds) == pytest.approx(np.mean(lives.lives_seconds))
    assert len(blurred.censored_seconds) * 3 == len(blurred.lives_seconds)
    assert smoothed(seen(5)) == seen(5)


def test_a_free_save_is_made_at_every_step():
    assert answer(case(save_seconds=quantity(0.0))).interval.steps == 1


def test_a_given_interval_is_used_and_advice_is_given_all_the_same(plain):
    result = answer(case(interval_seconds=1800.0))
    assert result.offers[0].spot.interval_seconds == 1800.0
    assert result.interval == plain.interval
    assert result.offers[0].spot.cost.mean > plain.offers[0].spot.cost.mean


def test_an_interval_longer_than_the_mean_life_is_said():
    result = answer(case(interval_seconds=7000.0, paths=50))
    assert any("longer than the mean life" in note for note in result.notes)


def test_the_histograms_hold_every_simulated_run(plain):
    for edges, counts in (plain.offers[0].spot.cost_histogram, plain.offers[0].spot.finish_histogram):
        assert sum(counts) == 400
        assert len(edges) == len(counts) + 1
        assert edges == sorted(edges)


def test_only_the_cheapest_of_many_offers_are_simulated_and_the_rest_is_counted():
    """Spot is cheapest at one end of the list, on-demand in its middle."""
    offers = [
        offer(instance=f"gpu-{index}", spot=1.0 + index / 100, on_demand=5.0 + abs(index - 30) / 100)
        for index in range(60)
    ]
    result = answer(case(offers=offers, paths=20))
    spot, on_demand = range(MOST_COMPARED), range(30 - MOST_COMPARED // 2, 30 + MOST_COMPARED // 2)
    kept = {f"gpu-{index}" for index in {*spot, *on_demand}}
    assert {one.offer.instance for one in result.offers} == kept
    assert any(f"{60 - len(kept)} offers with dearer hours" in note for note in result.notes)


def test_every_machine_of_a_run_is_paid():
    one, two = (answer(case(offers=[offer(nodes=nodes)])).offers[0] for nodes in (1, 2))
    for way, other in ((one.spot, two.spot), (one.on_demand, two.on_demand)):
        assert other.cost.mean == pytest.approx(2 * way.cost.mean)
        assert other.time == way.time


def test_offers_are_sorted_by_what_the_run_costs():
    offers = [offer(instance="dear", spot=2.0), offer(instance="cheap", spot=1.0)]
    assert [one.offer.instance for one in answer(case(offers=offers)).offers] == ["cheap", "dear"]


def test_currencies_are_never_mixed():
    with pytest.raises(CaseError, match="currencies"):
        answer(case(offers=[offer(), offer(instance="other", currency="EUR")]))


def test_a_policy_with_fallback_needs_a_deadline():
    with pytest.raises(CaseError, match="deadline"):
        answer(case(capacity=Capacity.GREEDY))


def test_an_offer_without_on_demand_price_allows_no_fallback():
    result = answer(case(capacity=Capacity.GREEDY, deadline_seconds=4 * HOUR, offers=[offer(on_demand=None)]))
    assert result.offers[0].spot is None


def test_on_demand_alone_simulates_nothing_else():
    result = answer(case(capacity=Capacity.ON_DEMAND))
    assert result.offers[0].spot is None
    assert result.choice == "on-demand"
    assert any("was not simulated" in note for note in result.notes)


def test_unusual_billing_stands_in_its_row():
    whole_hours = answer(case(offers=[offer(billing="per-hour")])).offers[0].spot
    assert whole_hours.money["idle"] > 0
    assert whole_hours.money.total == pytest.approx(whole_hours.cost.mean, abs=1e-6)


def test_where_a_billing_rule_is_counted_by_its_mean_is_said(plain):
    told = "counted life by life in the simulation, and by its mean in break-evens"
    assert any(told in note for note in answer(case(offers=[offer(billing="per-hour")])).notes)
    assert not any(told in note for note in plain.notes)


def test_a_free_first_hour_is_counted_on_only_when_asked_for():
    """Lives of an hour on average: 26 % of the running time would be free, and progress is none the better for it."""
    plain, asked = (
        answer(case(offers=[offer(billing="aws-linux")], first_hour=wish)) for wish in (False, True)
    )
    assert any("not counted on" in note for note in plain.notes)
    assert any("compare without it" in note for note in asked.notes)
    paid, free = (one.offers[0].spot.cost.mean for one in (plain, asked))
    assert 0.5 < free / paid < 0.95
    assert plain.offers[0].spot.time == asked.offers[0].spot.time


def test_a_trace_is_replayed_and_its_lives_are_the_evidence(tmp_path):
    ticks = ([1] * 12 + [0] * 3) * 40
    path = tmp_path / "zone.json"
    path.write_text(json.dumps({"metadata": {"gap_seconds": 300}, "data": ticks}))
    result = answer(case(lives=Replay(paths=[str(path)], kind="available")))
    assert result.evidence.interruptions >= 39
    assert result.offers[0].spot.time["capacity-wait"] > 0
    assert result.choice == "spot"


def test_zones_are_told_apart_and_together(tmp_path):
    """Two zones, each there half of the time and never at once: any of them is there always."""
    paths = []
    for name, ticks in (("one", [1] * 10 + [0] * 10), ("two", [0] * 10 + [1] * 10)):
        paths.append(tmp_path / f"{name}.json")
        paths[-1].write_text(json.dumps({"metadata": {"gap_seconds": 300}, "data": ticks * 30}))
    result = answer(
        case(lives=Replay(paths=list(map(str, paths)), kind="available"), deadline_seconds=3 * HOUR)
    )
    assert len(result.zones) == 2
    together = result.offers[0].spot
    for alone in result.zones.values():
        assert alone.finish_seconds.mean > together.finish_seconds.mean
        assert alone.meets_deadline <= together.meets_deadline
    assert together.time["capacity-wait"] == 0


def test_the_wait_of_a_replay_stands_in_its_trace_and_is_no_input_to_move(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"metadata": {"gap_seconds": 600}, "data": ([1] * 9 + [0] * 3) * 40}))
    moved = [flip.input for flip in answer(case(lives=Replay(paths=[str(path)], kind="available"))).tornado]
    assert "mean life (s)" in moved
    assert "wait for capacity (s)" not in moved


def test_long_notices_put_interruptions_further_apart_in_the_closed_form_too():
    """What a restore moves is all that is paid here, so that the money counts the interruptions."""
    moved = case(
        lives=seen(100, 1800.0), notice_seconds=600.0, save_bytes=quantity(1e9), wait_seconds=quantity(0.0)
    )
    run = interruptible(moved, offer(spot=0.0, transfer=1.0), threats(moved.risk)[0])
    prices = replace(run.prices, save_transfer=0.0)
    run = replace(run, prices=prices)
    paths = simulated(run, paths=4000, seed=1)
    assert expected_money(run) == pytest.approx(paths.cost.mean(), rel=0.1)


@pytest.mark.parametrize("usable", [0.0, 1.0], ids=["unusable", "usable"])
def test_the_notice_of_a_replay_lies_inside_of_its_lives_in_the_closed_form_too(tmp_path, usable):
    """Machines are there for an hour, and for the last fifteen minutes of it they are known to go."""
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"metadata": {"gap_seconds": 600}, "data": ([1] * 6 + [0] * 2) * 40}))
    asked = case(
        lives=Replay(paths=[str(path)], kind="held"),
        notice_seconds=900.0,
        usable_notice=usable,
        interval_seconds=600.0,
        steps=200_000,
    )
    run = interruptible(asked, offer(), threats(asked.risk)[0])
    paths = simulated(run, paths=50, seed=1)
    assert expected_money(run) == pytest.approx(paths.cost.mean(), rel=0.01)
    spent = paths.mean_time()
    there = spent.total - spent["capacity-wait"]
    assert gain_ratio(run.plan, run.threat.lives) == pytest.approx(there / 200_000, rel=0.01)


def test_the_curve_of_a_replay_has_no_notice_on_top_of_its_lives(tmp_path):
    """A notice that takes time from lives costs more than the same one after them; so does its curve."""
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"metadata": {"gap_seconds": 600}, "data": ([1] * 6 + [0] * 2) * 40}))
    recorded = answer(case(lives=Replay(paths=[str(path)], kind="held"), notice_seconds=900.0, paths=20))
    on_top = answer(case(lives=Empirical(lives_seconds=[3600.0] * 40), notice_seconds=900.0, paths=20))
    assert recorded.interval.curve[20][1] > 1.05 * on_top.interval.curve[20][1]


def test_hours_that_are_begun_and_hours_that_are_free_are_in_the_closed_form(plain):
    """Lives of an hour and a half are billed as two; taken away within the first hour, four of ten are not billed."""
    for rule, first_hour in (("per-hour", False), ("aws-linux", True)):
        asked = case(
            lives=seen(100, 1.5 * HOUR), first_hour=first_hour, steps=400_000, interval_seconds=600.0
        )
        run = interruptible(asked, offer(billing=rule), threats(asked.risk)[0])
        paths = simulated(run, paths=300, seed=1)
        assert expected_money(run) == pytest.approx(paths.cost.mean(), rel=0.01)
        assert abs(paths.billed_seconds / paths.wall - 1).mean() > 0.1


def test_what_would_turn_the_verdict_counts_begun_hours():
    """Twice as long a life wastes less of its last hour: the ratio at the far end is that of a simulation there."""
    asked = case(offers=[offer(billing="per-hour")], interval_seconds=600.0, steps=36_000, paths=2000)
    flip = next(flip for flip in answer(replace_life(asked, HOUR)).tornado if flip.input == "mean life (s)")
    there = answer(replace_life(asked, flip.high)).offers[0]
    assert flip.ratio_high == pytest.approx(there.spot.cost.mean / there.on_demand.cost.mean, rel=0.03)


def replace_life(asked, mean):
    return msgspec.structs.replace(
        asked, risk=msgspec.structs.replace(asked.risk, lives=Exponential(mean_seconds=mean))
    )


def test_a_trace_without_an_interruption_teaches_nothing(tmp_path):
    path = tmp_path / "zone.json"
    path.write_text(json.dumps({"metadata": {"gap_seconds": 300}, "data": [1] * 50}))
    with pytest.raises(CaseError, match="no interruption"):
        answer(case(lives=Replay(paths=[str(path)], kind="available")))


def test_the_published_band_is_a_label_that_nothing_follows_from(plain):
    result = answer(case(label="5-10 %"))
    assert result.offers == plain.offers
    assert any("5-10 %" in note for note in result.notes)


def test_a_mean_life_far_beyond_the_run_means_hardly_any_interruption():
    way = answer(case(lives=Exponential(mean_seconds=1e9))).offers[0].spot
    assert way.interruptions == 0
    assert math.isclose(way.time["unique"], 7200.0)


def test_observed_lives_and_their_exponential_agree_on_the_interval():
    assert answer(case(lives=seen(30))).interval.steps == answer(case(lives=seen(300))).interval.steps
