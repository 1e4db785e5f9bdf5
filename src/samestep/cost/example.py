"""The ten-hour example: half the price is not half the cost. Everything in it can be reckoned by hand."""

from __future__ import annotations

import datetime as dt

from .inputs import Case, Empirical, Measured, Offer, Policy, Quantity, Risk, Work

_MINUTE = 60.0

NOTE = (
    "ten normal hours: 10 min to start, 9 h 45 min of steps, 5 min for the save at the end. On interruptible capacity "
    "five machines are taken away after 2 h 24 min each, with 9 min of steps not yet saved, and the sixth finishes in "
    "2 h: 14 billed hours. At half the price they cost what 7 normal hours cost: 30 % less, not 50 %. Storage and "
    "transfer come on top, on both ways"
)
"""How the numbers come about."""


def ten_hours() -> Case:
    """Return a run of ten normal hours that takes fourteen billed hours at half the price.

    All machines live equally long, so that every simulated run is the same. One life is 10 min of start, five times
    20 min of steps and 5 min of saving, and 9 min of steps that are lost: 144 min. Five of them leave 85 min of steps.
    """
    return Case(
        work=Work(steps=2340),
        measured=Measured(
            step_seconds=_by_hand(15.0),
            save_seconds=_by_hand(5 * _MINUTE),
            restart_seconds=_by_hand(10 * _MINUTE),
            save_bytes=_by_hand(1e9),
            kept_bytes=_by_hand(2e9),
        ),
        risk=Risk(lives=Empirical(lives_seconds=[144 * _MINUTE] * 12), wait_seconds=_by_hand(0.0)),
        policy=Policy(interval_seconds=20 * _MINUTE, quality="the same final loss"),
        offers=[
            Offer(
                provider="example",
                instance="one machine",
                on_demand=1.00,
                spot=0.50,
                priced=dt.date(2026, 11, 30),
                storage_month=0.023,
                transfer=0.001,
                source="the example",
            )
        ],
        paths=100,
    )


def _by_hand(value: float) -> Quantity:
    return Quantity(value=value, source="the example")
