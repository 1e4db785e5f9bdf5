"""``samestep inspect`` at the command line."""

import json
import os
import pickle
import subprocess
import sys

import pytest
from click.testing import CliRunner

from samestep.cli.inspect import inspect


def run(*arguments):
    return CliRunner().invoke(inspect, [str(argument) for argument in arguments])


def test_the_exit_status_answers_the_intent(forge, tmp_path):
    folder = forge.trainer_checkpoint(tmp_path / "checkpoint-6", 6)
    assert run(folder).exit_code == 0
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        (folder / name).unlink()
    assert run(folder).exit_code == 1
    assert run(folder, "--for", "resume").exit_code == 1
    assert run(folder, "--for", "new-run").exit_code == 0
    assert run(folder, "--for", "weights").exit_code == 0


def test_the_text_names_the_missing_file_and_every_intent(forge, tmp_path):
    folder = forge.trainer_checkpoint(tmp_path / "checkpoint-6", 6)
    (folder / "optimizer.pt").unlink()
    text = run(tmp_path).output
    assert "checkpoint-6/optimizer.pt is missing" in text
    for word in ("weights", "new-run", "resume", "skipped silently", "HF Trainer, step 6"):
        assert word in text


def test_json_is_one_object_with_a_schema(forge, tmp_path):
    for step in (6, 12):
        forge.trainer_checkpoint(tmp_path / f"checkpoint-{step}", step)
    found = json.loads(run(tmp_path, "--json").output)
    assert found["schema"] == "samestep.inspect/1"
    assert (found["intent"], found["verdict"]) == ("resume", "yes")
    assert found["selection"]["unit"] == found["newest_whole"] == "checkpoint-12"
    first = found["checkpoints"][0]
    assert (first["path"], first["framework"], first["step"], first["whole"]) == (
        "checkpoint-6",
        "transformers",
        6,
        True,
    )
    assert {"component": "optimizer", "presence": "present", "where": "optimizer.pt", "note": ""} in first[
        "components"
    ]


@pytest.mark.parametrize("content", [None, b"hello"])
def test_bad_paths_end_with_status_2_a_hint_and_no_traceback(tmp_path, content):
    path = tmp_path / "thing.txt"
    if content is not None:
        path.write_bytes(content)
    done = subprocess.run(
        [sys.executable, "-m", "samestep", "inspect", str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "hint:" in done.stderr
    assert "Traceback" not in done.stderr


class Bomb:
    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return (os.system, (f"touch {self.target}",))


def test_a_malicious_pickle_is_shown_and_not_run(tmp_path):
    target = tmp_path / "created"
    (tmp_path / "c.pt").write_bytes(pickle.dumps({"model": Bomb(target)}))
    done = run(tmp_path / "c.pt")
    assert done.exit_code == 1
    assert "can run commands when it is unpickled: posix.system" in done.output
    assert not target.exists()


def test_control_characters_in_a_pickle_do_not_reach_the_terminal(tmp_path):
    (tmp_path / "c.pt").write_bytes(b"\x80\x02cos\n\x1b[2Jsystem\n.")
    text = run(tmp_path / "c.pt").output
    assert "\x1b" not in text
    assert "[2Jsystem" in text


def test_torch_is_not_imported():
    code = "import samestep.cli.inspect, sys; print('torch' in sys.modules or 'numpy' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "False"
