"""How fast runs on interruptible capacity are simulated, with exact ledgers for each path.

    python benchmarks/cost_simulation.py [--paths 100000] [--plain-paths 400] [--rounds 5]

A run of 24 hours, saves every 20 minutes (30 s blocking, two more minutes until they are durable), restarts of 10
minutes, half of the notices of use, mean life two hours, waits of 10 minutes on average: 15 lives a path. The peer is
the same model as anybody would write it, one path at a time and phase by phase (``tests/plain_runs.py``; the test
suite shows that both come to the same, row by row). Both take turns; medians over rounds, processor time of one thread.
The goal is 10^5 paths in about a second.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from samestep.cost.inputs import Exponential
from samestep.cost.risk import sampler
from samestep.cost.simulation import Plan, Prices, simulate, spans_drawn, with_deadline

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from plain_runs import Machine, plain_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HOUR = 3600.0
LIFE, WAIT = 2 * HOUR, 600.0
PLAN = Plan(
    work_seconds=24 * HOUR,
    interval_seconds=1200.0,
    save_seconds=30.0,
    persist_seconds=120.0,
    persist_share=0.1,
    restart_seconds=600.0,
    usable_notice=0.5,
)
PRICES = Prices(hour=0.3, on_demand_hour=1.0)
DRAW = sampler(Exponential(mean_seconds=LIFE))


def main() -> None:
    """Measure, and print a markdown table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--paths", type=int, default=100_000)
    parser.add_argument("--plain-paths", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    ways: dict[str, tuple[Callable[[int, int], None], int]] = {
        "all paths at once": (at_once, asked.paths),
        "one path at a time": (plainly, asked.plain_paths),
        "greedy, deadline 36 h": (greedy, asked.paths // 10),
        "uniform progress, deadline 36 h": (uniform, asked.paths // 10),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(asked.rounds):
        for name, (way, paths) in ways.items():
            began = time.process_time()
            way(paths, turn)
            seconds[name].append(time.process_time() - began)
    print(f"load average {os.getloadavg()[0]:.1f}, {asked.rounds} rounds\n")
    print("| way | paths | seconds | microseconds a path |\n| --- | --- | --- | --- |")
    each = {}
    for name, (_, paths) in ways.items():
        median = statistics.median(seconds[name])
        each[name] = median / paths
        print(f"| {name} | {paths:,} | {median:.2f} | {median / paths * 1e6:.1f} |")
    print(f"\nratio for each path: {each['one path at a time'] / each['all paths at once']:.0f}")


def at_once(paths: int, seed: int) -> None:
    simulate(PLAN, PRICES, DRAW, paths=paths, rng=np.random.default_rng(seed), wait_seconds=WAIT)


def plainly(paths: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(paths):
        plain_run(PLAN, PRICES, machines(rng))


def machines(rng: np.random.Generator) -> Iterator[Machine]:
    wait = 0.0
    while True:
        yield Machine(wait, rng.exponential(LIFE), 0.0, rng.random() < PLAN.usable_notice)
        wait = rng.exponential(WAIT)


def greedy(paths: int, seed: int) -> None:
    race(paths, seed, fair=False)


def uniform(paths: int, seed: int) -> None:
    race(paths, seed, fair=True)


def race(paths: int, seed: int, *, fair: bool) -> None:
    rng = np.random.default_rng(seed)
    spans = spans_drawn(DRAW, wait_seconds=WAIT, paths=paths, horizon_seconds=36 * HOUR, rng=rng)
    with_deadline(PLAN, PRICES, spans, deadline_seconds=36 * HOUR, uniform=fair, rng=rng)


if __name__ == "__main__":
    main()
