"""What real file systems leave after a power cut is among the disk states that are generated from a recording."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from crash.disks import IMAGE_BYTES, why_not
from crash.ground_truth import Case, observe, table
from crash.writers import QUICK, WRITERS
from samestep.crash.states import enumerate_states
from samestep.crash.windows import save_windows

MODELS = {"ext4": ("kill", "power-ext4"), "xfs": ("kill", "power-ext4", "power-xfs")}
TABLE = "GROUND_TRUTH_TABLE"
"""Environment variable: file that the table of all that was seen in full is written to."""


@dataclass(frozen=True)
class Plan:
    """Writers to try, seconds after their end at which power is cut, and seconds they wait between saves."""

    writers: tuple[str, ...]
    moments: tuple[int, ...]
    pause: float

    @property
    def cases(self):
        return [Case(writer, kind) for writer in self.writers for kind in IMAGE_BYTES]


SHORT = Plan(QUICK, (0, 7, 25), 1.0)
FULL = Plan(tuple(WRITERS), (0, 3, 7, 11, 15, 18, 21, 23, 25, 28, 31, 34, 37, 40), 6.0)
TOLD = (0, 3, 7, 15, 25, 40)

pytestmark = pytest.mark.xdist_group("ground-truth")


@pytest.fixture(scope="module")
def obstacles(tmp_path_factory):
    """Why a file system cannot be tried on this machine, by its name."""
    return {kind: why_not(kind, tmp_path_factory.mktemp(kind)) for kind in IMAGE_BYTES}


@pytest.fixture(scope="module")
def seen_shortly(obstacles, tmp_path_factory):
    with contextlib.ExitStack() as stack:
        yield try_all(SHORT, obstacles, tmp_path_factory, stack)


@pytest.fixture(scope="module")
def seen_in_full(obstacles, tmp_path_factory):
    with contextlib.ExitStack() as stack:
        found = try_all(FULL, obstacles, tmp_path_factory, stack)
        if os.environ.get(TABLE) and found:
            Path(os.environ[TABLE]).write_text(table(found.values(), TOLD), encoding="utf-8")
        yield found


def try_all(plan, obstacles, tmp_path_factory, stack):
    """Return what power cuts left in each case of a plan that is possible here; all cases wait together."""
    possible = [case for case in plan.cases if not obstacles[case.kind]]
    return (
        observe(possible, plan.moments, plan.pause, tmp_path_factory.mktemp("cuts"), stack)
        if possible
        else {}
    )


def states_of(observation, models):
    [window] = save_windows(observation.recording)
    return enumerate_states(observation.recording, window, observation.base, models).states


def surprises(observation):
    """Return what a power cut left but no model of the file system allows."""
    generated = {state.digest for state in states_of(observation, MODELS[observation.case.kind])}
    return [seen for seen in observation.seen if seen.digest not in generated]


def require(kind, obstacles):
    if obstacles[kind]:
        pytest.skip(obstacles[kind])


@pytest.mark.parametrize("case", SHORT.cases, ids=str)
def test_states_seen_after_a_power_cut_are_generated(seen_shortly, obstacles, case):
    require(case.kind, obstacles)
    assert surprises(seen_shortly[case]) == []


@pytest.mark.full
@pytest.mark.parametrize("case", FULL.cases, ids=str)
def test_states_of_all_writers_seen_within_40_seconds_are_generated(seen_in_full, obstacles, case):
    require(case.kind, obstacles)
    assert surprises(seen_in_full[case]) == []


@pytest.mark.parametrize("kind", IMAGE_BYTES)
def test_a_model_without_power_loss_does_not_explain_what_is_seen(seen_shortly, obstacles, kind):
    """If it did, no power cut would have lost anything, and the tests above would prove nothing."""
    require(kind, obstacles)
    survivable, seen = set(), set()
    for case in SHORT.cases:
        if case.kind == kind:
            survivable |= {state.digest for state in states_of(seen_shortly[case], ["kill"])}
            seen |= {seen.digest for seen in seen_shortly[case].seen}
    assert seen - survivable
