"""Every way out of a loop: nothing that was trained is lost, and no step is counted wrongly."""

from __future__ import annotations

import pytest

from run_trainings import train
from samestep.bundle.storage.local import LocalStorage
from samestep.bundle.store import Store


def newest_step(root):
    store = Store.open(LocalStorage(root), writing=False)
    return max((bundle.step for bundle in store.bundles()), default=None)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    result = train("training", tmp_path_factory.mktemp("plain") / "root")
    assert result.exit_code == 0, result.text
    return result


def test_a_loop_that_is_broken_off_and_closed_saves_the_step_that_was_made_last(plain, tmp_path):
    left = train("brokenoff", tmp_path / "root")
    assert left.exit_code == 0, left.text
    assert newest_step(tmp_path / "root") == 7
    resumed = train("training", tmp_path / "root")
    assert resumed.digest == plain.digest


@pytest.mark.parametrize(
    "kind",
    ["reentered", pytest.param("toldtwice", marks=pytest.mark.full)],
    ids=["left-at-epochs-and-begun-again", "told-of-each-step"],
)
def test_a_loop_counts_every_step_once_and_saves_when_due(kind, plain, tmp_path):
    result = train(kind, tmp_path / "root", keep=None)
    assert result.exit_code == 0, result.text
    assert result.digest == plain.digest
    store = Store.open(LocalStorage(tmp_path / "root"), writing=False)
    assert sorted(bundle.step for bundle in store.bundles()) == [4, 8, 12, 16, 20, 24]


def test_a_run_that_ends_inside_a_window_saves_its_last_update_and_what_was_gathered(tmp_path):
    result = train("leftover", tmp_path / "root", progress=True)
    assert result.exit_code == 0, result.text
    assert newest_step(tmp_path / "root") == 3
    assert "after step 3 1 micro-steps were made and no update" in result.text
    store = Store.open(LocalStorage(tmp_path / "root"), writing=False)
    manifest = next(bundle for bundle in store.bundles() if bundle.step == 3).manifest
    assert manifest.progress["micro_steps"] == 1
    assert "accumulation" in {component for part in manifest.parts for component in part.components}


def test_a_save_in_flight_becomes_a_bundle_when_the_loop_s_body_raises(tmp_path):
    raised = train("raising", tmp_path / "root")
    assert raised.exit_code == 1
    assert "the body is broken" in raised.text
    assert newest_step(tmp_path / "root") == 4
