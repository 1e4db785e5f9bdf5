"""A loader that is put back gives the batches that the uninterrupted run would have had, to the bit."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import (
    DataLoader,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from data_sets import Augmented, Counting, Drawing, Lengths, Stream, Together, go, restarted, straight
from samestep.data import follow

EPOCHS = 3


def weighted(length=37):
    return WeightedRandomSampler([1.0 + (index % 5) for index in range(length)], num_samples=30)


class Shuffling:
    """A script's own loader, which draws from the global streams as it goes."""

    def __iter__(self):
        for number in torch.randperm(8).tolist():
            yield {"x": torch.rand(4), "number": number}


LOADERS = {
    "shuffled": lambda: DataLoader(Augmented(), batch_size=5, shuffle=True),
    "in-order": lambda: DataLoader(Augmented(), batch_size=5),
    "drop-last": lambda: DataLoader(Augmented(), batch_size=5, shuffle=True, drop_last=True),
    "whole-batches": lambda: DataLoader(Together(), batch_size=5, shuffle=True),
    "no-batches": lambda: DataLoader(Augmented(9), batch_size=None, shuffle=True),
    "subset": lambda: DataLoader(Augmented(), batch_size=4, sampler=SubsetRandomSampler(range(3, 20))),
    "replacement": lambda: DataLoader(
        Augmented(), batch_size=4, sampler=RandomSampler(range(37), replacement=True, num_samples=22)
    ),
    "weighted": lambda: DataLoader(Augmented(), batch_size=4, sampler=weighted()),
    "own-sampler": lambda: DataLoader(Augmented(), batch_size=5, sampler=Drawing()),
    "own-batch-sampler": lambda: DataLoader(Augmented(), batch_sampler=Lengths()),
    "stream": lambda: DataLoader(Stream(), batch_size=5),
    "stream-drop-last": lambda: DataLoader(Stream(23), batch_size=5, drop_last=True),
    "stream-with-state": lambda: DataLoader(Counting(), batch_size=6),
    "list": lambda: [torch.full((3,), float(number)) for number in range(7)],
    "script's-own": Shuffling,
}
WORKERS = {
    "two": {"num_workers": 2},
    "persistent": {"num_workers": 2, "persistent_workers": True, "prefetch_factor": 4},
}


def epoch_of(make):
    followed = follow(make(), seed=11)
    return sum(1 for _ in followed.epoch())


@pytest.mark.parametrize("name", LOADERS)
def test_restarts_change_nothing(name):
    make = LOADERS[name]
    length = epoch_of(make)
    total = EPOCHS * length - 1
    expected = straight(make, total)
    for cuts in ((1,), (length - 1,), (length,), (length + 1, 2 * length), (2, 3, length + 2)):
        assert restarted(make, cuts, total) == expected, cuts


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("kind", ["map", "own-sampler", "stream"])
def test_restarts_with_workers_change_nothing(kind, workers):
    options = WORKERS[workers]

    def make():
        if kind == "stream":
            return DataLoader(Stream(), batch_size=5, **options)
        sampler = {"sampler": Drawing()} if kind == "own-sampler" else {"shuffle": True}
        return DataLoader(Augmented(), batch_size=5, **sampler, **options)

    assert restarted(make, (3, 8), 15) == straight(make, 15)


@pytest.mark.parametrize("sampler", ["order", "own"])
def test_the_number_of_workers_changes_nothing(sampler):
    chosen = {"shuffle": True} if sampler == "order" else {"sampler": Drawing()}
    seen = [
        go(follow(DataLoader(Augmented(), batch_size=5, num_workers=workers, **chosen), seed=3), 12)
        for workers in (0, 1, 3)
    ]
    assert seen[0] == seen[1] == seen[2]


def test_a_loop_that_breaks_off_and_begins_again_goes_on_where_it_was():
    expected = straight(LOADERS["shuffled"], 16)
    for options in ({}, *WORKERS.values()):
        followed = follow(DataLoader(Augmented(), batch_size=5, shuffle=True, **options), seed=11)
        assert go(followed, 3) + go(followed, 4) + go(followed, 9) == expected


def test_the_last_batch_leaves_the_epoch_open_until_the_loop_asks_for_more():
    make = LOADERS["shuffled"]
    followed = follow(make(), seed=1)
    go(followed, 8)
    assert (followed.position.epoch, followed.position.batches, followed.position.samples) == (0, 8, 37)
    resumed = follow(make(), seed=1)
    resumed.load_state_dict(followed.state_dict())
    assert list(resumed.epoch()) == []
    assert (resumed.position.epoch, resumed.position.batches, resumed.position.total) == (1, 0, 37)


def test_every_sample_comes_once_an_epoch_and_epochs_differ():
    followed = follow(DataLoader(Augmented(), batch_size=5, shuffle=True), seed=1)
    first, second = ([int(x) for batch in followed.epoch() for x in batch[:, 0]] for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(37))
    assert first != second


def test_random_numbers_differ_between_samples_and_epochs():
    followed = follow(DataLoader(Augmented(), batch_size=5, shuffle=True), seed=1)
    drawn = torch.cat([batch[:, 1:] for _ in range(2) for batch in followed.epoch()])
    for column in drawn.T:
        assert len(set(column.tolist())) == 2 * 37
