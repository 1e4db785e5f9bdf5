"""Command lines of first starts and restarts."""

from pathlib import Path

import pytest

from samestep.drill.command import check_command, replay_command, restart_command, start_command
from samestep.drill.options import DrillOptions
from samestep.errors import UsageError


def options(*command, **changes):
    return DrillOptions(command=list(command), project=Path(), run_folder=Path("run"), **changes)


def test_out_is_filled_in_wherever_it_stands():
    assert start_command(options("python", "x.py", "--out={out}/a"), "/seat/out") == [
        "python",
        "x.py",
        "--out=/seat/out/a",
    ]


def test_a_restart_is_the_same_command_by_default():
    assert restart_command(options("python", "x.py", "{out}"), "/o", "/o/c") == ["python", "x.py", "/o"]


def test_an_option_is_added_to_the_command():
    chosen = options("python", "x.py", "{out}", resume_with=["--resume", "{checkpoint}"])
    assert restart_command(chosen, "/o", "/o/c") == ["python", "x.py", "/o", "--resume", "/o/c"]


def test_a_whole_command_replaces_it():
    chosen = options("python", "x.py", "{out}", resume_with=["python", "resume.py", "{out}"])
    assert restart_command(chosen, "/o", "/o/c") == ["python", "resume.py", "/o"]


def test_without_a_checkpoint_to_name_the_run_starts_as_at_first():
    chosen = options("python", "x.py", "{out}", resume_with=["--resume", "{checkpoint}"])
    assert restart_command(chosen, "/o", "") == ["python", "x.py", "/o"]


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        (options(), "no training command"),
        (options("no-such-program-here", "{out}"), "command not found: no-such-program-here"),
        (options("python", "x.py"), "does not say where it writes"),
        (options("python", "x.py", "--out", "s3://bucket/{out}"), "object store"),
        (options("python", "x.py", durable="gs://bucket/run"), "object store"),
    ],
)
def test_what_cannot_be_drilled_is_refused_with_a_way_out(chosen, words):
    with pytest.raises(UsageError, match=words) as caught:
        check_command(chosen)
    assert caught.value.hint


def test_an_address_that_is_no_output_is_nothing_to_refuse():
    check_command(options("python", "x.py", "--data", "s3://bucket/data", "--out", "{out}"))


def test_a_replay_repeats_every_setting_that_is_not_the_usual_one():
    chosen = options(
        "python",
        "x.py",
        "{out}",
        verify_steps=7,
        grace_seconds=2.5,
        strict=True,
        resume_with=["--resume", "{checkpoint}"],
    )
    assert replay_command(chosen, "cut/twice") == (
        "samestep drill --replay cut/twice --verify-steps 7 --grace 2.5 --strict "
        "--resume-with '--resume {checkpoint}' -- python x.py {out}"
    )


def test_a_replay_of_the_usual_settings_is_short():
    assert (
        replay_command(options("python", "x.py", "{out}"), "cut/twice")
        == "samestep drill --replay cut/twice -- python x.py {out}"
    )


def test_a_replay_command_hides_secrets_and_keeps_everything_else():
    chosen = options(
        "env", "HF_TOKEN=s3cr3t", "python", "x.py", "--out", "{out}", "--api-key", "s3cr3t",
        resume_with=["--resume", "--hub_token", "s3cr3t"], also=[["--password=s3cr3t", "--lr", "1"]],
    )  # fmt: skip
    shown = replay_command(chosen, "cut/after-save")
    assert "s3cr3t" not in shown
    assert "env 'HF_TOKEN=***' python x.py --out {out} --api-key '***'" in shown
    assert "--resume-with" in shown
    assert "--lr 1" in shown
