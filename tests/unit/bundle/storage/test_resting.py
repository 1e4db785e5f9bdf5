"""A part that already lies in memory page by page is written from there, without another copy of it."""

from __future__ import annotations

import ctypes
import errno
import random

import pytest

from bundle_memory import MemoryStorage
from bundle_samples import REST, started
from samestep.bundle.digests import CHUNK_BYTES, digest_content
from samestep.bundle.storage import direct, system
from samestep.bundle.storage.contents import BufferContent
from samestep.bundle.storage.direct import BLOCK_BYTES, aligned
from samestep.bundle.storage.local import LocalStorage

MIB = 1 << 20
SIZE = CHUNK_BYTES + 3 * MIB + 77


class Lying:
    """A content in memory that begins at a page, or a few bytes behind one."""

    def __init__(self, size, begin=0, behind=0):
        self.size = size
        self._memory = aligned(begin + size + behind)
        self._memory[begin + size :] = b"\xff" * behind
        self._memory[begin : begin + size] = random.Random(size).randbytes(size)
        self.memory = memoryview(self._memory)[begin : begin + size]
        self.moved = 0

    @property
    def behind(self):
        """What lies behind it, which is not its own."""
        return self._memory[-BLOCK_BYTES:]

    def read_into(self, offset, target):
        if ctypes.addressof(ctypes.c_char.from_buffer(target)) != address_of(self.memory) + offset:
            target[:] = self.memory[offset : offset + len(target)]
            self.moved += len(target)


def address_of(view):
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


@pytest.fixture
def storage(tmp_path):
    return LocalStorage(tmp_path / "store")


@pytest.fixture
def from_where(monkeypatch):
    """The addresses and lengths of all that is handed to the disk."""
    log = []
    write_all = system.write_all

    def watch(descriptor, data, offset):
        log.append((address_of(data), len(data)))
        write_all(descriptor, data, offset)

    monkeypatch.setattr(system, "write_all", watch)
    return log


def check(storage, content, written):
    assert storage.read("part", limit=2 * SIZE) == bytes(content.memory)
    plain = digest_content(BufferContent(content.memory))
    assert (written.algorithm, written.digest, written.chunks) == (
        plain.algorithm,
        plain.digest,
        plain.chunks,
    )


@pytest.mark.parametrize("size", [SIZE, 2 * MIB, 2 * MIB + 1, CHUNK_BYTES + 1])
def test_it_is_written_where_it_lies_and_only_an_end_within_a_block_is_moved(storage, from_where, size):
    content = Lying(size, behind=BLOCK_BYTES)
    written = storage.write("part", content)
    check(storage, content, written)
    begin, end = address_of(content.memory), address_of(content.memory) + size
    elsewhere = [length for address, length in from_where if not begin <= address < end]
    assert elsewhere == ([BLOCK_BYTES] if size % BLOCK_BYTES else [])
    assert content.moved == 0
    assert content.behind == b"\xff" * BLOCK_BYTES


def test_what_does_not_begin_at_a_page_is_moved(storage, from_where):
    content = Lying(SIZE, begin=512)
    check(storage, content, storage.write("part", content))
    assert content.moved == SIZE


def test_a_disk_that_refuses_to_be_written_directly_gets_the_same_bytes(storage, monkeypatch):
    write_all = system.write_all
    refusals = iter([OSError(errno.EINVAL, "no")])

    def refuse_once(descriptor, data, offset):
        if error := next(refusals, None):
            raise error
        write_all(descriptor, data, offset)

    monkeypatch.setattr(system, "write_all", refuse_once)
    content = Lying(SIZE)
    check(storage, content, storage.write("part", content))


def test_a_place_that_writes_through_the_page_cache_moves_what_it_writes_as_before(storage, monkeypatch):
    monkeypatch.setattr(system, "set_direct", lambda *_, **__: False)
    content = Lying(SIZE)
    check(storage, content, storage.write("part", content))
    assert content.moved == SIZE


def test_writing_from_where_it_lies_takes_no_buffer(tmp_path):
    ring = direct.Ring(1)
    storage = LocalStorage(tmp_path / "store", ring=ring)
    content = Lying(2 * CHUNK_BYTES + 5)
    with ring.borrow():  # a writer that wanted one would wait for ever
        written = storage.write("part", content)
    check(storage, content, written)


def test_what_lies_in_memory_is_digested_there(monkeypatch):
    content = Lying(SIZE)
    none_left = direct.Ring(0)
    assert (
        digest_content(content, threads=2, buffer=none_left.borrow).digest
        == digest_content(BufferContent(content.memory)).digest
    )
    monkeypatch.setattr("samestep.bundle.parts.RING", none_left)
    _, attempt = started(MemoryStorage())
    depths = []
    for step in (1, 2):
        saving = attempt.begin(step=step)
        part = saving.add("large", content, components=["weights", "optimizer"])
        saving.commit(contract=REST)
        depths.append(part.share_depth)
    assert depths == [0, 1]  # the second one was compared with what is stored
    assert content.moved == SIZE  # into the stand-in for a place, once
