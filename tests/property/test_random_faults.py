"""Random damage to stores on disk: all of it is noticed, and an older whole bundle is used or nothing is.

What is right is not asked of the store: after the damage, the bytes of every file are compared with those that were
written. Damage is one to three faults, in parts and in the records of the chain.
"""

from __future__ import annotations

import dataclasses
import os
import random
import shutil
from typing import TYPE_CHECKING

import pytest

from bundle_samples import REST, again, content_of, started
from quick_folder import quick_folder
from samestep.bundle.digests import CHUNK_BYTES
from samestep.bundle.errors import FormatError
from samestep.bundle.paths import part_path
from samestep.bundle.records import record_key
from samestep.bundle.retention import Policy
from samestep.bundle.storage.contents import BufferContent
from samestep.bundle.storage.local import LocalStorage
from samestep.bundle.store import Store

if TYPE_CHECKING:
    from pathlib import Path

CASES = 1000
BATCH = 50
CARRIED = {"model.safetensors": ("weights",), "state/optimizer.bin": ("optimizer",), "rng.bin": ("rng",)}
CONTRACT = {name: row for name, row in REST.items() if name != "rng"}
FROZEN = {"tokenizer.json": b"frozen " * 100, ".metadata": b"of the framework", "empty": b""}


def parts_after(step, *, large):
    chance = random.Random(step)
    size = CHUNK_BYTES + 4099 if large else 1500
    return {
        "model.safetensors": chance.randbytes(size),
        "state/optimizer.bin": chance.randbytes(3000),
        "rng.bin": chance.randbytes(8),
        **FROZEN,
    }


def saved(attempt, step, *, large=False):
    saving = attempt.begin(step=step)
    for path, data in parts_after(step, large=large).items():
        saving.add(path, BufferContent(data), components=CARRIED.get(path, ()))
    return saving.commit(contract=CONTRACT)


def one_life(storage):
    _, attempt = started(storage)
    return [saved(attempt, step) for step in range(1, 6)]


def two_lives(storage):
    made = one_life(storage)
    _, attempt = again(storage)
    return made + [saved(attempt, step) for step in range(6, 9)]


def a_step_back(storage):
    """A life whose last two bundles another went past; they are whole, and no bundles to go on from."""
    store, attempt = started(storage)
    made = [saved(attempt, step) for step in range(1, 5)]
    attempt = store.register(store.select(damaged={bundle.id: "told" for bundle in made[2:]}), "went back")
    return made[:2] + [saved(attempt, step) for step in range(3, 6)]


def a_pruned_life(storage):
    made = one_life(storage)
    store = Store.open(storage, writing=True)
    store.prune(Policy(keep_last=3))
    _, attempt = again(storage)
    return made[2:] + [saved(attempt, step) for step in range(6, 8)]


def large_parts(storage):
    _, attempt = started(storage)
    return [saved(attempt, step, large=True) for step in (1, 2)]


HISTORIES = {
    history.__name__: history for history in (one_life, two_lives, a_step_back, a_pruned_life, large_parts)
}
SHARES = {"one_life": 30, "two_lives": 25, "a_step_back": 20, "a_pruned_life": 21, "large_parts": 4}


@dataclasses.dataclass
class History:
    """A store before it is damaged.

    Attributes:
        folder: where it is.
        bundles: that the run may go on from, oldest first.
        files: bytes of every file of theirs, of the records and of ``run.json``, by key.
        number: of the newest record.
    """

    folder: Path
    bundles: list
    files: dict
    number: int

    def keys_of(self, bundle):
        return [bundle.key_of(part) for part in bundle.manifest.parts]

    def record_of(self, bundle):
        return record_key(bundle.number)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    with quick_folder(lambda: tmp_path_factory.mktemp("faults")) as folder:
        yield folder


@pytest.fixture(scope="module")
def histories(place):
    made = {}
    for name, build in HISTORIES.items():
        folder = place / name / "store"
        bundles = build(LocalStorage(folder))
        number = Store.open(LocalStorage(folder), writing=False).chain.head()
        keys = {key for bundle in bundles for key in map(bundle.key_of, bundle.manifest.parts)}
        keys |= {"run.json", *map(record_key, range(1, number + 1))}
        made[name] = History(
            folder, bundles, {key: (folder / key).read_bytes() for key in sorted(keys)}, number
        )
    return made


def copied(history, to):
    """Copy a store; files that bundles share stay shared."""
    twins = {}
    for path in sorted(history.folder.rglob("*")):
        target = to / path.relative_to(history.folder)
        if path.is_dir():
            target.mkdir(parents=True)
        elif (twin := twins.get(path.stat().st_ino)) is not None:
            os.link(twin, target)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)
            target.chmod(0o644)
            twins[path.stat().st_ino] = target


class Damage:
    """Faults of a store, drawn one by one; what they did is told by the bytes alone."""

    def __init__(self, chance, history, folder):
        self.told = []
        self._chance, self._history, self._folder = chance, history, folder

    def strike(self):
        if self._chance.random() < 0.65:
            bundle = self._chance.choice(self._history.bundles)
            keys = self._history.keys_of(bundle)
            older = [one for one in self._history.bundles if one.number < bundle.number]
        else:
            bundle, older = None, []
            keys = [key for key in self._history.files if not key.startswith("bundles/")]
        key = self._chance.choice(keys)
        fault = self._chance.choice(["flip", "cut", "extend", "swap", "stale", "missing", "empty"])
        if (self._folder / key).exists():
            getattr(self, f"_{fault}")(key, keys, bundle, older)
            self.told.append(f"{fault} {key}")

    def _flip(self, key, *_):
        data = bytearray((self._folder / key).read_bytes())
        if data:
            bit = self._below(8 * len(data))
            data[bit // 8] ^= 1 << bit % 8
            (self._folder / key).write_bytes(data)

    def _cut(self, key, *_):
        path = self._folder / key
        os.truncate(path, self._below(path.stat().st_size + 1))

    def _below(self, limit):
        """Draw once whatever the limit: records differ in length from run to run, and the next draws must not."""
        return int(self._chance.random() * limit)

    def _extend(self, key, *_):
        with (self._folder / key).open("ab") as file:
            file.write(self._chance.choice([b"\0", b"\n", self._chance.randbytes(100)]))

    def _empty(self, key, *_):
        os.truncate(self._folder / key, 0)

    def _missing(self, key, *_):
        (self._folder / key).unlink()

    def _swap(self, key, keys, *_):
        one, other = self._folder / key, self._folder / self._chance.choice(keys)
        if other.exists():
            between = one.with_name("between")
            one.rename(between)
            if other != one:
                other.rename(one)
            between.rename(other)

    def _stale(self, key, keys, bundle, older):
        """Put an older part, or an older record, in place of a newer one."""
        if bundle is None:
            source = self._chance.choice(keys)
        elif not older:
            return
        else:
            old, path = self._chance.choice(older), part_path(bundle.id, key)
            source = next(old.key_of(part) for part in old.manifest.parts if part.path == path)
        data = (self._folder / source).read_bytes() if (self._folder / source).exists() else b""
        (self._folder / key).unlink()
        (self._folder / key).write_bytes(data)


class Truth:
    """What is still right in a damaged store, by its bytes."""

    def __init__(self, history, folder):
        self.broken = {key for key, data in history.files.items() if not self._is(folder / key, data)}
        # Records missing at the end leave the store as it was before them: nothing tells that there were any.
        there = [number for number in range(1, history.number + 1) if (folder / record_key(number)).exists()]
        self.head = max(there, default=0)
        gone = set(map(record_key, range(self.head + 1, history.number + 1)))
        self.noticeable = self.broken - gone
        self.identity = "run.json" not in self.broken
        self.damaged = [one for one in history.bundles if self.broken & {*history.keys_of(one)}]
        self.whole = [
            one
            for one in history.bundles
            if not self.broken & {history.record_of(one), *history.keys_of(one)}
        ]
        self.chain_is_whole = not any(key.startswith("chain/") for key in self.broken)

    def _is(self, path, data):
        return path.exists() and path.stat().st_size == len(data) and path.read_bytes() == data

    def passed(self, bundle):
        """What is broken of records and bundles newer than ``bundle``, as far as it can be told."""
        records = {record_key(number) for number in range(bundle.number + 1, self.head + 1)} & self.broken
        return records | {one.id for one in self.damaged if bundle.number < one.number <= self.head}


@pytest.fixture
def damaged(histories, place):
    def damage(seed):
        chance = random.Random(f"faults {seed}")
        history = histories[chance.choices(list(SHARES), SHARES.values())[0]]
        folder = place / str(seed)
        copied(history, folder)
        faults = Damage(chance, history, folder)
        left = chance.choice([1, 1, 2, 3])
        for _ in range(left):
            faults.strike()
        while not (truth := Truth(history, folder)).broken:
            faults.strike()
        return history, folder, truth, faults.told

    return damage


def check(history, folder, truth):
    if not truth.identity:
        with pytest.raises(FormatError, match=r"run\.json"):
            Store.open(LocalStorage(folder), writing=False)
        return "refused"
    store = Store.open(LocalStorage(folder), writing=False)
    ours = {one.id for one in history.bundles}
    found = {one.id for one in store.bundles() if one.id in ours and not store.verify(one).holds}
    assert found == {one.id for one in truth.damaged if history.record_of(one) not in truth.broken}
    assert {record_key(one.number) for one in store.unreadable()} == {
        key for key in truth.noticeable if key.startswith("chain/")
    }
    decision = store.resume(to=folder / "out")
    if decision.outcome != "resume":
        assert not truth.whole
        assert not (folder / "out").exists()
        # A run is only called new where no record and no part says otherwise.
        assert decision.outcome == "damaged" or not truth.noticeable
        return decision.outcome
    chosen = next((one for one in history.bundles if one.id == decision.bundle), None)
    assert chosen is not None, decision.text()
    check_choice(history, truth, chosen, decision)
    assert content_of(folder / "out") == {
        part.path: history.files[chosen.key_of(part)] for part in chosen.manifest.parts
    }
    strict = store.resume(to=folder / "strict", policy="strict")
    assert strict.outcome == ("refused" if truth.passed(chosen) else "resume")
    assert (folder / "strict").exists() == (strict.outcome == "resume")
    return "older" if truth.passed(chosen) else "newest"


def check_choice(history, truth, chosen, decision):
    """The newest whole one is taken, and everything newer that is broken is named."""
    assert chosen == max(truth.whole, key=lambda one: one.number)
    named = {one.bundle for one in decision.set_aside} | {
        record_key(one.number) for one in decision.set_aside if not one.bundle
    }
    unread = {history.record_of(one) for one in history.bundles}
    assert truth.passed(chosen) <= named | {
        one.id for one in truth.damaged if history.record_of(one) in named & unread
    }


@pytest.mark.parametrize("batch", range(CASES // BATCH))
def test_random_damage_is_noticed_and_an_older_whole_bundle_used(damaged, batch):
    answers = []
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        history, folder, truth, told = damaged(seed)
        try:
            answers.append(check(history, folder, truth))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, {history.folder.parent.name}: {told}: {error}") from error
        shutil.rmtree(folder)
    assert {"older", "newest"} <= set(answers)
