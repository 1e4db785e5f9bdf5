"""Loaders and streams that say by themselves where they stand."""

from __future__ import annotations

import functools
import json

import pytest
import torch
from torch.utils.data import DataLoader, Sampler

from data_sets import Augmented, Counting, Stream, disturb, go, restarted, straight
from samestep.data import NotFollowed, Replay, follow

datasets = pytest.importorskip("datasets")
stateful = pytest.importorskip("torchdata.stateful_dataloader")


def hugging_face(shards=4, *, shuffled=False):
    rows = datasets.Dataset.from_dict({"x": list(range(41))}).to_iterable_dataset(num_shards=shards)
    return rows.shuffle(seed=5, buffer_size=8) if shuffled else rows


class Remembering(Sampler):
    """A script's own sampler with a state."""

    def __init__(self):
        self.given = 0
        self.rounds = 0

    def __iter__(self):
        order = torch.randperm(37, generator=torch.Generator().manual_seed(self.rounds)).tolist()
        while self.given < 37:
            self.given += 1
            yield order[self.given - 1]
        self.given, self.rounds = 0, self.rounds + 1

    def __len__(self):
        return 37

    def state_dict(self):
        return {"given": self.given, "rounds": self.rounds}

    def load_state_dict(self, state):
        self.given, self.rounds = state["given"], state["rounds"]


LOADERS = {
    "torchdata-map": lambda n: stateful.StatefulDataLoader(
        Augmented(), batch_size=5, shuffle=True, generator=torch.Generator().manual_seed(2), num_workers=n
    ),
    "torchdata-stream-with-state": lambda n: stateful.StatefulDataLoader(
        Counting(), batch_size=6, num_workers=n
    ),
    "torchdata-snapshots": lambda n: stateful.StatefulDataLoader(
        Counting(), batch_size=6, num_workers=n, snapshot_every_n_steps=3
    ),
    "torchdata-stream": lambda n: stateful.StatefulDataLoader(Stream(), batch_size=6, num_workers=n),
    "hugging-face": lambda n: DataLoader(hugging_face(), batch_size=6, num_workers=n),
    "hugging-face-shuffled": lambda n: DataLoader(hugging_face(shuffled=True), batch_size=6, num_workers=n),
    "hugging-face-in-torchdata": lambda n: stateful.StatefulDataLoader(
        hugging_face(), batch_size=6, num_workers=n
    ),
}


DEFAULT = {"torchdata-stream-with-state", "hugging-face"}
CASES = [
    pytest.param(name, workers, marks=[pytest.mark.full] if workers and name not in DEFAULT else [])
    for name in LOADERS
    for workers in (0, 2)
]


@pytest.mark.parametrize(("name", "workers"), CASES)
def test_restarts_change_nothing(name, workers):
    make = functools.partial(LOADERS[name], workers)
    length = sum(1 for _ in follow(make(), seed=11).epoch())
    assert length >= 7
    total = 2 * length + 2
    expected = straight(make, total)
    for cuts in ((3, length),) if workers else ((1,), (length - 1,), (length,), (3, length + 2)):
        assert restarted(make, cuts, total, plain=False) == expected, cuts


def test_an_own_sampler_with_a_state_is_left_to_torchdata():
    def make():
        return stateful.StatefulDataLoader(Augmented(), batch_size=5, sampler=Remembering())

    assert follow(make(), seed=0).replayability.how == "the loader's own state"
    for cuts in ((3,), (7,), (8, 10)):
        done = restarted(make, cuts, 18, plain=False)
        assert [entry[:4] for entry in done] == [entry[:4] for entry in straight(make, 18)]


@pytest.mark.parametrize(
    ("name", "workers", "how"),
    [
        ("torchdata-map", 2, "the order of its samples"),
        ("torchdata-stream-with-state", 2, "the stream's own state"),
        ("hugging-face", 0, "the stream's own state"),
        ("hugging-face", 2, "fetching the epoch again"),
        ("hugging-face-shuffled", 0, "fetching the epoch again"),
        ("hugging-face-in-torchdata", 2, "the stream's own state"),
    ],
)
def test_the_way_of_going_on_is_said(name, workers, how):
    said = follow(LOADERS[name](workers), seed=0).replayability
    assert said.kind is Replay.EXACT
    assert said.how.startswith(how)


class Grainlike:
    """A loader whose iterator has the state, in bytes, as those of Grain have."""

    def __init__(self, batches=6):
        self.batches = batches

    def __iter__(self):
        return GrainlikeIterator(self.batches)


class GrainlikeIterator:
    def __init__(self, batches):
        self.batches = batches
        self.next = 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.next == self.batches:
            raise StopIteration
        self.next += 1
        return torch.tensor([float(self.next), torch.rand(())])

    def get_state(self):
        return json.dumps({"next": self.next}).encode()

    def set_state(self, state):
        self.next = json.loads(state)["next"]


class Mosaiclike:
    """A loader that keeps its epoch itself; ``rolls`` when a state from its end leads into the next epoch."""

    def __init__(self, *, rolls):
        self.rolls = rolls
        self.epoch, self.given, self.resumed = -1, 0, False

    def __len__(self):
        return 5

    def __iter__(self):
        if self.resumed and not (self.rolls and self.given == 5):
            self.resumed = False
        else:
            self.epoch, self.given, self.resumed = self.epoch + 1, 0, False
        while self.given < 5:
            self.given += 1
            yield torch.tensor([self.epoch * 100.0 + self.given, torch.rand(())])

    def state_dict(self):
        return {"epoch": self.epoch, "given": self.given}

    def load_state_dict(self, state):
        self.epoch, self.given, self.resumed = state["epoch"], state["given"], True


PROTOCOLS = {
    "grain": Grainlike,
    "mosaic-empty": lambda: Mosaiclike(rolls=False),
    "mosaic-rolling": lambda: Mosaiclike(rolls=True),
}


@pytest.mark.parametrize("name", PROTOCOLS)
def test_loaders_with_the_same_methods_are_put_back(name):
    expected = straight(PROTOCOLS[name], 17)
    for cuts in ((2,), (4,), (5,), (6,), (3, 5, 7, 10, 12)):
        assert restarted(PROTOCOLS[name], cuts, 17, plain=False) == expected, cuts


def test_the_state_taken_between_two_epochs_begins_the_next():
    for name, make in {**PROTOCOLS, **{name: lambda n=name: LOADERS[n](0) for name in LOADERS}}.items():
        followed = follow(make(), seed=11)
        list(followed.epoch())
        state = followed.state_dict()
        expected = go(followed, 9)
        disturb()
        resumed = follow(make(), seed=11)
        resumed.load_state_dict(state)
        assert go(resumed, 9) == expected, name


def test_loaders_of_accelerate_are_asked_again_and_come_exactly():
    accelerate = pytest.importorskip("accelerate")

    def make(**options):
        accelerate.utils.set_seed(1)  # its seedable sampler keeps torch's seed of the moment
        accelerator = accelerate.Accelerator(
            cpu=True, dataloader_config=accelerate.DataLoaderConfiguration(**options)
        )
        return accelerator.prepare(DataLoader(Augmented(), batch_size=5, shuffle=True))

    for options in ({}, {"use_seedable_sampler": True}):
        expected = straight(functools.partial(make, **options), 18)
        for cuts in ((3,), (8, 11)):
            assert restarted(functools.partial(make, **options), cuts, 18) == expected, options
    with pytest.raises(NotFollowed, match="use_stateful_dataloader"):
        follow(make(use_stateful_dataloader=True), seed=1)


def test_what_a_batched_map_may_lose_is_said():
    rows = hugging_face().map(lambda batch: batch, batched=True)
    assert follow(DataLoader(rows, batch_size=6), seed=0).replayability.limits
    assert not follow(DataLoader(hugging_face(), batch_size=6), seed=0).replayability.limits


def test_a_loop_that_breaks_off_and_begins_again_goes_on_where_it_was():
    for name, make in {
        **PROTOCOLS,
        **{name: functools.partial(LOADERS[name], 0) for name in LOADERS},
    }.items():
        expected = straight(make, 15)
        followed = follow(make(), seed=11)
        assert go(followed, 3) + go(followed, 1) + go(followed, 11) == expected, name
