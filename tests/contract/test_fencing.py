"""A process that is stopped in the middle of a save and wakes up after its replacement has committed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid

import pytest

from bundle_samples import again, save, started
from samestep.bundle import leftovers
from samestep.bundle.retention import Policy
from samestep.bundle.storage.local import LocalStorage
from servers import emulators

SLEEPER = """
import json, os, signal, sys
from pathlib import Path
from bundle_samples import REST, add_files, again
from samestep.bundle.errors import StoreError
from samestep.bundle.storage.contents import BufferContent
from samestep.bundle.storage.local import LocalStorage
from servers import emulators

kind, where, port, moment = sys.argv[1:]
storage = LocalStorage(Path(where)) if kind == "local" else emulators.Emulator(kind, int(port)).opened(where)
create = storage.create

def sleep(at):
    if moment == at:
        os.kill(os.getpid(), signal.SIGSTOP)

def create_late(key, data):
    if key.startswith("chain/"):
        sleep("commit")
    create(key, data)

_, attempt = again(storage)
storage.create = create_late
saving = attempt.begin(step=20)
add_files(saving, 20)
sleep("parts")
saving.add("last.bin", BufferContent(b"written after it woke up"))
told = {"attempt": attempt.id, "bundle": saving.id}
try:
    saving.commit(contract=REST)
except StoreError as error:
    told |= {"error": type(error).__name__, "message": error.message}
try:
    attempt.begin(step=30)
except StoreError as error:
    told |= {"next": type(error).__name__}
print(json.dumps(told))
"""


@pytest.fixture(params=["local", "s3"])
def place(request, tmp_path):
    """How to open one place anew, and what tells another process where it is."""
    if request.param == "local":
        return lambda: LocalStorage(tmp_path / "store"), ["local", str(tmp_path / "store"), "0"]
    emulator, prefix = emulators.running(request.param), uuid.uuid4().hex
    return lambda: emulator.opened(prefix), [request.param, prefix, str(emulator.port)]


@pytest.mark.parametrize("moment", ["parts", "commit"])
@pytest.mark.parametrize("pruned", [False, True], ids=["", "pruned-meanwhile"])
def test_a_process_that_was_replaced_while_it_slept_cannot_commit(place, moment, pruned, monkeypatch):
    opened, where = place
    save(started(opened())[1], 10)
    with sleeping([*where, moment]) as sleeper:
        store, replacement = again(opened())
        newest = save(replacement, 20)
        if pruned:
            store.prune(Policy(keep_last=1))
        told = awake(sleeper)
    assert (told["error"], told["next"]) == ("FencedError", "FencedError")
    assert f"{told['attempt']} may not commit any more: {replacement.id} registered" in told["message"]
    assert store.select().bundle == newest.id
    if not pruned or moment == "parts":
        assert left_of(told["bundle"], opened())
    if pruned:  # what it wrote after that has nothing beside it that says whose it is: garbage after a day
        monkeypatch.setattr(leftovers, "NAMELESS_SECONDS", -60)
    store.prune(Policy(keep_last=2))
    assert left_of(told["bundle"], opened()) == []
    assert store.verify(newest).holds
    assert save(replacement, 30).id == store.select().bundle


def sleeping(words):
    """Start a process that saves and stops itself; return it once it is stopped."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(
        [sys.executable, "-c", SLEEPER, *words], env=environment, stdout=subprocess.PIPE
    )
    seen = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    assert seen.si_code == os.CLD_STOPPED
    return process


def awake(process):
    """Wake the process up and return what it says at its end."""
    process.send_signal(signal.SIGCONT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return json.loads(out)


def left_of(bundle, storage):
    return [entry.key for entry in storage.entries(f"bundles/{bundle}/")]
