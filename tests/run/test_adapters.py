"""Defects that frameworks have in saving and resuming are gone when the script uses the adapter for it.

Scripts of the zoo, moved over: ``tests/adapted``. In the default run one of each framework is killed and started again;
in the full run all are, and the drill is the judge of some.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from drilling import Project

SCRIPTS = Path(__file__).parents[1] / "adapted"
TIMEOUT_SECONDS = 300
DEFAULT = {("trainer", "noise"), ("fit", "noise"), ("loop", "accumulated")}

TABLE = {
    "trainer": {
        "noise": "noise_in_getitem, with accumulation",
        "workers": "noise_in_getitem, with workers",
        "patience": "patience_reset",
        "skip_ignored": "data_skip_ignored",
        "mid_epoch": "finished_in_mid_epoch",
        "stream": "stream_shorter_than_run",
        "endless": "a stream without end",
        "lora": "adapter_not_loaded",
    },
    "fit": {
        "noise": "loader_starts_over, random_state_not_saved, counted_before_completed",
        "workers": "loader_starts_over, with workers",
        "accumulated": "saves inside an accumulation window",
        "validated": "validation inside an epoch",
        "stopped": "an early stop",
        "gan": "two optimizers",
        "stream": "a stream without length",
        "datamodule": "a loader made by a data module",
    },
    "loop": {
        "noise": "skip_in_another_order, epoch_from_its_start, states_overwritten",
        "workers": "random transforms in workers",
        "prepared": "a loader that was prepared",
        "seedable": "epoch_replayed",
        "accumulated": "an accumulation window cut short by the end of an epoch",
        "lora": "adapter_not_loaded",
    },
}
"""By script and case, what of the zoo it is, or what else it shows."""

CASES = [
    pytest.param(
        script,
        case,
        id=f"{script}-{case}",
        marks=[] if (script, case) in DEFAULT else pytest.mark.full,
    )
    for script, cases in TABLE.items()
    for case in cases
]

KILLED_AT = {
    ("trainer", "noise"): (4, 9),
    ("trainer", "patience"): (9, 13),
    ("fit", "accumulated"): (7, 15),
    ("fit", "stopped"): (9, 14),
    ("loop", "accumulated"): (7,),
}
"""After how many steps a case is killed, where not in the second epoch and at the end of the third."""


def command(script, case, out, *more):
    return [sys.executable, str(SCRIPTS / f"{script}.py"), "--out", str(out), "--case", case, *more]


def train(script, case, out, *more):
    return subprocess.run(
        command(script, case, out, *more),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
    )


def steps_of(done):
    return [line for line in done.stdout.splitlines() if line.startswith("step ")]


@pytest.mark.parametrize(("script", "case"), CASES)
def test_a_killed_training_goes_on_as_if_nothing_had_happened(script, case, tmp_path):
    control = train(script, case, tmp_path / "control")
    assert control.returncode == 0, control.stderr
    expected = steps_of(control)
    for step in KILLED_AT.get((script, case), (8, 18)):
        killed = train(script, case, tmp_path / "cut", "--kill-at", str(step))
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert set(steps_of(killed)) <= set(expected)
    resumed = train(script, case, tmp_path / "cut")
    assert resumed.returncode == 0, resumed.stderr
    assert "resumes from" in resumed.stderr
    steps = steps_of(resumed)
    assert 0 < len(steps) < len(expected)
    assert steps == expected[-len(steps) :]
    again = train(script, case, tmp_path / "cut")
    assert (again.returncode, steps_of(again)) == (0, []), again.stderr


REFUSED = {
    "trainer_batch_size_changed": (
        ["--arguments", "per_device_train_batch_size=2"],
        "per_device_train_batch_size",
    ),
    "seed_changed": (["--arguments", "data_seed=2"], "data_seed"),
    "only_the_model_saved": (["--arguments", "save_only_model=1"], "save_only_model"),
    "resume_in_the_arguments": (["--forget"], "bundles.resume(trainer)"),
}


@pytest.mark.full
@pytest.mark.parametrize("name", list(REFUSED))
def test_what_the_trainer_would_get_wrong_is_refused_by_name(name, tmp_path):
    more, word = REFUSED[name]
    killed = train("trainer", "mid_epoch", tmp_path, "--kill-at", "9")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    refused = train("trainer", "mid_epoch", tmp_path, *more)
    assert refused.returncode == 1
    assert not steps_of(refused)
    assert word in refused.stderr


@pytest.mark.full
def test_a_fit_on_a_loader_that_nobody_follows_is_refused(tmp_path):
    refused = train("fit", "unwrapped", tmp_path)
    assert refused.returncode == 1
    assert "bundles.loader(loader)" in refused.stderr


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("example", ["transformers_bundles.py", "lightning_bundles.py", "accelerate_run.py"])
def test_the_drill_finds_nothing_in_an_example(example, tmp_path):
    project = Project(tmp_path)
    script = project.example(example)
    drilled = project.drill(
        "--only", "cut,notice,restart,damage", "--", sys.executable, script, "--out", "{out}"
    )
    assert drilled.exit_code == 0, drilled.stdout + drilled.stderr
