"""A real training, killed along seeded lives: what it came to against what was predicted of it.

Two predictions are compared with the run. One is made from the very lives that were drawn: what is left is how exactly
steps, saves and starts were measured. The other knows only the mean life, as before a run: its interval is what a
hundred thousand simulated runs span between their 0.5th and 99.5th percentile.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from cost_trainings import seconds_of_nothing, train_through
from samestep.cost.records.actual import actual_of
from samestep.cost.records.measuring import observe_run
from samestep.cost.simulation import Plan, Prices, simulate
from samestep.ledger import Row

if TYPE_CHECKING:
    from pathlib import Path

    from cost_trainings import Ended
    from samestep.cost.inputs import Measured
    from samestep.cost.records.actual import Actual
    from samestep.cost.simulation import Paths

STEP_SECONDS, SAVE_EVERY = 0.04, 10


@dataclasses.dataclass(frozen=True)
class Compared:
    """A run that was killed along seeded lives, and what belongs to it.

    Attributes:
        actual: its ledgers, from its journals.
        measured: what a prediction is made from.
        ended: its processes, as seen by whoever started and killed them.
        mean_life: that the lives were drawn with.
        steps: of the run.
        lag: seconds that a process takes to begin and to be seen gone, on this machine as busy as it is.
    """

    actual: Actual
    measured: Measured
    ended: list[Ended]
    mean_life: float
    steps: int
    lag: float

    @property
    def step(self) -> float:
        return self.measured.step_seconds.value

    @property
    def killed(self) -> int:
        return len(self.ended) - 1

    @property
    def billed_seconds(self) -> float:
        return sum(one.seconds for one in self.ended)

    def plan(self) -> Plan:
        return Plan(
            work_seconds=self.steps * self.step,
            interval_seconds=SAVE_EVERY * self.step,
            save_seconds=self.measured.save_seconds.value,
            persist_seconds=min(self.measured.persist_seconds.value, SAVE_EVERY * self.step),
            restart_seconds=self.measured.restart_seconds.value,
            stall_share=self.measured.stall_seconds.value / self.step,
        )

    def of_these_lives(self) -> Paths:
        """Predict the run from the lives that it had, each with as much time to train as its own start left it."""
        restart = self.measured.restart_seconds.value
        trained = [sum(life.rows.values()) - life.rows[Row.RESTART] for life in self.actual.attempts[:-1]]
        lives = itertools.chain((restart + seconds for seconds in trained), itertools.repeat(np.inf))

        def draw(_: np.random.Generator, size: int) -> np.ndarray:
            return np.array([next(lives) for _ in range(size)])

        return simulate(self.plan(), Prices(hour=1.0), draw, paths=1, rng=np.random.default_rng(0))

    def of_any_lives(self, paths: int) -> Paths:
        """Predict runs from the mean life alone."""

        def draw(rng: np.random.Generator, size: int) -> np.ndarray:
            return rng.exponential(self.mean_life, size)

        return simulate(self.plan(), Prices(hour=1.0), draw, paths=paths, rng=np.random.default_rng(1))


def lived_through(folder: Path, *, steps: int, mean_life: float, seed: int) -> Compared:
    drawn = np.random.default_rng(seed).exponential(mean_life, 2_000).tolist()
    root = folder / "run"
    ended = train_through(root, drawn, steps=steps, save=SAVE_EVERY, step_seconds=STEP_SECONDS)
    lag = seconds_of_nothing()
    return Compared(actual_of(root), observe_run(root).measured(), ended, mean_life, steps, lag)


def agrees(run: Compared, *, paths: int) -> None:
    actual = run.actual
    assert actual.time.total == pytest.approx(actual.wall_seconds, abs=1e-6)
    assert actual.steps_accepted == run.steps
    assert actual.steps_executed == run.steps + actual.steps_lost
    agrees_with_the_clock_outside(run)
    agrees_with_these_lives(run)
    predicted = run.of_any_lives(paths)
    for name, of_paths, found in (
        ("billed", predicted.billed_seconds, run.billed_seconds),
        ("repeated steps", predicted.time[Row.REPEATED] / run.step, actual.steps_lost),
        ("saves", predicted.saves, actual.saves_begun),
        ("interruptions", predicted.interruptions, run.killed),
    ):
        low, high = np.quantile(of_paths, [0.005, 0.995])
        assert low <= found <= high, f"{name}: {found:.4g} against {low:.4g} … {high:.4g}"


def agrees_with_the_clock_outside(run: Compared) -> None:
    """Journals know all but what was killed before it had one, and less than a step at each end."""
    seen = sum(life.ended_unix > life.began_unix for life in run.actual.attempts)
    unseen = sorted(one.seconds for one in run.ended)[: len(run.ended) - seen]
    beyond = run.billed_seconds - sum(unseen) - run.actual.billed_seconds
    assert -0.1 <= beyond <= len(run.actual.attempts) * (run.step + 0.2 + 5 * run.lag)


def agrees_with_these_lives(run: Compared) -> None:
    """Where between two saves a kill falls is sensitive to a step; that is taken as if it were not known at all."""
    same, actual = run.of_these_lives(), run.actual
    assert same.finished.all()
    steps_off = 3 * SAVE_EVERY * math.sqrt(max(1, run.killed) / 6)
    repeated = float(same.time[Row.REPEATED][0]) / run.step
    assert abs(repeated - actual.steps_lost) <= steps_off
    trained = actual.billed_seconds - actual.time[Row.RESTART]
    predicted = float(same.billed_seconds[0] - same.time[Row.RESTART][0])
    assert abs(predicted - trained) <= steps_off * run.step + 0.05 * trained
    assert abs(float(same.saves[0]) - actual.saves_begun) <= steps_off / SAVE_EVERY + 1


def test_a_run_that_was_really_killed_came_to_what_was_predicted(tmp_path):
    agrees(lived_through(tmp_path, steps=250, mean_life=3.0, seed=7), paths=20_000)


@pytest.mark.full
@pytest.mark.parametrize("seed", [11, 12])
def test_longer_runs_that_were_really_killed_came_to_what_was_predicted(tmp_path, seed):
    agrees(lived_through(tmp_path, steps=2_500, mean_life=6.0, seed=seed), paths=100_000)
