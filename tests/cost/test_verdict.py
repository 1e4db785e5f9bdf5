"""What the money says, when it says nothing, and what would turn it."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from cost_samples import HOUR, case, offer, quantity, seen
from samestep.cost.answering import answer
from samestep.cost.inputs import Capacity, Empirical, Exponential, Weibull
from samestep.cost.result import Choice


@pytest.fixture(scope="module")
def spot_pays():
    return answer(case())


def flips(result):
    return {flip.input: flip for flip in result.tornado}


def test_half_price_with_small_overheads_pays(spot_pays):
    assert spot_pays.choice is Choice.SPOT
    assert "% less" in spot_pays.reason


def test_spot_dearer_than_on_demand_never_pays_however_little_was_observed():
    result = answer(case(offers=[offer(spot=3.5)], lives=seen(0)))
    assert result.choice is Choice.ON_DEMAND
    assert any("dearer" in note for note in result.notes)


@pytest.mark.parametrize("count", [0, 1, 9])
def test_few_interruptions_leave_it_undecided_and_say_how_many_are_needed(count):
    result = answer(case(lives=seen(count)))
    assert result.choice is Choice.UNDECIDED
    assert "10 are needed" in result.reason
    assert result.evidence.interruptions == count
    assert result.evidence.low_seconds < HOUR
    assert (result.evidence.high_seconds is None) == (count == 0)


def test_ten_interruptions_suffice_where_the_verdict_turns_far_away():
    assert answer(case(lives=seen(10))).choice is Choice.SPOT


def test_more_are_needed_where_the_verdict_turns_nearby():
    """The price ratio is set so that spot hardly pays: the break-even life then lies near the observed mean."""
    near = answer(case()).offers[0].break_even_ratio * 0.99
    result = answer(case(offers=[offer(spot=3 * near)], lives=seen(20)))
    assert result.choice is Choice.UNDECIDED
    assert result.evidence.needed > 20
    assert f"{result.evidence.needed} are needed" in result.reason


def test_an_assumed_mean_life_is_said_to_be_assumed():
    result = answer(case(lives=Exponential(mean_seconds=HOUR)))
    assert result.choice is Choice.SPOT
    assert result.evidence.interruptions is None
    assert "assumed, not observed" in result.reason


def test_at_the_break_even_price_both_cost_the_same(spot_pays):
    ratio = spot_pays.offers[0].break_even_ratio
    found = answer(case(offers=[offer(spot=3.0 * ratio)])).offers[0]
    assert found.spot.cost.mean == pytest.approx(found.on_demand.cost.mean, rel=1e-9)


def test_at_the_break_even_life_both_cost_the_same_within_what_simulation_can_tell():
    """The interval is held, as a break-even holds everything else."""
    first = answer(case(offers=[offer(spot=2.0)], paths=2000))
    life, interval = first.offers[0].break_even_life_seconds, first.offers[0].spot.interval_seconds
    there = case(offers=[offer(spot=2.0)], lives=seen(100, life), interval_seconds=interval, paths=2000)
    found = answer(there).offers[0]
    assert found.spot.cost.mean == pytest.approx(found.on_demand.cost.mean, rel=0.06)


def test_beyond_the_value_it_turns_at_the_verdict_is_the_other(spot_pays):
    flip = flips(spot_pays)["start to first step (s)"]
    interval = spot_pays.offers[0].spot.interval_seconds
    for factor, pays in ((0.8, True), (1.25, False)):
        there = case(restart_seconds=quantity(flip.flips_at * factor), interval_seconds=interval)
        found = answer(there).offers[0]
        assert (found.spot.cost.mean < found.on_demand.cost.mean) is pays


def test_the_tornado_moves_every_input_and_begins_with_the_one_that_counts_most(spot_pays):
    assert set(flips(spot_pays)) == {
        "mean life (s)",
        "start to first step (s)",
        "wait for capacity (s)",
        "usable notice",
        "price ratio",
        "save (s)",
    }
    reach = [abs(flip.ratio_high - flip.ratio_low) for flip in spot_pays.tornado]
    assert reach == sorted(reach, reverse=True)


def test_waiting_moves_the_money_by_storage_alone(spot_pays):
    flip = flips(spot_pays)["wait for capacity (s)"]
    assert flip.ratio_low == flip.ratio_high
    assert flip.flips_at is None


def test_a_measured_spread_is_the_range_that_is_tried():
    spread = quantity(20.0, low=15.0, high=45.0, count=9)
    flip = flips(answer(case(save_seconds=spread)))["save (s)"]
    assert (flip.low, flip.high) == (15.0, 45.0)


def test_machines_lost_together_or_not_may_decide_it():
    """Eight machines: each lost on its own, the job lives an eighth of the time; all at once, as long as one."""
    base = answer(case(lives=seen(100, 2 * HOUR), nodes=8, correlated=True))
    assert any("lost together" in note for note in base.notes)
    lone = answer(case(lives=seen(100, 2 * HOUR / 8)))
    assert base.evidence == lone.evidence
    assert base.offers[0].spot.cost.mean == lone.offers[0].spot.cost.mean
    between = math.sqrt(
        base.offers[0].break_even_ratio * answer(case(lives=seen(100, 2 * HOUR))).offers[0].break_even_ratio
    )
    torn = answer(
        case(lives=seen(1000, 2 * HOUR), nodes=8, correlated=True, offers=[offer(spot=3 * between)])
    )
    assert torn.choice is Choice.UNDECIDED
    assert "lost together" in torn.reason


def test_the_cheapest_of_all_offers_are_compared_across_offers():
    offers = [
        offer(),
        offer(instance="plain", on_demand=2.0, spot=None),
        offer(instance="odd", on_demand=None),
    ]
    result = answer(case(offers=offers))
    assert "spot at north gpu costs" in result.reason
    assert "on-demand at north plain" in result.reason
    odd = next(one for one in result.offers if one.offer.instance == "odd")
    assert (odd.choice, odd.against, odd.ratio) == (Choice.SPOT, "north plain", 0.5)
    assert odd.break_even_ratio > 0.5
    assert odd.break_even_life_seconds is not None
    assert any("north odd has no on-demand price: it is compared with" in note for note in result.notes)
    assert [one.against for one in result.offers if one is not odd] == ["", ""]


def test_one_way_alone_is_not_compared():
    only_on_demand = answer(case(offers=[offer(spot=None)]))
    assert only_on_demand.choice is Choice.ON_DEMAND
    only_spot = answer(case(offers=[offer(on_demand=None)]))
    assert only_spot.choice is Choice.UNDECIDED
    assert "no on-demand price" in only_spot.reason
    assert answer(case(offers=[])).choice is Choice.UNDECIDED


@pytest.mark.parametrize(
    ("spot", "on_demand", "choice"),
    [
        (0.0, 1.0, Choice.SPOT),
        (1.0, 0.0, Choice.ON_DEMAND),
        (0.0, 0.0, Choice.UNDECIDED),
        (1e300, 1.0, Choice.ON_DEMAND),
    ],
)
def test_strange_prices_are_compared_all_the_same(spot, on_demand, choice):
    assert answer(case(offers=[offer(spot=spot, on_demand=on_demand)], paths=50)).choice is choice


def test_quality_deadline_and_budget_are_conditions_beside_the_verdict():
    result = answer(case(deadline_seconds=2.2 * HOUR, budget=3.0, quality="loss below 2"))
    assert result.choice is Choice.SPOT
    quality, deadline, budget = result.conditions
    assert "loss below 2" in quality
    assert "says nothing" in quality
    assert "in " in deadline
    assert "on-demand meets it" in deadline
    assert "on-demand never keeps it" in budget
    way = result.offers[0].spot
    assert 0 < way.meets_deadline < 1
    assert 0 < way.within_budget <= 1


@pytest.mark.parametrize("capacity", [Capacity.GREEDY, Capacity.UNIFORM_PROGRESS], ids=str)
def test_policies_with_fallback_meet_their_deadline_and_pay_for_it(capacity):
    tight = case(capacity=capacity, deadline_seconds=3 * HOUR, paths=200)
    result = answer(replace(tight, paths=200))
    assert result.offers[0].spot.meets_deadline == 1.0
    assert result.offers[0].spot.capacity == str(capacity)
    assert result.offers[0].break_even_ratio is not None


def test_hazard_that_falls_with_age_makes_the_first_save_early():
    falling = answer(case(lives=Weibull(shape=0.5, scale_seconds=HOUR)))
    steady = answer(case(lives=Weibull(shape=1.0, scale_seconds=HOUR)))
    assert falling.interval.first_seconds < 0.9 * falling.interval.seconds
    assert steady.interval.first_seconds == steady.interval.steps


def test_a_run_that_hardly_ever_gets_to_a_save_costs_more_by_what_is_certain_of_it():
    """Such runs are all alike: some are simulated, and not as many as were asked for."""
    result = answer(case(lives=seen(100, 5.0), interval_seconds=600.0, paths=5000))
    way = result.offers[0].spot
    assert result.choice is Choice.ON_DEMAND
    assert way.unfinished == way.paths == 100
    assert (
        "100 of 100 simulated runs on interruptible capacity were not finished after 10,000" in result.reason
    )
    assert "at least $" in result.reason
    assert way.cost.mean > result.offers[0].on_demand.cost.mean
    assert any("less than they come to in the end" in note for note in result.notes)


@pytest.fixture(scope="module")
def given_up():
    """A run of 40 days whose machines live five minutes: given up long before it costs what on-demand does."""
    return answer(
        case(
            lives=Exponential(mean_seconds=300.0),
            steps=3_600_000,
            restart_seconds=quantity(240.0),
            deadline_seconds=1000 * HOUR,
            budget=2500.0,
            paths=30,
        )
    )


def test_a_verdict_never_rests_on_what_runs_came_to_before_they_were_given_up(given_up):
    """What they had cost until then is a third of on-demand; in the end it would be more."""
    one = given_up.offers[0]
    assert one.spot.unfinished == 30
    assert one.spot.cost.mean < 0.5 * one.on_demand.cost.mean
    assert given_up.choice is one.choice is Choice.UNDECIDED
    assert "30 of 30" in given_up.reason
    assert "in closed form" in given_up.reason


def test_progress_of_a_run_that_was_given_up_is_what_it_had_come_to(given_up):
    way = given_up.offers[0].spot
    assert 0 < way.steps_accepted < 0.5 * 3_600_000
    assert way.steps_accepted == pytest.approx(way.time["unique"], rel=1e-9)
    assert way.per_accepted == pytest.approx(way.money.total / way.steps_accepted)
    assert way.per_accepted > way.per_executed


def test_what_turns_the_verdict_of_a_run_that_was_given_up_is_that_of_the_closed_form(given_up):
    one, price = given_up.offers[0], flips(given_up)["price ratio"]
    assert one.break_even_ratio == price.flips_at < one.ratio
    life = flips(given_up)["mean life (s)"]
    assert one.break_even_life_seconds == pytest.approx(life.flips_at, rel=0.01)
    assert life.flips_at > 300.0


def test_conditions_of_a_run_that_was_given_up_are_not_known(given_up):
    _, deadline, budget = given_up.conditions
    assert "is known to meet it in 0 % of the simulated runs; 30 of 30 were not finished" in deadline
    assert "is known to keep it in 0 %" in budget


def test_a_run_of_which_no_life_reaches_a_save_never_ends():
    lives = Empirical(lives_seconds=[300.0] * 20)
    result = answer(case(lives=lives, interval_seconds=600.0, paths=5))
    assert result.choice is Choice.ON_DEMAND
    assert "never ends" in result.reason


def test_an_offer_without_interruptible_capacity_does_not_hide_runs_that_were_given_up():
    offers = [offer(instance="plain", spot=None), offer()]
    result = answer(case(offers=offers, lives=seen(100, 5.0), interval_seconds=600.0, paths=5))
    assert "were not finished" in result.reason
