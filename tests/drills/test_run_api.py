"""The drill is the judge of the run API: the example holds in every family that needs no recorder."""

from __future__ import annotations

import shutil

import pytest

from drilling import ROOT, Project


@pytest.mark.full
def test_a_loop_with_the_run_api_is_the_same_run_after_every_interruption(tmp_path):
    project = Project(tmp_path)
    shutil.copy(ROOT / "examples" / "run_api.py", tmp_path / "train.py")
    families = [word for family in ("cut", "notice", "restart", "damage") for word in ("--only", family)]
    drilled = project.drill(*families, "--", "python", "train.py", "--out", "{out}")
    assert drilled.exit_code == 0, drilled.stdout + drilled.stderr
    assert drilled.result["control"]["save_steps"] == [4, 8, 12, 16, 20, 24]
