"""What a run refuses to go on with, and what it says then; the bundles that were there stay as they were."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time

import pytest

from run_trainings import train
from samestep.bundle.storage.local import LocalStorage
from samestep.bundle.store import Store


def bundles(root):
    store = Store.open(LocalStorage(root), writing=False)
    return [(bundle.step, store.verify(bundle).whole) for bundle in store.bundles()]


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    root = tmp_path_factory.mktemp("finished") / "root"
    result = train("training", root, steps=8)
    assert result.exit_code == 0, result.text
    return root


@pytest.fixture
def root(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "root")


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        ("wider", {}, "model.3.weight"),
        ("descending", {}, "optimizer.kind was torch.AdamW and is now torch.SGD"),
        ("otherdata", {}, "was made with data of version"),
        ("reordered", {}, "shuffle"),
        ("training", {"steps": 9}, "schedule.T_max was 8 and is now 9"),
        ("training", {"data_version": "v2"}, "v2"),
        ("training", {"seed": 5}, "seed was 0 and is 5"),
    ],
    ids=["shape", "optimizer", "data", "order", "schedule", "version", "seed"],
)
def test_a_changed_training_is_not_resumed_and_the_change_is_named(root, kind, options, said):
    before = bundles(root)
    refused = train(kind, root, **{"steps": 8, **options})
    assert refused.exit_code == 1
    assert said in refused.text
    assert not refused.losses
    assert bundles(root) == before


def test_state_that_nobody_named_keeps_a_run_from_starting(tmp_path):
    refused = train("forgetful", tmp_path / "root")
    assert refused.exit_code == 1
    for name in (
        "second (SGD, optimizer)",
        "shadow (Sequential, ema)",
        "validation (DataLoader, data-position)",
    ):
        assert f"training.{name}" in refused.text
    assert "run.irrelevant(" in refused.text
    assert not (tmp_path / "root").exists()


def test_a_batch_that_cannot_be_had_ends_the_run_and_the_save_in_flight_becomes_a_bundle(tmp_path):
    thrown = train("throwing", tmp_path / "root", steps=8)
    assert thrown.exit_code == 1
    assert "sample 41 is broken" in thrown.text
    assert bundles(tmp_path / "root") == [(4, True)]


def test_a_place_that_cannot_hold_a_store_is_named_before_anything_is_trained(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    refused = train("training", blocked, steps=8)
    assert refused.exit_code == 1
    assert str(blocked) in refused.text
    assert not refused.losses


def test_a_store_that_is_taken_away_ends_the_run_with_the_newest_bundle_named(tmp_path):
    root = tmp_path / "root"
    gone = train("training", root, steps=24, remove_at=6)
    assert gone.exit_code == 1
    assert re.search(r"SaveFailed: the save of step [48] failed: .*Not a directory", gone.text)
    assert "the newest" in gone.text or "there is no bundle yet" in gone.text


def test_a_run_that_may_goes_on_after_a_failed_save_and_says_so(tmp_path):
    """And no failed save keeps the memory that the next one needs, for which that would wait a minute."""
    root, began = tmp_path / "root", time.monotonic()
    gone = train("training", root, steps=10, remove_at=6, on_save_error="continue", progress=True)
    assert time.monotonic() - began < 30
    assert re.search(r"warning: the save of step [48] failed", gone.text)
    assert len(gone.losses) == 10


def test_a_second_process_of_the_run_fences_the_first_which_then_stops(tmp_path):
    root = tmp_path / "root"
    first = train("training", root, steps=24, meanwhile_at=6)
    assert first.exit_code == 1
    assert "may not commit any more" in first.text
    assert bundles(root)[0] == (24, True)


def test_ctrl_c_once_saves_and_leaves(tmp_path):
    left = train("training", tmp_path / "root", signals={6: [signal.SIGINT]})
    assert left.exit_code == 130
    assert bundles(tmp_path / "root")[0] == (6, True)


def test_ctrl_c_twice_leaves_at_once_and_the_last_bundle_stays(tmp_path):
    left = train("training", tmp_path / "root", signals={6: [signal.SIGINT, signal.SIGINT]})
    assert left.exit_code not in (0, 130, 75)
    assert "KeyboardInterrupt" in left.text
    assert all(step == 4 for step, _ in bundles(tmp_path / "root"))


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGUSR1], ids=lambda one: one.name)
def test_a_notice_saves_the_step_and_asks_for_a_restart(sent, tmp_path):
    left = train("training", tmp_path / "root", signals={6: [sent]})
    assert left.exit_code == 75
    assert bundles(tmp_path / "root")[0] == (6, True)
    journals = [path.read_text().splitlines() for path in (tmp_path / "root/logs").glob("a-*.jsonl")]
    events = [json.loads(line)["event"] for line in journals[0]]
    assert events[1:3] == ["attempt-started", "decision"]
    assert events[-2:] == ["steps", "ended"] or events[-1] == "ended"
    assert "notice" in events


def test_a_finished_run_that_is_started_again_takes_no_step(root):
    before = bundles(root)
    again = train("training", root, steps=8)
    assert again.exit_code == 0
    assert not again.losses
    assert bundles(root) == before


def test_a_damaged_newest_bundle_is_set_aside_and_the_one_before_it_taken(root):
    store = Store.open(LocalStorage(root), writing=False)
    part = root / "bundles" / store.bundle("latest").id / "model.safetensors"
    part.chmod(0o644)
    content = bytearray(part.read_bytes())
    content[-8] ^= 1
    part.write_bytes(content)
    resumed = train("training", root, steps=8, progress=True)
    assert resumed.exit_code == 0, resumed.text
    assert "is damaged" in resumed.text
    assert "digest-differs" in resumed.text
    assert len(resumed.losses) == 4


def test_with_every_bundle_damaged_nothing_is_begun_again_by_itself(root):
    for part in root.glob("bundles/*/model.safetensors"):
        part.chmod(0o644)
        os.truncate(part, 100)
    refused = train("training", root, steps=8)
    assert refused.exit_code == 1
    assert "none of them can be used" in refused.text
    assert not refused.losses
