"""What is measured of a place before a run rests on it."""

from __future__ import annotations

import errno
import itertools
import os
from pathlib import Path

import pytest

from samestep.bundle.errors import StoreError
from samestep.bundle.storage import disks, promises, system
from samestep.bundle.storage.base import AlreadyThere
from samestep.bundle.storage.disks import Keeper, keeper_of
from samestep.bundle.storage.local import LocalStorage
from samestep.bundle.storage.promises import Kept, measure

MEASURED = [
    "failure domain", "fsync", "names", "direct writing", "one name, one writer", "records", "parts", "sharing",
    "listing", "removing", "room",
]  # fmt: skip


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(promises, "PIECE_BYTES", 1 << 20)


def measured(storage, **settings):
    return {promise.name: promise for promise in measure(storage, **settings)}


def test_a_good_disk_keeps_every_promise_and_nothing_is_left_on_it(tmp_path):
    found = measured(LocalStorage(tmp_path / "new" / "store"), scratch=Path("/proc"))
    assert list(found) == MEASURED
    assert all(promise.found and promise.meaning for promise in found.values())
    assert not [promise for promise in found.values() if promise.kept is Kept.NO]
    assert found["names"].found == "linked"
    assert "MiB/s written" in found["parts"].found
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_is_there_is_left_as_it_was(tmp_path):
    storage = LocalStorage(tmp_path)
    storage.create("run.json", b"x")
    measured(storage)
    assert [entry.key for entry in storage.entries("")] == ["run.json"]
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_the_disk_of_the_machines_scratch_is_warned_of(tmp_path):
    found = measured(LocalStorage(tmp_path / "store"), scratch=tmp_path)["failure domain"]
    assert found.kept is Kept.WARN
    assert "object store" in found.meaning


@pytest.mark.parametrize(
    ("keeper", "kept", "said"),
    [
        (Keeper("ext4", 7, frozenset({"sdb"})), Kept.YES, "another disk"),
        (Keeper("ext4", 7, frozenset({"sda"})), Kept.WARN, "same disk"),
        (Keeper("ext4", 1, frozenset()), Kept.WARN, "same disk"),
        (Keeper("nfs4", 7, frozenset()), Kept.YES, "another disk"),
        (Keeper("fuse.gcsfuse", 7, frozenset()), Kept.YES, "another disk"),
        (Keeper("tmpfs", 7, frozenset()), Kept.WARN, "memory"),
        (Keeper("overlay", 7, frozenset()), Kept.WARN, "container"),
        (Keeper("xfs", 7, frozenset({"nvme1n1"}), frozenset({disks.INSTANCE_STORE})), Kept.WARN, "emptied"),
    ],
)
def test_what_would_take_the_store_along_is_named(monkeypatch, keeper, kept, said):
    scratch = Keeper("ext4", 1, frozenset({"sda"}))
    keepers = {Path("/store"): keeper, Path("/scratch"): scratch}
    monkeypatch.setattr(promises, "keeper_of", keepers.get)
    promise = promises._domain(Path("/store"), Path("/scratch"))
    assert promise.kept is kept
    assert said in promise.meaning


def test_the_keeper_of_a_folder_that_is_not_there_yet_is_that_of_the_one_above(tmp_path):
    assert keeper_of(tmp_path / "a" / "b") == keeper_of(tmp_path)
    assert keeper_of(Path("/proc")).kind == "proc"
    assert keeper_of(Path("/proc")).disks == frozenset()


def test_mounts_are_told_apart_by_the_longest_way_to_them(monkeypatch):
    lines = [
        "1 0 8:1 / / rw - ext4 /dev/sda1 rw",
        "2 1 0:40 / /mnt/my\\040data rw,relatime shared:1 - nfs4 host:/x rw",
        "3 1 8:17 / /mnt rw - xfs /dev/sdb1 rw",
    ]
    monkeypatch.setattr(disks, "_mountinfo", lambda: lines)
    assert disks._mount(Path("/mnt/my data/run")) == ("nfs4", "0:40")
    assert disks._mount(Path("/mnt/other")) == ("xfs", "8:17")
    assert disks._mount(Path("/mntx")) == ("ext4", "8:1")


def test_a_partition_and_a_volume_are_traced_to_their_disks(tmp_path):
    for name in ("sda/sda1", "sdb/sdb1", "dm-0/slaves"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("sda/sda1", "sdb/sdb1"):
        (tmp_path / name / "partition").write_text("1")
        (tmp_path / "dm-0/slaves" / Path(name).name).symlink_to(tmp_path / name)
    assert {disk.name for disk in disks._disks(tmp_path / "sda/sda1")} == {"sda"}
    assert {disk.name for disk in disks._disks(tmp_path / "dm-0")} == {"sda", "sdb"}
    assert disks._disks(tmp_path / "0:40") == set()


def test_a_place_that_ignores_conditions_is_refused_by_name(tmp_path):
    class Overwriting(LocalStorage):
        def create(self, key, data):
            self.remove([key])
            super().create(key, data)

    found = measured(Overwriting(tmp_path))["one name, one writer"]
    assert found.kept is Kept.NO
    assert str(tmp_path) in found.meaning
    assert "both commit" in found.meaning


def test_a_place_that_lets_racing_writers_both_win_is_refused(tmp_path):
    class Racy(LocalStorage):
        def create(self, key, data):
            try:
                super().create(key, data)
            except AlreadyThere:
                if "race" not in key:
                    raise

    found = measured(Racy(tmp_path))["one name, one writer"]
    assert found.kept is Kept.NO
    assert "8 winners" in found.found


def test_a_disk_that_drops_fsync_is_warned_of(tmp_path, monkeypatch):
    monkeypatch.setattr(promises, "_sync_seconds", lambda _path: 1e-6)
    monkeypatch.setattr(promises, "keeper_of", lambda _path: Keeper("ext4", 1, frozenset()))
    found = promises._fsync(tmp_path)
    assert found.kept is Kept.WARN
    assert "power cut" in found.meaning


def test_a_file_system_without_links_takes_names_by_renaming(tmp_path, monkeypatch):
    def refuse(*_args):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(system, "link", refuse)
    found = measured(LocalStorage(tmp_path))
    assert found["names"].found == "renamed"
    assert found["sharing"].found == "by reference"
    assert found["one name, one writer"].kept is Kept.YES


def test_a_place_that_changes_bytes_is_refused(tmp_path):
    class Flipping(LocalStorage):
        def read_into(self, key, offset, target):
            super().read_into(key, offset, target)
            target[-1] ^= 1

    found = measured(Flipping(tmp_path))["parts"]
    assert found.kept is Kept.NO


def test_a_place_that_shows_records_late_is_refused(tmp_path):
    class Late(LocalStorage):
        def size(self, key):
            return None if "record" in key else super().size(key)

    assert measured(Late(tmp_path))["records"].kept is Kept.NO


def test_late_listings_and_forbidden_removals_are_warnings(tmp_path):
    class Poor(LocalStorage):
        def entries(self, prefix):
            return itertools.islice(super().entries(prefix), 3)

        def remove(self, keys):
            raise StoreError("not allowed")

    found = measured(Poor(tmp_path))
    assert found["listing"].kept is Kept.WARN
    assert found["removing"].kept is Kept.WARN


def test_little_room_is_a_warning(tmp_path, monkeypatch):
    monkeypatch.setattr(LocalStorage, "free_bytes", lambda _self: 1 << 30)
    found = measured(LocalStorage(tmp_path))["room"]
    assert (found.kept, found.found) == (Kept.WARN, "1.0 GiB")


def test_a_place_that_fails_says_how_and_the_rest_is_tried_all_the_same(tmp_path):
    class Broken(LocalStorage):
        def write(self, key, content):
            raise StoreError("the disk is on fire")

    found = measured(Broken(tmp_path))
    assert list(found) == MEASURED
    assert found["parts"] == ("parts", "failed", Kept.NO, "the disk is on fire")


def test_memory_is_said_to_be_for_trying_things_out():
    pytest.importorskip("obstore")
    from samestep.bundle.storage.opening import open_storage

    found = measured(open_storage("memory:"))
    assert found["failure domain"].kept is Kept.WARN
    assert found["one name, one writer"].kept is Kept.YES
    assert found["room"].found == "not known"
