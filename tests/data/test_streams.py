"""The global random streams: read and written without a trace, in whichever way, and every draw is noticed."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from data_sets import disturb, go, main_streams
from samestep.data import Position, follow, twisters
from samestep.data.streams import Outside, marks, seed_streams


@pytest.fixture(params=["as memory", "the long way"])
def way(request, monkeypatch):
    """Read and write the states of Python and NumPy as memory, and as they offer it."""
    if request.param == "the long way":
        monkeypatch.setattr(twisters, "_python_words", None)
        monkeypatch.setattr(twisters, "_numpy_held", None)


def next_numbers():
    pairs = [random.gauss(0, 1), np.random.randn(), torch.randn(()).item()]  # noqa: NPY002
    return [*pairs, random.random(), np.random.rand(), torch.rand(()).item()]  # noqa: NPY002


def test_the_memory_of_both_is_known_here():
    assert twisters._python_words is not None
    assert twisters._numpy_held is not None


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("drawn", [0, 1, 2, 700])
def test_what_is_outside_comes_back_with_the_normal_numbers_that_are_held(drawn):
    disturb()
    for _ in range(drawn):
        random.gauss(0, 1), np.random.randn(), torch.randn(())  # noqa: NPY002
    before = main_streams()
    with Outside():
        seed_streams("inside")
        inside = next_numbers()
    assert main_streams() == before
    with Outside():
        seed_streams("inside")
        assert next_numbers() == inside
    assert main_streams() == before
    expected = next_numbers()
    assert expected != inside


@pytest.mark.usefixtures("way")
def test_what_is_outside_comes_back_after_an_error():
    before = main_streams()
    with pytest.raises(ZeroDivisionError), Outside():  # noqa: PT012
        seed_streams("inside")
        raise ZeroDivisionError
    assert main_streams() == before


def test_another_bit_generator_of_numpy_is_read_and_written():
    usual = np.random.get_bit_generator()
    np.random.set_bit_generator(np.random.MT19937(5))
    try:
        np.random.randn()  # noqa: NPY002
        before = main_streams()
        with Outside():
            seed_streams("inside")
            marked = marks()
            next_numbers()
            assert marks() != marked
        assert main_streams() == before
    finally:
        np.random.set_bit_generator(usual)


DRAWS = {
    "nothing": lambda: None,
    "random.random": random.random,
    "random.gauss": lambda: random.gauss(0, 1),
    "random, a whole round": lambda: random.getrandbits(32 * 624),
    "numpy.rand": np.random.rand,
    "numpy.randn": np.random.randn,
    "numpy, a whole round": lambda: np.random.bytes(4 * 624),  # noqa: NPY002
    "torch.rand": lambda: torch.rand(()),
    "torch.randn": lambda: torch.randn(()),
    "torch, a whole round": lambda: torch.rand(624),
    "another seed": lambda: torch.manual_seed(1),
}


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("draw", DRAWS)
def test_every_draw_is_noticed(draw):
    with Outside():
        seed_streams("marked")
        before = marks()
        DRAWS[draw]()
        assert (marks() == before) is (draw == "nothing")


class Quiet(Dataset):
    """Numbers as they are, except that one of them is hidden at random; counts how often each is fetched."""

    def __init__(self, hidden=()):
        self.hidden = hidden
        self.fetched = []

    def __len__(self):
        return 24

    def __getitem__(self, index):
        self.fetched.append(index)
        return index + (random.random() if index in self.hidden else 0.0)


def drawn_for(samples):
    """Collate, with numbers that are drawn then."""
    return [*samples, random.random(), float(np.random.rand()), torch.rand(()).item()]  # noqa: NPY002


def quiet(dataset, workers=0, **options):
    return follow(DataLoader(dataset, batch_size=4, shuffle=True, num_workers=workers, **options), seed=1)


def test_samples_for_which_nothing_is_drawn_are_fetched_once():
    dataset = Quiet()
    go(quiet(dataset), 6)
    assert sorted(dataset.fetched) == list(range(24))


def test_what_a_collate_function_draws_follows_from_the_last_sample_whoever_fetches_it():
    straight = go(quiet(Quiet(), collate_fn=drawn_for), 6)
    assert go(quiet(Quiet(), workers=2, collate_fn=drawn_for), 6) == straight
    resumed = quiet(Quiet(), collate_fn=drawn_for)
    resumed.seek(Position(batches=2, samples=8, total=8))
    assert go(resumed, 4) == straight[2:]
    one_by_one = Quiet()
    one_by_one.own = random.Random(3)  # what a data set holds is seeded for each sample
    assert go(quiet(one_by_one, collate_fn=drawn_for), 6) == straight


def test_the_first_sample_for_which_something_is_drawn_has_its_batch_fetched_twice_and_no_other():
    dataset = Quiet(hidden=[7])
    straight = go(quiet(dataset), 6)
    assert sorted({dataset.fetched.count(index) for index in range(24)}) == [1, 2]
    assert len(dataset.fetched) == 28
    for first in range(6):
        resumed = quiet(Quiet(hidden=[7]))
        resumed.seek(Position(batches=first, samples=4 * first, total=4 * first))
        assert go(resumed, 6 - first) == straight[first:]
