"""The entry point: verbs, errors and exit codes."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys

import click
import pytest

from samestep.cli import main as entry
from samestep.errors import ConfigError, DrillError, ExitCode


@pytest.fixture
def verb(monkeypatch):
    """Put a function behind the verb ``doctor`` and return the exit code of running it."""

    def run(action):
        command = click.Command("doctor", callback=action)
        monkeypatch.setattr(entry.Verbs, "get_command", lambda *_: command)
        with pytest.raises(SystemExit) as ended:
            entry.main(["doctor"])
        return ended.value.code

    return run


def raising(error):
    def action():
        raise error

    return action


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        entry.main(list(arguments))
    return ended.value.code


def test_what_a_verb_returns_is_the_exit_code(verb):
    assert verb(lambda: ExitCode.INCONCLUSIVE) == ExitCode.INCONCLUSIVE


def test_a_verb_that_returns_nothing_holds(verb):
    assert verb(lambda: None) == ExitCode.HOLDS


def test_an_error_for_users_is_two_lines_on_stderr_and_its_own_exit_code(verb, capsys):
    assert verb(raising(DrillError("nothing was saved", hint="save more often"))) == ExitCode.NOTHING_RAN
    shown = capsys.readouterr()
    assert shown.err == "error: nothing was saved\nhint: save more often\n"
    assert not shown.out


def test_an_error_without_hint_is_one_line(verb, capsys):
    assert verb(raising(ConfigError("bad"))) == ExitCode.USAGE
    assert capsys.readouterr().err == "error: bad\n"


def test_ctrl_c_is_130(verb, capsys):
    assert verb(raising(KeyboardInterrupt())) == ExitCode.INTERRUPTED
    assert "interrupted" in capsys.readouterr().err


def test_sigterm_is_143_and_lets_cleaning_up_happen(verb):
    cleaned = []

    def action():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            cleaned.append(True)

    assert verb(action) == ExitCode.TERMINATED
    assert cleaned
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_an_unexpected_error_asks_for_a_report_and_keeps_the_traceback_in_a_file(
    verb, capsys, tmp_path, monkeypatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert verb(raising(RuntimeError("boom"))) == ExitCode.INTERNAL
    shown = capsys.readouterr().err
    assert "RuntimeError: boom" in shown
    assert "please report it" in shown
    assert "Traceback" not in shown
    (log,) = tmp_path.glob("samestep-*.log")
    assert str(log) in shown
    assert "Traceback" in log.read_text()


def test_debug_shows_the_traceback(verb, capsys, monkeypatch):
    monkeypatch.setenv("SAMESTEP_DEBUG", "1")
    assert verb(raising(ConfigError("bad"))) == ExitCode.USAGE
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EROFS])
def test_a_full_disk_or_a_missing_permission_is_no_internal_error(verb, capsys, code):
    assert verb(raising(OSError(code, os.strerror(code), "/data/x"))) == ExitCode.USAGE
    shown = capsys.readouterr().err
    assert "/data/x" in shown
    assert "hint:" in shown


def test_another_error_of_the_system_is_internal(verb):
    assert verb(raising(OSError(errno.EBADF, "bad file descriptor"))) == ExitCode.INTERNAL


def test_an_unknown_verb_names_the_nearest_one(capsys):
    assert run("dril") == ExitCode.USAGE
    assert "did you mean drill?" in capsys.readouterr().err


def test_an_unknown_option_points_to_the_help_of_its_verb(capsys):
    assert run("config", "--nope") == ExitCode.USAGE
    assert "hint: samestep config --help" in capsys.readouterr().err


def test_no_verb_shows_help_and_is_a_usage_error(capsys):
    assert run() == ExitCode.USAGE
    shown = capsys.readouterr()
    assert "Verbs:" in shown.out + shown.err


def test_version_is_printed(capsys):
    assert run("--version") == ExitCode.HOLDS
    assert capsys.readouterr().out.startswith("samestep")


@pytest.mark.parametrize("name", entry.VERBS)
def test_every_verb_in_the_table_exists(name):
    command = entry.cli.get_command(click.Context(entry.cli), name)
    assert isinstance(command, click.Command)
    assert command.name == name


def test_colour_follows_the_environment():
    assert entry._colour_wish({}) is None
    assert entry._colour_wish({"NO_COLOR": "1"}) is False
    assert entry._colour_wish({"FORCE_COLOR": "1"}) is True
    assert entry._colour_wish({"NO_COLOR": "1", "FORCE_COLOR": "1"}) is False


def test_python_m_samestep_is_the_same_program():
    finished = subprocess.run(
        [sys.executable, "-m", "samestep", "--version"], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0
    assert finished.stdout.startswith("samestep")
