"""Each fault at each request of a create and of a write: afterwards there is nothing, or the whole thing."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest

from samestep.bundle.digests import digest_content
from samestep.bundle.errors import StoreError
from samestep.bundle.storage.base import Absent, AlreadyThere
from samestep.bundle.storage.object_storage import PIECE_BYTES
from samestep.bundle.storage.objects import Patience
from servers import emulators
from servers.fault_proxy import FAULTS, FOREVER, KILLS, FaultProxy

OURS, THEIRS = b"ours", b"theirs, from before"
LASTING = [fault for fault in FAULTS if fault != "slow"]
FEW = ("lost-reply", "503")
"""Lasting faults for uploads, which are slow: one that is carried out unseen, and one that is not."""

LIMIT = 2 * PIECE_BYTES
CHILD = """
import sys
from contract.test_object_faults import Pattern
from servers import emulators
storage = emulators.Emulator(sys.argv[1], 0).opened(sys.argv[2], port=int(sys.argv[3]))
if sys.argv[4] == "create":
    storage.create("key", b"ours")
else:
    storage.write("key", Pattern(int(sys.argv[5])))
"""


class Pattern:
    """Content in which every piece is another."""

    def __init__(self, size):
        self.size = size

    def read_into(self, offset, target):
        block, begin = bytes(range(251)), offset % 251  # 251 is prime: no two pieces begin alike
        target[:] = (block * (len(target) // 251 + 2))[begin : begin + len(target)]

    def whole(self):
        data = bytearray(self.size)
        self.read_into(0, memoryview(data))
        return bytes(data)


LARGE = Pattern(PIECE_BYTES + 1000)


@pytest.fixture
def storage(emulator, proxy):
    """A fresh prefix, reached through the proxy."""
    proxy.mend()
    return emulator.opened(port=proxy.port)


def create(storage, key):
    storage.create(key, OURS)


def write(storage, key):
    assert storage.write(key, LARGE) == digest_content(LARGE)


def requests_of(action, storage, proxy):
    """Return how many requests an undisturbed run of ``action`` makes."""
    storage.size("warm the connection")
    proxy.mend()
    action(storage, "undisturbed")
    return len(proxy.seen)


def cases(count, lasting=LASTING):
    for nth in range(1, count + 1):
        yield from ((fault, nth, 1) for fault in FAULTS)
        yield from ((fault, nth, FOREVER) for fault in lasting)


def is_lasting(case):
    return case[2] == FOREVER


def there(storage, key):
    try:
        return storage.read(key, limit=LIMIT)
    except Absent:
        return None


def disturbed(action, storage, proxy, key, case):
    """Run ``action`` under one fault; return its outcome and what is stored afterwards."""
    fault, nth, times = case
    proxy.mend()
    proxy.break_request(fault, nth=nth, times=times)
    try:
        action(storage, key)
        outcome = "done"
    except AlreadyThere:
        outcome = "taken"
    except StoreError:
        outcome = "failed"
    proxy.mend()
    return outcome, there(storage, key)


def test_create_leaves_nothing_or_all_and_says_which(storage, proxy):
    outcomes = set()
    for number, case in enumerate(cases(requests_of(create, storage, proxy))):
        outcome, stored = disturbed(create, storage, proxy, f"key/{number}", case)
        assert stored == OURS or (outcome == "failed" and stored is None), (case, outcome, stored)
        assert outcome != "failed" or is_lasting(case), case
        outcomes.add(outcome)
    assert "done" in outcomes
    assert "failed" in outcomes


def test_a_taken_name_is_never_overwritten_and_never_reported_as_created(emulator, storage, proxy):
    for number, case in enumerate(cases(2)):
        storage.create(f"key/{number}", THEIRS)
        outcome, stored = disturbed(create, storage, proxy, f"key/{number}", case)
        assert stored == THEIRS, (case, outcome)
        assert outcome in {"taken", "failed"}, case


def test_write_leaves_nothing_or_all_and_says_which(storage, proxy):
    whole, outcomes = LARGE.whole(), set()
    count = requests_of(write, storage, proxy)
    assert count >= 3  # it was cut into pieces
    for number, case in enumerate(cases(count, FEW)):
        outcome, stored = disturbed(write, storage, proxy, f"key/{number}", case)
        assert stored == whole or (outcome == "failed" and stored is None), (
            case,
            outcome,
            stored and len(stored),
        )
        assert outcome != "failed" or is_lasting(case), case
        outcomes.add(outcome)
        storage.remove([f"key/{number}"])
    assert outcomes == {"done", "failed"}


@pytest.mark.parametrize("action", ["create", "write"])
def test_a_process_killed_at_any_request_leaves_nothing_or_all(emulator, storage, proxy, action):
    whole = OURS if action == "create" else LARGE.whole()
    count = requests_of(create if action == "create" else write, storage, proxy)
    for kill in KILLS:
        for nth in range(1, count + 1):
            prefix = f"killed/{action}/{kill}/{nth}"
            with dying(proxy, kill, nth) as children:
                children.append(child(emulator.name, prefix, proxy.port, action))
                assert children[0].wait(60) == -signal.SIGKILL
            stored = there(emulator.opened(prefix), "key")
            assert stored in {None, whole}, (kill, nth, stored and len(stored))
            expected = whole if (kill, nth) == ("kill-after", count) else None
            assert stored == expected, (kill, nth)


@pytest.mark.parametrize("fault", ["lost-reply", "reset", "truncated-reply", "503"])
def test_removing_and_listing_get_over_a_broken_connection(storage, proxy, fault):
    for number in range(3):
        keys = [f"{number}/{index}" for index in range(2)]
        for key in keys:
            storage.create(key, OURS)
        proxy.mend()
        proxy.break_request(fault, nth=number + 1)
        assert sorted(entry.key for entry in storage.entries(f"{number}/")) == keys
        proxy.mend()
        proxy.break_request(fault, nth=number + 1)
        storage.remove(keys)
        proxy.mend()
        assert list(storage.entries(f"{number}/")) == []


@contextlib.contextmanager
def dying(proxy, kill, nth):
    """Kill the process that is put into the list when the proxy sees its ``nth`` request."""
    children = []
    proxy.mend()
    proxy.break_request(kill, nth=nth, kill=lambda: [child.kill() for child in children])
    yield children
    proxy.mend()


def child(*arguments):
    path = os.pathsep.join(filter(None, sys.path))
    script = [sys.executable, "-c", CHILD, *map(str, arguments), str(LARGE.size)]
    return subprocess.Popen(script, env={**os.environ, "PYTHONPATH": path})


@pytest.mark.parametrize(("method", "nth"), [("PUT", 1), ("PUT", 2), ("POST", 2)])
def test_an_upload_that_fails_is_taken_back(emulator, proxy, method, nth):
    if emulator.name == "az":
        pytest.skip("Azure has no uploads to take back: it drops uncommitted blocks by itself")
    prefix = f"taken-back/{method}/{nth}"
    storage = emulator.opened(prefix, port=proxy.port)
    proxy.mend()
    proxy.break_request("503", method=method, nth=nth, times=FOREVER)
    with pytest.raises(StoreError, match="writing key failed"):
        storage.write("key", LARGE)
    assert emulator.unfinished_uploads(prefix) == []


def test_an_upload_whose_process_died_is_aborted_once_it_is_old(emulator, proxy):
    if emulator.name == "az":
        pytest.skip("Azure drops uncommitted blocks by itself")
    prefix, other = "abandoned/run", "abandoned/run-2"
    for place in (prefix, other):
        with dying(proxy, "kill-before", 4) as children:  # at the word that these are all pieces
            children.append(child(emulator.name, place, proxy.port, "write"))
            assert children[0].wait(60) == -signal.SIGKILL
    storage, now = emulator.opened(prefix), time.time()
    assert emulator.unfinished_uploads(prefix) == [f"{prefix}/key"]
    long_ago = 946684800  # moto says of every upload that it began in 2010
    assert storage.discard_unfinished("", long_ago) == 0
    assert storage.discard_unfinished("elsewhere/", now) == 0
    assert storage.discard_unfinished("", now) == (emulator.name == "s3")
    left = [] if emulator.name == "s3" else [f"{prefix}/key"]  # there it takes a rule of the bucket
    assert emulator.unfinished_uploads(prefix) == left
    assert emulator.unfinished_uploads(other) == [f"{other}/key"]


def test_uploads_that_may_not_be_listed_keep_nothing_from_being_pruned():
    emulator = emulators.running("s3")
    with FaultProxy(emulator.port) as own:
        storage = emulator.opened("unlisted", port=own.port)
        own.break_request("403", times=FOREVER)
        with pytest.raises(StoreError, match="s3://bundles/unlisted/bundles/ cannot be aborted"):
            storage.uploads.abort("bundles/", 0)
        assert storage.discard_unfinished("bundles/", 0) == 0


def test_content_that_cannot_be_read_fails_the_write_and_leaves_nothing(emulator):
    class Broken(Pattern):
        def read_into(self, offset, target):
            if offset:
                raise OSError("the disk is gone")
            super().read_into(offset, target)

    storage = emulator.opened("broken")
    with pytest.raises(StoreError, match="key cannot be read: the disk is gone"):
        storage.write("key", Broken(3 * LIMIT))
    assert storage.size("key") is None
    assert emulator.name == "az" or emulator.unfinished_uploads("broken") == []


@pytest.mark.parametrize("fault", LASTING)
def test_reading_gives_the_right_bytes_or_fails(storage, proxy, fault):
    storage.write("key", LARGE)
    whole = LARGE.whole()
    for times in (1, FOREVER):
        proxy.mend()
        proxy.break_request(fault, times=times)
        target = bytearray(LARGE.size)
        try:
            storage.read_into("key", 0, memoryview(target))
        except StoreError:
            continue
        assert target == whole
    proxy.mend()
    proxy.break_request(fault, times=FOREVER)
    with pytest.raises(StoreError):  # never: there is nothing
        storage.read("key", limit=LIMIT)
    proxy.mend()
    proxy.break_request(fault, times=FOREVER)
    with pytest.raises(StoreError):
        storage.entries("").__next__()


def test_a_reply_that_never_comes_ends_at_the_time_limit(emulator, proxy):
    proxy.mend()
    patience = Patience(retries=1, first_wait_seconds=0.01, request_seconds=0.3, give_up_seconds=1)
    storage = emulator.opened(port=proxy.port, patience=patience)
    proxy.break_request("slow", times=FOREVER, seconds=20)
    with pytest.raises(StoreError, match="creating key failed"):
        storage.create("key", OURS)


def test_a_conflict_of_two_puts_is_no_proof_that_the_name_is_taken(storage, proxy):
    proxy.break_request("409", method="PUT")
    storage.create("key", OURS)
    assert storage.read("key", limit=10) == OURS


def test_a_store_that_claims_a_name_is_taken_and_shows_nothing_is_not_believed(storage, proxy):
    proxy.break_request("409", method="PUT", times=FOREVER)
    with pytest.raises(StoreError, match="shows nothing there"):
        storage.create("key", OURS)
