from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from bundle_memory import MemoryStorage
from bundle_samples import FROZEN, REST, add_files, content_of, files, save, started
from samestep.bundle import parts, verifying
from samestep.bundle.digests import CHUNK_BYTES, digest_content
from samestep.bundle.errors import CommitRefused, DamageError, FormatError, NoRoom, StoreError
from samestep.bundle.identity import new_bundle_id
from samestep.bundle.parts import FULL_COPY_AFTER, ROOM_MARGIN_BYTES, PartWriter
from samestep.bundle.paths import bundle_folder, part_key
from samestep.bundle.records import record_key
from samestep.bundle.retention import Policy
from samestep.bundle.storage.contents import BufferContent
from samestep.bundle.storage.direct import Ring
from samestep.bundle.storage.failures import told
from samestep.bundle.storage.local import LocalStorage
from samestep.bundle.store import Store


def begun(storage: MemoryStorage, step: int = 1):
    store, attempt = started(storage)
    return store, attempt, attempt.begin(step=step)


def part_named(bundle, path):
    return next(part for part in bundle.manifest.parts if part.path == path)


@pytest.mark.parametrize("links", [True, False], ids=["links", "references"])
def test_shared_parts_survive_a_power_cut_too(links, tmp_path):
    storage = MemoryStorage(links=links)
    _, attempt = started(storage)
    save(attempt, 1)
    save(attempt, 2)
    cut = storage.after_power_cut()
    assert Store.open(cut, writing=False).resume(to=tmp_path / "to").step == 2
    assert content_of(tmp_path / "to") == files(2)


def test_a_part_must_have_the_digest_that_was_expected():
    storage = MemoryStorage()
    _, _, saving = begun(storage)
    right = digest_content(BufferContent(b"abc")).digest
    with pytest.raises(DamageError, match="was expected"):
        saving.add("a.bin", BufferContent(b"abd"), expected_digest=right)
    assert bundle_folder(saving.id) + "a.bin" not in storage.seen
    assert saving.add("a.bin", BufferContent(b"abc"), expected_digest=right).digest == right


def test_a_source_that_cannot_be_read_is_told_and_leaves_no_part():
    class Broken:
        size = 10

        def read_into(self, offset, target):
            raise OSError("the disk is gone")

    storage = MemoryStorage()
    _, _, saving = begun(storage)
    with pytest.raises(StoreError, match="the disk is gone"):
        saving.add("a.bin", Broken())
    saving.add("a.bin", BufferContent(b"abc"))


@pytest.mark.parametrize("path", ["../a", "/a", "a/../b", "", "a//b"])
def test_a_path_that_leads_elsewhere_is_refused(path):
    _, _, saving = begun(MemoryStorage())
    with pytest.raises(FormatError):
        saving.add(path, BufferContent(b""))


def test_a_part_is_added_once():
    _, _, saving = begun(MemoryStorage())
    saving.add("a", BufferContent(b"1"))
    with pytest.raises(CommitRefused, match="already has"):
        saving.add("a", BufferContent(b"2"))


def test_a_part_that_did_not_change_is_stored_once_where_names_can_be_linked():
    storage = MemoryStorage(links=True)
    _, attempt = started(storage)
    save(attempt, 1)
    storage.calls.clear()
    second = save(attempt, 2)
    part = part_named(second, "tokenizer.json")
    assert (part.stored_in, part.share_depth) == ("", 1)
    assert (storage.calls["write"], storage.calls["share"]) == (2, 1)


def test_a_part_that_did_not_change_is_referred_to_elsewhere_and_always_at_its_holder():
    storage = MemoryStorage(links=False)
    _, attempt = started(storage)
    first = save(attempt, 1)
    for depth in (1, 2, 3):
        bundle = save(attempt, depth + 1)
        part = part_named(bundle, "tokenizer.json")
        assert (part.stored_in, part.share_depth) == (first.id, depth)
        assert bundle.key_of(part) == first.key_of(part_named(first, "tokenizer.json"))


@pytest.mark.parametrize("links", [True, False], ids=["links", "references"])
def test_after_some_bundles_an_unchanged_part_is_stored_anew(links):
    _, attempt = started(MemoryStorage(links=links))
    depths = [part_named(save(attempt, step), "tokenizer.json").share_depth for step in range(1, 12)]
    assert depths == [*range(FULL_COPY_AFTER + 1), 0, 1]


def test_a_part_of_the_same_size_and_other_content_is_not_shared():
    _, attempt = started(MemoryStorage())
    save(attempt, 1)
    second = save(attempt, 2)
    assert part_named(second, "model.safetensors").share_depth == 0


@pytest.mark.parametrize("at", [0, CHUNK_BYTES, 2 * CHUNK_BYTES + 4])
def test_one_changed_byte_anywhere_makes_another_part(at):
    _, attempt = started(MemoryStorage())
    data = bytearray(2 * CHUNK_BYTES + 5)

    def saved(step):
        saving = attempt.begin(step=step)
        saving.add("w", BufferContent(data), components=["weights", "optimizer"])
        return part_named(saving.commit(contract=REST), "w").share_depth

    assert (saved(1), saved(2)) == (0, 1)
    data[at] ^= 1
    assert saved(3) == 0


def test_a_shared_part_whose_holder_lost_it_is_stored_anew():
    storage = MemoryStorage(links=False)
    _, attempt = started(storage)
    first = save(attempt, 1)
    storage.damage(first.key_of(part_named(first, "tokenizer.json")), lambda _: None)
    assert part_named(save(attempt, 2), "tokenizer.json").stored_in == ""
    storage.links = True
    storage.damage(bundle_folder(attempt.newest.bundle.id) + "tokenizer.json", lambda _: None)
    assert part_named(save(attempt, 3), "tokenizer.json").share_depth == 0


@pytest.mark.parametrize("links", [True, False], ids=["links", "references"])
@pytest.mark.parametrize(
    "rot", [lambda data: b"!" + data[1:], lambda data: data[:-1]], ids=["changed", "shorter"]
)
def test_what_rotted_before_an_attempt_is_not_shared_by_it(links, rot, tmp_path):
    storage = MemoryStorage(links=links)
    store, attempt = started(storage)
    first = save(attempt, 1)
    following = store.register(store.select(), "restarted")
    storage.damage(first.key_of(part_named(first, "tokenizer.json")), rot)
    second = save(following, 2)
    assert part_named(second, "tokenizer.json").share_depth == 0
    assert store.verify(second).whole


@pytest.mark.parametrize("links", [True, False], ids=["links", "references"])
def test_what_a_retirement_takes_from_a_save_that_is_going_on_is_stored_anew(links, tmp_path):
    storage = MemoryStorage(links=links)
    store, attempt = started(storage)
    save(attempt, 1)
    saving = attempt.begin(step=3)
    add_files(saving, 3)
    save(attempt, 2, contract=REST)
    changed = attempt.begin(step=2)
    changed.add("model.safetensors", BufferContent(b"other"), components=["weights", "optimizer"])
    changed.commit(contract=REST)
    store.prune(Policy(keep_last=1))
    bundle = saving.commit(contract=REST)
    assert part_named(bundle, "tokenizer.json").stored_in == ""
    store.restore(bundle, to=tmp_path / "to")
    assert content_of(tmp_path / "to") == files(3)


def test_what_a_retirement_takes_while_the_commit_is_being_appended_is_stored_anew(tmp_path):
    storage = MemoryStorage(links=False)
    _store, attempt = started(storage)
    save(attempt, 1)
    saving = attempt.begin(step=2)
    add_files(saving, 2)
    pinless = Store.open(storage, writing=True)
    assert part_named_in(saving, "tokenizer.json").stored_in

    def prune_first(operation, key):
        if operation == "create" and key == record_key(3):
            storage.before = lambda *_: None
            retire_everything_but_nothing(pinless)

    storage.before = prune_first
    bundle = saving.commit(contract=REST)
    assert part_named(bundle, "tokenizer.json").stored_in == ""
    cut = Store.open(storage.after_power_cut(), writing=True)
    cut.restore(cut.bundle(bundle.id), to=tmp_path / "to")
    assert content_of(tmp_path / "to") == files(2)


def part_named_in(saving, path):
    return next(part for part in saving._parts.parts if part.path == path)


def retire_everything_but_nothing(store):
    """What a pruner does that keeps nothing: a retirement of the only bundle, and its parts removed."""
    from samestep.bundle.identity import new_nonce, utc_text
    from samestep.bundle.records import RetireRecord, encode_record

    (bundle,) = store.bundles()
    number = store.chain.head() + 1
    record = RetireRecord(
        number=number,
        run=store.run.id,
        nonce=new_nonce(),
        written=utc_text(),
        attempt_ordinal=1,
        bundles=(bundle.ref,),
        survivors=(),
        policy="test",
    )
    store.storage.create(record_key(number), encode_record(record))
    store.storage.remove([bundle.key_of(part) for part in bundle.manifest.parts])


def test_parts_of_other_ranks_are_taken_and_their_sizes_checked():
    storage = MemoryStorage()
    store, _, saving = begun(storage)
    add_files(saving, 1)
    writer = PartWriter(storage, saving.id, None)
    part = writer.add("rank1.bin", BufferContent(b"of rank 1"), components=["rng"], rank=1)
    writer.settle()
    saving.take(part)
    with pytest.raises(CommitRefused, match="rank not in the world"):
        saving.commit(contract=REST)
    from samestep.bundle.manifest import World

    storage.damage(bundle_folder(saving.id) + "rank1.bin", lambda data: data[:3])
    with pytest.raises(DamageError, match="rank1"):
        saving.commit(contract=REST, world=World(size=2))
    storage.damage(bundle_folder(saving.id) + "rank1.bin", lambda _: b"of rank 1")
    assert saving.commit(contract=REST, world=World(size=2)).manifest.parts[-1].rank == 1
    assert len(list(store.bundles())) == 1


def test_a_shared_part_of_another_rank_whose_holder_was_retired_makes_the_save_fail():
    storage = MemoryStorage(links=False)
    store, attempt = started(storage)
    base = save(attempt, 1)
    saving = attempt.begin(step=2)
    writer = PartWriter(storage, saving.id, base.manifest)
    saving.take(writer.add("tokenizer.json", BufferContent(FROZEN), components=["weights", "optimizer"]))
    retire_everything_but_nothing(store)
    with pytest.raises(CommitRefused, match="was given up"):
        saving.commit(contract=REST)
    assert list(store.bundles()) == []


def test_a_rank_whose_shared_part_is_gone_stores_it_anew_by_itself():
    storage = MemoryStorage(links=False)
    _, attempt = started(storage)
    base = save(attempt, 1)
    storage.damage(base.key_of(part_named(base, "tokenizer.json")), lambda data: data[:-1])
    saving = attempt.begin(step=2)
    part = PartWriter(storage, saving.id, base.manifest).add("tokenizer.json", BufferContent(FROZEN))
    assert (part.stored_in, part.share_depth) == ("", 0)


def test_a_commit_between_a_retirement_and_its_removals_does_not_rely_on_what_is_about_to_go():
    storage = MemoryStorage(links=False)
    store, attempt = started(storage)
    save(attempt, 1)
    saving = attempt.begin(step=2)
    add_files(saving, 2)
    other = attempt.begin(step=2)
    other.add("model.safetensors", BufferContent(b"other"), components=["weights", "optimizer"])
    other.commit(contract=REST)
    made = []

    def commit_first(operation, _key):
        if operation == "remove":
            storage.before = lambda *_: None
            made.append(saving.commit(contract=REST))

    storage.before = commit_first
    store.prune(Policy(keep_last=1))
    assert part_named(made[0], "tokenizer.json").stored_in == ""
    assert store.verify(made[0]).holds


@pytest.mark.parametrize("links", [True, False], ids=["links", "references"])
@pytest.mark.parametrize("rot", [lambda _: None, lambda data: data[:-1]], ids=["gone", "shorter"])
@pytest.mark.parametrize("when", ["before the save", "before the commit"])
def test_a_part_that_was_trusted_and_is_no_longer_whole_is_stored_anew(links, rot, when):
    storage = MemoryStorage(links=links)
    store, attempt = started(storage)
    first = save(attempt, 1)
    shared = first.key_of(part_named(first, "tokenizer.json"))
    if when == "before the save":
        storage.damage(shared, rot)
    saving = attempt.begin(step=2)
    add_files(saving, 2)
    if when == "before the commit":
        storage.damage(shared, rot)
        if links:  # both names are one file
            storage.damage(bundle_folder(saving.id) + "tokenizer.json", rot)
    second = saving.commit(contract=REST)
    assert part_named(second, "tokenizer.json").share_depth == 0
    assert store.verify(second).whole
    assert part_named(save(attempt, 3), "tokenizer.json").share_depth == 1


def test_parts_that_are_stored_at_once_share_the_room_there_is():
    storage = MemoryStorage(free=ROOM_MARGIN_BYTES + 1000)
    begun, goes_on = threading.Event(), threading.Event()

    class Slow(BufferContent):
        def read_into(self, offset, target):
            begun.set()
            assert goes_on.wait(10)
            super().read_into(offset, target)
            storage.free = ROOM_MARGIN_BYTES + 100

    writer = PartWriter(storage, new_bundle_id(), None)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(writer.add, "a", Slow(b"a" * 700))
        assert begun.wait(10)
        assert writer.add("small", BufferContent(b"s" * 200)).size == 200
        second = pool.submit(writer.add, "b", BufferContent(b"b" * 700))
        time.sleep(0.05)
        assert storage.size(part_key(writer._bundle, "b")) is None
        goes_on.set()
        assert first.result(10).size == 700
        with pytest.raises(NoRoom, match="bytes left"):
            second.result(10)
    storage.free += 700
    assert writer.add("b", BufferContent(b"b" * 700)).size == 700


def test_a_disk_that_fills_up_while_a_part_is_written_is_a_lack_of_room_and_can_be_tried_again(tmp_path):
    storage = LocalStorage(tmp_path)
    writer = PartWriter(storage, new_bundle_id(), None)

    class Filling(BufferContent):
        full = True

    content, real = Filling(b"x" * 100), storage.write

    def write(key, content):
        if content.full:
            with told("write", key):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(key, content)

    storage.write = write
    with pytest.raises(NoRoom, match="ENOSPC"):
        writer.add("a", content)
    content.full = False
    assert writer.add("a", content).size == 100


def test_what_is_compared_and_verified_for_sharing_uses_the_buffers_of_the_process(monkeypatch):
    lent = []

    class Counting(Ring):
        @contextlib.contextmanager
        def borrow(self):
            with super().borrow() as buffer:
                lent.append(1)
                yield buffer

    ring = Counting(1)
    monkeypatch.setattr(parts, "RING", ring)
    monkeypatch.setattr(verifying, "RING", ring)
    storage = MemoryStorage()
    store, attempt = started(storage)
    save(attempt, 1)
    following = store.register(store.select(), "restart")
    before = len(lent)
    bundle = save(following, 2)
    assert part_named(bundle, "tokenizer.json").share_depth == 1
    assert len(lent) >= before + 2
    before = len(lent)
    assert store.verify(bundle).whole
    assert len(lent) == before + len(bundle.manifest.parts)
