"""What only object stores do: addresses, errors without secrets, conditions that are ignored, bounded memory."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

from samestep.bundle.errors import StoreError
from samestep.bundle.storage import promises
from samestep.bundle.storage.base import AlreadyThere
from samestep.bundle.storage.conditions import (
    PROBE_FOLDER,
    conditional_create_honoured,
    require_conditional_create,
)
from samestep.bundle.storage.objects import open_object_store
from servers import emulators
from servers.fault_proxy import FOREVER, FaultProxy
from servers.gcs_stub import PAGE, GcsStub

WRITER = """
import re, sys
from samestep.bundle.storage.objects import Patience
from servers import emulators
from servers.fault_proxy import FOREVER, FaultProxy

class Zeros:
    def __init__(self, size):
        self.size = size

    def read_into(self, offset, target):
        for start in range(0, len(target), 4096):
            target[start : start + 4096] = bytes(len(target[start : start + 4096]))

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])

storage = emulators.Emulator(sys.argv[1], int(sys.argv[2])).opened(patience=Patience())
storage.write("small", Zeros(1000))
before = peak()
storage.write("large", Zeros(200 << 20))
print(peak() - before)
"""


@pytest.fixture(params=emulators.NAMES)
def emulator(request):
    try:
        return emulators.running(request.param)
    except emulators.Unavailable as missing:
        pytest.skip(str(missing))


@pytest.fixture
def careless():
    """A store that accepts the condition of a put and overwrites all the same."""
    stub = GcsStub(emulators.CONTAINER, conditions=False)
    yield emulators.Emulator("gs", stub.port)
    stub.close()


def test_conditions_are_found_to_be_kept_and_the_probe_leaves_nothing(emulator):
    storage = emulator.opened()
    assert conditional_create_honoured(storage)
    require_conditional_create(storage)
    assert list(storage.entries(PROBE_FOLDER)) == []


def test_a_store_that_ignores_conditions_is_refused_by_name(careless):
    storage = careless.opened("run")
    assert not conditional_create_honoured(storage)
    with pytest.raises(StoreError, match="gs://bundles/run ignores the condition of a put"):
        require_conditional_create(storage)
    assert list(storage.entries(PROBE_FOLDER)) == []


def test_a_handle_asks_once_whether_conditions_are_kept(monkeypatch):
    storage = emulators.running("memory").opened()
    require_conditional_create(storage)
    monkeypatch.setattr(storage, "create", lambda *_: pytest.fail("asked again"))
    require_conditional_create(storage)


def test_a_store_that_overwrites_and_says_it_did_not_is_found_out(monkeypatch):
    storage = emulators.running("memory").opened()
    create = storage.create

    def overwriting(key, data):
        try:
            create(key, data)
        except AlreadyThere:
            storage.remove([key])
            create(key, data)
            raise

    monkeypatch.setattr(storage, "create", overwriting)
    assert not conditional_create_honoured(storage)


def test_a_listing_of_several_pages_is_whole(emulator):
    storage = emulator.opened()
    keys = {f"chain/{number:010}.json" for number in range(2 * PAGE + 10)}
    for key in keys:
        storage.create(key, b"{}")
    assert {entry.key for entry in storage.entries("chain/")} == keys
    assert storage.sizes(keys) == dict.fromkeys(keys, 2)
    storage.remove(["chain/never", *keys])
    assert list(storage.entries("")) == []


def test_prefixes_of_one_bucket_do_not_see_each_other(emulator):
    one, other = emulator.opened("shared/a"), emulator.opened("shared/ab")
    one.create("run.json", b"1")
    assert other.size("run.json") is None
    assert list(other.entries("")) == []
    one.remove(["run.json"])


@pytest.mark.parametrize("name", ["s3", "az", "gs"])
@pytest.mark.parametrize("action", ["create", "write", "read", "list"])
def test_a_missing_bucket_is_no_empty_store(name, action, monkeypatch):
    try:
        emulator = emulators.running(name)
    except emulators.Unavailable as missing:
        pytest.skip(str(missing))
    monkeypatch.setattr(emulators, "CONTAINER", "nobody-made-it")
    storage = emulator.opened("run")
    actions = {
        "create": lambda: storage.create("run.json", b"{}"),
        "write": lambda: storage.write("part", _bytes(b"x" * 100)),
        "read": lambda: storage.read("run.json", limit=10),
        "list": lambda: list(storage.entries("")),
    }
    with pytest.raises(StoreError, match=r"nobody-made-it/run.*the bucket or container does not exist"):
        actions[action]()


@pytest.mark.parametrize("name", ["s3", "az", "gs"])
def test_a_large_write_needs_at_most_64_mib(name):
    try:
        emulator = emulators.running(name)
    except emulators.Unavailable as missing:
        pytest.skip(str(missing))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    script = [sys.executable, "-c", WRITER, name, str(emulator.port)]
    done = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=300, check=True)
    assert int(done.stdout) <= 64 << 10  # KiB


def test_a_client_that_is_told_to_put_without_conditions_is_refused(monkeypatch):
    """The client then raises an exception of Python's own, none of its own."""
    monkeypatch.setenv("AWS_CONDITIONAL_PUT", "disabled")
    storage = emulators.running("s3").opened()
    with pytest.raises(StoreError, match=r"creating run.json failed: .* not yet implemented"):
        storage.create("run.json", b"{}")


@pytest.mark.parametrize(
    ("name", "found"),
    [("memory", "none"), ("s3", "listed"), ("az", "dropped"), ("gs", "not known")],
    ids=str,
)
def test_it_is_told_what_becomes_of_abandoned_uploads(name, found, monkeypatch):
    try:
        storage = emulators.running(name).opened()
    except emulators.Unavailable as missing:
        pytest.skip(str(missing))
    monkeypatch.setattr(promises, "PIECE_BYTES", 1 << 10)
    (told,) = (promise for promise in promises.measure(storage) if promise.name == "abandoned uploads")
    assert told.found == found
    assert told.kept is (promises.Kept.WARN if name == "gs" else promises.Kept.YES)


@pytest.mark.parametrize("hidden", ["boto3", "nothing"])
def test_uploads_that_prune_cannot_abort_are_warned_of(hidden, monkeypatch):
    with FaultProxy(emulators.running("s3").port) as proxy:
        storage = emulators.running("s3").opened(port=proxy.port)
        proxy.break_request("403", times=FOREVER)
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == hidden else name)
        told = promises._uploads(storage, "bundles/")
    assert told.kept is promises.Kept.WARN
    assert "AbortIncompleteMultipartUpload" in told.meaning


def test_errors_repeat_neither_keys_nor_signatures(monkeypatch):
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "sv=1&sig=SECRET")
    monkeypatch.setenv("AZURE_ENDPOINT", "http://127.0.0.1:9")
    storage = open_object_store("az://container/run", patience=emulators.QUICK)
    with pytest.raises(StoreError) as caught:
        storage.read("run.json", limit=10)
    error = caught.value
    assert "az://container/run: reading run.json failed" in error.message
    assert "SECRET" not in f"{error.message} {error.hint} {error.__cause__}"
    assert error.__suppress_context__


def _bytes(data):
    class Content:
        size = len(data)

        def read_into(self, offset, target):
            target[:] = data[offset : offset + len(target)]

    return Content()
