from __future__ import annotations

import time

import msgspec
import pytest

from bundle_memory import Crash, MemoryStorage
from bundle_samples import REST, add_files, again, content_of, files, save, started
from samestep.bundle.errors import FormatError, StoreError
from samestep.bundle.identity import new_nonce
from samestep.bundle.leftovers import NAMELESS_SECONDS
from samestep.bundle.records import RetireRecord, encode_record, record_key
from samestep.bundle.retention import Policy
from samestep.bundle.saving import marker_key
from samestep.bundle.storage.local import LocalStorage
from samestep.bundle.store import Store


def made(storage, steps, **commit):
    store, attempt = started(storage)
    return store, attempt, [save(attempt, step, **commit) for step in steps]


def steps(store):
    return [bundle.step for bundle in store.bundles()]


def folders(storage):
    return {key.split("/")[1] for key in storage.seen if key.startswith("bundles/")}


def spoil(storage, bundle, how=lambda data: b"?" + data[1:]):
    storage.damage(bundle.key_of(bundle.manifest.parts[0]), how)


def newest_retirement(store):
    return next(
        record for record in store.chain.backwards(store.chain.head()) if isinstance(record, RetireRecord)
    )


def test_the_last_bundles_stay_and_the_parts_of_the_others_go():
    storage = MemoryStorage()
    store, _, bundles = made(storage, range(1, 6))
    result = store.prune(Policy(keep_last=2))
    assert steps(store) == [5, 4]
    assert {ref.id for ref in result.retired} == {bundle.id for bundle in bundles[:3]}
    assert folders(storage) == {bundle.id for bundle in bundles[3:]}
    assert result.bytes_removed > 3 * 700
    assert store.prune(Policy(keep_last=2)).removed == ()


def test_one_bundle_every_so_many_steps_stays_and_goes_on_staying():
    storage = MemoryStorage()
    store, attempt, _ = made(storage, [])
    for step in range(5, 200, 15):
        save(attempt, step)
        store.prune(Policy(keep_last=1, keep_every=50))
    assert steps(store) == [185, 155, 110, 50]


def test_nothing_to_give_up_reads_no_part_and_appends_nothing():
    storage = MemoryStorage()
    store, _, _ = made(storage, [1, 2])
    storage.calls.clear()
    assert store.prune(Policy(keep_last=2)).retired == ()
    assert storage.calls["read_into"] == 0
    assert store.chain.head() == 3


@pytest.mark.parametrize("wrong", [{"keep_last": 0}, {"keep_every": 0}])
def test_a_policy_keeps_something(wrong):
    with pytest.raises(StoreError, match="keep nothing"):
        Policy(**wrong)


def test_a_dry_run_says_what_would_be_done_and_does_nothing():
    storage = MemoryStorage()
    store, _, _ = made(storage, range(1, 5))
    before, log = dict(storage.seen), list(storage.log)
    foreseen = store.prune(Policy(keep_last=1), dry_run=True)
    assert (storage.seen, storage.log) == (before, log)
    done = store.prune(Policy(keep_last=1))
    assert (foreseen.retired, set(foreseen.removed), foreseen.bytes_removed) == (
        done.retired,
        set(done.removed),
        done.bytes_removed,
    )
    assert [kept.why for kept in done.kept] == ["one of the last 1"]


def test_a_bundle_that_stays_was_read_in_full_before_another_is_given_up():
    storage = MemoryStorage()
    store, _, (_, newest) = made(storage, [1, 2])
    read = []

    def watch(operation, key):
        if operation == "read_into":
            read.append(key)
        if operation == "create":
            assert set(read) == {newest.key_of(part) for part in newest.manifest.parts}

    storage.before = watch
    store.prune(Policy(keep_last=1))
    assert read
    assert newest_retirement(store).verified == newest.id


def test_the_last_whole_bundle_is_not_given_up_for_a_newer_one_whose_bytes_differ():
    storage = MemoryStorage()
    store, _, (old, whole, damaged) = made(storage, [1, 2, 3])
    spoil(storage, damaged)
    result = store.prune(Policy(keep_last=1))
    assert [ref.id for ref in result.retired] == [old.id]
    assert {kept.ref.id: kept.why.split(",")[0] for kept in result.kept} == {
        damaged.id: "damaged",
        whole.id: "one of the last 1",
    }
    assert newest_retirement(store).verified == whole.id


@pytest.mark.parametrize("which", [2, 3])
def test_a_bundle_that_lacks_a_part_does_not_count_among_the_last(which):
    storage = MemoryStorage()
    store, _, bundles = made(storage, [1, 2, 3, 4])
    spoil(storage, bundles[which], lambda _: None)
    store.prune(Policy(keep_last=2))
    assert steps(store) == [4, 3, 2]


def test_when_no_bundle_is_whole_nothing_is_given_up():
    storage = MemoryStorage()
    store, _, bundles = made(storage, [1, 2, 3])
    for bundle in bundles:
        spoil(storage, bundle)
    result = store.prune(Policy(keep_last=1))
    assert (result.retired, result.removed) == ((), ())
    assert len(result.kept) == 3


def test_a_verified_bundle_that_stays_need_not_be_read_again_and_one_that_went_is_replaced():
    storage = MemoryStorage()
    store, attempt, bundles = made(storage, [1, 2, 3])
    store.prune(Policy(keep_last=2))
    assert newest_retirement(store).verified == bundles[2].id
    save(attempt, 4)
    storage.calls.clear()
    store.prune(Policy(keep_last=2))
    assert (storage.calls["read_into"], newest_retirement(store).verified) == (0, bundles[2].id)
    newest = save(attempt, 5)
    store.prune(Policy(keep_last=1))
    assert newest_retirement(store).verified == newest.id


def test_what_the_lineage_went_past_is_given_up():
    storage = MemoryStorage()
    store, _attempt, (base, passed) = made(storage, [1, 2])
    second = store.register(store.select(damaged={passed.id: "differs"}), "restart")
    newest = save(second, 2)
    store.prune(Policy(keep_last=2))
    assert [bundle.id for bundle in store.bundles()] == [newest.id, base.id]


def test_what_the_newest_attempt_went_on_from_stays_until_it_has_committed():
    storage = MemoryStorage()
    store, _attempt, (_, chosen, newest) = made(storage, [1, 2, 3])
    store.prune(Policy(keep_last=2))
    spoil(storage, newest)
    second = store.register(store.select(damaged={newest.id: "differs"}), "restart")
    for _ in range(2):
        store.prune(Policy(keep_last=1))
        assert [bundle.id for bundle in store.bundles()] == [newest.id, chosen.id]
    save(second, 3)
    store.prune(Policy(keep_last=1))
    assert steps(store) == [3]
    assert chosen.id not in folders(storage)


def test_bundles_that_cannot_be_resumed_from_do_not_push_out_those_that_can():
    storage = MemoryStorage()
    store, attempt, (whole,) = made(storage, [1])
    contract = {name: row for name, row in REST.items() if name != "rng"}
    for step in (2, 3, 4):
        save(attempt, step, contract=contract, allow_open_rows=True)
    store.prune(Policy(keep_last=1))
    assert steps(store) == [4, 1]
    assert newest_retirement(store).verified == whole.id
    assert store.select().bundle == whole.id


def test_the_garbage_of_a_fenced_attempt_goes_and_what_is_being_saved_stays():
    storage = MemoryStorage()
    store, first, (base,) = made(storage, [1])
    dead = first.begin(step=2)
    add_files(dead, 2)
    second = again(storage)[1]
    going_on = second.begin(step=2)
    add_files(going_on, 2)
    store.prune(Policy())
    assert folders(storage) == {base.id, going_on.id}
    assert going_on.commit(contract=REST).step == 2
    assert steps(store) == [2, 1]


def test_a_commit_in_the_middle_of_pruning_is_not_taken_for_garbage():
    storage = MemoryStorage()
    store, first, (_base,) = made(storage, [1])
    saving = first.begin(step=2)
    add_files(saving, 2)

    def commit_and_replace(operation, key):
        if operation == "entries" and key == "bundles/":
            storage.before = lambda *_: None
            saving.commit(contract=REST)
            again(storage)

    storage.before = commit_and_replace
    store.prune(Policy())
    assert steps(store) == [2, 1]
    assert all(store.verify(bundle).holds for bundle in store.bundles())


def test_a_save_committed_right_after_the_listing_is_alive_even_when_it_is_fenced_at_once():
    storage = MemoryStorage()
    store, first, _ = made(storage, [1])
    saving = first.begin(step=2)
    add_files(saving, 2)
    entries = storage.entries

    def listed_then_committed(prefix):
        found = list(entries(prefix))
        if prefix == "bundles/":
            saving.commit(contract=REST)
            again(storage)
        return iter(found)

    storage.entries = listed_then_committed
    store.prune(Policy())
    storage.entries = entries
    assert steps(store) == [2, 1]
    assert all(store.verify(bundle).holds for bundle in store.bundles())


def test_a_folder_that_does_not_say_whose_it_was_goes_after_a_while():
    storage = MemoryStorage()
    store, first, (base,) = made(storage, [1])
    saving = first.begin(step=2)
    add_files(saving, 2)
    storage.seen.pop(marker_key(saving.id))
    store.prune(Policy())
    assert folders(storage) == {base.id, saving.id}
    for key in storage.modified:
        storage.modified[key] = time.time() - NAMELESS_SECONDS - 1
    store.prune(Policy())
    assert folders(storage) == {base.id}


def test_what_belongs_to_nobody_is_left_alone():
    storage = MemoryStorage()
    store, _, _ = made(storage, [1, 2])
    for key in ("bundles/README", "bundles/notes/x", "journal/a/1.jsonl", "other"):
        storage.create(key, b"mine")
        storage.modified[key] = 0
    store.prune(Policy(keep_last=1))
    assert {"bundles/README", "bundles/notes/x", "journal/a/1.jsonl", "other"} <= set(storage.seen)


def test_parts_that_a_bundle_that_stays_refers_to_stay_until_it_goes(tmp_path):
    storage = MemoryStorage(links=False)
    store, attempt, (holder, _, newest) = made(storage, [1, 2, 3])
    result = store.prune(Policy(keep_last=1))
    key = f"bundles/{holder.id}/tokenizer.json"
    assert key not in result.removed
    assert {k for k in storage.seen if holder.id in k} == {key, marker_key(holder.id)}
    store.restore(newest, to=tmp_path / "to")
    assert content_of(tmp_path / "to") == files(3)
    for step in range(4, 12):
        save(attempt, step)
        store.prune(Policy(keep_last=1))
    assert holder.id not in folders(storage)
    assert store.verify(store.bundle("latest")).holds


def test_pruning_after_every_save_reads_a_bounded_number_of_records():
    storage = MemoryStorage(links=False)
    store, attempt, _ = made(storage, [])
    reads = []
    for step in range(1, 121):
        save(attempt, step)
        storage.calls.clear()
        store.prune(Policy(keep_last=2, keep_every=50))
        reads.append(storage.calls["read"])
    assert max(reads[100:]) <= max(reads[20:40]) + 10
    assert max(reads) < 60


def test_a_record_that_cannot_be_read_stops_pruning():
    storage = MemoryStorage()
    store, _, _ = made(storage, [1, 2, 3])
    storage.create(record_key(5), b"from the future\n")
    before = dict(storage.seen)
    with pytest.raises(FormatError, match="not known"):
        store.prune(Policy(keep_last=1))
    assert storage.seen == before


def test_a_zombie_is_given_up_and_counts_for_nothing():
    storage = MemoryStorage()
    store, _, (one, two) = made(storage, [1, 2])
    again(storage)
    zombie = msgspec.structs.replace(
        two.record,
        number=5,
        nonce=new_nonce(),
        bundle=msgspec.structs.replace(two.manifest, id="b-20260101t000000000-0123456789", step=9),
    )
    storage.create(record_key(5), encode_record(zombie))
    result = store.prune(Policy(keep_last=1))
    assert [kept.ref.id for kept in result.kept] == [two.id]
    assert {ref.id for ref in result.retired} == {zombie.bundle.id, one.id}


@pytest.mark.parametrize("other", ["commit", "attempt", "prune"])
def test_pruning_starts_over_when_the_chain_has_moved_on(other):
    storage = MemoryStorage()
    store, attempt, _ = made(storage, [1, 2, 3])

    def slip_in(operation, key):
        if operation == "create" and key == record_key(5):
            storage.before = lambda *_: None
            if other == "commit":
                save(attempt, 4)
            elif other == "attempt":
                again(storage)
            else:
                Store.open(storage, writing=True).prune(Policy(keep_last=2))

    storage.before = slip_in
    result = store.prune(Policy(keep_last=1))
    assert steps(store) == [4] if other == "commit" else [3]
    assert len(result.kept) == 1
    assert newest_retirement(store).survivors == tuple(kept.ref for kept in result.kept)


@pytest.mark.parametrize("links", [True, False], ids=["links", "references"])
def test_a_crash_at_any_request_of_a_prune_leaves_what_stays_whole_and_the_next_one_finishes(links):
    when, finished = 0, 0
    while finished < 2:
        when += 1
        for kind in ("crash_before", "crash_after"):
            storage = MemoryStorage(links=links)
            store, _, bundles = made(storage, [1, 2, 3])
            storage.arm(**{kind: when})
            try:
                store.prune(Policy(keep_last=1))
                finished += 1
            except Crash:
                pass
            for left in (storage.revived(), storage.after_power_cut()):
                there = Store.open(left, writing=True)
                assert there.select().bundle == bundles[2].id
                alive = list(there.bundles())
                assert all(there.verify(bundle).holds for bundle in alive)
                assert [bundle.step for bundle in alive] in ([3, 2, 1], [3])
                there.prune(Policy(keep_last=1))
                assert steps(there) == [3]
                kept = {key.rpartition("/")[2] for key in left.seen if bundles[0].id in key}
                assert kept <= ({"tokenizer.json", ".saving.json"} if not links else set())
                assert bundles[1].id not in folders(left)
    assert when > 4


def test_on_a_disk_a_part_that_is_shared_outlives_the_bundle_that_stored_it_first(tmp_path):
    storage = LocalStorage(tmp_path / "root")
    store, _, (first, second) = made(storage, [1, 2])
    name = "tokenizer.json"
    inodes = {(tmp_path / "root/bundles" / bundle.id / name).stat().st_ino for bundle in (first, second)}
    assert len(inodes) == 1
    store.prune(Policy(keep_last=1))
    assert not (tmp_path / "root/bundles" / first.id).exists()
    assert store.verify(second).holds
    assert store.resume(to=tmp_path / "to").step == 2
    assert content_of(tmp_path / "to") == files(2)


def test_an_empty_store_is_pruned_too():
    storage = MemoryStorage()
    store, _ = started(storage)
    assert store.prune(Policy()).kept == ()


def test_pins_count_when_many_bundles_are_given_up_at_once():
    storage = MemoryStorage()
    store, _, bundles = made(storage, range(1, 15))
    store.pin(bundles[3])
    result = store.prune(Policy(keep_last=1))
    assert steps(store) == [14, 4]
    assert (result.reinstated, result.kept[1].why) == ((), "held by pin-pin")


def test_leftovers_of_writes_that_never_finished_are_discarded():
    storage = MemoryStorage()
    asked = []
    storage.discard_unfinished = lambda prefix, older_than: asked.append(
        (prefix, older_than < time.time() - 3600)
    )
    store, _, _ = made(storage, [1])
    store.prune(Policy(), dry_run=True)
    assert asked == []
    store.prune(Policy())
    assert asked == [("bundles/", True), ("chain/", True)]


def test_files_beside_the_parts_do_not_make_a_bundle_damaged():
    storage = MemoryStorage()
    store, _, (_, newest) = made(storage, [1, 2])
    storage.create(f"bundles/{newest.id}/stray", b"x")
    assert [kept.why for kept in store.prune(Policy(keep_last=1)).kept] == ["one of the last 1"]
    assert steps(store) == [2]
