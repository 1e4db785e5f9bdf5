"""The drill is the judge of the run API: the example holds in every family that needs no recorder."""

from __future__ import annotations

import shutil

import pytest

from drilling import ROOT, Project

COMMAND = ("--", "python", "train.py", "--out", "{out}")


@pytest.mark.full
def test_a_loop_with_the_run_api_is_the_same_run_after_every_interruption(tmp_path):
    project = Project(tmp_path)
    shutil.copy(ROOT / "examples" / "run_api.py", tmp_path / "train.py")
    drilled = project.drill("--only", "cut,notice,restart,damage", *COMMAND)
    assert drilled.exit_code == 0, drilled.stdout + drilled.stderr
    assert drilled.result["control"]["save_steps"] == [4, 8, 12, 16, 20, 24]


@pytest.mark.full
def test_a_run_whose_only_bundle_is_damaged_stops_and_names_the_part(tmp_path):
    project = Project(tmp_path)
    example = (ROOT / "examples" / "run_api.py").read_text()
    project.script(example.replace("save=SAVE_EVERY", "save=SAVE_EVERY, keep=1, asynchronous=False"))
    drilled = project.drill("--only", "damage", *COMMAND)
    assert drilled.exit_code == 0, drilled.stdout + drilled.stderr
    damaged = [item for item in drilled.result["scenarios"] if "/b-" in item["name"]]
    assert len(damaged) > 10
    told = {(item["observed"]["outcome"], item["observed"]["summary"]) for item in damaged}
    told -= {("same", summary) for _, summary in told}  # a flipped byte where nobody reads: digests of blocks
    assert told == {("refused", "names the damaged part")}
