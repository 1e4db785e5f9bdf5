"""A run's own store among the checkpoints: which bundles are there, which is taken, what is wrong with one."""

from __future__ import annotations

import pytest

from bundle_samples import save, started
from samestep.bundle.retention import Policy
from samestep.bundle.storage.local import LocalStorage
from samestep.checkpoints import SAMESTEP, find_units, inspect_path, saved_steps, would_pick
from samestep.contract import Component


@pytest.fixture
def root(tmp_path):
    return tmp_path / "out" / "run"


@pytest.fixture
def store(root):
    store, attempt = started(LocalStorage(root))
    for step in (2, 4, 6):
        save(attempt, step)
    (root / "bundles" / "b-unfinished").mkdir()
    (root / "bundles" / "b-unfinished" / "model.safetensors").write_bytes(b"never committed")
    return store


def test_committed_bundles_are_the_units_of_a_root_with_their_steps(store, root):
    units = find_units(root.parent)
    assert [(unit.framework, unit.step) for unit in units] == [(SAMESTEP, 2), (SAMESTEP, 4), (SAMESTEP, 6)]
    assert [unit.path for unit in units[::-1]] == [f"run/bundles/{bundle.id}" for bundle in store.bundles()]
    assert units[0].pointers == ("run/chain/0000000002.json",)


def test_a_bundle_that_was_given_up_is_no_unit_and_still_tells_its_step(store, root):
    given_up = store.prune(Policy(keep_last=1)).retired
    assert [unit.step for unit in find_units(root)] == [6]
    steps = saved_steps(root.parent)
    assert {steps[f"run/bundles/{ref.id}"] for ref in given_up} == {2, 4}
    assert steps["run"] == -1
    assert steps["run/chain/0000000004.json"] == 6


def test_the_newest_bundle_whose_parts_are_as_long_as_they_should_be_is_taken(store, root):
    newest = store.bundle("latest")
    assert would_pick(root).step == 6
    part = root / "bundles" / newest.id / "model.safetensors"
    part.chmod(0o644)
    part.write_bytes(part.read_bytes()[:-1])
    assert would_pick(root).step == 4
    problems = [str(problem) for problem in inspect_path(root).inspections[-1].problems]
    assert any(text.startswith(f"bundles/{newest.id}/model.safetensors has ") for text in problems)


def test_what_a_bundle_holds_is_what_its_manifest_says(store, root):
    inspection = inspect_path(root).inspections[-1]
    found = {report.component: str(report.presence) for report in inspection.components}
    assert found[Component.WEIGHTS] == found[Component.OPTIMIZER] == "present"
    assert Component.SCHEDULE not in found


def test_a_record_that_cannot_be_read_is_passed_over(store, root):
    record = root / "chain" / "0000000003.json"
    record.chmod(0o644)
    record.write_bytes(b"{torn")
    assert [unit.step for unit in find_units(root)] == [2, 6]


def test_a_folder_that_is_no_root_tells_no_steps(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    assert saved_steps(tmp_path) == {}
