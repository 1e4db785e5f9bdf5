"""``samestep crash record`` on real commands."""

import json
import sys

from click.testing import CliRunner

from samestep.cli.crash import crash

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
