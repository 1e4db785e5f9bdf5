"""Work on a real bundle store, done in a process of its own while a recorder looks on.

Every scenario works below ``WHERE/SCENARIO/disk``. What a caller was told is recorded among the operations: an empty
file ``WHERE/SCENARIO/told/…`` appears the moment after, with what was said in its name.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import signal
import tempfile
import time
from functools import cache
from pathlib import Path
from unittest import mock

from bundle_samples import REST, content_of
from crash.store_forks import in_a_child
from forging import Forge
from samestep.bundle.carrying import Carrier
from samestep.bundle.errors import FencedError
from samestep.bundle.manifest import Data
from samestep.bundle.retention import Policy
from samestep.bundle.sealing import seal
from samestep.bundle.storage import system
from samestep.bundle.storage.contents import BufferContent
from samestep.bundle.storage.local import LocalStorage
from samestep.bundle.store import Store
from samestep.bundle.watching import Watcher
from samestep.journal import Journal

STORE = "runs/store"
SLASH = "+"  # in what was told
LARGE_BYTES = (16 << 20) + 5  # two chunks, and an end that does not fill a block
DIRECT_BYTES = (1 << 20) + 333
CARRIED = {
    "model.safetensors": ["weights"],
    "state/deep/optimizer.bin": ["optimizer"],
    "optimizer.pt": ["optimizer"],
    "optimizer.safetensors": ["optimizer"],
    "state.pt": ["weights", "optimizer"],
}


MADE = {}
"""What bundles hold that a training has made, by scenario and step."""


@cache
def files(scenario, step):
    """What a bundle of that step holds."""
    if scenario in MADE:
        return MADE[scenario][min(step, max(MADE[scenario]))]
    if scenario.startswith("sealed"):
        long_ago = time.gmtime(10**9)  # an archive tells when it was written
        with tempfile.TemporaryDirectory() as folder, mock.patch("time.localtime", return_value=long_ago):
            return content_of(Forge().trainer_checkpoint(Path(folder) / "checkpoint", step))
    if scenario == "placing":
        return {"state.pt": _noise(step, 900)}
    small = {
        "model.safetensors": _noise(step, 900),
        "state/deep/optimizer.bin": _noise(-step, 500),
        "frozen/tokenizer.json": _noise(0, 300),
        "history.txt": b"." * (step // 10),
    }
    if scenario.startswith("large"):
        base = _noise(0, LARGE_BYTES)[:-1] + bytes([step // 30])
        small |= {"base.bin": base, "state/deep/optimizer.bin": _noise(-step, DIRECT_BYTES)}
    return small


def _noise(seed, size):
    return random.Random(seed).randbytes(size)


class Work:
    """What a scenario works with.

    Attributes:
        disk: the folder that is watched.
        root: of the store, two folders below, which nobody has made yet.
    """

    def __init__(self, folder, scenario):
        self.scenario = scenario
        self.folder = Path(folder)
        self.disk = self.folder / "disk"
        self.root = self.disk / STORE
        self.told = self.folder / "told"
        self.said = len(list(self.told.iterdir()))

    def tell(self, *words):
        """Say that a caller was told something, or is about to ask for it."""
        line = " ".join([f"{self.said:04}", *map(str, words)])
        path = self.told / line.replace("/", SLASH)
        self.said += 1
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))

    def create(self):
        store = Store.create(LocalStorage(self.root))
        self.tell("created", store.run.id)
        return store

    def opened(self):
        return Store.open(LocalStorage(self.root), writing=True)

    def register(self, store):
        attempt = store.register(store.select(), "work")
        self.tell("registered", attempt.number, attempt.id)
        return attempt

    def add(self, saving, step):
        for path, data in files(self.scenario, step).items():
            saving.add(path, BufferContent(data), components=CARRIED.get(path, ()))

    def save(self, attempt, step):
        saving = attempt.begin(step=step)
        self.add(saving, step)
        return self.commit(saving)

    def commit(self, saving):
        return self.committed(saving.commit(contract=REST, data=Data(version="v1")))

    def committed(self, bundle):
        self.tell("committed", bundle.number, bundle.id, bundle.step)
        return bundle

    def prune(self, store, **policy):
        self.tell("pruning")
        made = store.prune(Policy(**policy))
        self.tell("pruned")
        return made

    def pin(self, store, bundle, name="keep"):
        store.pin(bundle, name=name)
        self.tell("pinned", bundle.number, bundle.id)

    def unpin(self, store, bundle, name="keep"):
        self.tell("unpinning", bundle.number, bundle.id)
        store.unpin(bundle, name=name)

    @contextlib.contextmanager
    def refused(self, *errors):
        """What is done here has to fail in this way."""
        try:
            yield
        except errors:
            return
        self.tell("unrefused", *(error.__name__ for error in errors))

    def restore(self, store, bundle, name):
        self.tell("restoring", name, bundle.step)
        store.restore(bundle, to=self.disk / "restored" / name)
        self.tell("restored", name, bundle.step)


def saves(work):
    """A first life: three saves that share what did not change."""
    attempt = work.register(work.create())
    for step in (10, 20, 30):
        work.save(attempt, step)


def large(work):
    """Parts of more than one chunk, past the page cache; the second save shares the largest, not the third."""
    attempt = work.register(work.create())
    for step in (10, 20, 30):
        work.save(attempt, step)


def rotation(work):
    """Bundles are given up after each save, except one that somebody pins for a while."""
    store = work.create()
    attempt = work.register(store)
    first = work.save(attempt, 10)
    work.pin(store, first)
    work.save(attempt, 20)
    work.save(attempt, 30)
    work.prune(store, keep_last=2)
    work.save(attempt, 40)
    work.prune(store, keep_last=1)
    work.unpin(store, first)
    work.prune(store, keep_last=1, keep_every=100)


def without_links(work):
    """The same where the file system has no hard links: records are renamed, parts stay where they were stored."""
    refuse_links()
    rotation(work)


def refuse_links():
    def refused(*_):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    system.link = refused


def restarts(work):
    """A save dies halfway, the next life takes over and tidies up, and the first one wakes up again."""
    store = work.create()
    first = work.register(store)
    work.save(first, 10)
    unfinished = first.begin(step=20)
    work.add(unfinished, 20)
    other = work.opened()
    second = work.register(other)
    with work.refused(FencedError):
        work.commit(unfinished)
    half = second.begin(step=20)
    half.add("model.safetensors", BufferContent(b"half"))
    half.abandon()
    work.save(second, 20)
    dying = second.begin(step=30)
    dying.add("model.safetensors", BufferContent(b"this life ends here"))
    third = work.register(work.opened())
    work.save(third, 30)
    work.prune(other, keep_last=2)


def restoring(work):
    """Bundles are put where a training expects them, and the older one is given up after that."""
    store = work.create()
    attempt = work.register(store)
    work.save(attempt, 10)
    newest = work.save(attempt, 20)
    (work.disk / "restored").mkdir()  # somebody made it who died before it was durable
    work.restore(store, newest, "deep/er/checkpoint-20")
    work.prune(store, keep_last=1)
    work.restore(store, newest, "again")


def sealed(work):
    """Folders of a framework are sealed, one by name and one by the watcher; the journal travels with them."""
    store = work.create()
    attempt = work.register(store)
    written = work.folder / "written"
    with Journal.open(work.folder / "journals", attempt.id) as journal:
        carrier = Carrier(journal, store.storage, attempt.id)
        carrier.note("attempt-started", run=store.run.id, ordinal=attempt.ordinal)
        work.committed(seal(attempt, write_checkpoint(work, written, 10), carrier=carrier))
        watcher = Watcher(written, attempt, already=store.bundles(), settle_seconds=0.05, carrier=carrier)
        write_checkpoint(work, written, 20)
        for seen in watcher.finish():
            work.committed(seen.bundle)
        work.prune(store, keep_last=1)


def write_checkpoint(work, folder, step):
    """Write a folder as a trainer does, on another disk than the store's."""
    place = folder / f"checkpoint-{step}"
    place.mkdir(parents=True)
    for name, data in files(work.scenario, step).items():
        (place / name).write_bytes(data)
    return place


def unsynced(work):
    """Another writer was killed right after it had made things that are found, and relied on, from then on."""
    work.root.mkdir(parents=True)  # nothing of this is durable
    store = work.create()
    attempt = work.register(store)
    bundle = work.save(attempt, 10)
    killed_after("pin-", lambda: store.pin(bundle, name="keep"))
    work.pin(store, bundle)
    work.save(attempt, 20)
    work.prune(store, keep_last=1)


def takeover(work):
    """Lives were killed right after a root and a commit had got their names, and the next ones go on from these."""
    killed_after("run.json", work.create)
    attempt = work.register(work.opened())
    killed_after("00000", lambda: work.save(attempt, 10))
    work.save(work.register(work.opened()), 20)


def abandons(work):
    """A save is given up, and so is the next; then another life tidies up."""
    attempt = work.register(work.create())
    for step in (10, 20):
        saving = attempt.begin(step=step)
        work.add(saving, step)
        saving.abandon()
    work.register(work.opened())


class _Killed(BaseException):
    """In place of a kill, where the same process goes on as another would."""


def killed_after(prefix, act):
    """Do something that ends in the moment after a file got a name, with no chance to do anything else.

    Args:
        prefix: what the name begins with.
        act: what to do.
    """
    link, unlink = system.link, system.unlink

    def last(old, new, *folders):
        link(old, new, *folders)
        if new.startswith(prefix):
            system.unlink = lambda *_: False  # nobody lives to tidy up
            raise _Killed

    system.link = last
    with contextlib.suppress(_Killed):
        act()
    system.link, system.unlink = link, unlink


SCENARIOS = {
    "saves": saves,
    "large": large,
    "rotation": rotation,
    "without-links": without_links,
    "restarts": restarts,
    "restoring": restoring,
    "sealed": sealed,
    "unsynced": unsynced,
    "takeover": takeover,
    "abandons": abandons,
}


def recover(work):
    """What a restart does first: go on from what is selected, save, and tidy up."""
    try:
        store = work.opened()
    except Exception:  # noqa: BLE001 - there is none yet
        store = work.create()
    decision = store.select()
    attempt = work.register(store)
    work.save(attempt, (decision.step or 0) + 1)
    work.prune(store, keep_last=1)


CALLS = ("open_file", "make_folder", "write_all", "sync", "cut", "link", "rename_if_free", "unlink")


def killed(work, at):
    """Let the rotation be killed at a system call, truly, and the next life recover from it."""

    def first():
        kill_at(at)
        rotation(work)

    ended = in_a_child(first)
    if ended not in {0, signal.SIGKILL}:
        raise SystemExit(f"the first life failed: {ended}")
    work.said = len(list(work.told.iterdir()))
    work.tell("killed" if ended else "ended")
    recover(work)


def kill_at(at):
    """Kill this process in place of a certain one of its system calls that change something."""
    count = 0

    def counted(real):
        def call(*arguments, **keywords):
            nonlocal count
            if real is not system_open or arguments[1] & os.O_CREAT:
                count += 1
                if count > at:
                    os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **keywords)

        return call

    system_open = system.open_file
    for name in CALLS:
        setattr(system, name, counted(getattr(system, name)))


def prepared(where, name):
    """Make the folders of a scenario, before anything is recorded."""
    folder = Path(where) / name
    for inner in ("disk", "told"):
        (folder / inner).mkdir(parents=True, exist_ok=True)
    return folder


def carry_out(where, name):
    """Work through a scenario below a folder.

    Args:
        where: the folder.
        name: of the scenario; ``killed@17`` is killed at a call, ``saves@again-3`` recovers from what is there.
    """
    scenario, _, detail = name.partition("@")
    work = Work(Path(where) / name, scenario)
    if detail.startswith("again"):
        recover(work)
    elif scenario == "killed":
        killed(work, int(detail))
    else:
        SCENARIOS[scenario](work)
