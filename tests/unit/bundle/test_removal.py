"""Giving bundles up and removing them while others hold, finish, or have no room."""

from __future__ import annotations

import errno
import itertools
import os

import pytest

from bundle_memory import Crash, MemoryStorage
from bundle_samples import add_files, again, save, started
from samestep.bundle import canonical
from samestep.bundle.errors import BundleRetired, FormatError, StoreError
from samestep.bundle.records import RemoveRecord, RetireRecord, record_key
from samestep.bundle.retention import Policy
from samestep.bundle.saving import marker_key
from samestep.bundle.storage.failures import told
from samestep.bundle.store import Store


def kinds(store):
    return [type(record) for record in reversed(list(store.chain.backwards(store.chain.head())))]


def prune(storage):
    return Store.open(storage, writing=True).prune(Policy(keep_last=1))


def steps(store):
    return [bundle.step for bundle in store.bundles()]


class Nested:
    """One prune, which at one of its requests is overtaken by a pin, which at one of its own is by another prune."""

    def __init__(self, outer: int, inner: int) -> None:
        self.storage = MemoryStorage(links=False)
        self.store, attempt = started(self.storage)
        self.made = [save(attempt, step) for step in (1, 2)]
        self.outer, self.inner = outer, inner
        self.reached_outer = self.reached_inner = self.pinned = False

    def run(self) -> None:
        countdown = itertools.count(1)

        def interrupt(operation, _key):
            if operation in ("entries", "create", "remove") and next(countdown) == self.outer:
                self.reached_outer = True
                self._pin()

        self.storage.before = interrupt
        prune(self.storage)
        self.storage.before = lambda *_: None

    def _pin(self) -> None:
        countdown = itertools.count(1)

        def interrupt(operation, _key):
            if operation in ("create", "sizes", "remove") and next(countdown) == self.inner:
                self.reached_inner = True
                self.storage.before = lambda *_: None
                prune(self.storage)

        self.storage.before = interrupt
        try:
            Store.open(self.storage, writing=True).pin(self.made[0])
            self.pinned = True
        except BundleRetired:
            pass
        self.storage.before = lambda *_: None

    def check(self) -> None:
        alive = list(self.store.bundles())
        assert all(self.store.verify(bundle).whole for bundle in alive), (self.outer, self.inner)
        if self.pinned:
            assert self.made[0].id in {bundle.id for bundle in alive}, (self.outer, self.inner)


def test_a_pin_that_two_prunes_meet_holds_or_is_refused_and_nothing_alive_loses_a_part():
    pinned = set()
    for outer in itertools.count(1):
        for inner in itertools.count(1):
            nested = Nested(outer, inner)
            nested.run()
            nested.check()
            prune(nested.storage)
            nested.check()
            pinned.add(nested.pinned)
            if not nested.reached_inner:
                break
        if not nested.reached_outer:
            break
    assert pinned == {True, False}
    assert outer > 5


def test_a_removal_is_announced_before_anything_is_removed_and_only_then():
    storage = MemoryStorage()
    store, attempt = started(storage)
    made = [save(attempt, step) for step in (1, 2)]
    store.prune(Policy(keep_last=1))
    assert kinds(store)[-2:] == [RetireRecord, RemoveRecord]
    assert store.chain.read(store.chain.head()).bundles == (made[0].id,)
    announced = storage.log.index(("create", record_key(store.chain.head())))
    assert announced < min(index for index, (operation, _) in enumerate(storage.log) if operation == "remove")
    head = store.chain.head()
    store.prune(Policy(keep_last=1))
    assert store.chain.head() == head


def test_once_a_removal_was_announced_a_hold_takes_nothing_back():
    storage = MemoryStorage(links=False)
    store, attempt = started(storage)
    made = [save(attempt, step) for step in (1, 2)]

    def die(operation, _key):
        if operation == "remove":
            raise Crash

    storage.before = die
    with pytest.raises(Crash):
        prune(storage)
    storage.before = lambda *_: None
    hold = f"bundles/{made[0].id}/.holds/pin-late.json"
    storage.create(hold, canonical.encode({}))
    assert prune(storage).reinstated == ()
    assert steps(store) == [2]
    assert hold not in storage.seen


def full(storage):
    """Let nothing be created until something was removed."""
    state = {"full": True}

    def before(operation, key):
        if operation == "remove":
            state["full"] = False
        if operation == "create" and key.startswith("chain/") and state["full"]:
            with told("create", key):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    storage.before = before


def test_on_a_full_disk_what_needs_no_record_is_removed_first():
    storage = MemoryStorage()
    _, first = started(storage)
    save(first, 1)
    dead = first.begin(step=2)
    add_files(dead, 2)
    store, second = again(storage)
    save(second, 2)
    full(storage)
    result = prune(storage)
    assert [ref.step for ref in result.retired] == [1]
    assert marker_key(dead.id) in result.removed
    assert not [key for key in storage.seen if dead.id in key]
    assert steps(store) == [2]


def test_on_a_full_disk_no_committed_bundle_is_removed_without_a_record():
    storage = MemoryStorage()
    _, first = started(storage)
    kept = [save(first, 1), save(first, 2)]
    store, _ = again(storage)
    before = dict(storage.seen)
    full(storage)
    with pytest.raises(StoreError, match="ENOSPC"):
        prune(storage)
    assert storage.seen == before
    assert len(list(store.bundles())) == len(kept)


def test_on_a_full_disk_what_a_dead_prune_has_announced_is_finished():
    storage = MemoryStorage()
    store, attempt = started(storage)
    save(attempt, 1)
    save(attempt, 2)

    def die(operation, _key):
        if operation == "remove":
            raise Crash

    storage.before = die
    with pytest.raises(Crash):
        prune(storage)
    storage.before = lambda *_: None
    save(attempt, 3)
    full(storage)
    prune(storage)
    assert steps(store) == [3]
    assert len({key.split("/")[1] for key in storage.seen if key.startswith("bundles/")}) == 1


def test_the_folder_of_another_runs_save_is_left_alone():
    storage = MemoryStorage()
    _, first = started(storage)
    dead = first.begin(step=1)
    add_files(dead, 1)
    note = canonical.decode(storage.seen[marker_key(dead.id)], what="note")
    assert note["run"] == first.chain.run
    foreign = canonical.encode(note | {"run": "r-20260131t235959123-0123456789"})
    storage.damage(marker_key(dead.id), lambda _: foreign)
    again(storage)
    assert prune(storage).removed == ()
    storage.damage(marker_key(dead.id), lambda _: canonical.encode(note))
    assert prune(storage).removed != ()


def test_a_record_that_became_unreadable_while_pruning_stops_the_removal():
    storage = MemoryStorage()
    store, attempt = started(storage)
    for step in (1, 2, 3):
        save(attempt, step)

    def spoil(operation, key):
        if operation == "entries" and key == "bundles/":
            storage.before = lambda *_: None
            storage.create(record_key(store.chain.head() + 1), b"from the future\n")

    storage.before = spoil
    before = {key for key in storage.seen if key.startswith("bundles/")}
    with pytest.raises(FormatError, match="not known"):
        prune(storage)
    assert before <= storage.seen.keys()


def test_spacing_keeps_what_is_whole_and_of_the_lineage():
    storage = MemoryStorage()
    store, first = started(storage)
    old = {step: save(first, step) for step in (100, 200, 300, 400)}
    decision = store.select(damaged={old[step].id: "differs" for step in (300, 400)})
    second = store.register(decision, "restart")
    new = {step: save(second, step) for step in (300, 350, 400, 500, 600)}
    storage.damage(new[300].key_of(new[300].manifest.parts[0]), lambda data: data[:-1])
    kept = {ref.ref.id for ref in store.prune(Policy(keep_last=1, keep_every=100)).kept}
    lineage = {old[100].id, old[200].id} | {new[step].id for step in (350, 400, 500, 600)}
    assert kept == lineage
    assert {ref.ref.id for ref in store.prune(Policy(keep_last=1, keep_every=100)).kept} == lineage
    later = save(second, 700)
    kept = {ref.ref.id for ref in store.prune(Policy(keep_last=1, keep_every=200)).kept}
    assert kept == {later.id, old[200].id, new[400].id, new[600].id}
