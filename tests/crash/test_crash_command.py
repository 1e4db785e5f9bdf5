"""``samestep crash record`` on real commands."""

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from samestep.cli.crash import crash
from samestep.errors import ExitCode, UsageError

WRITER = """
import os, pathlib, sys
out = pathlib.Path(sys.argv[1], "step-1")
out.mkdir(parents=True)
out.joinpath("model.pt").write_bytes(b"w" * 5000)
print("saved")
"""


def shown(*arguments):
    done = CliRunner().invoke(crash, [str(a) for a in arguments], standalone_mode=False)
    if done.exception:
        raise done.exception
    return done


def test_a_command_is_recorded_and_its_states_can_be_looked_at(tmp_path):
    folder = tmp_path / "recording"
    done = shown("record", "--to", folder, "--json", "--", sys.executable, "-c", WRITER, "{out}")
    plain = json.loads(done.stdout)
    assert done.return_value == 0
    assert plain["schema"] == "samestep.crash-record/1"
    assert plain["complete"]
    assert plain["counts"]["write"] == 1
    assert [save["name"] for save in plain["saves"]] == ["save-0"]
    assert (folder / "output.log").read_text() == "saved\n"
    states = json.loads(shown("states", folder, "--json").stdout)["saves"][0]["states"]
    torn = next(state["name"] for state in states if state["name"].endswith("torn-half"))
    assert "torn, 2500 of 5000 bytes" in shown("show", folder, torn).stdout


def test_what_was_there_before_is_part_of_every_state(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "step-0.pt").write_bytes(b"old")
    command = [sys.executable, "-c", WRITER, out]
    shown("record", "--root", out, "--to", tmp_path / "recording", "--", *command)
    (out / "step-0.pt").write_bytes(b"changed since")
    shown("show", tmp_path / "recording", "save-0/kill/start", "--to", tmp_path / "state")
    assert (tmp_path / "state" / "step-0.pt").read_bytes() == b"old"


def test_a_command_that_fails_is_recorded_and_said_to_have_failed(tmp_path):
    done = shown("record", "--to", tmp_path / "r", "--", sys.executable, "-c", "raise SystemExit(3)", "{out}")
    assert "no save found" in done.stdout
    assert "exit code 3" in done.stderr
    assert done.return_value == ExitCode.INCONCLUSIVE
    assert json.loads((tmp_path / "r" / "recording.json").read_text())["exit_code"] == 3


def test_a_program_that_cannot_be_started_leaves_no_recording(tmp_path):
    program = tmp_path / "train"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)
    with pytest.raises(UsageError, match="cannot be executed") as raised:
        shown("record", "--to", tmp_path / "r", "--", program, "{out}")
    assert raised.value.exit_code is ExitCode.USAGE
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(("rank", "at"), [("", "3"), ("1", "1:3")])
def test_a_command_is_killed_where_it_is_to_stop_and_leaves_the_disk_as_it_was(
    tmp_path, monkeypatch, rank, at
):
    monkeypatch.setenv("RANK", rank)
    script = "import os, sys\nfor n in 'abcd': open(os.path.join(sys.argv[1], n), 'w').write(n)\n"
    command = ["--", sys.executable, "-c", script, "{out}"]
    done = shown("record", "--to", tmp_path / "r", "--stop-at", at, "--json", *command)
    assert done.return_value == ExitCode.HOLDS
    plain = json.loads(done.stdout)
    assert (plain["stopped"], plain["complete"], plain["exit_code"]) == (True, False, None)
    # create a, write a, create b: the write to b does not come any more
    found = {path.name: path.read_text() for path in Path(plain["root"]).iterdir()}
    assert found == {"a": "a", "b": ""}


def test_a_command_that_ended_before_it_could_be_stopped_is_told(tmp_path):
    done = shown("record", "--to", tmp_path / "r", "--stop-at", "7:0", "--", "true", "{out}")
    assert done.return_value == ExitCode.INCONCLUSIVE
    assert "it was not stopped: operation 7:0 never came" in done.stderr
