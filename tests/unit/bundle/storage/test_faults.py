"""Every system call of every thread fails once, in every way it can: no half-made name, and words that help."""

from __future__ import annotations

import ctypes
import errno
import os
import random
import resource
import subprocess
import sys
import textwrap
import threading

import pytest
from blake3 import blake3

from samestep.bundle.errors import StoreError, UnreadableError
from samestep.bundle.storage import local, system
from samestep.bundle.storage.base import AlreadyThere
from samestep.bundle.storage.contents import BufferContent
from samestep.bundle.storage.local import LocalStorage

MIB = 1 << 20
WATCHED = ("open", "mkdir", "pwrite", "preadv", "fsync", "ftruncate", "link", "unlink", "stat")
SIZES = {"small": 5000, "one chunk": 2 * MIB + 17, "three chunks": 33 * MIB + 5}
DATA = random.Random(7).randbytes(max(SIZES.values()))


class Calls:
    """Stands in for the ``os`` module and libc, counts the calls of all threads, and lets one of them fail.

    Args:
        at: the number of the call that fails; None only counts.
        fault: an errno, or ``short`` for a write that takes less than it was given.
        lasting: every later call of the same name fails too, as on a disk that is gone.
    """

    def __init__(self, at=None, fault=None, *, lasting=False):
        self.names = []
        self.failed = ""
        self._at, self._fault, self._lasting = at, fault, lasting
        self._lock = threading.Lock()

    def __getattr__(self, name):
        real = getattr(os, name)
        return self._watched(name, real) if name in WATCHED else real

    def libc(self):
        calls = self

        class Libc:
            def __getattr__(self, name):
                return calls._watched(name, getattr(ctypes.CDLL(None, use_errno=True), name), raises=False)

        return Libc()

    def _watched(self, name, real, *, raises=True):
        def call(*args, **kwargs):
            if not self._fails(name):
                return real(*args, **kwargs)
            if self._fault == "short":
                return real(args[0], args[1][: max(1, len(args[1]) // 3)], *args[2:])
            if raises:
                raise OSError(self._fault, os.strerror(self._fault))
            ctypes.set_errno(self._fault)
            return -1

        return call

    def _fails(self, name):
        with self._lock:
            number = len(self.names)
            self.names.append(name)
            if self._at == number or (self._lasting and name == self.failed):
                self.failed = name
                return True
            return False


def under(calls, act):
    """Do something while its system calls are watched; return what it raised."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(system, "os", calls)
        patch.setattr(system, "_libc", calls.libc())
        try:
            act()
        except (StoreError, AlreadyThere) as error:
            return error
    return None


def left_over(root):
    return [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]


def create(root):
    LocalStorage(root).create("chain/0000000001.json", b"record" * 100)


def create_by_renaming(root):
    def refuse(*_args, **_kwargs):
        raise OSError(errno.EPERM, "no links here")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(system, "link", refuse)
        create(root)


def calls_of(act, tmp_path):
    calls = Calls()
    assert under(calls, lambda: act(tmp_path / "counting" / "store")) is None
    return calls.names


@pytest.mark.parametrize("fault", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("act", [create, create_by_renaming])
def test_a_record_is_published_whole_or_not_at_all(act, fault, lasting, tmp_path):
    names = calls_of(act, tmp_path)
    publishing = next(index for index, name in enumerate(names) if name in {"link", "renameat2"})
    assert {"mkdir", "open", "pwrite", "fsync"} <= set(names)
    for at in range(len(names)):
        root = tmp_path / str(at) / "store"
        calls = Calls(at, fault, lasting=lasting)
        error = under(calls, lambda root=root, act=act: act(root))
        published = root / "chain" / "0000000001.json"
        if calls.failed == "unlink":
            assert error is None  # only the temporary name is left over
        else:
            assert isinstance(error, StoreError)
            assert os.strerror(fault) in error.message
            assert str(root) in error.message
            assert at > publishing or not published.exists()
        if published.exists():
            assert published.read_bytes() == b"record" * 100


@pytest.mark.parametrize("act", [create, create_by_renaming])
def test_a_record_survives_signals_and_short_writes(act, tmp_path):
    names = calls_of(act, tmp_path)
    for at, name in enumerate(names):
        for fault in (errno.EINTR, "short") if name == "pwrite" else (errno.EINTR,):
            root = tmp_path / f"{at}-{fault}" / "store"
            assert under(Calls(at, fault), lambda root=root, act=act: act(root)) is None
            assert left_over(root) == ["chain/0000000001.json"]
            assert (root / "chain" / "0000000001.json").read_bytes() == b"record" * 100


def write(root, size):
    return LocalStorage(root).write("bundles/b/part", BufferContent(DATA[:size]))


@pytest.mark.parametrize("fault", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_a_part_that_cannot_be_written_leaves_no_name_and_says_why(size, fault, tmp_path):
    names = calls_of(lambda root: write(root, size), tmp_path)
    assert names.count("pwrite") == -(-size // (16 * MIB))
    for at in range(len(names)):
        for lasting in (False, True):
            root = tmp_path / f"{at}-{lasting}" / "store"
            calls = Calls(at, fault, lasting=lasting)
            error = under(calls, lambda root=root: write(root, size))
            assert isinstance(error, StoreError), calls.failed
            assert os.strerror(fault) in error.message
            assert str(root) in error.message
            assert left_over(root) == []


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_a_part_survives_signals_and_short_writes(size, tmp_path):
    names = calls_of(lambda root: write(root, size), tmp_path)
    for at, name in enumerate(names):
        for fault in (errno.EINTR, "short") if name == "pwrite" else (errno.EINTR,):
            root = tmp_path / f"{at}-{fault}" / "store"
            written = []
            act = lambda root=root, written=written: written.append(write(root, size))  # noqa: E731
            assert under(Calls(at, fault), act) is None
            assert (root / "bundles/b/part").read_bytes() == DATA[:size]
            assert written[0].size == size
            if size <= 16 * MIB:
                assert written[0].digest == blake3(DATA[:size]).hexdigest()
            (root / "bundles/b/part").unlink()


@pytest.mark.parametrize("fault", [errno.EIO, errno.ESTALE])
def test_settling_reports_every_folder_that_does_not_sync(fault, tmp_path):
    storage = LocalStorage(tmp_path / "store")
    storage.write("bundles/b/deep/part", BufferContent(b"x"))
    calls = Calls()
    assert under(calls, lambda: storage.settle(["bundles/b/deep/part"])) is None
    assert calls.names.count("fsync") == 4
    for at in range(len(calls.names)):
        error = under(Calls(at, fault), lambda: storage.settle(["bundles/b/deep/part"]))
        assert isinstance(error, StoreError)
        assert os.strerror(fault) in error.message


def test_a_file_that_cannot_be_looked_at_is_named_among_many(tmp_path):
    storage = LocalStorage(tmp_path / "store")
    keys = [f"bundles/b/part-{number}" for number in range(5)]
    for key in keys:
        storage.write(key, BufferContent(b"x"))
    calls = Calls()
    under(calls, lambda: storage.sizes(keys))
    looks = [at for at, name in enumerate(calls.names) if name == "stat"]
    for at, key in zip(looks, keys, strict=True):
        error = under(Calls(at, errno.EIO), lambda: storage.sizes(keys))
        assert isinstance(error, UnreadableError)
        assert error.message == f"cannot look at {tmp_path / 'store' / key}: Input/output error (EIO)"


@pytest.mark.parametrize("call", ["pwrite", "fsync"])
def test_the_first_of_several_failing_threads_is_reported_and_none_goes_on(call, tmp_path):
    class Gone(Calls):
        def _fails(self, name):
            self.names.append(name)
            return name == call

    calls = Gone(fault=errno.EIO)
    error = under(calls, lambda: write(tmp_path / "store", SIZES["three chunks"]))
    assert "Input/output error (EIO)" in error.message
    assert "dmesg" in error.hint
    assert calls.names.count("pwrite") <= 3
    assert threading.active_count() < 10


def test_when_one_writer_thread_fails_the_other_stops_soon(tmp_path):
    class Zeros:
        size = 320 * MIB

        def read_into(self, _offset, target):
            target[:] = bytes(len(target))

    class FirstWrite(Calls):
        def _fails(self, name):
            self.names.append(name)
            return name == "pwrite" and self.names.count("pwrite") == 1

    calls, storage = FirstWrite(fault=errno.EIO), LocalStorage(tmp_path)
    assert isinstance(under(calls, lambda: storage.write("bundles/b/part", Zeros())), StoreError)
    assert calls.names.count("pwrite") < 10


def test_a_part_that_cannot_fit_is_refused_before_a_byte_is_written(tmp_path):
    names = calls_of(lambda root: write(root, SIZES["three chunks"]), tmp_path)
    calls = Calls(names.index("fallocate"), errno.ENOSPC)
    error = under(calls, lambda: write(tmp_path / "full" / "store", SIZES["three chunks"]))
    assert "No space left on device (ENOSPC)" in error.message
    assert "pwrite" not in calls.names


def test_a_full_disk_says_how_much_is_missing(tmp_path, monkeypatch):
    storage = LocalStorage(tmp_path / "store")
    monkeypatch.setattr(local, "room_left", lambda _folder: 1000)
    error = under(Calls(5, errno.ENOSPC), lambda: storage.write("bundles/b/part", BufferContent(DATA[:5000])))
    assert "it takes 5,000 bytes, 1,000 are left, so 4,000 are missing" in error.message
    assert "prune" in error.hint


def test_the_place_that_can_neither_link_nor_rename_is_refused_by_name(tmp_path):
    class Poor(Calls):
        def _fails(self, name):
            self._fault = errno.EPERM if name == "link" else errno.EINVAL
            return name in {"link", "renameat2"}

    error = under(Poor(), lambda: create(tmp_path / "store"))
    assert "neither link a file nor rename it" in error.message
    assert left_over(tmp_path) == []


def test_a_link_whose_reply_was_lost_is_ones_own(tmp_path):
    class Forgetful(Calls):
        def link(self, *args, **kwargs):
            os.link(*args, **kwargs)
            raise FileExistsError(errno.EEXIST, "the network file system asked twice")

    assert under(Forgetful(), lambda: create(tmp_path / "store")) is None
    assert left_over(tmp_path / "store") == ["chain/0000000001.json"]


def test_a_real_file_size_limit_meets_every_writer_thread(tmp_path):
    script = textwrap.dedent(f"""
        import resource, sys
        from samestep.bundle.errors import StoreError, UnreadableError
        from samestep.bundle.storage import system
        from samestep.bundle.storage.contents import BufferContent
        from samestep.bundle.storage.local import LocalStorage
        resource.setrlimit(resource.RLIMIT_FSIZE, ({20 * MIB}, {resource.RLIM_INFINITY}))
        if sys.argv[1] == "unreserved":
            system.reserve = lambda *_: None
        storage = LocalStorage({str(tmp_path)!r})
        try:
            storage.write("bundles/b/part", BufferContent(bytes({50 * MIB})))
        except StoreError as error:
            print(error.message)
        print(list(storage.entries("")))
    """)
    for mode in ("reserved", "unreserved"):
        run = subprocess.run(
            [sys.executable, "-c", script, mode], capture_output=True, text=True, timeout=60, check=True
        )
        message, entries = run.stdout.splitlines()
        assert "bundles/b/part: File too large (EFBIG)" in message
        assert entries == "[]"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small file system")
@pytest.mark.parametrize("reserved", [True, False])
def test_a_really_full_file_system_keeps_what_was_there(tmp_path, monkeypatch, reserved):
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "none", tmp_path], check=False)
    if mount.returncode:
        pytest.skip("this machine does not let root mount")
    try:
        if not reserved:
            monkeypatch.setattr(system, "reserve", lambda *_: None)
        storage = LocalStorage(tmp_path / "store")
        storage.write("bundles/a/part", BufferContent(DATA[: 20 * MIB]))
        with pytest.raises(
            StoreError, match=r"No space left on device \(ENOSPC\); it takes 34,603,013 bytes, \d"
        ):
            storage.write("bundles/b/part", BufferContent(DATA[: 33 * MIB + 5]))
        assert left_over(tmp_path) == ["store/bundles/a/part"]
        assert (tmp_path / "store/bundles/a/part").read_bytes() == DATA[: 20 * MIB]
        assert storage.free_bytes() > 19 * MIB
    finally:
        subprocess.run(["umount", "--lazy", tmp_path], check=True)
