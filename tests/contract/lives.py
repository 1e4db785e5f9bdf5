"""Lives of a process that works on a run kept in an object store, told apart by what they got to know was done.

A life runs in this process or, to be killed, in one of its own; both reach the store through a fault proxy.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

import forks
from bundle_samples import REST, add_files, again, content_of, files, save, started
from samestep.bundle.errors import StoreError
from samestep.bundle.retention import Policy
from samestep.bundle.storage.contents import BufferContent
from samestep.bundle.storage.object_storage import PIECE_BYTES
from samestep.bundle.store import Store
from servers import emulators

STEP = 40
"""Of what the life that saves commits."""

LARGE = b"".join(number.to_bytes(8, "little") for number in range(PIECE_BYTES // 8 + 100))
"""A part that takes two pieces."""


def content(step):
    """What the bundle of that step holds."""
    return files(step) | ({"state/large.bin": LARGE} if step == STEP else {})


def saving(storage, tell, mend):
    """Register and save; a commit that fails is tried once more when the store is mended."""
    _, attempt = again(storage)
    tell("registered", attempt.id)
    with attempt.begin(step=STEP) as begun:
        tell("begun", begun.id)
        add_files(begun, STEP)
        begun.add("state/large.bin", BufferContent(LARGE), components=["rng"])
        rest = {name: row for name, row in REST.items() if name != "rng"}
        try:
            bundle = begun.commit(contract=rest)
        except StoreError:
            if mend is None:
                raise
            mend()
            bundle = begun.commit(contract=rest)
    tell("committed", bundle.id)


def keeping(storage, tell, _mend):
    """Pin the oldest bundle, restore the newest, and prune down to one."""
    store = Store.open(storage, writing=True)
    newest, *_, oldest = store.bundles()
    store.pin(oldest)
    tell("pinned", oldest.id)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "restored"
        try:
            store.restore(newest, to=place)
        except StoreError:
            assert not place.exists()
            raise
        assert content_of(place) == content(newest.manifest.step)
    tell("restored", newest.id)
    tell("pruning", "")
    store.prune(Policy(keep_last=1))
    tell("pruned", "")


LIVES = {"saving": saving, "keeping": keeping}


def world():
    """Return the keys and bytes of a run with three bundles and what a fenced attempt left."""
    storage = emulators.running("memory").opened()
    _, first = started(storage)
    save(first, 10)
    add_files(first.begin(step=15), 15)
    _, attempt = again(storage)
    for step in (20, 30):
        save(attempt, step)
    return {entry.key: storage.read(entry.key, limit=entry.size) for entry in storage.entries("")}


def lived_here(life, storage, mend):
    """Run a life in this process; return what it told, and what ended it early."""
    told = {}
    try:
        LIVES[life](storage, told.__setitem__, mend)
    except StoreError as error:
        return told, error
    return told, None


@contextlib.contextmanager
def living_elsewhere(life, name, prefix, port):
    """Run a life in a process of its own; lends the process and a function that waits and returns what it told."""
    receiving, sending = forks.context.Pipe(duplex=False)
    process = forks.process(_live, life, name, prefix, port, sending)
    process.start()
    sending.close()
    try:
        yield process, lambda: _told(process, receiving)
    finally:
        process.kill()
        process.join()
        receiving.close()


def _live(life, name, prefix, port, sending):
    storage = emulators.Emulator(name, 0).opened(prefix, port=port)
    LIVES[life](storage, lambda *what: sending.send(what), None)


def _told(process, receiving):
    process.join(60)
    told = {}
    with contextlib.suppress(EOFError):
        while True:
            what, id_ = receiving.recv()
            told[what] = id_
    return told
