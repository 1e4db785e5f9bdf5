"""A run that is killed and started again is bit for bit the run that was never interrupted."""

from __future__ import annotations

import signal

import pytest

from run_trainings import KINDS, train

PARTLY = ["workers", "captured"]
"""Kinds that make up the default run; the others follow in the full one."""

ACCUMULATING = ["accumulated", "captured"]

CASES = [
    pytest.param(kind, id=kind, marks=[] if kind in PARTLY else pytest.mark.full)
    for kind in KINDS
    if kind not in ("replicated", "sharded", "split")
]


def last_losses(result):
    return list(result.losses.values())


@pytest.mark.parametrize("kind", CASES)
def test_a_killed_run_goes_on_as_if_nothing_had_happened(kind, tmp_path):
    control = train(kind, tmp_path / "control")
    assert control.exit_code == 0, control.text
    killed = train(kind, tmp_path / "cut", kill_at=13 * (3 if kind in ACCUMULATING else 1))
    assert killed.exit_code == -signal.SIGKILL, killed.text
    resumed = train(kind, tmp_path / "cut")
    assert resumed.exit_code == 0, resumed.text
    losses = last_losses(control)
    assert last_losses(killed) == losses[: len(killed.losses)]
    assert 0 < len(resumed.losses) < len(losses)
    assert last_losses(resumed) == losses[-len(resumed.losses) :]
    assert resumed.digest == control.digest


@pytest.mark.full
@pytest.mark.parametrize(
    "options",
    [
        {"save": 1},
        {"save": 1, "asynchronous": False},
        {"asynchronous": "stage"},
        {"asynchronous": "overlap", "save": 1},
    ],
    ids=["every-step", "waiting", "staged", "overlapped"],
)
def test_saving_changes_nothing_about_a_training_however_it_is_done(options, tmp_path):
    quiet = train("averaged", tmp_path / "quiet", save=10**9)
    saving = train("averaged", tmp_path / "saving", **options)
    assert saving.exit_code == 0, saving.text
    assert (saving.losses, saving.digest) == (quiet.losses, quiet.digest)
    again = train("averaged", tmp_path / "saving", **options)
    assert (again.losses, again.digest) == ({}, quiet.digest)
