"""A run whose root is an object store, and what it says when that place fails it, or is none that lasts."""

from __future__ import annotations

import json
import re
import signal

import pytest

from run_trainings import Bucket, train, train_ranks
from samestep.bundle.store import Store
from servers import emulators


@pytest.fixture(scope="module")
def s3():
    try:
        return emulators.running("s3")
    except emulators.Unavailable as missing:
        pytest.skip(str(missing))


@pytest.fixture
def bucket(s3, tmp_path):
    def place(**broken):
        return Bucket(s3.port, f"run/{tmp_path.name}", **broken)

    return place


def bundles(s3, bucket):
    """Steps of the bundles that are whole."""
    store = Store.open(s3.opened(bucket.prefix), writing=False)
    return [bundle.step for bundle in store.bundles() if store.verify(bundle).whole]


@pytest.fixture(scope="module")
def control(tmp_path_factory):
    result = train("training", tmp_path_factory.mktemp("control") / "root")
    assert result.exit_code == 0, result.text
    return result


def test_a_run_in_a_bucket_is_killed_and_goes_on_as_if_nothing_had_happened(s3, bucket, control, tmp_path):
    killed = train("training", tmp_path / "here", bucket=bucket(), kill_at=13)
    assert killed.exit_code == -signal.SIGKILL, killed.text
    resumed = train("training", tmp_path / "here", bucket=bucket(), progress=True)
    assert resumed.exit_code == 0, resumed.text
    losses = list(control.losses.values())
    assert list(killed.losses.values()) == losses[: len(killed.losses)]
    assert list(resumed.losses.values()) == losses[-len(resumed.losses) :]
    assert resumed.digest == control.digest
    assert "2 attempts" in resumed.text
    assert bundles(s3, bucket()) == [24, 20, 16]
    assert not (tmp_path / "here").exists()


def test_the_journal_of_a_run_in_a_bucket_lies_on_this_machine_and_in_the_bucket(s3, bucket, tmp_path):
    result = train("training", tmp_path / "here", bucket=bucket(), steps=8)
    assert result.exit_code == 0, result.text
    (local,) = (tmp_path / ".samestep/logs").glob("*/a-*.jsonl")
    events = [json.loads(line)["event"] for line in local.read_text().splitlines()]
    assert events[-1] == "ended"
    store = Store.open(s3.opened(bucket().prefix), writing=False)
    carried = [key for bundle in store.bundles() for key in bundle.manifest.journal]
    assert carried
    assert all(store.storage.size(key) for key in carried)


@pytest.mark.parametrize("fault", ["404", pytest.param("reset", marks=pytest.mark.full)])
def test_a_bucket_that_is_gone_ends_the_run_with_the_newest_bundle_named(s3, bucket, fault, tmp_path):
    gone = train("training", tmp_path / "here", bucket=bucket(broken_at=6, fault=fault))
    assert gone.exit_code == 1
    assert re.search(r"SaveFailed: the save of step [48] failed: s3://bundles/run/", gone.text)
    assert "the bundle of step 4 is the newest" in gone.text or "there is no bundle yet" in gone.text
    assert len(gone.losses) <= 12
    assert bundles(s3, bucket()) in ([], [4])


@pytest.mark.full
def test_a_run_that_may_outlives_its_bucket_and_says_so(s3, bucket, tmp_path):
    gone = train(
        "training",
        tmp_path / "here",
        bucket=bucket(broken_at=6),
        on_save_error="continue",
        progress=True,
        steps=10,
    )
    assert re.search(r"warning: the save of step [48] failed", gone.text)
    assert len(gone.losses) == 10
    assert bundles(s3, bucket()) in ([], [4])


@pytest.mark.parametrize(
    "begun", [pytest.param(False, id="new"), pytest.param(True, id="resumed", marks=pytest.mark.full)]
)
def test_a_bucket_that_may_only_be_read_is_named_before_anything_is_trained(s3, bucket, begun, tmp_path):
    if begun:
        assert train("training", tmp_path / "here", bucket=bucket(), steps=8).exit_code == 0
    refused = train(
        "training", tmp_path / "here", bucket=bucket(broken_at=0, fault="403", method="PUT"), steps=8
    )
    assert refused.exit_code == 1
    assert f"s3://bundles/{bucket().prefix}" in refused.text
    assert "lacked the necessary privileges" in refused.text
    assert "hint: Give these credentials leave to read, write, list and delete" in refused.text
    assert not refused.losses


@pytest.mark.full
def test_a_bucket_that_becomes_read_only_ends_the_run_at_the_next_step(s3, bucket, tmp_path):
    denied = train(
        "training",
        tmp_path / "here",
        bucket=bucket(broken_at=6, fault="403", method="PUT"),
        asynchronous=False,
    )
    assert denied.exit_code == 1
    assert "SaveFailed: the save of step 8 failed: " in denied.text
    assert len(denied.losses) == 8
    assert bundles(s3, bucket()) == [4]


def test_bundles_in_memory_are_said_to_be_gone_with_the_process(control, tmp_path):
    trained = train("training", tmp_path / "here", url="memory:", progress=True)
    assert trained.exit_code == 0, trained.text
    assert "warning: bundles in memory: are gone when this process ends" in trained.text
    assert "saved b-" in trained.text
    assert trained.digest == control.digest


@pytest.mark.full
def test_several_ranks_cannot_share_the_memory_of_one(tmp_path):
    for refused in train_ranks("replicated", tmp_path / "here", 2, url="memory:", limit_seconds=10):
        assert refused.exit_code == 1
        assert "memory: is the memory of one process, and 2 ranks train here" in refused.text
        assert not refused.losses
