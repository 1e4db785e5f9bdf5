"""Wrong input gets a sentence that helps and the right exit code, never a traceback."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from drilling import LOOP, Project

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path / "project")


def said(drilled) -> str:
    assert "Traceback" not in drilled.stderr.replace("Traceback (most recent call last):\\n", "")
    return drilled.stderr


def test_a_command_that_does_not_exist(project):
    drilled = project.drill("--", "no-such-program", "{out}")
    assert drilled.exit_code == 2
    assert "command not found: no-such-program" in said(drilled)


def test_no_command_at_all(project):
    drilled = project.drill()
    assert drilled.exit_code == 2
    assert "samestep drill -- python train.py --out {out}" in said(drilled)


def test_a_command_that_does_not_say_where_it_writes(project):
    drilled = project.drill("--", sys.executable, project.script(LOOP))
    assert drilled.exit_code == 2
    assert "--durable" in said(drilled)


def test_an_output_on_an_object_store(project):
    drilled = project.drill("--", sys.executable, project.script(LOOP), "--out", "s3://bucket/{out}")
    assert drilled.exit_code == 2
    assert "object store" in said(drilled)


def test_a_script_that_crashes_at_once(project):
    drilled = project.drill(
        "--", sys.executable, project.script("raise RuntimeError('no data here')"), "{out}"
    )
    assert drilled.exit_code == 5
    assert "no data here" in said(drilled)
    assert ".log" in drilled.stderr


def test_a_script_that_never_saves(project):
    script = project.script(LOOP.replace("% 3 == 0", "% 3 == 5"))
    drilled = project.drill("--", sys.executable, script, "--out", "{out}")
    assert drilled.exit_code == 1
    assert "never-saved" in drilled.stdout


def test_a_script_that_saves_once(project):
    script = project.script(LOOP.replace("% 3 == 0", "% 7 == 0"))
    drilled = project.drill("--", sys.executable, script, "--out", "{out}")
    assert drilled.exit_code == 5
    assert "only one save" in said(drilled)


def test_a_script_that_ignores_its_output_folder(project):
    text = LOOP.replace(
        "args = parser.parse_args()", "args = parser.parse_args(); args.out = pathlib.Path('elsewhere')"
    )
    drilled = project.drill("--", sys.executable, project.script(text), "--out", "{out}")
    assert drilled.exit_code == 1
    assert "elsewhere" in drilled.stdout
    assert "--durable" in drilled.stdout


def test_a_script_that_never_ends(project):
    script = project.script(LOOP.replace("range(begin, 12)", "range(begin, 10**9)"))
    drilled = project.drill("--timeout", "12", "--", sys.executable, script, "--out", "{out}")
    assert drilled.exit_code == 5
    assert "--steps" in said(drilled)


def test_a_script_that_does_not_train(project):
    drilled = project.drill("--", sys.executable, project.script("print('hello')"), "{out}")
    assert drilled.exit_code == 4
    assert "no optimizer step was seen" in said(drilled)


def test_an_interpreter_the_probe_cannot_enter(project):
    drilled = project.drill("--", sys.executable, "-I", project.script(LOOP), "--out", "{out}")
    assert drilled.exit_code == 4
    assert "not-watched" in said(drilled)
    assert "-I" in drilled.stderr


def test_the_explicit_way_into_an_isolated_interpreter(project):
    text = "    import samestep.probe; samestep.probe.install()\n" + LOOP
    script = project.script(text)
    drilled = project.drill("--only", "restart", "--", sys.executable, "-I", script, "--out", "{out}")
    assert drilled.exit_code == 0, drilled.stdout + drilled.stderr


def test_an_unknown_setting_is_named_with_its_neighbour(project):
    (project.folder / "samestep.toml").write_text("verify_step = 3\n")
    drilled = project.drill("--", sys.executable, project.script(LOOP), "--out", "{out}")
    assert drilled.exit_code == 2
    assert "verify_steps" in said(drilled)


def test_an_unknown_scenario_is_answered_with_the_known_ones(project):
    drilled = project.drill(
        "--replay", "cut/nowhere", "--", sys.executable, project.script(LOOP), "--out", "{out}"
    )
    assert drilled.exit_code == 2
    assert "cut/after-save" in said(drilled)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small file system")
def test_a_full_disk_under_the_state_folder(project):
    script = project.script(LOOP)
    state = project.folder / ".samestep"
    state.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(state)], check=True)
    try:
        drilled = project.drill("--", sys.executable, script, "--out", "{out}")
    finally:
        subprocess.run(["umount", str(state)], check=True)
    assert drilled.exit_code == 2, drilled.stderr
    assert "space" in said(drilled)


@pytest.mark.parametrize(
    ("signum", "code"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.full)],
    ids=["ctrl-c", "sigterm"],
)
def test_an_interrupted_drill_ends_its_children_and_keeps_what_it_has(project, signum, code):
    script = project.script(LOOP)
    command = project.command("--only", "cut", "--", sys.executable, script, "--out", "{out}")
    process = subprocess.Popen(
        command,
        cwd=project.folder,
        env=project.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: any(project.folder.glob(".samestep/runs/*/plan.json")), process)
    wait_until(lambda: len(psutil.Process(process.pid).children(recursive=True)) > 1, process)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signum)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == code, stderr
    assert "Traceback" not in stderr
    assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    (kept,) = project.folder.glob(".samestep/runs/*/drill.json")
    assert '"interrupted": true' in kept.read_text()
    assert (project.folder / ".samestep/latest/report.html").exists()


def wait_until(condition, process, seconds=300):
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, "the drill ended before it could be interrupted"
        assert time.monotonic() < deadline
        time.sleep(0.05)
