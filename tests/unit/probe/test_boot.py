"""How the probe comes up in an interpreter, tried with a stand-in torch so that nothing heavy is imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from samestep.probe import environment
from samestep.trace import Orders


@pytest.fixture
def start(tmp_path):
    """Run a Python with the probe's environment; returns its output and the boot marks."""
    folder = tmp_path / "traces"
    folder.mkdir()
    Orders(attempt="a", trace_folder=str(folder)).write(tmp_path / "orders.json")

    def run(*arguments, path="", **variables):
        env = {**os.environ, "PYTHONPATH": path}
        env = {**environment(tmp_path / "orders.json", env), **variables}
        done = subprocess.run(
            [sys.executable, *arguments],
            env=env,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        marks = [json.loads(file.read_text()) for file in folder.glob("boot-*.json")]
        return done, marks

    return run


def test_every_python_process_leaves_a_mark_and_imports_nothing_heavy(start):
    code = (
        "import sys; print([m for m in ('torch', 'dataclasses', 'inspect', 'samestep') if m in sys.modules])"
    )
    done, (mark,) = start("-c", code)
    assert done.stdout == "[]\n"
    assert done.stderr == ""
    assert mark["argv"][1:] == ["-c", code]
    assert mark["ppid"] == os.getpid()


def test_without_orders_nothing_happens(start):
    done, marks = start("-c", "import sys; print('_samestep' in sys.modules)", SAMESTEP_ORDERS="")
    assert (done.stdout, marks) == ("False\n", [])


def test_isolated_interpreters_leave_no_mark(start):
    for flag in ("-I", "-S", "-E"):
        done, marks = start(flag, "-c", "print(1)")
        assert (done.stdout, marks) == ("1\n", [])


def test_children_are_reached_too(start):
    done, marks = start("-c", "import subprocess, sys; subprocess.run([sys.executable, '-c', '0'])")
    assert done.returncode == 0
    assert len(marks) == 2


def test_the_sitecustomize_behind_ours_runs_under_its_own_name(start, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import sys; sys.theirs = (__name__, __file__)")
    code = "import sys, sitecustomize; print(sys.theirs, sitecustomize.__file__)"
    done, marks = start("-c", code, path=str(own))
    theirs = str(own / "sitecustomize.py")
    assert done.stdout == f"{('sitecustomize', theirs)} {theirs}\n"
    assert len(marks) == 1


def test_unreadable_orders_are_told_and_do_not_stop_the_script(start):
    done, marks = start("-c", "print(1)", SAMESTEP_ORDERS="/nowhere/orders.json")
    assert (done.stdout, done.returncode, marks) == ("1\n", 0, [])
    assert "samestep: the probe could not start" in done.stderr


def test_a_torch_that_cannot_be_watched_still_imports(start, tmp_path):
    (tmp_path / "torch.py").write_text("answer = 42")
    done, _ = start(
        "-c", "import torch; print(torch.answer, type(torch.__loader__).__name__)", path=str(tmp_path)
    )
    assert done.stdout == "42 SourceFileLoader\n"
    assert "samestep: the probe could not attach" in done.stderr


def test_a_torch_that_fails_to_import_fails_with_its_own_error(start, tmp_path):
    (tmp_path / "torch.py").write_text("raise OSError('libcudart is missing')")
    done, _ = start("-c", "import torch", path=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith("OSError: libcudart is missing")
    assert "samestep" not in done.stderr.replace(str(tmp_path), "").split("File")[0]
