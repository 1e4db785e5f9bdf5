from __future__ import annotations

import itertools
import threading
import time

import pytest

from bundle_memory import MemoryStorage
from bundle_samples import REST, save, started
from samestep.bundle.digests import CHUNK_BYTES, SLICE_BYTES
from samestep.bundle.errors import DamageError, StoreError
from samestep.bundle.paths import part_key
from samestep.bundle.storage import direct
from samestep.bundle.storage.contents import BufferContent
from samestep.bundle.verifying import READERS, Level, check_stored, in_parallel, verify

PARTS = {"model.safetensors": b"weights" * 9, "empty.bin": b"", ".metadata": b"of the framework"}


def bundle_of(storage, parts=PARTS, **commit):
    store, attempt = started(storage)
    saving = attempt.begin(step=1)
    for path, data in parts.items():
        saving.add(path, BufferContent(data), components=["weights", "optimizer"])
    return store, saving.commit(**{"contract": REST} | commit)


def faults(store, bundle, level=Level.FULL):
    found = store.verify(bundle, level)
    assert found.holds == (not found.faults)
    return [(fault.path, fault.reason) for fault in found.faults]


def test_a_whole_bundle_holds_on_every_level():
    store, bundle = bundle_of(MemoryStorage())
    for level in Level:
        assert faults(store, bundle, level) == []


@pytest.mark.parametrize("path", [path for path, data in PARTS.items() if data])
def test_every_single_flipped_bit_is_found(path):
    storage = MemoryStorage()
    store, bundle = bundle_of(storage)
    key = part_key(bundle.id, path)
    for at, bit in itertools.product(range(len(PARTS[path])), range(8)):
        flipped = bytearray(PARTS[path])
        flipped[at] ^= 1 << bit
        storage.seen[key] = bytes(flipped)
        assert faults(store, bundle) == [(path, "digest-differs")]
        assert faults(store, bundle, Level.SIZES) == []


@pytest.mark.parametrize("path", PARTS)
def test_a_missing_part_is_found_by_its_size(path):
    storage = MemoryStorage()
    store, bundle = bundle_of(storage)
    storage.damage(part_key(bundle.id, path), lambda _: None)
    for level in (Level.SIZES, Level.FULL):
        assert faults(store, bundle, level) == [(path, "part-missing")]


def test_every_truncation_is_found_and_so_is_every_added_byte():
    storage = MemoryStorage()
    store, bundle = bundle_of(storage)
    key = part_key(bundle.id, ".metadata")
    for length in range(len(PARTS[".metadata"])):
        storage.seen[key] = PARTS[".metadata"][:length]
        assert faults(store, bundle, Level.SIZES) == [(".metadata", "size-differs")]
    storage.seen[key] = PARTS[".metadata"]
    storage.seen[part_key(bundle.id, "empty.bin")] = b"\0"
    assert faults(store, bundle) == [("empty.bin", "size-differs")]


def test_swapped_parts_are_found():
    storage = MemoryStorage()
    store, bundle = bundle_of(storage, {"a": b"12", "b": b"34"})
    a, b = part_key(bundle.id, "a"), part_key(bundle.id, "b")
    storage.seen[a], storage.seen[b] = storage.seen[b], storage.seen[a]
    assert faults(store, bundle) == [("a", "digest-differs"), ("b", "digest-differs")]


def test_an_extra_file_is_found_and_the_stores_own_are_none():
    storage = MemoryStorage()
    store, bundle = bundle_of(storage)
    store.pin(bundle)
    storage.seen[part_key(bundle.id, "extra.bin")] = b"?"
    storage.modified[part_key(bundle.id, "extra.bin")] = 0
    assert faults(store, bundle, Level.MANIFEST) == []
    for level in (Level.SIZES, Level.FULL):
        assert faults(store, bundle, level) == [("extra.bin", "part-extra")]


def test_an_open_row_is_found():
    contract = {name: row for name, row in REST.items() if name != "rng"}
    store, bundle = bundle_of(MemoryStorage(), contract=contract, allow_open_rows=True)
    assert faults(store, bundle, Level.MANIFEST) == [("", "row-open")]


@pytest.mark.parametrize("at", [0, CHUNK_BYTES - 1, CHUNK_BYTES, 2 * CHUNK_BYTES + 6])
def test_a_flipped_byte_in_any_chunk_of_a_large_part_is_found(at):
    storage = MemoryStorage()
    store, bundle = bundle_of(storage, {"large": bytes(2 * CHUNK_BYTES + 7)})
    assert faults(store, bundle) == []
    storage.damage(part_key(bundle.id, "large"), lambda data: data[:at] + b"\1" + data[at + 1 :])
    assert faults(store, bundle) == [("large", "digest-differs")]


def test_a_part_that_another_bundle_holds_is_looked_at_there():
    storage = MemoryStorage(links=False)
    store, attempt = started(storage)
    first, second = save(attempt, 1), save(attempt, 2)
    assert faults(store, second) == []
    storage.damage(part_key(first.id, "tokenizer.json"), lambda data: b"?" + data[1:])
    assert faults(store, second) == [("tokenizer.json", "digest-differs")]


def test_a_place_that_fails_is_no_verification():
    storage = MemoryStorage()
    store, bundle = bundle_of(storage)

    def fail(operation, _key):
        if operation == "read_into":
            raise StoreError("no network")

    storage.before = fail
    with pytest.raises(StoreError, match="no network"):
        store.verify(bundle)


def test_work_is_done_in_parallel_in_order_and_not_far_ahead():
    running, most, begun = 0, 0, 0
    lock = threading.Lock()

    def items():
        nonlocal begun
        for item in range(200):
            begun = item
            yield item

    def work(item):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.001)
        with lock:
            running -= 1
        return item

    for done in in_parallel(work, items()):
        assert begun - done <= 3 * READERS
    assert 1 < most <= READERS
    assert list(in_parallel(work, [3, 1, 2])) == [3, 1, 2]


# Beside a training

PIECE = SLICE_BYTES
LARGE = 2 * CHUNK_BYTES + PIECE + 77


@pytest.fixture
def one_buffer(monkeypatch):
    """All buffers but one are in use: who wanted a second one would wait for ever."""
    ring = direct.Ring(1)
    monkeypatch.setattr("samestep.bundle.verifying.RING", ring)
    return ring


def piecewise(storage, bundle):
    return [(fault.path, fault.reason) for fault in verify(storage, bundle, frugal=True).faults]


@pytest.mark.usefixtures("one_buffer")
@pytest.mark.timeout(60)
def test_a_frugal_verification_takes_one_buffer_and_finds_what_another_one_finds():
    storage = MemoryStorage()
    _, bundle = bundle_of(storage, {"large": bytes(LARGE), "empty": b"", "small": b"12"})
    assert piecewise(storage, bundle) == []
    key = part_key(bundle.id, "large")
    whole = storage.seen[key]
    for at in (0, PIECE - 1, PIECE, CHUNK_BYTES - 1, CHUNK_BYTES, 2 * CHUNK_BYTES + PIECE, LARGE - 1):
        storage.seen[key] = whole[:at] + b"\1" + whole[at + 1 :]
        assert piecewise(storage, bundle) == [("large", "digest-differs")]


@pytest.mark.usefixtures("one_buffer")
@pytest.mark.timeout(60)
def test_what_is_shared_is_checked_with_one_buffer():
    storage = MemoryStorage()
    _, bundle = bundle_of(storage, {"large": bytes(LARGE), "empty": b""})
    parts = {part.path: part for part in bundle.manifest.parts}
    for path, part in parts.items():
        check_stored(storage, part_key(bundle.id, path), part, what=path)
    key = part_key(bundle.id, "large")
    storage.seen[key] = storage.seen[key][:-1] + b"\1"
    with pytest.raises(DamageError, match="large was changed"):
        check_stored(storage, key, parts["large"], what="large")
    del storage.seen[part_key(bundle.id, "empty")]
    with pytest.raises(DamageError, match="empty is missing"):
        check_stored(storage, part_key(bundle.id, "empty"), parts["empty"], what="empty")


def test_pieces_of_a_buffer_are_lent_to_one_at_a_time_and_come_back(one_buffer):
    with one_buffer.pieces(2, CHUNK_BYTES // 4) as lend:
        with lend() as one, lend() as other:
            one[:], other[:] = b"1" * len(one), b"2" * len(other)
            assert len(one) == len(other) == CHUNK_BYTES // 4
            assert one[-1:] == b"1"
        with pytest.raises(ZeroDivisionError), lend():
            raise ZeroDivisionError
        with lend(), lend():
            pass
    with one_buffer.borrow() as buffer:
        assert len(buffer) == CHUNK_BYTES
