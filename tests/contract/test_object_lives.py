"""Each fault at each request of a whole save, and of pinning, restoring and pruning, on every kind of object store.

Whatever happens, a clean client selects the newest committed bundle and finds it whole, what was acknowledged is
there, the next attempt can save, and prune removes the rest.
"""

from __future__ import annotations

import concurrent.futures
import functools
import random
import signal
import uuid
from typing import NamedTuple
from unittest import mock
from urllib.parse import unquote

import pytest

from bundle_samples import again, save
from contract import lives
from samestep.bundle import chain, removal
from samestep.bundle.digests import digest_content
from samestep.bundle.records import AttemptRecord, CommitRecord
from samestep.bundle.retention import Policy
from samestep.bundle.selection import PASSED_OVER
from samestep.bundle.storage.contents import BufferContent
from samestep.bundle.store import Store
from samestep.bundle.verifying import Level
from servers.fault_proxy import FAULTS, FOREVER, KILLS

ONCE = [(fault, 1) for fault in (*FAULTS, *KILLS)]
LASTING = [(fault, FOREVER) for fault in FAULTS if fault != "slow"]
EVERY = ONCE + LASTING
NAMES = [fault if times == 1 else f"{fault}-for-good" for fault, times in EVERY]
SLOW_SECONDS = 0.05
SAME = chain.PROBES // 2
"""Of the searches for the head, which ask for many numbers at once, one in so many where all would take too long."""
SEED = 20261129


@functools.cache
def base():
    return lives.world()


class Scene:
    """One run in one object store, reached with and without the proxy."""

    def __init__(self, emulator, proxy):
        self.emulator, self.proxy = emulator, proxy
        self.prefix = uuid.uuid4().hex
        self.clean = emulator.opened(self.prefix)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda key: self.clean.create(key, base()[key]), base()))

    def live(self, life, fault=None, nth=0, times=1):
        """Run a life with one fault; return what it told and what ended it."""
        self.proxy.mend()
        if fault in KILLS:
            return self._killed(life, fault, nth)
        if fault:
            self.proxy.break_request(fault, nth=nth, times=times, seconds=SLOW_SECONDS)
        storage = self.emulator.opened(self.prefix, port=self.proxy.port)
        return lives.lived_here(life, storage, self.proxy.mend)

    def _killed(self, life, fault, nth):
        victims = []
        self.proxy.break_request(fault, nth=nth, kill=lambda: [victim.kill() for victim in victims])
        with lives.living_elsewhere(life, self.emulator.name, self.prefix, self.proxy.port) as (
            process,
            told,
        ):
            victims.append(process)
            return told(), process.exitcode


@pytest.mark.parametrize("life", lives.LIVES)
def test_a_sample_of_all_faults_at_all_requests_loses_nothing(emulator, proxy, life):
    random_ = random.Random(f"{SEED} {emulator.name} {life}")
    asked = requests_of(Scene(emulator, proxy), life)
    some = random_.sample(EVERY, len(EVERY) // 3)
    cases = [(fault, nth, 1) for fault in ("lost-reply", "kill-after") for nth in asked.records]
    cases += [
        (fault, random_.choice(asked.records + asked.writes + asked.all()), times) for fault, times in some
    ]
    for case in cases:
        check(Scene(emulator, proxy), life, case)


@pytest.mark.full
@pytest.mark.parametrize(("fault", "times"), EVERY, ids=NAMES)
def test_every_fault_at_every_request_of_a_save_loses_nothing(emulator, proxy, fault, times):
    asked = requests_of(Scene(emulator, proxy), "saving")
    for nth in sorted(asked.all(1 if times == 1 else SAME)):
        check(Scene(emulator, proxy), "saving", (fault, nth, times))


@pytest.mark.full
@pytest.mark.parametrize(("fault", "times"), EVERY, ids=NAMES)
def test_every_fault_at_every_request_of_upkeep_loses_nothing(emulator, proxy, fault, times):
    asked = requests_of(Scene(emulator, proxy), "keeping")
    for nth in sorted(asked.all(SAME)):
        check(Scene(emulator, proxy), "keeping", (fault, nth, times))


class Requests(NamedTuple):
    """The numbers of requests, by what they ask for."""

    records: list[int]  #: creating one
    writes: list[int]  #: others that change something
    reads: list[int]
    probes: list[int]  #: searching for the head

    def all(self, probes_step=1):
        return self.records + self.writes + self.reads + self.probes[::probes_step]


def requests_of(scene, life):
    """Return the requests that an undisturbed run makes."""
    scene.live(life)
    kinds = Requests([], [], [], [])
    for nth, line in enumerate(map(unquote, scene.proxy.seen), start=1):
        method, chained = line.partition(" ")[0], "/chain/" in line
        if method in {"GET", "HEAD"}:
            (kinds.probes if chained and method == "HEAD" else kinds.reads).append(nth)
        else:
            (kinds.records if chained else kinds.writes).append(nth)
    return kinds


def check(scene, life, case):
    """Live through one fault and look at everything that was promised."""
    try:
        told, ended = scene.live(life, *case)
        with mock.patch.object(chain, "PROBES", 4):  # what comes after the fault may take fewer requests
            check_end(ended, *case)
            store = Store.open(scene.clean, writing=True)
            check_selection(store, told)
            CHECKS[life](store, told)
            check_future(scene)
    except BaseException as error:
        error.add_note(f"{life} on {scene.emulator.name}, fault, request, times: {case}")
        raise


def check_end(ended, fault, _nth, times):
    """One fault is got over: requests are tried again."""
    if fault in KILLS:
        assert ended in {0, -signal.SIGKILL}
    elif times == 1:
        assert ended is None, ended


def check_selection(store, told):
    """The newest committed bundle is selected, nothing newer was set aside, and every one is what was saved."""
    newest = records(store, CommitRecord)[-1].bundle
    decision = store.select()
    assert (decision.outcome, decision.bundle) == ("resume", newest.id)
    assert [one for one in decision.set_aside if one.reason not in PASSED_OVER] == []
    assert told.get("committed", newest.id) == newest.id
    assert all(whole(store, bundle) for bundle in store.bundles())


def check_saving(store, told):
    """What was acknowledged is in the chain, once."""
    attempts = [record.attempt for record in records(store, AttemptRecord)[2:]]
    assert len(attempts) <= 1
    assert told.get("registered") in {None, *attempts}
    committed = [
        record.bundle.id for record in records(store, CommitRecord) if record.bundle.step == lives.STEP
    ]
    assert committed in ([], [told.get("begun")])


def check_keeping(store, told):
    """No bundle is missing but those that pruning gave up, and a pinned one never."""
    alive = {bundle.id for bundle in store.bundles()}
    assert len(alive) == len(records(store, CommitRecord)) or "pruning" in told
    assert {told[what] for what in ("pinned", "restored") if what in told} <= alive


CHECKS = {"saving": check_saving, "keeping": check_keeping}


def check_future(scene):
    """The next attempt saves and is selected, and prune leaves nothing but what living bundles need."""
    store, attempt = again(scene.clean)
    saved = save(attempt, lives.STEP + 10)
    assert store.select().bundle == saved.id
    with mock.patch.object(removal, "UNFINISHED_SECONDS", 0.0):
        store.prune(Policy(keep_last=1))
    alive = list(store.bundles())
    assert saved.id in {bundle.id for bundle in alive}
    assert all(whole(store, bundle) for bundle in alive)
    needed = {bundle.key_of(part) for bundle in alive for part in bundle.manifest.parts}
    folders = {key.split("/")[1] for key in needed} | {bundle.id for bundle in alive}
    left = {entry.key for entry in scene.clean.entries("bundles/")} - needed
    assert {key for key in left if not is_note(key, folders)} == set()
    if scene.emulator.name == "s3":
        assert scene.emulator.unfinished_uploads(scene.prefix) == []


def is_note(key, folders):
    """Whether a key tells whose save a living bundle's folder was, or holds the bundle."""
    _, folder, name = key.split("/", 2)
    return folder in folders and (name == ".saving.json" or name.startswith(".holds/"))


def records(store, kind):
    return [record for record in store.chain.following(0) if isinstance(record, kind)]


def whole(store, bundle):
    """Whether the stored parts are, byte for byte, what the bundle of that step holds."""
    digests = {part.path: part.digest for part in bundle.manifest.parts}
    return digests == expected_digests(bundle.manifest.step) and store.verify(bundle, Level.FULL).whole


@functools.cache
def expected_digests(step):
    return {path: digest_content(BufferContent(data)).digest for path, data in lives.content(step).items()}
