"""What a folder's storage calls durable is there after a power cut, on real file systems."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from crash.disks import IMAGE_BYTES, Disk, mount_alone, mounted, why_not
from samestep.bundle.storage import system
from samestep.bundle.storage.base import Absent
from samestep.bundle.storage.contents import BufferContent
from samestep.bundle.storage.local import LocalStorage

PARTS = {"bundles/b/small": 3000, "bundles/b/deep/er/large": (17 << 20) + 5}
BYTES = random.Random(5).randbytes(max(PARTS.values()))
RECORD = b'{"kind":"commit"}\n'


def save(storage):
    for key, size in PARTS.items():
        storage.write(key, BufferContent(BYTES[:size]))
    storage.share("bundles/b/small", "bundles/c/shared")
    storage.settle([*PARTS, "bundles/c/shared"])
    storage.create("chain/0000000001.json", RECORD)


def found(storage):
    """Return the record, and the parts that are whole, of what is on the disk."""
    try:
        record = storage.read("chain/0000000001.json", limit=1000)
    except Absent:
        record = None
    whole = {
        key
        for key, size in {**PARTS, "bundles/c/shared": PARTS["bundles/b/small"]}.items()
        if storage.size(key) == size and content(storage, key, size) == BYTES[:size]
    }
    return record, whole


def content(storage, key, size):
    target = bytearray(size)
    storage.read_into(key, 0, memoryview(target))
    return target


def after_a_power_cut(kind, folder):
    """Save, cut the power at once, and return what the next start finds."""
    mount_alone()
    with Disk(kind, folder) as disk:
        save(LocalStorage(disk.mount / "runs" / "store"))
        cut = disk.cut()
        with mounted(cut, kind, folder / "next start") as place:
            return found(LocalStorage(place / "runs" / "store"))


def in_a_thread(*arguments):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(after_a_power_cut, *arguments).result()


@pytest.mark.parametrize("kind", IMAGE_BYTES)
def test_all_that_was_acknowledged_is_there_the_moment_after(kind, tmp_path):
    if obstacle := why_not(kind, tmp_path / "try"):
        pytest.skip(obstacle)
    assert in_a_thread(kind, tmp_path / "disk") == (RECORD, {*PARTS, "bundles/c/shared"})


@pytest.mark.parametrize("kind", IMAGE_BYTES)
def test_without_its_syncs_it_would_be_lost(kind, tmp_path, monkeypatch):
    if obstacle := why_not(kind, tmp_path / "try"):
        pytest.skip(obstacle)
    monkeypatch.setattr(system, "sync", lambda _descriptor: None)
    record, whole = in_a_thread(kind, tmp_path / "disk")
    assert (record, whole) != (RECORD, {*PARTS, "bundles/c/shared"})
