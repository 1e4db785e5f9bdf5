"""Ten normal hours, half the price, fourteen billed hours: seven normal hours of cost. To the last second and cent."""

from __future__ import annotations

import math

import pytest

from samestep.cost.answering import answer
from samestep.cost.example import ten_hours
from samestep.cost.result import Choice
from samestep.ledger import Row
from samestep.ledger.intervals import daly_interval

HOUR, MINUTE = 3600.0, 60.0
ON_TOP = (Row.STORAGE, Row.TRANSFER, Row.REQUESTS)


@pytest.fixture(scope="module")
def result():
    return answer(ten_hours())


@pytest.fixture(scope="module")
def ways(result):
    return result.offers[0].spot, result.offers[0].on_demand


def machines(ledger):
    return math.fsum(amount for row, amount in ledger.rows.items() if row not in ON_TOP)


def test_ten_normal_hours_become_fourteen_and_cost_seven(ways):
    spot, on_demand = ways
    assert on_demand.time.total == 10 * HOUR
    assert spot.time.total == 14 * HOUR
    assert machines(on_demand.money) == pytest.approx(10.00, abs=1e-12)
    assert machines(spot.money) == pytest.approx(7.00, abs=1e-12)
    assert 1 - machines(spot.money) / machines(on_demand.money) == pytest.approx(0.30, abs=1e-12)


def test_every_row_can_be_reckoned_by_hand(ways):
    spot, on_demand = ways
    assert spot.time.rows == {
        Row.UNIQUE: 585 * MINUTE,
        Row.REPEATED: 5 * 9 * MINUTE,
        Row.SAVING: (5 * 5 + 5) * 5 * MINUTE,
        Row.RESTART: 6 * 10 * MINUTE,
    }
    assert on_demand.time.rows == {
        Row.UNIQUE: 585 * MINUTE,
        Row.SAVING: 5 * MINUTE,
        Row.RESTART: 10 * MINUTE,
    }
    assert (spot.steps_accepted, spot.steps_executed) == (2340, pytest.approx(2340 + 5 * 36))
    assert spot.interruptions == 5


def test_storage_and_transfer_come_on_top(ways):
    spot, on_demand = ways
    assert spot.money[Row.TRANSFER] == pytest.approx((30 + 5) * 0.001)
    assert on_demand.money[Row.TRANSFER] == pytest.approx(0.001)
    assert spot.money[Row.STORAGE] == pytest.approx(2 * 0.023 * 14 / 730)
    assert spot.money.total == pytest.approx(7.00 + 0.035 + 2 * 0.023 * 14 / 730)


def test_every_simulated_run_is_the_same(ways):
    for way in ways:
        assert way.cost.p05 == way.cost.p95 == pytest.approx(way.money.total)
        assert way.finish_seconds.error == 0


def test_the_verdict_is_thirty_percent_and_not_fifty(result):
    assert result.choice is Choice.SPOT
    assert result.reason == "spot costs $7.04 for the whole run, on-demand $10.00: 30 % less"


def test_a_step_that_counts_costs_more_than_an_executed_one(ways):
    spot, _ = ways
    assert spot.per_accepted == pytest.approx(spot.money.total / 2340)
    assert spot.per_executed == pytest.approx(spot.money.total / 2520)


def test_the_page_beside_other_tools_says_what_their_formulas_say():
    """The numbers of the table in docs/explanation/cost.md: a spreadsheet, SkyPilot's optimizer, goodput."""
    case = ten_hours()
    hours, price, life = 10.0, case.offers[0].spot, 144.0
    save, interval, restart, work = 5.0, 20.0, 10.0, 585.0
    assert price * hours == 5.00
    first_order = work * (1 + save / interval + (interval / 2 + restart) / life) / 60
    assert price * first_order == pytest.approx(6.77, abs=0.005)
    total = 14 * 60
    assert [round(100 * part / total, 1) for part in (585, 6 * 10, 5 * 9, 30 * 5, 585 + 30 * 5)] == [
        69.6,
        7.1,
        5.4,
        17.9,
        87.5,
    ]


def test_the_interval_of_the_example_is_not_the_one_to_choose(result):
    """Five minutes a save and 144 minutes a life: half an hour would be saner than the twenty minutes it takes."""
    assert daly_interval(5 * MINUTE, 144 * MINUTE) == pytest.approx(34.7 * MINUTE, rel=0.01)
    assert result.case.policy.interval_seconds == 20 * MINUTE
