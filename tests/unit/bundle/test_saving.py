from __future__ import annotations

import pytest

from bundle_memory import Crash, MemoryStorage
from bundle_samples import REST, add_files, again, content_of, files, save, started
from samestep.bundle.errors import CommitRefused, DamageError, FencedError, StoreError
from samestep.bundle.manifest import Row
from samestep.bundle.parts import ROOM_MARGIN_BYTES
from samestep.bundle.paths import bundle_folder
from samestep.bundle.records import record_key
from samestep.bundle.saving import marker_key
from samestep.bundle.storage.contents import BufferContent
from samestep.bundle.store import Store


def begun(storage: MemoryStorage, step: int = 1):
    store, attempt = started(storage)
    return store, attempt, attempt.begin(step=step)


def part_named(bundle, path):
    return next(part for part in bundle.manifest.parts if part.path == path)


def test_a_bundle_is_there_once_it_is_committed_and_not_before():
    store, _, saving = begun(MemoryStorage())
    add_files(saving, 1)
    assert list(store.bundles()) == []
    bundle = saving.commit(contract=REST)
    assert [one.id for one in store.bundles()] == [bundle.id]
    assert {part.path for part in bundle.manifest.parts} == set(files(1))
    assert bundle.manifest.contract["optimizer"] == Row(state="saved", parts=("state/optimizer.bin",))


def test_everything_is_durable_before_the_commit():
    storage = MemoryStorage()
    _, _, saving = begun(storage)
    add_files(saving, 1)

    def look(operation, key):
        if operation == "create" and key.startswith("chain/"):
            missing = [part for part in storage.seen if part not in storage.durable]
            assert missing == []

    storage.before = look
    saving.commit(contract=REST)


@pytest.mark.parametrize(
    "how",
    [lambda _: None, lambda data: data[:-1], lambda data: data + b"x"],
    ids=["missing", "shorter", "longer"],
)
def test_a_part_that_is_not_stored_as_written_is_noticed_before_the_commit(how):
    storage = MemoryStorage()
    store, _, saving = begun(storage)
    add_files(saving, 1)
    storage.damage(bundle_folder(saving.id) + "model.safetensors", how)
    with pytest.raises(DamageError, match=r"model\.safetensors"):
        saving.commit(contract=REST)
    assert list(store.bundles()) == []


def test_parts_that_would_be_one_file_where_letters_have_no_case_are_refused():
    store, _, saving = begun(MemoryStorage())
    add_files(saving, 1)
    saving.add("Model.safetensors", BufferContent(b"2"))
    with pytest.raises(CommitRefused, match="one file"):
        saving.commit(contract=REST)
    assert list(store.bundles()) == []


def test_no_row_may_stay_open():
    store, _, saving = begun(MemoryStorage())
    add_files(saving, 1)
    without = {name: row for name, row in REST.items() if name != "rng"}
    with pytest.raises(CommitRefused, match="becomes of rng"):
        saving.commit(contract=without | {"callbacks": Row(state="irrelevant", because="there are none")})
    with pytest.raises(CommitRefused, match="callbacks"):
        saving.commit(contract=REST | {"callbacks": Row(state="open", because="nobody knows")})
    assert list(store.bundles()) == []
    assert saving.commit(contract=without, allow_open_rows=True).manifest.open_rows == ("rng",)


def test_a_bundle_without_parts_is_refused():
    _, _, saving = begun(MemoryStorage())
    with pytest.raises(CommitRefused, match="no parts"):
        saving.commit(contract=REST, allow_open_rows=True)


def test_private_values_are_not_written():
    storage = MemoryStorage()
    _, attempt = started(storage)
    bundle = save(attempt, 1, environment={"HF_TOKEN": "hf_abcdefghijklmnopqrstuvwxyz", "python": "3.11"})
    assert bundle.manifest.environment["python"] == "3.11"
    assert b"abcdefghijklmnop" not in storage.seen[record_key(bundle.number)]


def test_what_cannot_fit_is_refused_before_anything_is_written():
    storage = MemoryStorage()
    store, attempt = started(storage)
    last = save(attempt, 1)
    before = dict(storage.seen)
    storage.free = ROOM_MARGIN_BYTES + 1000
    with pytest.raises(CommitRefused, match="bytes left"):
        attempt.begin(step=2, size_bytes=1001)
    assert storage.seen == before
    saving = attempt.begin(step=2, size_bytes=1000)
    with pytest.raises(CommitRefused, match="bytes left"):
        saving.add("big", BufferContent(bytes(1001)))
    assert bundle_folder(saving.id) + "big" not in storage.seen
    assert store.select().bundle == last.id


def test_a_lost_reply_to_the_commit_is_a_success():
    storage = MemoryStorage()
    store, _, saving = begun(storage)
    add_files(saving, 1)
    storage.arm(lose_reply=2)
    bundle = saving.commit(contract=REST)
    assert storage.log[-2:] == [("create", record_key(2)), ("settle", record_key(2))]
    assert (bundle.number, store.chain.head()) == (2, 2)


@pytest.mark.parametrize("fault", ["fail_before", "fail_after"])
def test_a_commit_of_unknown_outcome_can_be_repeated_and_is_made_once(fault):
    storage = MemoryStorage()
    store, attempt, saving = begun(storage)
    add_files(saving, 1)
    storage.arm(**{fault: 2})
    with pytest.raises(StoreError):
        saving.commit(contract=REST)
    bundle = saving.commit(contract=REST)
    assert [one.id for one in store.bundles()] == [bundle.id]
    assert save(attempt, 2).manifest.parent.id == bundle.id


def test_a_commit_of_unknown_outcome_that_is_met_is_made_durable_before_it_counts():
    storage = MemoryStorage()
    _, attempt = started(storage)
    saving = attempt.begin(step=1)
    add_files(saving, 1)
    storage.after = lambda operation, key: _fail(operation == "create" and key.startswith("chain/"))
    with pytest.raises(StoreError):
        saving.commit(contract=REST)
    storage.after = lambda _operation, _key: None
    storage.log.clear()
    attempt.catch_up()
    assert storage.log == [("settle", record_key(2))]
    assert saving.commit(contract=REST).number == 2


def _fail(now):
    if now:
        raise StoreError("the place failed")


def test_a_later_commit_takes_in_an_earlier_one_of_unknown_outcome():
    storage = MemoryStorage()
    store, attempt, saving = begun(storage)
    add_files(saving, 1)
    storage.arm(fail_after=2)
    with pytest.raises(StoreError):
        saving.commit(contract=REST)
    later = save(attempt, 2)
    assert later.manifest.parent.id == saving.id
    assert saving.commit(contract=REST).id == saving.id
    assert [one.id for one in store.bundles()] == [later.id, saving.id]


def test_a_save_that_may_have_been_published_is_not_removed_when_it_is_abandoned(tmp_path):
    storage = MemoryStorage()
    store, _, saving = begun(storage)
    add_files(saving, 1)
    storage.arm(fail_after=2)
    with pytest.raises(StoreError), saving:
        saving.commit(contract=REST)
    assert store.resume(to=tmp_path / "to").bundle == saving.id


def test_an_abandoned_save_leaves_nothing():
    storage = MemoryStorage()
    store, _, saving = begun(storage)
    before = set(storage.seen)
    add_files(saving, 1)
    with pytest.raises(ZeroDivisionError), saving:
        raise ZeroDivisionError
    assert set(storage.seen) == before - {marker_key(saving.id)}
    with pytest.raises(CommitRefused, match="abandoned"):
        saving.commit(contract=REST)
    with pytest.raises(CommitRefused, match="abandoned"):
        saving.add("late", BufferContent(b""))
    assert list(store.bundles()) == []


def test_the_note_of_whose_save_it_was_goes_last_when_it_is_abandoned():
    storage = MemoryStorage()
    _, _, saving = begun(storage)
    add_files(saving, 1)
    saving.abandon()
    assert storage.log[-1] == ("remove", marker_key(saving.id))


def test_a_fenced_save_is_over():
    storage = MemoryStorage()
    _, _, saving = begun(storage)
    add_files(saving, 1)
    again(storage)
    for error in (FencedError, CommitRefused):
        with pytest.raises(error):
            saving.commit(contract=REST)


@pytest.mark.parametrize("links", [True, False], ids=["links", "references"])
def test_a_crash_at_any_request_of_a_save_loses_nothing(links, tmp_path):
    when, survived = 0, 0
    while survived < 2:
        when += 1
        for kind in ("crash_before", "crash_after"):
            storage = MemoryStorage(links=links)
            _, attempt = started(storage)
            first = save(attempt, 1)
            storage.arm(**{kind: when})
            acknowledged = [first.id]
            try:
                acknowledged.append(save(attempt, 2).id)
                survived += 1
            except Crash:
                pass
            for name, left in (("killed", storage.revived()), ("power", storage.after_power_cut())):
                to = tmp_path / f"{when}-{kind}-{name}"
                decision = Store.open(left, writing=True).resume(to=to)
                assert decision.set_aside == ()
                assert decision.step in ((2,) if len(acknowledged) == 2 else (1, 2))
                assert content_of(to) == files(decision.step)
    assert when > 5
