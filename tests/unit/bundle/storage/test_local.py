"""A folder as a place that keeps a store: nothing leads out of it, nothing is written to twice, memory is bounded."""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import random
import socket
import stat
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from samestep.bundle.digests import SLICE_BYTES
from samestep.bundle.errors import StoreError, UnreadableError
from samestep.bundle.storage import direct, local, room, system
from samestep.bundle.storage.base import Absent, AlreadyThere
from samestep.bundle.storage.contents import JOINED_BYTES, BufferContent, FileContent
from samestep.bundle.storage.local import LocalStorage

MIB = 1 << 20


@pytest.fixture
def storage(tmp_path):
    return LocalStorage(tmp_path / "store")


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def part(data=b"bytes of a part"):
    return BufferContent(data)


# names and links


BAD_KEYS = [
    "", "/", "/etc/passwd", "a//b", "a/", "../outside", "a/../../outside", "a/..", ".", "./a", "a/./b",
    "a\0b", "a\nb", "a\x7fb", "\udc80", "n" * 256, "ü" * 128, "a/" * 1024 + "a", ".unfinished-1", "a/.unfinished-x/b",
]  # fmt: skip


@pytest.mark.parametrize("key", BAD_KEYS, ids=ascii)
def test_no_operation_takes_a_key_that_is_none(storage, key, tmp_path):
    storage.create("run.json", b"x")
    operations = [
        lambda: storage.create(key, b"x"),
        lambda: storage.read(key, limit=10),
        lambda: storage.size(key),
        lambda: storage.sizes(["run.json", key]),
        lambda: storage.write(key, part()),
        lambda: storage.settle([key]),
        lambda: storage.read_into(key, 0, memoryview(bytearray(1))),
        lambda: storage.share(key, "b"),
        lambda: storage.share("run.json", key),
        lambda: storage.remove([key]),
    ]
    for operation in operations:
        with pytest.raises(StoreError, match="cannot be the name"):
            operation()
    assert [path.name for path in tmp_path.rglob("*")] == ["store", "run.json"]


@pytest.mark.parametrize("prefix", ["../", "/", "a//", "bundles/../../"])
def test_no_listing_leaves_the_root(storage, prefix):
    with pytest.raises(StoreError, match="cannot be the name"):
        list(storage.entries(prefix))
    with pytest.raises(StoreError, match="cannot be the name"):
        storage.discard_unfinished(prefix, time.time())


@pytest.fixture
def linked(storage, tmp_path):
    """A store into which a hostile hand put links to a folder and a file outside."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    storage.create("bundles/b/real", b"real")
    (storage.root / "bundles/evil").symlink_to(outside)
    (storage.root / "bundles/b/link").symlink_to(outside / "secret")
    (storage.root / "bundles/b/dangling").symlink_to(outside / "made")
    return outside


def test_reading_follows_no_link(storage, linked):
    for key in ("bundles/evil/secret", "bundles/b/link", "bundles/b/dangling"):
        assert storage.size(key) is None
        with pytest.raises(StoreError, match="ELOOP"):
            storage.read(key, limit=100)
        with pytest.raises(StoreError, match="ELOOP"):
            storage.read_into(key, 0, memoryview(bytearray(1)))
    assert [entry.key for entry in storage.entries("")] == ["bundles/b/real"]
    with pytest.raises(StoreError, match="ELOOP"):
        list(storage.entries("bundles/evil/"))


def test_writing_follows_no_link(storage, linked):
    for act in (
        lambda: storage.create("bundles/evil/new", b"x"),
        lambda: storage.write("bundles/evil/new", part()),
        lambda: storage.share("bundles/b/real", "bundles/evil/new"),
        lambda: storage.remove(["bundles/evil/secret"]),
        lambda: storage.settle(["bundles/evil/secret"]),
    ):
        with pytest.raises(StoreError, match="ELOOP"):
            act()
    with pytest.raises(AlreadyThere):
        storage.create("bundles/b/dangling", b"x")
    storage.write("bundles/b/link", part())  # takes the link's place
    with pytest.raises((StoreError, Absent)):
        storage.share("bundles/b/dangling", "bundles/b/other")
    assert sorted(path.name for path in linked.iterdir()) == ["secret"]
    assert (linked / "secret").read_bytes() == b"secret"
    assert (storage.root / "bundles/b/link").read_bytes() == b"bytes of a part"


def test_a_root_reached_through_a_link_is_its_owners_business(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "shortcut").symlink_to(tmp_path / "real")
    LocalStorage(tmp_path / "shortcut").create("run.json", b"x")
    assert (tmp_path / "real/run.json").read_bytes() == b"x"


def test_what_is_no_file_is_neither_read_nor_waited_for(storage):
    storage.create("run.json", b"x")
    os.mkfifo(storage.root / "pipe")
    (storage.root / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(storage.root / "socket"))
        for key in ("pipe", "folder", "socket"):
            assert storage.size(key) is None
            with pytest.raises(StoreError):
                storage.read(key, limit=10)
            with pytest.raises(AlreadyThere):
                storage.create(key, b"x")
        assert [entry.key for entry in storage.entries("")] == ["run.json"]


def test_a_file_in_a_folders_place_is_an_error_that_says_so(storage):
    storage.create("bundles", b"x")
    with pytest.raises(StoreError, match="ENOTDIR"):
        storage.write("bundles/b/part", part())
    blocked = LocalStorage(storage.root / "bundles")
    with pytest.raises(StoreError, match="ENOTDIR"):
        blocked.create("run.json", b"x")


# what stands on the disk


def test_stored_files_are_read_only(storage):
    storage.create("run.json", b"x")
    storage.write("bundles/b/part", part())
    for name in ("run.json", "bundles/b/part"):
        assert stat.S_IMODE((storage.root / name).stat().st_mode) & 0o222 == 0


def test_sharing_is_a_hard_link(storage):
    storage.write("bundles/a/part", part())
    assert storage.share("bundles/a/part", "bundles/b/part")
    assert (storage.root / "bundles/a/part").samefile(storage.root / "bundles/b/part")
    assert (storage.root / "bundles/b/part").stat().st_nlink == 2


def test_sharing_what_is_absent_is_told(storage):
    with pytest.raises(Absent):
        storage.share("bundles/a/part", "bundles/b/part")


@pytest.mark.parametrize("error", ["EXDEV", "EMLINK", "EPERM", "EOPNOTSUPP"])
def test_a_place_that_cannot_link_shares_nothing(storage, monkeypatch, error):
    number = getattr(__import__("errno"), error)

    def refuse(*_args):
        raise OSError(number, error)

    storage.write("bundles/a/part", part())
    monkeypatch.setattr(system, "link", refuse)
    assert storage.share("bundles/a/part", "bundles/b/part") is False


def test_nothing_temporary_is_left_or_listed(storage):
    storage.create("chain/1", b"x")
    with pytest.raises(AlreadyThere):
        storage.create("chain/1", b"y")
    assert names_in(storage.root / "chain") == ["1"]
    (storage.root / "chain/.unfinished-0123").write_bytes(b"cut off")
    assert [entry.key for entry in storage.entries("")] == ["chain/1"]


def test_leftovers_are_discarded_by_age(storage):
    storage.create("chain/1", b"x")
    old, new = storage.root / "chain/.unfinished-old", storage.root / "chain/.unfinished-new"
    for path in (old, new):
        path.write_bytes(b"cut off")
    os.utime(old, (1000, 1000))
    assert storage.discard_unfinished("bundles/", time.time() - 60) == 0
    assert storage.discard_unfinished("chain/", time.time() - 60) == 1
    assert not old.exists()
    assert new.exists()
    assert storage.discard_unfinished("", time.time() + 60) == 1
    assert storage.size("chain/1") == 1


def test_removing_the_last_thing_in_a_folder_removes_the_folder(storage):
    storage.create("bundles/a/deep/er/1", b"x")
    storage.create("bundles/b/2", b"x")
    storage.remove(["bundles/a/deep/er/1"])
    assert names_in(storage.root / "bundles") == ["b"]
    storage.remove(["bundles/b/2"])
    assert names_in(storage.root) == []


def test_folders_tidied_away_under_a_writer_are_made_again(storage):
    done = threading.Event()
    errors = []

    def tidy():
        try:
            while not done.is_set():
                storage.create("bundles/b/.holds/other", b"x")
                storage.remove(["bundles/b/.holds/other"])
        except Exception as error:  # noqa: BLE001 - shown below
            errors.append(error)

    with_tidier = threading.Thread(target=tidy)
    with_tidier.start()
    try:
        for _ in range(100):
            storage.create("bundles/b/.holds/mine", b"x")
            storage.remove(["bundles/b/.holds/mine"])
    finally:
        done.set()
        with_tidier.join()
    assert errors == []


# durability: which calls are made in which order


def watched(monkeypatch, *, below=None):
    """Record what is synced and published, in order, by path; folders above ``below`` are left out."""
    log, above = [], [place.name for place in below.parents] if below else []

    def path(descriptor):
        return Path(f"/proc/self/fd/{descriptor}").readlink().name

    def wrap(name, shown):
        real = getattr(system, name)

        def call(*args, **kwargs):
            result = real(*args, **kwargs)
            if not (name == "sync" and below and path(*args) in above):
                log.append(f"{name} {shown(*args)}")
            return result

        monkeypatch.setattr(system, name, call)

    wrap("sync", lambda descriptor: path(descriptor).split("-")[0])
    wrap("link", lambda _old, new, _source, _target: new)
    wrap("make_folder", lambda name, _folder=None: Path(name).name)
    return log


def test_a_record_is_synced_then_linked_then_its_folders_are_synced(tmp_path, monkeypatch):
    log = watched(monkeypatch, below=tmp_path)
    LocalStorage(tmp_path / "above" / "store").create("chain/1", b"x")
    top = tmp_path.name.split("-")[0]
    assert log == [
        "make_folder above", f"sync {top}", "make_folder store", "sync above", "make_folder chain",
        "sync .unfinished", "link 1", "sync store", "sync chain",
    ]  # fmt: skip


def test_a_root_that_another_writer_made_is_synced_once_all_the_same(tmp_path, monkeypatch):
    storage = LocalStorage(tmp_path / "store")
    (storage.root / "chain").mkdir(parents=True)
    log = watched(monkeypatch)
    storage.create("chain/1", b"x")
    assert log[:2] == [f"make_folder {storage.root.name}", f"sync {tmp_path.name.split('-')[0]}"]
    log.clear()
    storage.create("chain/2", b"x")
    assert log == ["sync .unfinished", "link 2", "sync store", "sync chain"]


def test_the_folders_above_a_root_are_synced_too_whoever_made_them(tmp_path, monkeypatch):
    (tmp_path / "a" / "b").mkdir(parents=True)
    log = watched(monkeypatch)
    LocalStorage(tmp_path / "a" / "b" / "store").create("chain/1", b"x")
    top = tmp_path.name.split("-")[0]
    assert log[:4] == ["make_folder store", "sync b", "sync a", f"sync {top}"]


def test_a_name_found_taken_is_durable_before_that_is_said(storage, monkeypatch):
    storage.create("chain/1", b"x")
    log = watched(monkeypatch)
    with pytest.raises(AlreadyThere):
        storage.create("chain/1", b"y")
    assert log == ["sync .unfinished", "sync store", "sync chain"]


def test_a_part_is_synced_when_written_and_its_folders_when_settled(storage, monkeypatch):
    storage.create("run.json", b"x")
    log = watched(monkeypatch)
    storage.write("bundles/b/deep/part", part())
    assert log == ["make_folder bundles", "make_folder b", "make_folder deep", "sync part"]
    log.clear()
    storage.settle(["bundles/b/deep/part", "bundles/b/other"])
    assert sorted(log) == ["sync b", "sync bundles", "sync deep", "sync store"]


# the writer


def test_big_parts_go_past_the_page_cache_where_the_disk_allows_it(storage, monkeypatch):
    flags = []
    write_all = system.write_all

    def watch(descriptor, data, offset):
        flags.append(bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT))
        write_all(descriptor, data, offset)

    monkeypatch.setattr(system, "write_all", watch)
    storage.write("small", BufferContent(bytes(direct.DIRECT_BYTES - 1)))
    storage.write("big", BufferContent(bytes(direct.DIRECT_BYTES + 1)))
    assert flags == [False, True]
    assert (storage.root / "big").stat().st_size == direct.DIRECT_BYTES + 1


def test_nothing_of_an_earlier_part_stands_behind_the_end_of_a_later_one(storage, monkeypatch):
    handed_over = []
    write_all = system.write_all

    def watch(descriptor, data, offset):
        handed_over.append(bytes(data))
        write_all(descriptor, data, offset)

    monkeypatch.setattr(system, "write_all", watch)
    ring_of_one = LocalStorage(storage.root, ring=direct.Ring(1))
    ring_of_one.write("first", BufferContent(b"\xff" * (2 * MIB)))
    ring_of_one.write("second", BufferContent(b"\x01" * (MIB + 1)))
    assert handed_over[1] == b"\x01" * (MIB + 1) + bytes(direct.BLOCK_BYTES - 1)


@pytest.mark.parametrize("refused", [False, True])
@pytest.mark.parametrize("length", [MIB, 2 * MIB + 77, 3 * MIB - 4096])
@pytest.mark.parametrize("offset", [0, 4096, 4097])
def test_big_reads_into_aligned_memory_go_past_the_page_cache_and_are_exact(
    storage, monkeypatch, offset, length, refused
):
    data = random.Random(3).randbytes(4 * MIB + 5)
    storage.write("part", BufferContent(data))
    read_all, flags = system.read_all, []

    def watch(descriptor, target, at):
        direct_now = bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT)
        flags.append(direct_now)
        if direct_now and refused:
            raise OSError(errno.EINVAL, "not here")
        return read_all(descriptor, target, at)

    monkeypatch.setattr(system, "read_all", watch)
    target = memoryview(direct.aligned(4 * MIB))[:length]
    storage.read_into("part", offset, target)
    assert target == data[offset : offset + length]
    assert flags == ([False] if offset % 4096 else [True, False])
    with pytest.raises(StoreError, match="ends after"):
        storage.read_into("part", 2 * MIB, memoryview(direct.aligned(3 * MIB)))


def test_a_file_that_the_disk_has_lost_is_told_apart_from_a_place_that_fails(tmp_path, monkeypatch):
    storage = LocalStorage(tmp_path)
    storage.write("part", BufferContent(b"x" * 100))
    for answer, kind in (
        (errno.EIO, UnreadableError),
        (errno.EUCLEAN, UnreadableError),
        (errno.EMFILE, StoreError),
    ):

        def fail(*_, answer=answer):
            raise OSError(answer, os.strerror(answer))

        monkeypatch.setattr(system, "read_all", fail)
        with pytest.raises(StoreError) as raised:
            storage.read_into("part", 0, memoryview(bytearray(100)))
        assert type(raised.value) is kind


MEMORY = """
    import resource, sys
    from samestep.bundle.storage.local import LocalStorage

    class Endless:
        size = int(sys.argv[2]) << 20
        def read_into(self, offset, target):
            target[:] = bytes([offset >> 20 & 255]) * len(target)

    LocalStorage(sys.argv[1]).write("warm", type("Small", (Endless,), {"size": 10})())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    LocalStorage(sys.argv[1]).write("part", Endless())
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_writing_takes_at_most_64_mib_whatever_the_size(tmp_path):
    grown = []
    for size_mib in (160, 480):
        command = [sys.executable, "-c", textwrap.dedent(MEMORY), str(tmp_path / "store"), str(size_mib)]
        run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        grown.append(int(run.stdout) / 1024)
    assert max(grown) < 64
    assert abs(grown[1] - grown[0]) < 8


def test_an_interrupted_wait_leaves_no_writer_behind(storage, monkeypatch):
    reading, offsets = threading.Event(), []

    class Interrupting:
        size = 400 * MIB

        def read_into(self, offset, target):
            reading.set()
            offsets.append(offset)
            target[:] = bytes(len(target))

    def interrupted(_workers):
        reading.wait(10)
        raise KeyboardInterrupt

    monkeypatch.setattr(direct.concurrent.futures, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        storage.write("bundles/b/part", Interrupting())
    assert not [thread for thread in threading.enumerate() if "part-writer" in thread.name]
    assert len(offsets) * SLICE_BYTES < 200 * MIB  # they stopped soon, not at the end
    assert list(storage.entries("")) == []


def test_a_forked_child_writes_although_the_parent_was_writing(storage):
    with direct.RING.turn, direct.RING.borrow(), direct.RING.borrow(), direct.RING.borrow() as buffer:
        buffer[:4] = b"mine"
        child = os.fork()
        if not child:
            try:
                storage.write("bundles/b/part", BufferContent(b"\xff" * (17 * MIB)))
                os._exit(0)
            finally:
                os._exit(1)
        deadline = time.monotonic() + 30
        while (waited := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
            time.sleep(0.01)
        if waited == (0, 0):
            os.kill(child, 9)
        assert waited == (child, 0)
        assert buffer[:4] == b"mine"
    assert storage.size("bundles/b/part") == 17 * MIB


def test_parts_take_turns_at_the_disk_so_that_some_are_digested_while_one_is_written(storage, monkeypatch):
    real, under_way, most = system.write_all, set(), []

    def watch(descriptor, data, offset):
        under_way.add(threading.get_ident())
        most.append(len(under_way))
        time.sleep(0.01)
        real(descriptor, data, offset)
        under_way.discard(threading.get_ident())

    monkeypatch.setattr(system, "write_all", watch)
    threads = [
        threading.Thread(target=storage.write, args=(name, BufferContent(bytes(80 * MIB))))
        for name in ("a", "b")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(most) == 10
    assert max(most) == 1


def test_a_write_that_fails_ends_its_turn(storage, monkeypatch):
    def fail(*_):
        raise OSError(errno.EIO, "broken")

    with monkeypatch.context() as broken:
        broken.setattr(system, "write_all", fail)
        for _ in range(2):
            with pytest.raises(StoreError, match="broken"):
                storage.write("part", BufferContent(bytes(2 * MIB)))
    assert storage.write("part", BufferContent(bytes(2 * MIB))).size == 2 * MIB


def test_a_writer_that_waits_for_a_buffer_goes_on_when_one_is_free(tmp_path):
    storage = LocalStorage(tmp_path, ring=direct.Ring(1))
    threads = [
        threading.Thread(target=storage.write, args=(f"part {index}", BufferContent(bytes(20 * MIB))))
        for index in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert {entry.size for entry in storage.entries("")} == {20 * MIB}


# room


def test_the_room_is_what_file_system_and_quota_leave(storage, monkeypatch):
    free = storage.free_bytes()
    seen = os.statvfs(storage.root.parent)
    assert abs(free - seen.f_bavail * seen.f_frsize) < 2**30
    monkeypatch.setattr(room, "quotas_left", lambda _folder: [12345, 10**15])
    assert storage.free_bytes() == 12345
    assert local.room_left is room.room_left


@pytest.mark.parametrize(
    ("limit_kib", "used", "failed", "left"),
    [(100, 30 * 1024, 0, [71680]), (100, 200 * 1024, 0, [0]), (0, 5, 0, []), (100, 0, -1, [])],
    ids=["some left", "over it", "no limit", "cannot be asked"],
)
def test_a_quota_counts_in_blocks_of_1024_bytes(monkeypatch, limit_kib, used, failed, left):
    class Kernel:
        def syscall(self, number, _folder, command, owner, answer):
            if command & 0xFF == room._GROUP:
                return -1
            assert (number, command, owner) == (443, 0x80000700, 1234)
            answer._obj.hard_limit_blocks, answer._obj.used_bytes = limit_kib, used
            return failed

    monkeypatch.setattr(room, "_libc", Kernel())
    monkeypatch.setattr(room.os, "geteuid", lambda: 1234)
    assert room.quotas_left(3) == left


def test_no_quota_binds_root(monkeypatch):
    monkeypatch.setattr(room, "_libc", None)
    monkeypatch.setattr(room.os, "geteuid", lambda: 0)
    assert room.quotas_left(3) == []


# contents


def test_pieces_of_memory_count_as_one_content():
    pieces = [b"abc", bytearray(b""), memoryview(b"defghi"), memoryview(bytearray(8)).cast("d")]
    whole = b"abcdefghi" + bytes(8)
    content = BufferContent(*pieces)
    assert content.size == len(whole)
    for begin in range(len(whole)):
        for end in range(begin, len(whole) + 1):
            target = bytearray(end - begin)
            content.read_into(begin, memoryview(target))
            assert target == whole[begin:end]
    with pytest.raises(OSError, match="17 bytes are there, 18 were asked for"):
        content.read_into(10, memoryview(bytearray(8)))


def test_many_small_and_large_pieces_are_read_at_any_offset():
    seeded = random.Random(5)
    sizes = seeded.choices([0, 1, 8, 3000, 5000, JOINED_BYTES - 1, JOINED_BYTES, JOINED_BYTES + 1], k=400)
    pieces = [seeded.randbytes(size) for size in sizes]
    whole = b"".join(pieces)
    content = BufferContent(*pieces)
    starts = [sum(sizes[:count]) for count in range(0, 400, 7)]
    for offset in (*starts, *seeded.choices(range(len(whole)), k=100)):
        length = min(seeded.choice([1, 4096, JOINED_BYTES, 2 * MIB]), len(whole) - offset)
        target = bytearray(length)
        content.read_into(offset, memoryview(target))
        assert target == whole[offset : offset + length]


def test_many_pieces_are_no_work_for_the_garbage_collector():
    pieces = [bytes(3000)] * 20_000
    before = len(gc.get_objects())
    content = BufferContent(*pieces)
    content.read_into(0, memoryview(bytearray(MIB)))
    assert len(gc.get_objects()) - before < 1000


def test_pieces_with_gaps_are_refused():
    with pytest.raises(TypeError, match="contiguous"):
        BufferContent(b"whole", memoryview(b"gaps")[::2])


def test_no_pieces_are_empty_content():
    BufferContent().read_into(0, memoryview(bytearray()))
    assert BufferContent().size == 0


@pytest.mark.parametrize("change", ["cut", "grow", "replace", "touch", "remove"])
def test_a_file_that_changes_while_it_is_stored_is_refused(storage, tmp_path, change):
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"a" * 100)
    content = FileContent(path)
    storage.write("bundles/b/before", content)
    assert storage.read("bundles/b/before", limit=100) == b"a" * 100
    if change == "cut":
        os.truncate(path, 50)
    elif change == "grow":
        path.write_bytes(b"a" * 101)
    elif change == "replace":
        path.rename(tmp_path / "old")
        path.write_bytes(b"b" * 100)
    elif change == "touch":
        os.utime(path, (1, 1))
    else:
        path.unlink()
    with pytest.raises(StoreError, match=r"model\.safetensors"):
        storage.write("bundles/b/after", content)
    assert storage.size("bundles/b/after") is None
