"""A finished checkpoint becomes a bundle, and comes back under the name that its framework expects."""

from __future__ import annotations

import errno
import gc
import os
import shutil
import threading
import warnings
import weakref
from pathlib import Path

import pytest

from bundle_memory import MemoryStorage
from bundle_samples import started
from forging import Forge
from samestep.bundle import folders, sealing
from samestep.bundle.errors import AllDamaged, CommitRefused, FencedError, NothingToResume, StoreError
from samestep.bundle.folders import look_at, states_of
from samestep.bundle.placing import other_pick, put_back, put_back_selected
from samestep.bundle.sealing import Statements, here, seal
from samestep.bundle.storage.opening import open_storage
from samestep.bundle.store import Store
from samestep.bundle.watching import Watcher
from samestep.checkpoints import find_units


@pytest.fixture
def forge():
    return Forge()


@pytest.fixture
def store(tmp_path):
    return Store.create(open_storage(tmp_path / "root"))


@pytest.fixture
def attempt(store):
    return store.register(store.select(), "sealing")


@pytest.fixture
def trained(forge, tmp_path):
    return forge.trainer_checkpoint(tmp_path / "out" / "checkpoint-240", 240)


def contents(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file()
    }


def test_a_sealed_folder_comes_back_byte_for_byte_under_its_name(store, attempt, trained, tmp_path):
    (trained / "nested").mkdir()
    (trained / "nested" / ".metadata").write_bytes(b"dotted names belong to frameworks, too")
    before = contents(trained)
    bundle = seal(attempt, trained)
    into = tmp_path / "fresh machine"
    assert put_back(store, bundle, into) == into / "checkpoint-240"
    assert contents(into / "checkpoint-240") == before
    assert [path.name for path in into.iterdir()] == ["checkpoint-240"]


def test_the_manifest_says_what_was_sealed(store, attempt, trained):
    manifest = seal(attempt, trained, Statements(code={"commit": "abc"})).manifest
    assert (manifest.origin, manifest.framework) == ("sealed", "transformers")
    assert (manifest.name, manifest.step) == ("checkpoint-240", 240)
    assert manifest.code == {"commit": "abc"}
    assert manifest.environment == here()
    assert {part.path: part.components for part in manifest.parts}["optimizer.pt"] == ("optimizer",)
    assert store.select().bundle == manifest.id


def test_a_checkpoint_that_leaves_a_component_open_is_refused_with_the_reason(
    store, attempt, forge, tmp_path
):
    path = forge.torch_file(tmp_path / "ckpt.pt", forge.checkpoint(8))
    with pytest.raises(CommitRefused, match=r"data-order: nothing in the files shows it") as raised:
        seal(attempt, path)
    assert "--rebuilt NAME=HOW" in raised.value.hint
    assert store.select().outcome == "empty"
    bundle = seal(attempt, path, Statements(rebuilt={"data-order": "from the seed in the config"}))
    assert store.select().bundle == bundle.id


def test_what_is_sealed_with_open_rows_is_never_resumed_from(store, attempt, forge, tmp_path):
    path = forge.torch_file(tmp_path / "ckpt.pt", forge.checkpoint(8))
    bundle = seal(attempt, path, Statements(allow_open=True))
    decision = store.select()
    assert decision.outcome == "damaged"
    assert [one.reason for one in decision.set_aside] == ["row-open"]
    assert store.select(intent="weights").bundle == bundle.id


def test_unchanged_files_are_not_stored_twice(store, attempt, trained, forge, tmp_path):
    seal(attempt, trained)
    later = forge.trainer_checkpoint(tmp_path / "out" / "checkpoint-480", 480)
    parts = {part.path: part for part in seal(attempt, later).manifest.parts}
    assert parts["model.safetensors"].share_depth == 1
    assert parts["trainer_state.json"].share_depth == 0
    root = Path(store.storage.url.removeprefix("file://"))
    stored = [path.stat() for path in root.rglob("model.safetensors")]
    assert len(stored) == 2
    assert len({found.st_ino for found in stored}) == 1


def test_what_was_sealed_does_not_change_with_its_folder(store, attempt, trained, tmp_path):
    before = contents(trained)
    bundle = seal(attempt, trained)
    for path in trained.iterdir():
        path.write_bytes(b"overwritten in place")
    assert contents(put_back(store, bundle, tmp_path / "fresh")) == before


def while_a_part_is_stored(monkeypatch, touched):
    original = sealing._opened

    def opened(path):
        content = original(path)
        touch(path)
        return content

    def touch(path):
        if path == touched:
            with path.open("ab") as file:
                file.write(b"more")

    monkeypatch.setattr(sealing, "_opened", opened)


def after_all_parts(monkeypatch, touched):
    original = sealing._store_all

    def store_all(*arguments):
        original(*arguments)
        with touched.open("ab") as file:
            file.write(b"more")

    monkeypatch.setattr(sealing, "_store_all", store_all)


@pytest.mark.parametrize("when", [while_a_part_is_stored, after_all_parts])
def test_a_folder_that_changes_meanwhile_is_refused(store, attempt, trained, monkeypatch, when):
    when(monkeypatch, trained / "optimizer.pt")
    with pytest.raises(StoreError, match=r"chang\w+ while"):
        seal(attempt, trained)
    assert store.select().outcome == "empty"
    assert not [entry.key for entry in store.storage.entries("bundles/")]


def test_progress_is_reported_in_bytes(attempt, trained):
    reported = []
    seal(attempt, trained, report=reported.append)
    assert sum(reported) == sum(path.stat().st_size for path in trained.iterdir())


def test_a_single_file_comes_back_beside_what_is_there(store, attempt, forge, tmp_path):
    path = forge.torch_file(tmp_path / "last.pt", forge.checkpoint(8))
    bundle = seal(attempt, path, Statements(rebuilt={"data-order": "from the seed"}))
    into = tmp_path / "runs"
    into.mkdir()
    (into / "log.txt").write_text("kept")
    assert put_back(store, bundle, into) == into / "last.pt"
    assert (into / "last.pt").read_bytes() == path.read_bytes()
    assert sorted(entry.name for entry in into.iterdir()) == ["last.pt", "log.txt"]
    with pytest.raises(StoreError, match=r"last.pt is in the way"):
        put_back(store, bundle, into)


def test_a_folder_in_the_way_is_named_and_left_as_it_is(store, attempt, trained):
    bundle = seal(attempt, trained)
    before = contents(trained)
    with pytest.raises(StoreError, match="checkpoint-240 is in the way"):
        put_back(store, bundle, trained.parent)
    assert contents(trained) == before


def test_every_folder_made_on_the_way_would_survive_a_power_cut(
    store, attempt, trained, tmp_path, monkeypatch
):
    bundle = seal(attempt, trained)
    synced = []
    original = os.fsync

    def fsync(descriptor):
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        original(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    put_back(store, bundle, tmp_path / "a" / "b" / "c")
    assert {str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")} <= set(synced)


def test_deepspeed_finds_what_was_put_back(store, attempt, forge, tmp_path):
    folder = tmp_path / "global_step4"
    state = {"module": forge.weights(), "global_steps": 4, "dp_world_size": 1, "lr_scheduler": {"last": 4}}
    forge.torch_file(folder / "mp_rank_00_model_states.pt", state)
    forge.torch_file(folder / "zero_pp_rank_0_mp_rank_00_optim_states.pt", {"o": forge.optimizer()})
    stated = Statements(
        rebuilt=dict.fromkeys(("rng", "data-order", "data-position"), "from the step, by the script")
    )
    bundle = seal(attempt, folder, stated)
    put_back(store, bundle, tmp_path / "fresh")
    assert (tmp_path / "fresh" / "latest").read_text() == "global_step4"
    ranks = {part.path: part.rank for part in bundle.manifest.parts}
    assert ranks == {"mp_rank_00_model_states.pt": None, "zero_pp_rank_0_mp_rank_00_optim_states.pt": 0}


def test_a_bundle_found_damaged_while_it_is_put_back_gives_way_to_an_older_one(
    store, attempt, trained, forge, tmp_path
):
    old = seal(attempt, trained)
    later = forge.trainer_checkpoint(tmp_path / "out" / "checkpoint-480", 480)
    new = seal(attempt, later)
    flip(store, new, "trainer_state.json")
    shown = []
    decision, place = put_back_selected(store, tmp_path / "fresh", show=shown.append)
    assert [one.bundle for one in shown] == [new.id, old.id]
    assert decision.set_aside[0].reason == "digest-differs"
    assert place.name == "checkpoint-240"
    assert [path.name for path in (tmp_path / "fresh").iterdir()] == ["checkpoint-240"]


def flip(store, bundle, name):
    part = next(part for part in bundle.manifest.parts if part.path == name)
    path = Path(store.storage.url.removeprefix("file://")) / bundle.key_of(part)
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)


def test_an_empty_store_is_another_answer_than_one_with_nothing_whole(store, attempt, trained, tmp_path):
    with pytest.raises(NothingToResume):
        put_back_selected(store, tmp_path / "fresh", show=lambda _: None)
    flip(store, seal(attempt, trained), "optimizer.pt")
    with pytest.raises(AllDamaged):
        put_back_selected(store, tmp_path / "fresh", show=lambda _: None)
    assert not (tmp_path / "fresh" / "checkpoint-240").exists()


def test_it_is_said_when_the_framework_would_take_another_one(store, attempt, trained, forge, tmp_path):
    into = tmp_path / "fresh"
    place = put_back(store, seal(attempt, trained), into)
    assert other_pick(place, into) == ""
    forge.trainer_checkpoint(into / "checkpoint-999", 999)
    assert other_pick(place, into) == "checkpoint-999"


def watcher(trained, attempt, **options):
    return Watcher(trained.parent, attempt, settle_seconds=0, **options)


def test_a_watcher_seals_every_new_checkpoint_once_lowest_step_first(store, attempt, trained, forge):
    watching = watcher(trained, attempt)
    forge.trainer_checkpoint(trained.parent / "checkpoint-120", 120)
    assert [(seen.path, seen.bundle.step) for seen in watching.look()] == [
        ("checkpoint-120", 120),
        ("checkpoint-240", 240),
    ]
    assert list(watching.look()) == []
    forge.trainer_checkpoint(trained.parent / "checkpoint-360", 360)
    assert [seen.path for seen in watching.look()] == ["checkpoint-360"]
    assert [bundle.step for bundle in store.bundles()] == [360, 240, 120]


def test_a_watcher_waits_until_a_checkpoint_rests(attempt, trained):
    watching = Watcher(trained.parent, attempt, settle_seconds=1000)
    assert list(watching.look()) == []
    assert list(watching.look()) == []
    assert [seen.path for seen in watching.look(at_once=True)] == ["checkpoint-240"]


def test_a_watcher_says_once_what_is_not_whole_and_seals_it_when_it_is(attempt, trained):
    state = (trained / "trainer_state.json").read_bytes()
    (trained / "trainer_state.json").unlink()
    watching = watcher(trained, attempt)
    (seen,) = watching.look()
    assert seen.bundle is None
    assert "trainer_state.json is missing" in seen.problem.message
    assert list(watching.look()) == []
    (trained / "trainer_state.json").write_bytes(state)
    assert [seen.bundle.step for seen in watching.look()] == [240]


def test_a_watcher_that_starts_again_knows_what_is_sealed(store, attempt, trained):
    assert len(list(watcher(trained, attempt).look())) == 1
    again = store.register(store.select(), "started again")
    assert list(watcher(trained, again, already=store.bundles()).look()) == []


def test_a_checkpoint_that_was_put_back_is_not_sealed_again(store, attempt, trained, tmp_path):
    put_back(store, seal(attempt, trained), tmp_path / "fresh")
    again = Watcher(tmp_path / "fresh", attempt, already=store.bundles(), settle_seconds=0)
    assert list(again.look()) == []


def test_another_checkpoint_of_the_same_name_is_sealed(store, attempt, trained, forge):
    seal(attempt, trained)
    weights = trained / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\1")
    assert [seen.bundle.step for seen in watcher(trained, attempt, already=store.bundles()).look()] == [240]


def test_a_watcher_whose_attempt_was_fenced_stops(store, attempt, trained):
    store.register(store.select(), "a newer one")
    with pytest.raises(FencedError):
        list(watcher(trained, attempt).look())


def test_a_folder_that_does_not_exist_yet_is_waited_for(attempt, tmp_path):
    assert list(Watcher(tmp_path / "later", attempt).look()) == []


def test_a_watcher_looks_a_last_time_when_it_is_stopped(attempt, trained):
    stop, told = threading.Event(), []
    watching = Watcher(trained.parent, attempt, settle_seconds=1000)
    thread = threading.Thread(
        target=watching.watch, args=(told.append,), kwargs={"interval": 0.01, "stop": stop}
    )
    thread.start()
    stop.set()
    thread.join(30)
    assert [seen.bundle.step for seen in told] == [240]


def test_a_watcher_says_once_that_it_passes_over_a_checkpoint_older_than_what_is_sealed(
    attempt, trained, forge
):
    watching = watcher(trained, attempt)
    list(watching.look())
    forge.trainer_checkpoint(trained.parent / "checkpoint-120", 120)
    (seen,) = watching.look()
    assert (seen.path, seen.bundle) == ("checkpoint-120", None)
    assert "step 120 lies before step 240" in seen.problem.message
    assert list(watching.look()) == []


def test_a_watcher_passes_over_what_a_rotation_takes_away_while_it_seals_another(
    store, attempt, trained, forge
):
    later = forge.trainer_checkpoint(trained.parent / "checkpoint-480", 480)
    seen = []
    for one in watcher(trained, attempt).look():
        seen.append(one.path)
        shutil.rmtree(later, ignore_errors=True)
    assert seen == ["checkpoint-240"]
    assert store.select().step == 240


def test_a_checkpoint_that_was_seen_and_taken_away_unsealed_is_said(attempt, trained):
    watching = Watcher(trained.parent, attempt, settle_seconds=1000)
    assert list(watching.look()) == []
    shutil.rmtree(trained)
    (seen,) = watching.look()
    assert (seen.path, seen.bundle) == ("checkpoint-240", None)
    assert "taken away before it was sealed" in seen.problem.message
    assert list(watching.look()) == []


def test_a_watcher_outlives_a_folder_that_goes_while_its_files_are_looked_at(
    attempt, trained, forge, monkeypatch
):
    later = forge.trainer_checkpoint(trained.parent / "checkpoint-480", 480)
    original = folders._states

    def rotating(base, inside, *, whole):
        if base.name == later.name:
            shutil.rmtree(base, ignore_errors=True)
        return original(base, inside, whole=whole)

    monkeypatch.setattr(folders, "_states", rotating)
    watching = watcher(trained, attempt)
    seen = [(one.path, one.bundle is not None) for one in watching.look()]
    assert seen == [("checkpoint-240", True), ("checkpoint-480", False)]
    assert list(watching.look()) == []


def test_a_file_that_goes_while_it_is_sealed_ends_no_watcher(attempt, trained, monkeypatch):
    monkeypatch.setattr(sealing, "_opened", opened_after(lambda: shutil.rmtree(trained, ignore_errors=True)))
    watching = watcher(trained, attempt)
    (seen,) = watching.look()
    assert "taken away" in seen.problem.message
    monkeypatch.undo()
    assert list(watching.look()) == []


def opened_after(act):
    original = sealing._opened

    def opened(path):
        act()
        return original(path)

    return opened


def test_a_watcher_seals_what_did_not_fit_once_there_is_room(trained):
    _, attempt = started(MemoryStorage())
    attempt.chain.storage.free = 1000
    watching = watcher(trained, attempt)
    (seen,) = watching.look()
    assert "1,000 bytes left" in seen.problem.message
    assert list(watching.look()) == []
    attempt.chain.storage.free = None
    assert [seen.bundle.step for seen in watching.look()] == [240]


def test_at_the_end_a_rank_that_is_slower_is_waited_for(store, attempt, trained):
    (trained / "rng_state.pth").rename(trained / "rng_state_0.pth")
    watching = Watcher(trained.parent, attempt, settle_seconds=0.5)
    assert list(watching.look(at_once=True)) == []
    seen = []

    def finish():
        seen.extend(watching.finish())

    thread = threading.Thread(target=finish)
    thread.start()
    shutil.copyfile(trained / "rng_state_0.pth", trained / "rng_state_1.pth")
    thread.join(30)
    assert [one.bundle.step for one in seen] == [240]
    assert {part.rank for part in seen[0].bundle.manifest.parts} == {None, 0, 1}


def test_at_the_end_it_is_said_what_was_still_being_written(attempt, trained, monkeypatch):
    watching = Watcher(trained.parent, attempt, settle_seconds=0.3)
    monkeypatch.setattr(Watcher, "_says_whole", lambda *_: False)
    original = watching._is_due

    def growing(unit, *, at_once):
        with (trained / "optimizer.pt").open("ab") as file:
            file.write(b"more")
        return original(unit, at_once=at_once)

    monkeypatch.setattr(watching, "_is_due", growing)
    (seen,) = watching.finish()
    assert (seen.path, seen.problem.message) == ("checkpoint-240", "it was still being written to")


def test_a_watcher_keeps_no_manifests_of_the_bundles_that_are_there(store, attempt, trained):
    bundle = seal(attempt, trained)
    again = store.register(store.select(), "started again")
    watching = watcher(trained, again, already=iter([bundle]))
    gone = weakref.ref(bundle)
    del bundle
    gc.collect()
    assert gone() is None
    assert list(watching.look()) == []


def test_room_is_asked_for_everything_that_is_not_the_same(attempt, trained, forge, tmp_path):
    seal(attempt, trained)
    checkpoint = look_at(trained)
    size = sum(state.size for state in checkpoint.files.values())
    assert sealing._room_needed(attempt, checkpoint) == size
    attempt.chain.storage.free_bytes = lambda: 10
    assert sealing._room_needed(attempt, checkpoint) == 0
    weights = trained / "model.safetensors"
    data = weights.read_bytes()
    weights.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert sealing._room_needed(attempt, look_at(trained)) == len(data)
    with pytest.raises(CommitRefused, match="10 bytes left"):
        seal(attempt, trained)


def test_folders_are_closed_again_when_one_below_them_goes(trained, monkeypatch):
    (trained / "nested").mkdir()
    original = os.scandir

    def scandir(folder):
        if Path(folder).name == "nested":
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
        return original(folder)

    monkeypatch.setattr(folders.os, "scandir", scandir)
    unit = find_units(trained.parent)[0]
    with warnings.catch_warnings(record=True) as left_open:
        warnings.simplefilter("always")
        with pytest.raises(StoreError, match="nested cannot be sealed: No such file"):
            states_of(trained.parent, unit)
        gc.collect()
    assert left_open == []
