"""Cases for the tests of predictions: a run of two hours that is interrupted about every hour, few simulated runs."""

from __future__ import annotations

import datetime as dt
from typing import Any

from msgspec.structs import replace

from samestep.cost.inputs import Case, Exponential, Measured, Offer, Policy, Quantity, Risk, Work

HOUR, MINUTE = 3600.0, 60.0


def quantity(value: float, **spread: Any) -> Quantity:
    return Quantity(value=value, **spread)


def offer(**changes: Any) -> Offer:
    made = Offer(provider="north", instance="gpu", on_demand=3.0, spot=1.0, priced=dt.date(2026, 11, 28))
    return replace(made, **changes)


def seen(count: int, mean_seconds: float = HOUR) -> Exponential:
    """Return lives whose mean was observed: ``count`` interruptions."""
    return Exponential(
        mean_seconds=mean_seconds, interruptions=count, observed_seconds=max(count, 1) * mean_seconds
    )


def case(*, offers: list[Offer] | None = None, lives: Any = None, **changes: Any) -> Case:
    """Return a case; ``changes`` go to the section that has the field."""
    measured = Measured(
        step_seconds=quantity(1.0), save_seconds=quantity(20.0), restart_seconds=quantity(120.0)
    )
    made = Case(
        work=Work(steps=7200),
        measured=measured,
        risk=Risk(lives=lives or seen(100), wait_seconds=quantity(600.0)),
        policy=Policy(),
        offers=[offer()] if offers is None else offers,
        seed=7,
        paths=400,
    )
    for section in ("work", "measured", "risk", "policy"):
        part = getattr(made, section)
        own = {name: value for name, value in changes.items() if name in part.__struct_fields__}
        if own:
            made = replace(made, **{section: replace(part, **own)})
    rest = {name: value for name, value in changes.items() if name in ("seed", "paths")}
    return replace(made, **rest)
