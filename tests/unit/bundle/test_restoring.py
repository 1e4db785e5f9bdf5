from __future__ import annotations

import errno
import fcntl
import os

import pytest

from bundle_memory import Crash, MemoryStorage
from bundle_samples import REST, content_of, files, save, started
from samestep.bundle import restoring
from samestep.bundle.digests import CHUNK_BYTES
from samestep.bundle.errors import DamageError, StoreError
from samestep.bundle.storage.contents import BufferContent
from samestep.journal import durable


@pytest.fixture
def made():
    storage = MemoryStorage()
    store, attempt = started(storage)
    return storage, store, save(attempt, 3)


def test_a_bundle_comes_back_as_it_was_saved(made, tmp_path):
    _, store, bundle = made
    assert store.restore(bundle, to=tmp_path / "deep" / "checkpoint-3") == tmp_path / "deep" / "checkpoint-3"
    assert content_of(tmp_path / "deep" / "checkpoint-3") == files(3)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["checkpoint-3"]


def test_names_that_begin_with_a_dot_and_empty_parts_come_back(tmp_path):
    store, attempt = started(MemoryStorage())
    saving = attempt.begin(step=1)
    parts = {".metadata": b"m", "__0_0.distcp": b"d", "a/.hidden/x": b"", "=": b"e"}
    for path, data in parts.items():
        saving.add(path, BufferContent(data), components=["weights", "optimizer"])
    store.restore(saving.commit(contract=REST), to=tmp_path / "to")
    assert content_of(tmp_path / "to") == parts


def test_a_part_of_many_chunks_comes_back(tmp_path):
    store, attempt = started(MemoryStorage())
    data = os.urandom(1 << 20) * 40
    saving = attempt.begin(step=1)
    saving.add("large", BufferContent(data), components=["weights", "optimizer"])
    assert len(data) > 2 * CHUNK_BYTES
    store.restore(saving.commit(contract=REST), to=tmp_path / "to")
    assert content_of(tmp_path / "to") == {"large": data}


def test_an_empty_folder_is_filled(made, tmp_path):
    _, store, bundle = made
    (tmp_path / "to").mkdir()
    store.restore(bundle, to=tmp_path / "to")
    assert content_of(tmp_path / "to") == files(3)


def test_what_is_in_the_way_is_left_alone(made, tmp_path):
    _, store, bundle = made
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("precious")
    (tmp_path / "file").write_text("precious")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to("elsewhere")
    for name in ("full", "file", "link"):
        with pytest.raises(StoreError, match="in the way"):
            store.restore(bundle, to=tmp_path / name)
    assert content_of(tmp_path) == {"full/mine": b"precious", "file": b"precious"}


@pytest.mark.parametrize(
    "how",
    [lambda data: data[:-1] + b"?", lambda data: data[:-1], lambda data: data + b"?", lambda _: None],
    ids=["flipped", "shorter", "longer", "missing"],
)
def test_damage_is_told_with_the_part_and_nothing_is_left(made, tmp_path, how):
    storage, store, bundle = made
    storage.damage(bundle.key_of(bundle.manifest.parts[1]), how)
    with pytest.raises(DamageError, match=r"state/optimizer\.bin"):
        store.restore(bundle, to=tmp_path / "to")
    assert list(tmp_path.iterdir()) == []
    assert not any(".holds/" in key for key in storage.seen)


def test_a_part_that_vanishes_while_it_is_read_is_damage(made, tmp_path):
    storage, store, bundle = made
    key = bundle.key_of(bundle.manifest.parts[1])

    def vanish(operation, _key):
        if operation == "read_into":
            storage.seen.pop(key, None)

    storage.before = vanish
    with pytest.raises(DamageError):
        store.restore(bundle, to=tmp_path / "to")
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_fails_is_told_and_nothing_is_left(made, tmp_path):
    storage, store, bundle = made

    def fail(operation, _key):
        if operation == "read_into":
            raise StoreError("no network")

    storage.before = fail
    with pytest.raises(StoreError, match="no network") as caught:
        store.restore(bundle, to=tmp_path / "to")
    assert not isinstance(caught.value, DamageError)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_told(made, tmp_path):
    _, store, bundle = made
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="could not be written"):
        store.restore(bundle, to=tmp_path / "file" / "to")


def test_the_target_appears_only_when_everything_is_there_and_durable(made, tmp_path, monkeypatch):
    _, store, bundle = made
    synced = []

    def sync(path):
        if not (tmp_path / "to").exists():
            synced.append(path.name)
            assert content_of(path.parents[0] if path.is_file() else path)
        else:
            synced.append(("after", path))

    monkeypatch.setattr(restoring, "sync", sync)
    store.restore(bundle, to=tmp_path / "to")
    assert {"model.safetensors", "optimizer.bin", "tokenizer.json", "state"} <= set(synced)
    assert synced[-1] == ("after", tmp_path)


def test_what_a_killed_restore_left_is_removed_by_the_next_and_a_living_one_is_not(made, tmp_path):
    _storage, store, bundle = made
    living = tmp_path / ".to.restoring-alive"
    living.mkdir()
    lock = os.open(living, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    dead = tmp_path / ".to.restoring-dead"
    dead.mkdir()
    (dead / "half").write_text("x")
    (tmp_path / ".other.restoring-dead").mkdir()
    store.restore(bundle, to=tmp_path / "to")
    os.close(lock)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [".other.restoring-dead", ".to.restoring-alive", "to"]


def test_a_restore_that_dies_leaves_no_target(made, tmp_path):
    storage, store, bundle = made
    reads = 0

    def die(operation, _key):
        nonlocal reads
        reads += operation == "read_into"
        if reads == 2:
            storage.dead = True
            raise Crash

    storage.before = die
    with pytest.raises(Crash):
        store.restore(bundle, to=tmp_path / "to")
    assert not (tmp_path / "to").exists()


def test_the_folder_may_be_named_relative_to_where_one_is(made, tmp_path, monkeypatch):
    _, store, bundle = made
    monkeypatch.chdir(tmp_path)
    from pathlib import Path

    assert store.restore(bundle, to=Path("to")) == tmp_path / "to"


def test_a_target_without_locks_is_written_and_what_others_left_there_is_not_touched(
    made, tmp_path, monkeypatch
):
    _, store, bundle = made

    def flock(*_):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", flock)
    other = tmp_path / ".out.restoring-of-somebody"
    other.mkdir()
    store.restore(bundle, to=tmp_path / "out")
    assert content_of(tmp_path / "out") == files(bundle.step)
    assert other.is_dir()


def test_the_folders_that_lead_to_the_target_are_made_durable(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(durable, "sync", synced.append)
    store, attempt = started(MemoryStorage())
    store.restore(save(attempt, 1), to=tmp_path / "new" / "deeper" / "to")
    assert synced[:2] == [tmp_path, tmp_path / "new"]
    assert tmp_path.parent in synced  # whoever made that one may have died before it was durable


def test_a_folder_that_cannot_be_listed_to_be_made_durable_is_told(made, tmp_path, monkeypatch):
    _, store, bundle = made
    scandir = os.scandir

    def fail(path):
        if ".restoring-" in str(path) and str(path).endswith("/state"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", fail)
    with pytest.raises(StoreError, match=r"could not be written: .*Input/output error"):
        store.restore(bundle, to=tmp_path / "to")
    assert not (tmp_path / "to").exists()
