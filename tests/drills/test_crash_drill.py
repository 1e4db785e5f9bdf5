"""Interrupted saves, from the recording of a real script to the verdict a user reads."""

import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from drilling import Drilled, Project
from samestep.crash.recorder import abi
from sealing import sealed

pytestmark = pytest.mark.timeout(900)

MODELS = ["kill", "nfs", "machine-lost", "power-ext4", "power-xfs", "posix-worst"]
"""The weakest first."""

EVERYTHING = ["--models", ",".join(MODELS), "--storage", "posix"]

WRITER = """
    import argparse, os, pathlib, shutil, time, torch
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--without", default="", help="temp, fsync, rename or folder")
    parser.add_argument("--hang", action="store_true", help="when there is a temporary file")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.hang and any(args.out.glob("*.tmp")):
        time.sleep(1000)
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def files():
        return sorted(args.out.glob("step-*.pt"))

    def sync(path):
        handle = os.open(path, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)

    def save(step, state):
        old, final = files(), args.out / f"step-{step:04}.pt"
        aside = final if args.without == "temp" else args.out / "writing.tmp"
        torch.save(state, aside)
        if args.without != "fsync":
            sync(aside)
        if args.without == "rename":
            shutil.copyfile(aside, final)
            sync(final)
        elif args.without != "temp":
            aside.replace(final)
        if args.without != "folder":
            sync(args.out)
        for path in old:
            path.unlink()

    begin = 0
    if files():
        state = torch.load(files()[-1])
        begin = state["step"]
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    for step in range(begin, 12):
        loss = model(torch.full((2, 4), float(step + 1)) / 12).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 3 == 0:
            save(step + 1, {"step": step + 1, "model": model.state_dict(), "optimizer": optimizer.state_dict()})
"""


class Crashing(Project):
    """A project whose script saves with care, or without one part of it."""

    def command_line(self, *options: str, without: str = "", more: tuple[str, ...] = ()) -> list[str]:
        script = self.script(WRITER)
        left_out = ["--without", without] if without else []
        return [*options, "--", sys.executable, script, "--out", "{out}", *left_out, *more]

    def crash(self, *options: str, without: str = "", more: tuple[str, ...] = ()) -> Drilled:
        return self.drill(*self.command_line("--only", "crash", *options, without=without, more=more))


@pytest.fixture
def project(tmp_path):
    return Crashing(tmp_path / "project")


@pytest.fixture(scope="module")
def careful(tmp_path_factory):
    project = Crashing(tmp_path_factory.mktemp("careful") / "project")
    return project.crash(*EVERYTHING, "--max-states", "40")


@pytest.fixture(scope="module")
def unsynced(tmp_path_factory):
    project = Crashing(tmp_path_factory.mktemp("unsynced") / "project")
    return project.crash(*EVERYTHING, "--max-states", "20", without="fsync")


def states(drilled):
    return [item for item in drilled.result["scenarios"] if item["crash"]]


def outcomes(drilled):
    return {item["name"]: item["observed"]["outcome"] for item in drilled.result["scenarios"]}


def failing_models(drilled):
    return {item["crash"]["model"] for item in states(drilled) if not item["holds"]}


@pytest.mark.xdist_group("careful")
def test_a_careful_writer_passes_every_model(careful):
    assert careful.exit_code == 0, careful.stdout
    assert {item["observed"]["outcome"] for item in careful.result["scenarios"]} == {"same"}
    assert careful.result["crash"]["models"] == MODELS
    assert {"kill", "power-ext4", "posix-worst"} <= {item["crash"]["model"] for item in states(careful)}


@pytest.mark.xdist_group("careful")
def test_restarts_that_go_on_are_forked_too_and_no_fresh_one_contradicts(careful):
    went_on = [item for item in states(careful) if item["observed"]["steps_verified"]]
    assert sum(item["forked"] for item in went_on) > len(went_on) / 2
    assert "fork-differs" not in {record["slug"] for item in went_on for record in item["findings"]}


@pytest.mark.xdist_group("unsynced")
def test_bytes_that_were_not_synced_fail_at_a_loss_of_power_and_not_before(unsynced):
    assert unsynced.exit_code == 1
    assert min(failing_models(unsynced), key=MODELS.index) == "power-ext4"
    assert "not-durable-after-save" in unsynced.slugs()


@pytest.mark.parametrize(
    ("without", "weakest", "slug"),
    [
        ("folder", "posix-worst", "rename-not-durable"),
        pytest.param("temp", "kill", "torn-checkpoint-selected", marks=pytest.mark.full),
        pytest.param("rename", "kill", "torn-checkpoint-selected", marks=pytest.mark.full),
    ],
)
def test_a_writer_without_one_call_fails_the_model_that_needs_it(project, without, weakest, slug):
    drilled = project.crash(*EVERYTHING, "--max-states", "16", without=without)
    assert drilled.exit_code == 1, drilled.stdout
    assert min(failing_models(drilled), key=MODELS.index) == weakest
    assert slug in drilled.slugs()


@pytest.mark.full
def test_the_same_drill_twice_gives_the_same_states_and_outcomes(unsynced, project):
    again = project.crash(*EVERYTHING, "--max-states", "20", without="fsync")
    assert outcomes(again) == outcomes(unsynced)
    assert [item["crash"] for item in states(again)] == [item["crash"] for item in states(unsynced)]


@pytest.mark.xdist_group("unsynced")
def test_a_failing_state_is_repeated_by_its_name(unsynced):
    failed = next(item for item in states(unsynced) if not item["holds"])
    again = Crashing(unsynced.project).crash(
        *EVERYTHING, "--max-states", "20", "--replay", failed["name"], without="fsync"
    )
    assert outcomes(again) == {failed["name"]: failed["observed"]["outcome"]}
    assert again.exit_code == 1


def test_an_interrupted_drill_goes_on_without_repeating_states(project):
    words = project.command_line("--only", "crash", "--max-states", "12", "--jobs", "2")
    process = subprocess.Popen(
        project.command(*words),
        cwd=project.folder,
        env=project.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: len(fresh_restarts(project)) > 2, process)  # of two at a time, so that one has ended
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 130, stderr
    kept = outcomes(Drilled(130, "", stderr, project.folder))
    assert kept
    again = project.drill("--continue", *words)
    assert again.exit_code == 0, again.stdout + again.stderr
    assert outcomes(again).items() >= kept.items()
    taken_over = {item["name"] for item in again.result["scenarios"] if item["log"].startswith("../")}
    assert taken_over == kept.keys()
    assert len(outcomes(again)) > len(kept)


def fresh_restarts(project):
    logs = project.folder.glob(".samestep/runs/*/logs/crash-save-*.log")
    return [log for log in logs if not log.stem.endswith("-forked")]


def wait_until(condition, process, seconds=300):
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, "the drill ended before it could be interrupted"
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.full
def test_a_restart_that_hangs_is_ended_and_leaves_its_stacks(careful, project):
    torn = next(item["name"] for item in states(careful) if item["crash"]["way"] == "torn-half")
    options = ["--replay", torn, "--timeout", "40", "--max-states", "40"]
    drilled = project.crash(*options, more=("--hang",))
    (scenario,) = drilled.result["scenarios"]
    assert scenario["observed"]["outcome"] == "inconclusive", drilled.stdout
    log = (project.folder / ".samestep/latest" / scenario["log"]).read_text()
    assert "most recent call first" in log
    assert re.search(r'File ".*train\.py", line \d+ in <module>', log)
    assert drilled.exit_code == 4


def drilled_unsupervised(project, *words):
    """Drill where the kernel refuses to let system calls be supervised."""
    done = subprocess.run(
        [*sealed(number=abi.here().seccomp, error=1), *project.command(*words)],
        cwd=project.folder,
        env=project.environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    return Drilled(done.returncode, done.stdout, done.stderr, project.folder)


def test_where_nothing_can_be_supervised_saves_are_known_from_the_probe(project):
    words = project.command_line("--only", "crash,restart", *EVERYTHING, "--max-states", "4", without="temp")
    drilled = drilled_unsupervised(project, *words)
    assert drilled.exit_code == 1, drilled.stdout + drilled.stderr
    assert (drilled.result["crash"]["tier"], drilled.result["crash"]["models"]) == ("probe", ["kill"])
    assert failing_models(drilled) == {"kill"}
    assert "torn-checkpoint-selected" in drilled.slugs()
    assert {item["family"] for item in drilled.result["scenarios"] if not item["crash"]} == {"restart"}
    assert any("interrupted saves" in line and "seccomp" in line for line in drilled.result["not_checked"])


@pytest.mark.full
def test_a_careful_writer_passes_what_the_probe_knows_of_its_saves(project):
    words = project.command_line("--only", "crash,restart", *EVERYTHING)
    drilled = drilled_unsupervised(project, *words)
    assert drilled.exit_code == 0, drilled.stdout + drilled.stderr
    assert len(states(drilled)) >= 10


@pytest.mark.full
@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no /dev/shm")
def test_in_memory_only_kills_count():
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        drilled = Crashing(Path(folder) / "project").crash("--max-states", "16", without="fsync")
        assert drilled.result["crash"]["storage"] == "tmpfs"
        assert drilled.exit_code == 0, drilled.stdout
        assert {item["crash"]["allowed"] for item in states(drilled)} == {True, False}
        notes = {f["severity"] for item in states(drilled) for f in item["findings"]}
        assert notes <= {"note"}


@pytest.mark.full
def test_a_drill_of_no_states_says_what_was_not_checked(project):
    drilled = project.drill(*project.command_line("--only", "crash,restart", "--max-states", "0"))
    assert drilled.exit_code == 0, drilled.stdout + drilled.stderr
    assert list(outcomes(drilled)) == ["restart/finished"]
    assert any("family crash" in line for line in drilled.result["not_checked"])


# The example of three hundred steps: docs/explanation/three-hundred-steps.md


BACKGROUND_SAVES = ["--", sys.executable, "background_saves.py", "--out", "{out}"]


def test_at_step_300_with_280_half_written_240_is_the_resume_point(tmp_path):
    project = Project(tmp_path / "project")
    project.example("background_saves.py")
    drilled = project.drill("--only", "crash", "--max-states", "6", *BACKGROUND_SAVES)
    assert drilled.exit_code == 0, drilled.stdout
    lost = [item for item in states(drilled) if item["cut_step"] == 300]
    assert lost, "no state was cut at step 300"
    for item in lost:
        assert item["crash"]["torn"] == ["step-000280"]
        assert (item["expected"]["resume_step"], item["observed"]["resume_step"]) == (240, 240)
        assert item["observed"]["steps_lost"] == 60
        assert "resumed at 240, the newest whole checkpoint, next step 241" in item["observed"]["summary"]
    look_at_the_state(project, lost[0]["name"].removeprefix("crash/"))


@pytest.mark.full
def test_at_step_300_a_script_that_trusts_names_takes_280_and_fails(tmp_path):
    project = Project(tmp_path / "project")
    project.example("background_saves.py")
    trusting = project.drill("--only", "crash", "--max-states", "6", *BACKGROUND_SAVES, "--trust-names")
    assert trusting.exit_code == 1, trusting.stdout
    assert "torn-checkpoint-selected" in trusting.slugs()
    assert "a whole checkpoint at 240 was there" in " ".join(trusting.stdout.split())


def look_at_the_state(project, state):
    """Weights that open without their optimizer are fit for a new run only; 240 is named."""
    run_cli(project, "crash", "record", "--to", "recording", *BACKGROUND_SAVES)
    run_cli(project, "crash", "show", "recording", state, "--to", "state")
    said = run_cli(project, "inspect", "state/step-000280", code=1)
    assert re.search(r"^weights +yes", said, re.MULTILINE)
    assert re.search(r"^new-run +yes", said, re.MULTILINE)
    assert re.search(r"^resume +no", said, re.MULTILINE)
    assert re.search(
        r"^newest whole +step-000240", run_cli(project, "inspect", "state", code=1), re.MULTILINE
    )


def run_cli(project, *words, code=0):
    command = [sys.executable, "-m", "samestep.cli.main", *words]
    done = subprocess.run(
        command, cwd=project.folder, env=project.environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout
