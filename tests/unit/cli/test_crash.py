"""``samestep crash``: recordings, their disk states, and what is wrong with bad input."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from samestep.cli.crash import crash
from samestep.crash.operations import Header, Kind, Operation
from samestep.crash.recording import RecordingWriter
from samestep.errors import ExitCode, MachineError, UsageError

ROOT = "/run/out"
FILE = "step-4/model.pt"


def shown(*arguments):
    done = CliRunner().invoke(crash, [str(a) for a in arguments], standalone_mode=False)
    if done.exception:
        raise done.exception
    return done.output


@pytest.fixture
def recording(tmp_path):
    """A save of two files into a folder of its own, after step 4: the first is synced, the second is not."""
    folder = tmp_path / "recording"
    writer = RecordingWriter(folder, Header(roots=[ROOT], command=["train"], tier="notify", exit_code=0))
    parts = [
        Operation(index=0, kind=Kind.MARK, rank=0, step=4),
        Operation(index=0, kind=Kind.MKDIR, path=f"{ROOT}/step-4", inode=1),
        *_written(writer, "model.pt", 2, b"w" * 9000),
        Operation(index=0, kind=Kind.SYNC, path=f"{ROOT}/{FILE}", inode=2),
        *_written(writer, "optimizer.pt", 3, b"o" * 100),
    ]
    for operation in parts:
        writer.append(operation)
    writer.close(complete=True)
    return folder


def state_that(recording, words):
    """Return the name of the state that is described with these words."""
    plain = json.loads(shown("states", recording, "--json"))
    return next(state["name"] for state in plain["saves"][0]["states"] if words in state["what"])


def _written(writer, name, inode, content):
    path = f"{ROOT}/step-4/{name}"
    return [
        Operation(index=0, kind=Kind.CREATE, path=path, inode=inode),
        Operation(
            index=0, kind=Kind.WRITE, path=path, inode=inode, size=len(content), at=writer.keep(content)
        ),
    ]


def test_states_are_listed_by_save_with_their_bounds_and_in_words(recording):
    text = shown("states", recording)
    assert text.startswith("save-4: 6 operations, number 1 to 6; ")
    assert "  kill: " in text
    assert "(at most m + " in text
    assert "killed when optimizer.pt was still empty" in text
    assert "power lost before the fsync of model.pt, of model.pt only the first half" in text


def test_states_as_json_have_a_schema_and_the_same_names(recording):
    plain = json.loads(shown("states", recording, "--json"))
    assert plain["schema"] == "samestep.crash-states/1"
    names = [state["name"] for state in plain["saves"][0]["states"]]
    assert len(names) == plain["saves"][0]["total"]
    assert all(name in shown("states", recording) for name in names)


def test_few_states_are_the_most_telling_and_a_part_of_all(recording):
    every = json.loads(shown("states", recording, "--json"))["saves"][0]
    few = json.loads(shown("states", recording, "--json", "--max-states", "3"))["saves"][0]
    assert len(few["states"]) == 3
    assert few["total"] == every["total"]
    assert all(state in every["states"] for state in few["states"])
    assert "3 shown" in shown("states", recording, "--max-states", "3")


def test_models_are_taken_as_a_list(recording):
    plain = json.loads(shown("states", recording, "--json", "--models", "kill,posix-worst"))
    assert [count.split(":")[0] for count in plain["saves"][0]["counts"]] == ["kill", "posix-worst"]


def test_a_state_is_shown_file_by_file_beside_the_end_of_the_save(recording):
    text = shown("show", recording, state_that(recording, "halfway through a write to model.pt"))
    assert "killed halfway through a write to model.pt" in text
    assert "step-4/model.pt      torn, 4500 of 9000 bytes" in text
    assert "step-4/optimizer.pt  missing, 100 bytes at the end of the save" in text


def test_a_state_of_a_drill_is_found_by_its_scenario(recording):
    name = state_that(recording, "killed before the fsync of model.pt")
    plain = json.loads(shown("show", recording, f"crash/{name}", "--json"))
    assert plain["schema"] == "samestep.crash-state/1"
    assert {file["path"]: file["state"] for file in plain["files"]} == {
        FILE: "whole",
        "step-4/optimizer.pt": "missing",
    }


def test_the_model_in_a_name_need_not_be_asked_for(recording):
    names = json.loads(shown("states", recording, "--json", "--models", "posix-worst"))["saves"][0]["states"]
    lost = next(state["name"] for state in names if "without" in state["name"])
    assert lost in shown("show", recording, lost)


def test_a_state_is_written_where_it_is_wanted(recording, tmp_path):
    name = state_that(recording, "halfway through a write to model.pt")
    text = shown("show", recording, name, "--to", tmp_path / "state")
    assert (tmp_path / "state" / FILE).read_bytes() == b"w" * 4500
    assert f"written to {tmp_path / 'state'}" in text


def test_nothing_is_written_over(recording, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="is not empty"):
        shown("show", recording, "save-4/kill/start", "--to", tmp_path / "mine")
    with pytest.raises(UsageError, match="is a file"):
        shown("show", recording, "save-4/kill/start", "--to", tmp_path / "mine" / "thesis.txt")
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"


def test_a_folder_that_is_no_recording_is_named(tmp_path):
    with pytest.raises(MachineError, match="holds no recording") as raised:
        shown("states", tmp_path)
    assert "samestep crash record" in raised.value.hint


def test_unknown_states_saves_and_models_are_answered_with_known_ones(recording):
    with pytest.raises(UsageError, match="no state") as raised:
        shown("show", recording, "save-4/kill/op-0")
    assert raised.value.hint.startswith("did you mean save-4/kill/op-")
    with pytest.raises(UsageError, match="no save 'save-5'") as raised:
        shown("states", recording, "--window", "save-5")
    assert raised.value.hint == "saves: save-4"
    with pytest.raises(UsageError, match="no persistence model") as raised:
        shown("states", recording, "--models", "zfs")
    assert "power-ext4" in raised.value.hint


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_command_that_is_not_there_is_named_and_leaves_no_recording(here):
    with pytest.raises(UsageError, match="command not found: no-such-command-anywhere") as raised:
        shown("record", "--", "no-such-command-anywhere", "{out}")
    assert raised.value.exit_code is ExitCode.USAGE
    assert list(here.iterdir()) == []


def test_a_file_that_is_no_program_is_told_from_one_that_is_missing(here):
    (here / "train.py").write_text("print('hi')\n")
    with pytest.raises(UsageError, match=r"command cannot be executed: \./train\.py"):
        shown("record", "--", "./train.py", "{out}")


@pytest.mark.parametrize("text", ["x", "1:", ":1", "1:2:3", "-1", "a:1", "1.5", "²"])
def test_a_place_to_stop_that_is_none_is_refused_with_an_example(here, text):
    with pytest.raises(UsageError, match="expected a number of operations") as raised:
        shown("record", f"--stop-at={text}", "--", "true", "{out}")
    assert "--stop-at 1:12" in raised.value.hint
    assert list(here.iterdir()) == []


def test_a_command_that_names_no_folder_is_not_recorded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="which folder to watch") as raised:
        shown("record", "--", "true")
    assert "--root" in raised.value.hint
    with pytest.raises(UsageError, match="inside the watched folder"):
        shown("record", "--root", ".", "--", "true")
    assert not any((tmp_path / ".samestep" / "recordings").iterdir())
