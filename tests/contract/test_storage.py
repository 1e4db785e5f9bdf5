"""What every place that keeps a store must do: one suite over all of them."""

from __future__ import annotations

import concurrent.futures
import random
import threading
import time

import pytest
from blake3 import blake3

from contract.storages import KINDS
from samestep.bundle.errors import StoreError, UnreadableError
from samestep.bundle.storage.base import Absent, AlreadyThere

MIB = 1 << 20
CHUNK = 16 * MIB


@pytest.fixture(params=KINDS)
def place(request):
    """A function that opens a new handle on one empty place."""
    with KINDS[request.param](request) as handle:
        yield handle


@pytest.fixture
def storage(place):
    return place()


TABLE = random.Random(4).randbytes(1_000_003)
"""A prime number of bytes: no two chunks, and no two blocks of one, are alike."""


class Pattern:
    """Content made on the fly: the bytes follow from their offset, and nothing is held in memory."""

    def __init__(self, size, seed=0, ends_at=None):
        self.size = size
        self._seed = seed
        self._ends_at = size if ends_at is None else ends_at

    def read_into(self, offset, target):
        if offset + len(target) > self._ends_at:
            raise OSError(f"the content ends at {self._ends_at}")
        done = 0
        while done < len(target):
            begin = (offset + done + self._seed) % len(TABLE)
            piece = TABLE[begin : begin + len(target) - done]
            target[done : done + len(piece)] = piece
            done += len(piece)

    def bytes(self):
        whole = bytearray(self.size)
        self.read_into(0, memoryview(whole))
        return bytes(whole)


def stored(storage, key):
    size = storage.size(key)
    data = bytearray(size)
    storage.read_into(key, 0, memoryview(data))
    return bytes(data)


# create and read


@pytest.mark.parametrize("data", [b"", b"x", b"{}\n" * 1000, bytes(range(256)) * 4096])
def test_created_bytes_are_read_back_through_another_handle(place, data):
    place().create("chain/0000000001.json", data)
    other = place()
    assert other.read("chain/0000000001.json", limit=len(data)) == data
    assert other.size("chain/0000000001.json") == len(data)


def test_a_taken_name_keeps_what_it_has(place):
    place().create("run.json", b"first")
    with pytest.raises(AlreadyThere):
        place().create("run.json", b"second and longer")
    assert place().read("run.json", limit=100) == b"first"


def test_a_written_name_is_taken_too(storage):
    storage.write("bundles/b/part", Pattern(10))
    with pytest.raises(AlreadyThere):
        storage.create("bundles/b/part", b"other")
    assert stored(storage, "bundles/b/part") == Pattern(10).bytes()


def test_of_many_writers_who_want_one_name_exactly_one_gets_it(place):
    handles = [place() for _ in range(6)]
    for number in range(10):
        key = f"chain/{number:010}.json"
        gate = threading.Barrier(len(handles))

        def attempt(index, key=key, gate=gate):
            gate.wait()
            try:
                handles[index].create(key, f"writer {index}".encode())
            except AlreadyThere:
                return None
            return f"writer {index}".encode()

        with concurrent.futures.ThreadPoolExecutor(len(handles)) as pool:
            winners = [data for data in pool.map(attempt, range(len(handles))) if data]
        assert winners == [place().read(key, limit=100)]


def test_what_is_absent_is_absent_and_not_empty(storage):
    storage.create("chain/1", b"")
    for key in ("chain/2", "nowhere/at/all", "chain/1/below"):
        with pytest.raises(Absent):
            storage.read(key, limit=10)
        with pytest.raises(Absent):
            storage.read_into(key, 0, memoryview(bytearray(1)))
        assert storage.size(key) is None


def test_a_place_where_nothing_was_stored_is_empty_and_no_error(storage):
    assert storage.size("run.json") is None
    assert storage.sizes(["a", "b/c"]) == {"a": None, "b/c": None}
    assert list(storage.entries("")) == []
    assert storage.discard_unfinished("", time.time()) == 0
    storage.remove(["run.json", "bundles/b/part"])
    with pytest.raises(Absent):
        storage.read("run.json", limit=10)


def test_reading_more_than_the_limit_is_refused(storage):
    storage.create("run.json", b"x" * 101)
    with pytest.raises(StoreError, match="101"):
        storage.read("run.json", limit=100)
    assert storage.read("run.json", limit=101) == b"x" * 101


# write


@pytest.mark.parametrize(
    "size", [0, 1, 511, 4095, 4096, 4097, MIB - 1, MIB, MIB + 1, 5 * MIB, CHUNK - 1, CHUNK]
)
def test_a_part_of_up_to_one_chunk_is_stored_whole_with_its_blake3(place, size):
    content = Pattern(size, seed=size)
    written = place().write("bundles/b/model.safetensors", content)
    expected = content.bytes()
    assert (written.size, written.algorithm, written.chunks) == (size, "blake3", ())
    assert written.digest == blake3(expected).hexdigest()
    assert stored(place(), "bundles/b/model.safetensors") == expected


@pytest.mark.parametrize("size", [CHUNK + 1, 2 * CHUNK, 2 * CHUNK + 12345])
def test_a_larger_part_is_stored_whole_with_a_digest_of_every_chunk(place, size):
    content = Pattern(size, seed=3)
    written = place().write("bundles/b/model.safetensors", content)
    expected = content.bytes()
    chunks = [blake3(expected[at : at + CHUNK]) for at in range(0, size, CHUNK)]
    assert written.algorithm == "blake3-16MiB"
    assert written.chunks == tuple(chunk.hexdigest() for chunk in chunks)
    assert written.digest == blake3(b"".join(chunk.digest() for chunk in chunks)).hexdigest()
    assert stored(place(), "bundles/b/model.safetensors") == expected


def test_parts_may_be_written_by_several_threads_at_once(place):
    storage = place()
    sizes = {f"bundles/b/{index}": CHUNK // 2 * index + index for index in range(6)}
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda key: storage.write(key, Pattern(sizes[key], seed=sizes[key])), sizes))
    storage.settle(sizes)
    assert place().sizes(sizes) == sizes
    for key, size in sizes.items():
        assert stored(place(), key) == Pattern(size, seed=size).bytes()


def test_writing_again_replaces_the_whole(storage):
    storage.write("bundles/b/part", Pattern(3 * MIB, seed=1))
    storage.write("bundles/b/part", Pattern(5, seed=2))
    assert stored(storage, "bundles/b/part") == Pattern(5, seed=2).bytes()


@pytest.mark.parametrize("size", [10, 2 * MIB, 2 * CHUNK + 1])
def test_content_that_cannot_be_read_is_an_error_that_names_the_part(storage, size):
    with pytest.raises(StoreError, match="bundles/b/part"):
        storage.write("bundles/b/part", Pattern(size, ends_at=size - 1))


def test_what_was_written_can_be_settled_together(storage):
    keys = ["bundles/b/a", "bundles/b/deep/er/b", "bundles/c/c"]
    for key in keys:
        storage.write(key, Pattern(100))
    storage.settle(keys)
    storage.settle([])
    assert storage.sizes(keys) == dict.fromkeys(keys, 100)


# read_into


@pytest.mark.parametrize(
    ("offset", "length"), [(0, 0), (0, 1), (4095, 2), (MIB - 1, 2 * MIB), (CHUNK - 1, 2), (CHUNK, 12345)]
)
def test_any_span_of_a_part_can_be_read(storage, offset, length):
    content = Pattern(CHUNK + 12345)
    storage.write("bundles/b/part", content)
    target = bytearray(length)
    storage.read_into("bundles/b/part", offset, memoryview(target))
    assert target == content.bytes()[offset : offset + length]


@pytest.mark.parametrize(("offset", "length"), [(0, 101), (100, 1), (99, 2), (5000, 1)])
def test_reading_past_the_end_is_an_error(storage, offset, length):
    storage.write("bundles/b/part", Pattern(100))
    with pytest.raises(UnreadableError):
        storage.read_into("bundles/b/part", offset, memoryview(bytearray(length)))


# share


def test_shared_bytes_outlive_the_name_they_were_shared_from(storage):
    content = Pattern(MIB + 5)
    storage.write("bundles/a/frozen", content)
    if not storage.share("bundles/a/frozen", "bundles/b/deep/frozen"):
        assert storage.size("bundles/b/deep/frozen") is None
        return
    storage.settle(["bundles/b/deep/frozen"])
    storage.write("bundles/a/frozen", Pattern(7, seed=9))
    assert stored(storage, "bundles/b/deep/frozen") == content.bytes()
    storage.remove(["bundles/a/frozen"])
    assert stored(storage, "bundles/b/deep/frozen") == content.bytes()


def test_sharing_with_itself_changes_nothing(storage):
    storage.write("bundles/a/frozen", Pattern(100))
    storage.share("bundles/a/frozen", "bundles/a/frozen")
    assert stored(storage, "bundles/a/frozen") == Pattern(100).bytes()


# remove, entries, leftovers


def test_removing_takes_what_is_named_and_nothing_else(place):
    storage = place()
    keys = ["bundles/a/1", "bundles/a/2", "bundles/a/sub/3", "bundles/b/4"]
    for key in keys:
        storage.create(key, b"x")
    storage.remove(["bundles/a/1", "bundles/a/sub/3", "bundles/a/never", "bundles/z/never"])
    storage.remove(["bundles/a/1"])
    assert {entry.key for entry in place().entries("")} == {"bundles/a/2", "bundles/b/4"}
    storage.create("bundles/a/sub/3", b"again")
    assert storage.read("bundles/a/sub/3", limit=10) == b"again"


def test_a_listing_shows_all_below_a_prefix_with_sizes_and_times(place):
    before = time.time()
    storage = place()
    sizes = {
        "bundles/a/part": 5,
        "bundles/a/.holds/pin.json": 3,
        "bundles/a/x/y/z": 2 * MIB,
        "bundles/ab/part": 1,
    }
    for key, size in sizes.items():
        storage.write(key, Pattern(size))
    storage.settle(sizes)
    found = {entry.key: entry for entry in place().entries("bundles/a/")}
    assert {key: entry.size for key, entry in found.items()} == {
        key: size for key, size in sizes.items() if key.startswith("bundles/a/")
    }
    assert all(before - 5 < entry.modified < time.time() + 5 for entry in found.values())
    assert {entry.key for entry in storage.entries("")} == set(sizes)
    assert list(storage.entries("bundles/nothing/")) == []


@pytest.mark.parametrize(
    "key",
    ["bundles/b/ä ö/部品.bin", "bundles/b/50%25+1&a=b", "bundles/b/=.metadata", "bundles/b/" + "n" * 200],
)
def test_unusual_names_are_kept_as_they_are(place, key):
    place().write(key, Pattern(9))
    assert stored(place(), key) == Pattern(9).bytes()
    assert [entry.key for entry in place().entries("bundles/b/")] == [key]
    place().remove([key])
    assert place().size(key) is None


def test_discarding_leftovers_leaves_what_is_finished(storage):
    storage.create("chain/1", b"x")
    storage.write("bundles/b/part", Pattern(CHUNK + 1))
    storage.settle(["bundles/b/part"])
    assert storage.discard_unfinished("", time.time() + 1000) == 0
    assert storage.sizes(["chain/1", "bundles/b/part"]) == {"chain/1": 1, "bundles/b/part": CHUNK + 1}


def test_the_room_that_is_left_is_a_number_or_unknown(storage):
    free = storage.free_bytes()
    assert free is None or free > 0


def test_the_place_has_a_name_for_messages(storage):
    assert storage.url
