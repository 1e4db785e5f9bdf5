"""Numbers as people read them, with no more digits than they deserve."""

from __future__ import annotations

import math

import pytest

from samestep.cost.units import count_of, duration, exact_money, money, ratio, share


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.00005, "< 0.1 ms"),
        (0.00865, "8.65 ms"),
        (45, "45 s"),
        (59.96, "60 s"),
        (60, "1 min"),
        (9.14 * 60, "9.1 min"),
        (57 * 60, "57 min"),
        (3599, "1 h"),
        (3600, "1 h"),
        (117 * 60, "1 h 57 min"),
        (14 * 3600, "14 h"),
        (36 * 3600, "36 h"),
        (60 * 3600, "2 d 12 h"),
        (math.inf, "never ends"),
        (None, "\u2013"),
    ],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("amount", "currency", "text"),
    [
        (7, "USD", "$7.00"),
        (1234.5, "EUR", "€1,234.50"),
        (123456.7, "USD", "$123,457"),
        (0.00042, "USD", "$0.000420"),
        (-2, "USD", "\u2212$2.00"),
        (0.25, "CHF", "0.25 CHF"),
        (0, "USD", "$0.00"),
        (None, "USD", "\u2013"),
    ],
)
def test_money(amount, currency, text):
    assert money(amount, currency) == text


def test_rows_of_a_ledger_have_the_decimals_of_their_total():
    assert exact_money(0.0009, "USD", 7.0359) == "$0.0009"
    assert exact_money(0.0009, "USD", 0.5) == "$0.000900"
    assert exact_money(12.3456, "USD", 5000.0) == "$12.35"
    assert exact_money(1.5, "CHF", 7.0) == "1.5000 CHF"


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (0, "0 %"),
        (1, "100 %"),
        (0.9999, "> 99.9 %"),
        (0.996, "99.6 %"),
        (0.3, "30 %"),
        (0.0123, "1.2 %"),
        (1e-5, "< 0.1 %"),
    ],
)
def test_shares_never_claim_certainty(part, text):
    assert share(part) == text


def test_ratios_and_counts():
    assert (ratio(0.666), ratio(1234.0), ratio(None)) == ("0.67", "1,234", "\u2013")
    assert (count_of(0, "step"), count_of(1, "step"), count_of(1200, "step")) == (
        "no step",
        "1 step",
        "1,200 steps",
    )
