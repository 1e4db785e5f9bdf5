"""Bundles that go elsewhere: to another root, to a new run, as plain weights to a folder."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from forging import Forge
from samestep.bundle.copying import begin_new_run, copy, export
from samestep.bundle.errors import DamageError, StoreError
from samestep.bundle.sealing import Statements, seal
from samestep.bundle.storage.opening import open_storage
from samestep.bundle.store import Store
from samestep.errors import UsageError


@pytest.fixture
def forge():
    return Forge()


@pytest.fixture
def source(tmp_path):
    return Store.create(open_storage(tmp_path / "root"))


@pytest.fixture
def bundle(source, forge, tmp_path):
    folder = forge.trainer_checkpoint(tmp_path / "out" / "checkpoint-240", 240)
    save_file({"layer.weight": np.arange(6, dtype=np.float32).reshape(2, 3)}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": "none"}))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "README.md").write_text("a card")
    return seal(source.register(source.select(), "test"), folder)


def restored(store, bundle, to):
    folder = store.restore(bundle, to=to)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def flip(store, bundle, name):
    part = next(part for part in bundle.manifest.parts if part.path == name)
    path = Path(store.storage.url.removeprefix("file://")) / bundle.key_of(part)
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)


@pytest.mark.parametrize("where", ["folder", "memory"])
def test_a_copy_is_the_same_bundle_in_a_run_of_its_own(source, bundle, tmp_path, where):
    place = open_storage(tmp_path / "copies" if where == "folder" else "memory:")
    made = copy(source, bundle, place)
    other = Store.open(place, writing=True)
    assert other.run.id != source.run.id
    assert {key: other.run.lineage[key] for key in ("run", "bundle", "step", "intent")} == {
        "run": source.run.id,
        "bundle": bundle.id,
        "step": 240,
        "intent": "resume",
    }
    assert str(tmp_path) not in json.dumps(other.run.lineage)
    assert made.id != bundle.id
    assert (made.manifest.name, made.manifest.contract) == (bundle.manifest.name, bundle.manifest.contract)
    assert made.manifest.environment == bundle.manifest.environment
    assert restored(other, made, tmp_path / "a") == restored(source, bundle, tmp_path / "b")
    assert other.select().bundle == made.id


def test_a_second_copy_shares_what_has_not_changed(source, bundle, forge, tmp_path):
    place = open_storage(tmp_path / "copies")
    copy(source, bundle, place)
    later = forge.trainer_checkpoint(tmp_path / "out" / "checkpoint-480", 480)
    (later / "model.safetensors").write_bytes(
        (tmp_path / "out/checkpoint-240/model.safetensors").read_bytes()
    )
    second = copy(source, seal(source.register(source.select(), "test"), later), place)
    assert {part.path: part.share_depth for part in second.manifest.parts}["model.safetensors"] == 1
    assert [one.step for one in Store.open(place, writing=False).bundles()] == [480, 240]


def test_a_copy_of_an_older_step_does_not_take_a_run_back(source, bundle, forge, tmp_path):
    place = open_storage(tmp_path / "copies")
    later = forge.trainer_checkpoint(tmp_path / "out" / "checkpoint-480", 480)
    copy(source, seal(source.register(source.select(), "test"), later), place)
    with pytest.raises(StoreError, match="step 240 lies before step 480"):
        copy(source, bundle, place)


@pytest.mark.parametrize("name", ["optimizer.pt", "trainer_state.json"])
def test_damage_in_the_source_is_noticed_and_nothing_is_committed(source, bundle, tmp_path, name):
    flip(source, bundle, name)
    place = open_storage(tmp_path / "copies")
    with pytest.raises(DamageError, match=name):
        copy(source, bundle, place)
    assert Store.open(place, writing=False).select().outcome == "empty"


def test_a_copy_onto_itself_is_refused(source, bundle):
    with pytest.raises(UsageError, match="is the root that"):
        copy(source, bundle, source.storage)


def test_bytes_are_reported_while_copying(source, bundle, tmp_path):
    reported = []
    copy(source, bundle, open_storage(tmp_path / "copies"), report=reported.append)
    assert sum(reported) == bundle.manifest.size


def test_exported_weights_open_as_they_are_and_nothing_else_comes_along(source, bundle, tmp_path):
    folder = export(source, bundle, tmp_path / "weights")
    assert sorted(path.name for path in folder.iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    ]
    assert load_file(folder / "model.safetensors")["layer.weight"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_local_bundles_weights_open_where_they_are_stored(source, bundle):
    root = Path(source.storage.url.removeprefix("file://"))
    part = next(part for part in bundle.manifest.parts if part.path == "model.safetensors")
    assert load_file(root / bundle.key_of(part))["layer.weight"].shape == (2, 3)


def test_damaged_weights_are_not_exported(source, bundle, tmp_path):
    flip(source, bundle, "model.safetensors")
    with pytest.raises(DamageError, match=r"model.safetensors"):
        export(source, bundle, tmp_path / "weights")
    assert not (tmp_path / "weights").exists()


def test_weights_in_shards_of_their_framework_are_refused_with_a_way_out(source, forge, tmp_path):
    forge.torch_file(
        tmp_path / "global_step4" / "mp_rank_00_model_states.pt",
        {"module": forge.weights(), "global_steps": 4, "dp_world_size": 1},
    )
    forge.torch_file(
        tmp_path / "global_step4" / "zero_pp_rank_0_mp_rank_00_optim_states.pt", {"o": forge.optimizer()}
    )
    attempt = source.register(source.select(), "test")
    sealed = seal(attempt, tmp_path / "global_step4", Statements(allow_open=True))
    with pytest.raises(UsageError, match="shards of deepspeed") as raised:
        export(source, sealed, tmp_path / "weights")
    assert "--intent resume" in raised.value.hint


def test_a_new_run_keeps_its_lineage_and_reason(source, bundle, tmp_path):
    new = begin_new_run(source, bundle, open_storage(tmp_path / "new"), "a lower learning rate")
    kept = Store.open(new.storage, writing=False).run.lineage
    assert (kept["intent"], kept["bundle"], kept["reason"]) == ("new-run", bundle.id, "a lower learning rate")
    assert new.select().outcome == "empty"
    with pytest.raises(StoreError, match="already holds"):
        begin_new_run(source, bundle, new.storage, "again")


def test_a_new_run_without_a_reason_is_refused(source, bundle, tmp_path):
    with pytest.raises(UsageError, match="needs a reason"):
        begin_new_run(source, bundle, open_storage(tmp_path / "new"), " ")
    assert not (tmp_path / "new").exists()
