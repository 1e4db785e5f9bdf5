"""Two processes that want the same place in a run, a hundred times: exactly one gets it, and the other is told."""

from __future__ import annotations

import contextlib
import uuid

import pytest

import forks
from bundle_samples import REST, add_files, started
from samestep.bundle.attempts import Attempt
from samestep.bundle.errors import DecisionOutdated, FencedError, StoreError
from samestep.bundle.records import CommitRecord
from samestep.bundle.storage.local import LocalStorage
from samestep.bundle.store import Store
from servers import emulators

ROUNDS = 100
SECONDS = 120
TOLD = {FencedError.__name__, DecisionOutdated.__name__}


def opened(kind, where, port):
    return LocalStorage(where) if kind == "local" else emulators.Emulator(kind, port).opened(where)


def commit(store, together):
    """Save in the name of the first attempt, as a copy of its process would."""
    chain = store.chain
    head = chain.head()
    attempt = Attempt(chain, chain.read(1), chain.read(head) if head > 1 else None)
    attempt.known = head
    saving = attempt.begin(step=head)
    add_files(saving, saving.step)
    together()
    return saving.commit(contract=REST)


def start(store, together):
    """Decide, register and save, as a restarted process does."""
    decision = store.select()
    together()
    attempt = store.register(decision, "restart")
    saving = attempt.begin(step=(decision.step or 0) + 1)
    add_files(saving, saving.step)
    return saving.commit(contract=REST)


RACES = {"commit": commit, "start": start}


def race(name, storage, together):
    """Return the bundle that was committed, or how the other was told."""
    try:
        return "won", RACES[name](Store.open(storage, writing=True), together).id
    except StoreError as error:
        return type(error).__name__, error.message


def racer(name, where, rounds, barrier, results):
    """Race again and again, in a process of its own."""
    storage = opened(*where)
    for _ in range(rounds):
        barrier.wait(SECONDS)
        results.send(race(name, storage, lambda: barrier.wait(SECONDS)))


@contextlib.contextmanager
def processes(name, where, rounds):
    """Two processes that race; lends what each tells."""
    barrier = forks.context.Barrier(2)
    ends = [forks.context.Pipe(duplex=False) for _ in range(2)]
    started_ = [forks.process(racer, name, where, rounds, barrier, sending) for _, sending in ends]
    for process in started_:
        process.start()
    try:
        yield [receiving.recv for receiving, _ in ends]
    finally:
        for process in started_:
            process.kill()
            process.join()


@pytest.mark.parametrize("name", RACES)
@pytest.mark.parametrize(
    ("kind", "rounds"),
    [("local", ROUNDS), ("s3", 10), pytest.param("s3", ROUNDS, marks=pytest.mark.full)],
    ids=["local", "s3-sample", "s3"],
)
def test_of_two_writers_exactly_one_wins_and_the_other_is_told(kind, rounds, name, tmp_path):
    emulator = None if kind == "local" else emulators.running(kind)
    where = kind, str(tmp_path) if kind == "local" else uuid.uuid4().hex, emulator.port if emulator else 0
    storage = opened(*where)
    store, _ = started(storage)
    with processes(name, where, rounds) as racers:
        outcomes = [
            sorted([next_() for next_ in racers], key=lambda one: one[0] != "won") for _ in range(rounds)
        ]
    assert [won for (won, _), _ in outcomes] == ["won"] * rounds
    assert {told for _, (told, _) in outcomes} <= TOLD
    commits = [one.bundle.id for one in store.chain.following(0) if isinstance(one, CommitRecord)]
    assert commits == [bundle for (_, bundle), _ in outcomes]
    assert store.select().bundle == commits[-1]
