"""The journal of an attempt travels with its commits."""

from __future__ import annotations

import errno
import os

import pytest

from forging import Forge
from samestep.bundle.carrying import Carrier, read_carried, segment_key
from samestep.bundle.errors import CommitRefused, StoreError
from samestep.bundle.retention import Policy
from samestep.bundle.sealing import seal
from samestep.bundle.storage.opening import open_storage
from samestep.bundle.store import Store
from samestep.journal import Journal, JournalError, read_journal


@pytest.fixture
def store(tmp_path):
    return Store.create(open_storage(tmp_path / "root"))


@pytest.fixture
def attempt(store):
    return store.register(store.select(), "test")


@pytest.fixture
def journal(tmp_path, attempt):
    with Journal.open(tmp_path / "journal", attempt.id) as journal:
        yield journal


@pytest.fixture
def carrier(journal, store, attempt):
    return Carrier(journal, store.storage, attempt.id)


def checkpoint(tmp_path, step):
    return Forge().trainer_checkpoint(tmp_path / "out" / f"checkpoint-{step}", step)


def names(reading):
    return [event.event for event in reading.events]


def test_every_commit_carries_the_lines_since_the_one_before(store, attempt, carrier, journal, tmp_path):
    first = seal(attempt, checkpoint(tmp_path, 3), carrier=carrier)
    second = seal(attempt, checkpoint(tmp_path, 6), carrier=carrier)
    assert first.manifest.journal == (segment_key(attempt.id, 0),)
    assert second.manifest.journal == (segment_key(attempt.id, 2),)
    carried = read_carried(store.storage, attempt.id)
    assert names(carried) == [
        "journal-opened", "save-asked", "save-durable", "save-committed", "save-asked",
    ]  # fmt: skip
    assert carried.events[3].values["bundle"] == first.id
    assert carried.events == read_journal(journal.path).events[:5]


def test_a_save_that_failed_is_noted_with_its_reason(attempt, carrier, journal, tmp_path, monkeypatch):
    folder = checkpoint(tmp_path, 3)
    monkeypatch.setattr(
        "samestep.bundle.sealing._store_all", lambda *_: (folder / "new.json").write_text("{}")
    )
    with pytest.raises(CommitRefused):
        seal(attempt, folder, carrier=carrier)
    noted = read_journal(journal.path).events[-1]
    assert (noted.event, noted.values["step"], noted.values["reason"]) == ("save-failed", 3, "commit-refused")


def test_segments_survive_pruning(store, attempt, carrier, tmp_path):
    for step in (3, 6, 9):
        seal(attempt, checkpoint(tmp_path, step), carrier=carrier)
    store.prune(Policy(keep_last=1))
    assert names(read_carried(store.storage, attempt.id)).count("save-asked") == 3


def test_the_same_segment_twice_is_one(store, carrier, journal, attempt):
    store.storage.create(segment_key(attempt.id, 0), journal.segment_since(0))
    assert carrier.carry() == (segment_key(attempt.id, 0),)
    assert carrier.carry() == ()


def test_other_lines_under_the_same_name_are_refused(store, carrier, attempt):
    store.storage.create(segment_key(attempt.id, 0), b"another writer's\n")
    with pytest.raises(StoreError, match="holds other lines"):
        carrier.carry()


def test_a_missing_segment_is_noticed(store, attempt, carrier, tmp_path):
    for step in (3, 6, 9):
        seal(attempt, checkpoint(tmp_path, step), carrier=carrier)
    store.storage.remove([segment_key(attempt.id, 2)])
    with pytest.raises(JournalError, match="line 3"):
        read_carried(store.storage, attempt.id)


def test_a_journal_that_cannot_be_written_keeps_no_bundle_from_being_made(
    store, attempt, carrier, tmp_path, monkeypatch
):
    folder, original = checkpoint(tmp_path, 3), os.write

    def full(descriptor, data):
        if b'"event":"' in bytes(data):
            raise OSError(errno.ENOSPC, "No space left on device")
        return original(descriptor, data)

    monkeypatch.setattr(os, "write", full)
    bundle = seal(attempt, folder, carrier=carrier)
    assert store.select().bundle == bundle.id
    assert "No space left" in carrier.problem
