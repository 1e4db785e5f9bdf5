"""Every call of every thread of a whole save fails once: no manifest, clear words, and the older bundle stays."""

from __future__ import annotations

import concurrent.futures
import errno
import os
import random
import shutil

import pytest

from bundle_samples import REST, again, files, save, started
from faulty_calls import MOVES_BYTES, Calls
from forging import Forge
from quick_folder import quick_folder
from samestep.bundle.sealing import Statements, seal
from samestep.bundle.storage.contents import BufferContent
from samestep.bundle.storage.local import LocalStorage
from samestep.bundle.store import Store
from samestep.errors import SamestepError

SMALL = files(2) | {"rng.bin": b"random"}
LARGE = {
    "model.safetensors": random.Random(1).randbytes((16 << 20) + 4099),  # two chunks, so two threads
    "ema.safetensors": random.Random(2).randbytes((1 << 20) + 17),
}
CARRIED = {"model.safetensors": ["weights"], "state/optimizer.bin": ["optimizer"]}
NEVER_SEEN = ("open", "io.open", "fstatvfs", "fstat", "fcntl", "dup")
"""Calls that Python itself repeats after a signal, or that Linux does not interrupt; tests/crash/test_save_errors.py
interrupts them below Python."""
MUST_TELL = ("pwrite", "fsync", "ftruncate", "fallocate", "mkdir", "link .unfinished-", "fstatvfs")
"""Calls whose failure is never got over. Others may be: something is read again, a shared part is stored anew or goes
through the page cache, and a temporary name that stays is taken by the next prune."""


def save_in_threads(attempt, parts):
    with attempt.begin(step=2) as saving:

        def add(path):
            return saving.add(path, BufferContent(parts[path]), components=CARRIED.get(path, ()))

        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            list(pool.map(add, parts))
        return saving.commit(contract=REST)


def buffered(attempt, _place):
    return save_in_threads(attempt, SMALL)


def direct(attempt, _place):
    return save_in_threads(attempt, SMALL | LARGE)


def sealing(attempt, place):
    return seal(attempt, place / "checkpoint-2", Statements(environment={}))


SAVES = {save.__name__: save for save in (buffered, direct, sealing)}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    with quick_folder(lambda: tmp_path_factory.mktemp("faults")) as folder:
        _, attempt = started(LocalStorage(folder / "before"))
        save(attempt, 1)
        Forge().trainer_checkpoint(folder / "checkpoint-2", 2)
        yield folder


@pytest.fixture
def copied(place):
    """A new attempt on a copy of a store with one bundle; what it shares with that it reads first."""

    def copy():
        shutil.copytree(place / "before", place / "store")
        return again(LocalStorage(place / "store"))

    yield copy
    shutil.rmtree(place / "store", ignore_errors=True)


def calls_of(copied, act, place):
    _, attempt = copied()
    with Calls().between() as calls:
        made = act(attempt, place)
    shutil.rmtree(place / "store")
    large_only = [target for target in calls.targets() if target[0].split()[-1] in LARGE]
    return large_only if act is direct else calls.targets(), content(made)  # the rest is as when buffered


def content(bundle):
    parts = {part.path: (part.size, part.digest, part.components) for part in bundle.manifest.parts}
    return parts, bundle.manifest.contract, bundle.step


def published(calls):
    """The number of the call that published the bundle: the second link, after that of the save's own note."""
    links = [number for number, label in enumerate(calls.made) if label == "link .unfinished-"]
    return links[1] if len(links) > 1 else len(calls.made)


def faulty(copied, act, place, *, target, fault, expected):
    """Save while a call fails, check what is there, and save again; return the calls and what was raised."""
    store, attempt = copied()
    calls, made, error = Calls(target, fault), None, None
    with calls.between():
        try:
            made = act(attempt, place)
        except SamestepError as raised:
            error = raised
    older, *newer = reversed(list(Store.open(LocalStorage(place / "store"), writing=False).bundles()))
    assert store.verify(older).holds
    if error is None:
        assert [one.id for one in newer] == [made.id]
        assert content(made) == expected, target
    else:
        assert os.strerror(fault) in error.message or "is not whole" in error.message, (target, error.message)
        assert str(place) in error.message, (target, error.message)
        assert not newer or published(calls) < calls.failed_at  # there, and not settled: the caller is told
    after = save(attempt, 3)
    assert store.select().bundle == after.id
    assert all(store.verify(one).holds for one in store.bundles())
    shutil.rmtree(place / "store")
    return calls, error


FAILING = [
    pytest.param(act, fault, id=f"{name}-{errno.errorcode[fault]}", marks=marks)
    for name, act in SAVES.items()
    for fault in (errno.EIO, errno.ENOSPC)
    for marks in [pytest.mark.full if (act, fault) == (sealing, errno.ENOSPC) else ()]
]


def test_a_number_that_is_given_again_at_once_goes_by_its_new_name(tmp_path, monkeypatch):
    really_close, again_open = os.close, []

    def close(descriptor):
        really_close(descriptor)
        if not again_open:  # as another thread may, before the call returns
            again_open.append(os.open(tmp_path / "second", os.O_CREAT | os.O_WRONLY))

    monkeypatch.setattr(os, "close", close)
    with Calls().between() as calls:
        first = os.open(tmp_path / "first", os.O_CREAT | os.O_WRONLY)
        os.close(first)
        os.fsync(again_open[0])
        os.close(again_open[0])
    assert again_open == [first]
    assert calls.made == ["open first", "close first", "open second", "fsync second", "close second"]


@pytest.mark.parametrize(("act", "fault"), FAILING)
def test_every_call_that_fails_leaves_no_bundle_and_says_why(copied, place, act, fault):
    targets, expected = calls_of(copied, act, place)
    spared = {label for label, _ in targets}  # by name only: how often threads ask for the room left differs
    for target in targets:
        calls, error = faulty(copied, act, place, target=target, fault=fault, expected=expected)
        struck = calls.failed_at is not None
        assert error is not None or not struck or not target[0].startswith(MUST_TELL), target
        spared -= {target[0]} if struck else set()
    assert not spared


@pytest.mark.parametrize("act", SAVES.values(), ids=SAVES)
def test_a_signal_at_any_call_is_survived(copied, place, act):
    targets, expected = calls_of(copied, act, place)
    for target in targets:
        if not target[0].startswith(NEVER_SEEN):
            assert (
                faulty(copied, act, place, target=target, fault=errno.EINTR, expected=expected)[1] is None
            ), target


@pytest.mark.parametrize("act", SAVES.values(), ids=SAVES)
def test_a_call_that_moves_fewer_bytes_than_it_was_given_is_survived(copied, place, act):
    every, expected = calls_of(copied, act, place)
    targets = [target for target in every if target[0].split()[0] in MOVES_BYTES]
    assert len(targets) >= 3
    for target in targets:
        assert faulty(copied, act, place, target=target, fault="short", expected=expected)[1] is None, target
