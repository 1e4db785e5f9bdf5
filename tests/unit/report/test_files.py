"""Files of a drill: written whole or not at all, and read with messages that help."""

import math

import pytest

from report_samples import SAMPLES, defect_result, noisy_result
from samestep.errors import UsageError
from samestep.report import (
    decode_result,
    encode_result,
    find_result,
    load_result,
    render_terminal,
    write_reports,
)
from samestep.report.stored import write_atomically


@pytest.mark.parametrize("kind", [kind for kind in SAMPLES if kind != "hostile"])
def test_a_result_survives_the_round_trip(kind):
    result = SAMPLES[kind]()
    assert decode_result(encode_result(result), "drill.json") == result


def test_numbers_that_are_none_come_back_as_unknown():
    result = SAMPLES["hostile"]()
    loss = decode_result(encode_result(result), "drill.json").scenarios[0].series[0].loss
    assert loss[1:3] == [None, None]


def test_an_unlimited_tolerance_comes_back_unlimited():
    criterion = decode_result(encode_result(noisy_result()), "drill.json").criterion
    assert criterion.tolerances["0/exp_avg"] == math.inf


def test_writing_makes_all_four_files_and_leaves_nothing_else(tmp_path):
    paths = write_reports(defect_result(), tmp_path / "run")
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == [
        "drill.json",
        "junit.xml",
        "report.html",
        "summary.md",
    ]
    assert load_result(paths["json"]) == defect_result() == load_result(tmp_path / "run")


def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "drill.json"
    path.write_text("old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_result_suggests_a_drill(tmp_path):
    with pytest.raises(UsageError) as caught:
        load_result(tmp_path / "nowhere.json")
    assert "nowhere.json" in caught.value.message
    assert "samestep drill" in caught.value.hint


def test_a_result_cut_off_is_named_as_such(tmp_path):
    path = tmp_path / "drill.json"
    path.write_bytes(encode_result(defect_result())[:-200])
    with pytest.raises(UsageError, match="no complete JSON") as caught:
        load_result(path)
    assert "cut off" in caught.value.hint


@pytest.mark.parametrize("content", [b"[]", b'{"schema": "samestep.drill/9"}', b'{"a": 1}'])
def test_another_schema_is_refused(content):
    with pytest.raises(UsageError, match="expected 'samestep"):
        decode_result(content, "drill.json")


def test_a_wrong_field_is_named():
    broken = encode_result(defect_result()).replace(b'"outcome": "different"', b'"outcome": "odd"', 1)
    with pytest.raises(UsageError, match="outcome"):
        decode_result(broken, "drill.json")


def test_a_run_is_found_by_file_folder_id_and_as_the_latest(tmp_path):
    state = tmp_path / ".samestep"
    file = state / "runs" / "r1" / "drill.json"
    file.parent.mkdir(parents=True)
    file.write_bytes(encode_result(defect_result()))
    (state / "latest").symlink_to("runs/r1")
    assert find_result(file, state) == file
    assert find_result(file.parent, state) == file
    assert find_result("r1", state) == file
    assert find_result(None, state).resolve() == file.resolve()


def test_an_unknown_run_lists_the_known_ones(tmp_path):
    file = tmp_path / "runs" / "r1" / "drill.json"
    file.parent.mkdir(parents=True)
    file.touch()
    with pytest.raises(UsageError) as caught:
        find_result("r2", tmp_path)
    assert "r1" in caught.value.hint


def test_without_any_drill_there_is_a_hint(tmp_path):
    with pytest.raises(UsageError, match="no finished drill"):
        find_result(None, tmp_path)


def with_secrets():
    result = defect_result()
    result.command = [
        "env",
        "WANDB_API_KEY=s3cr3t-1",
        "python",
        "train.py",
        "--hub_token",
        "s3cr3t-2",
        "--out",
        "{out}",
    ]
    result.resume_with = ["--password", "s3cr3t-3", "--resume", "{checkpoint}"]
    for scenario in result.scenarios:
        scenario.replay = "samestep drill --replay a -- python train.py --api-key=s3cr3t-4 --out {out}"
        scenario.title += " restarted with --token s3cr3t-5"
    return result


def test_no_report_shows_a_secret_of_a_command(tmp_path):
    paths = write_reports(with_secrets(), tmp_path)
    for path in paths.values():
        text = path.read_text()
        assert "s3cr3t" not in text, path
    assert "s3cr3t" not in render_terminal(with_secrets())


def test_a_command_without_its_secrets_can_still_be_read(tmp_path):
    write_reports(with_secrets(), tmp_path)
    shown = load_result(tmp_path).command
    assert " ".join(shown) == "env WANDB_API_KEY=*** python train.py --hub_token *** --out {out}"
