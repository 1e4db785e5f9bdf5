"""Two hundred settings over which the closed form is held against simulated runs."""

from __future__ import annotations

import itertools

import numpy as np

from cost_runs import HOUR, spread_over
from samestep.cost.inputs import Exponential
from samestep.cost.risk import sampler
from samestep.cost.simulation import Plan, Prices, simulate
from samestep.ledger.intervals import exact_interval, extended

GRID = list(
    itertools.product(
        (0.5 * HOUR, HOUR, 2 * HOUR, 6 * HOUR, 24 * HOUR),
        (15.0, 180.0),
        (60.0, 600.0),
        (0.0, 0.25, 0.5, 0.75, 0.9),
        ((0.0, 0.0), (240.0, 0.15)),
    )
)
"""Mean life, save, restart, share of usable notices; time to persist and how much slower training is meanwhile."""


def setting(number):
    """Return a setting of the grid: 24 hours of work at the best interval that divides them."""
    life, save, restart, usable, (persist, share) = GRID[number]
    best = exact_interval(save, life, usable_notice=usable, persist_seconds=persist, persist_share=share)
    return life, {
        "work_seconds": 24.0 * HOUR,
        "interval_seconds": 24 * HOUR / max(1, int(24 * HOUR / best)),
        "save_seconds": save,
        "restart_seconds": restart,
        "persist_seconds": persist,
        "persist_share": share,
        "usable_notice": usable,
        "notice_seconds": 30.0,
    }


def deviations(number, *, paths, seed):
    """Return by how many standard errors simulated runs are off: billed time, interruptions, wall time."""
    life, numbers = setting(number)
    runs = simulate(
        Plan(**numbers),
        Prices(hour=1.0),
        sampler(Exponential(mean_seconds=life)),
        paths=paths,
        rng=np.random.default_rng([seed, number]),
        wait_seconds=900.0,
    )
    said = extended(life_seconds=life, wait_seconds=900.0, **numbers)
    pairs = (
        (runs.billed_seconds, said.billed_seconds),
        (runs.interruptions, said.interruptions),
        (runs.wall, said.wall_seconds),
    )
    return [spread_over(amounts, value) for amounts, value in pairs]
