from __future__ import annotations

import errno
import os

import pytest

from bundle_memory import MemoryStorage
from bundle_samples import content_of, files, save, started
from samestep.bundle.errors import DamageError, FormatError, StoreError, StoreMissing
from samestep.bundle.retention import Policy
from samestep.bundle.storage.failures import told
from samestep.bundle.storage.local import LocalStorage
from samestep.bundle.store import Store


def lose(storage, bundle, path="model.safetensors", how=lambda _: None):
    part = next(part for part in bundle.manifest.parts if part.path == path)
    storage.damage(bundle.key_of(part), how)


def test_a_store_whose_identity_is_gone_is_not_missing():
    storage = MemoryStorage()
    with pytest.raises(StoreMissing):
        Store.open(storage, writing=False)
    started(storage)
    storage.damage("run.json", lambda _: None)
    with pytest.raises(FormatError, match=r"run\.json"):
        Store.open(storage, writing=False)


def test_a_run_is_made_once_and_a_lost_reply_to_that_is_a_success():
    storage = MemoryStorage()
    storage.arm(lose_reply=1)
    store = Store.create(storage, lineage={"reason": "a new tokenizer"})
    assert Store.open(storage, writing=False).run == store.run
    with pytest.raises(StoreError, match=store.run.id):
        Store.create(storage)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda data: data.replace(b"samestep.run/1", b"samestep.run/9"), "run/9"),
        (lambda data: data[:-5], "JSON"),
        (lambda data: data.replace(b'"r-', b'"x-'), "not the id"),
        (lambda data: data.replace(b'run/1"', b'run/1","x":1'), "malformed"),
        (lambda data: data.replace(b'"created":"2', b'"created":"3'), "changed after it was written"),
        (lambda _: b"[]\n", "format"),
    ],
    ids=["newer", "torn", "id", "unknown field", "another time", "list"],
)
def test_an_identity_that_cannot_be_read_is_refused(change, says):
    storage = MemoryStorage()
    Store.create(storage)
    storage.damage("run.json", change)
    with pytest.raises(FormatError, match=says):
        Store.open(storage, writing=False)


def test_bundles_are_named_by_id_by_its_beginning_or_as_the_latest():
    storage = MemoryStorage()
    store, attempt = started(storage)
    one, two = save(attempt, 1), save(attempt, 2)
    assert [bundle.id for bundle in store.bundles()] == [two.id, one.id]
    assert store.bundle("latest").id == two.id
    assert store.bundle(one.id).id == one.id
    assert store.bundle(one.id[:-1]).id == one.id
    for name, says in (("b-", "2 bundles"), ("b-1999", "no bundle"), ("", "2 bundles")):
        with pytest.raises(StoreError, match=says):
            store.bundle(name)


def test_bytes_that_differ_while_restoring_lead_back_into_selection(tmp_path):
    storage = MemoryStorage()
    store, attempt = started(storage)
    save(attempt, 1)
    for step in (2, 3):
        lose(storage, save(attempt, step), how=lambda data: b"?" + data[1:])
    decision = store.resume(to=tmp_path / "to")
    assert decision.step == 1
    assert [(one.step, one.reason) for one in decision.set_aside] == [
        (3, "digest-differs"),
        (2, "digest-differs"),
    ]
    assert content_of(tmp_path / "to") == files(1)


def test_the_policy_strict_refuses_when_bytes_differ_while_restoring(tmp_path):
    storage = MemoryStorage()
    store, attempt = started(storage)
    save(attempt, 1)
    lose(storage, save(attempt, 2), how=lambda data: b"?" + data[1:])
    assert store.resume(to=tmp_path / "to", policy="strict").outcome == "refused"
    assert list(tmp_path.iterdir()) == []


def test_resuming_an_empty_or_a_damaged_store_restores_nothing(tmp_path):
    storage = MemoryStorage()
    store, attempt = started(storage)
    assert store.resume(to=tmp_path / "to").outcome == "empty"
    lose(storage, save(attempt, 1), how=lambda data: b"?" + data[1:])
    assert store.resume(to=tmp_path / "to").outcome == "damaged"
    assert list(tmp_path.iterdir()) == []


def test_a_handle_for_reading_changes_nothing(tmp_path):
    storage = MemoryStorage()
    _, attempt = started(storage)
    bundle = save(attempt, 1)
    reader = Store.open(storage, writing=False)
    log = list(storage.log)
    reader.resume(to=tmp_path / "to")
    reader.prune(Policy(), dry_run=True)
    for act in (
        lambda: reader.register(None, "x"),
        lambda: reader.prune(Policy()),
        lambda: reader.pin(bundle),
        lambda: reader.unpin(bundle),
    ):
        with pytest.raises(StoreError, match="reading only"):
            act()
    assert storage.log == log


class Overwriting(MemoryStorage):
    honours_conditional_create = False
    url = "memory://overwrites"


def test_a_place_that_overwrites_names_is_refused_by_name_before_anything_is_written():
    storage = Overwriting()
    with pytest.raises(StoreError, match="memory://overwrites ignores the condition"):
        Store.create(storage)
    assert storage.seen == {}
    started(honest := MemoryStorage())
    storage.seen = honest.seen
    there = dict(storage.seen)
    opened = Store.open(storage, writing=True)
    for act in (
        lambda: opened.register(opened.select(), "restart"),
        lambda: opened.prune(Policy()),
    ):
        with pytest.raises(StoreError, match="memory://overwrites ignores the condition"):
            act()
    assert storage.seen == there


@pytest.mark.parametrize("lost", ["run.json", "run.json and chain/"])
def test_what_is_left_of_a_run_never_becomes_another_run(lost):
    storage = MemoryStorage()
    store, attempt = started(storage)
    save(attempt, 1)
    with pytest.raises(StoreError, match=f"already holds {store.run.id}"):
        Store.create(storage)
    for key in [key for key in storage.seen if key.split("/")[0] in {"run.json", lost[-6:-1]}]:
        del storage.seen[key]
    there = dict(storage.seen)
    with pytest.raises(StoreError, match=r"holds (chain|bundles)/.* and no run\.json"):
        Store.create(storage)
    assert storage.seen == there


@pytest.mark.parametrize("answer", [errno.EROFS, errno.ENOSPC])
def test_a_place_that_takes_no_hold_is_restored_from_with_a_note(tmp_path, answer):
    storage = MemoryStorage()
    _, attempt = started(storage)
    bundle = save(attempt, 1)

    def refuse(operation, key):
        if operation == "create":
            with told("create", key):
                raise OSError(answer, os.strerror(answer))

    storage.before = refuse
    store = Store.open(storage, writing=True)
    assert store.resume(to=tmp_path / "out").bundle == bundle.id
    assert content_of(tmp_path / "out") == files(1)
    (note,) = store.notes
    assert bundle.id in note
    assert errno.errorcode[answer] in note


@pytest.mark.parametrize("how", ["EIO", "shorter"])
def test_a_part_that_cannot_be_read_is_damage_and_the_older_bundle_is_used(tmp_path, how):
    storage = LocalStorage(tmp_path / "root")
    store, attempt = started(storage)
    older, newer = save(attempt, 1), save(attempt, 2)
    real = storage.read_into

    def read_into(key, offset, target):
        own = newer.id in key and "tokenizer" not in key  # that one is the older bundle's too
        if own and how == "EIO":
            with told("read", key):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        if own:
            path = tmp_path / "root" / key
            path.chmod(0o644)
            os.truncate(path, 3)
        real(key, offset, target)

    storage.read_into = read_into
    decision = store.resume(to=tmp_path / "out")
    assert decision.bundle == older.id
    assert content_of(tmp_path / "out") == files(1)
    faults = store.verify(newer).faults
    assert {fault.path for fault in faults} == {"model.safetensors", "state/optimizer.bin"}
    assert store.prune(Policy(keep_last=1)).retired == ()
    assert {bundle.id for bundle in store.bundles()} == {older.id, newer.id}


def test_a_place_that_fails_altogether_is_no_damage(tmp_path):
    storage = MemoryStorage()
    store, attempt = started(storage)
    save(attempt, 1)

    def fail(operation, key):
        if operation == "read_into":
            raise StoreError("the place does not answer")

    storage.before = fail
    with pytest.raises(StoreError, match="does not answer") as raised:
        store.resume(to=tmp_path / "out")
    assert not isinstance(raised.value, DamageError)
