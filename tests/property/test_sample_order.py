"""Every order is a permutation, reachable anywhere at once, and shuffled as a random one would be.

The statistical tests draw nothing: their orders follow from fixed seeds, so that they hold always or never.
"""

from __future__ import annotations

import itertools
import math
import pickle
import subprocess
import sys
import time
import tracemalloc
from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from samestep.data import DataError, SeekableOrder, Tail
from samestep.data.batches import OrderBatches, Share
from samestep.data.position import Position

LENGTHS = st.one_of(
    st.integers(1, 300),
    st.sampled_from([2**bits + near for bits in range(3, 15) for near in (-1, 0, 1)]),
)
SEEDS = st.integers(-(2**70), 2**70)
EPOCHS = st.integers(0, 2**40)
TOLERATED = 4.0
"""Standard deviations; a correct order exceeds them in one of 16,000 tests."""


@given(LENGTHS, SEEDS, EPOCHS, st.booleans())
def test_every_order_is_a_permutation(length, seed, epoch, shuffle):
    order = SeekableOrder(length, seed, shuffle=shuffle)
    assert np.array_equal(np.sort(order.block(epoch, 0, length)), np.arange(length))


@given(st.integers(1, 10**12), SEEDS, EPOCHS, st.data())
def test_a_place_says_the_same_however_it_is_asked_for(length, seed, epoch, data):
    order = SeekableOrder(length, seed)
    start = data.draw(st.integers(0, length - 1))
    stop = min(length, start + 40)
    block = order.block(epoch, start, stop)
    assert block.min() >= 0
    assert block.max() < length
    assert len(set(block.tolist())) == stop - start
    assert [order.sample(epoch, place) for place in range(start, stop)] == block.tolist()
    assert pickle.loads(pickle.dumps(order)).at(epoch, range(start, stop)).tolist() == block.tolist()


@given(
    st.integers(1, 200),
    st.integers(1, 7),
    st.sampled_from([1, 2, 3, 4, 8]),
    st.sampled_from(list(Tail)),
    st.integers(0, 5),
)
@example(length=10, batch_size=2, size=4, tail=Tail.PAD, epoch=0)
def test_ranks_share_every_batch_and_each_sample_comes_once(length, batch_size, size, tail, epoch):
    order = SeekableOrder(length, seed=1)
    ranks = [OrderBatches(order, batch_size, Share(rank, size), tail) for rank in range(size)]
    for batches in ranks:
        batches.seek(Position(epoch=epoch))
    given_out = list(itertools.zip_longest(*ranks, fillvalue=[]))
    used = [sample for step in given_out for part in step for sample in part]
    whole = length // (batch_size * size) * batch_size * size
    expected = order.block(epoch, 0, whole if tail is Tail.DROP else length).tolist()
    counts = Counter(used)
    assert counts.keys() == set(expected)
    if tail is Tail.PAD:
        assert len({len(list(batches)) for batches in ranks}) == 1
        assert all(len(set(map(len, step))) == 1 for step in given_out)
        assert len(used) - len(expected) < size
        times = [counts[sample] for sample in expected[whole:]]
        assert not times or max(times) - min(times) <= 1
    else:
        assert used == expected
    assert len(ranks[0]) == len(given_out)


@given(
    st.integers(2, 400), st.integers(0, 30), st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=5)
)
def test_a_change_of_ranks_keeps_the_order(length, seed, sizes):
    """Whatever the numbers of ranks, one after the other: the samples follow each other as for one rank."""
    order = SeekableOrder(length, seed)
    position, used = Position(), []
    for size in [*sizes, 1]:
        ranks = [OrderBatches(order, 3, Share(rank, size), Tail.UNEVEN) for rank in range(size)]
        for batches in ranks:
            batches.seek(position)
        steps = itertools.zip_longest(*ranks, fillvalue=[])
        for step in steps if size == sizes[-1] else itertools.islice(steps, 2):
            used += [sample for part in step for sample in part]
            position = ranks[0].after(position, None)
    assert used == order.block(0, 0, length).tolist()
    assert position.samples == position.total == length


def test_sample_10_11_of_10_12_in_less_than_a_millisecond_and_constant_memory():
    order = SeekableOrder(10**12, seed=0)
    order.sample(0, 0)
    seconds = []
    for epoch in range(1, 60):
        start = time.perf_counter()
        order.sample(epoch, 10**11)
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.001
    tracemalloc.start()
    order.sample(60, 10**11)
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()


def test_orders_are_the_same_for_ever():
    """Bundles say no more than (seed, epoch, position): what follows from them may never change."""
    assert SeekableOrder(10, 0).block(0, 0, 10).tolist() == [1, 5, 2, 9, 3, 6, 7, 8, 0, 4]
    assert SeekableOrder(10**12, 7).block(3, 10**11, 10**11 + 3).tolist() == [
        105578793720,
        995087378228,
        236027615326,
    ]


def test_another_process_computes_the_same_order():
    code = "from samestep.data import SeekableOrder as S; print(S(10**9, 5).block(2, 500, 520).tolist())"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == str(SeekableOrder(10**9, 5).block(2, 500, 520).tolist())


def deviations(counts, expected):
    """Return by how many standard deviations a chi-square statistic exceeds its mean."""
    counts = np.asarray(counts, dtype=float).reshape(-1)
    freedom = counts.size - 1
    return (((counts - expected) ** 2 / expected).sum() - freedom) / math.sqrt(2 * freedom)


def kolmogorov_smirnov(values, distribution):
    """Return the statistic of Kolmogorov and Smirnov times the root of the number of values."""
    values = np.sort(values)
    below = distribution(values)
    steps = np.arange(len(values) + 1) / len(values)
    return max(np.abs(below - steps[1:]).max(), np.abs(below - steps[:-1]).max()) * math.sqrt(len(values))


LARGE = 10_007
LARGEST_OF_40 = 2.4
"""The 0.1 % point of the largest of 40 statistics of Kolmogorov and Smirnov."""


@pytest.fixture(scope="module")
def orders():
    return np.stack([SeekableOrder(LARGE, seed=9).block(epoch, 0, LARGE) for epoch in range(40)])


@pytest.mark.parametrize("length", [3, 4, 5])
def test_small_permutations_are_all_as_likely_chi_square(length):
    total = 30 * math.factorial(length)
    seen = Counter(tuple(SeekableOrder(length, seed).block(0, 0, length).tolist()) for seed in range(total))
    counts = [seen[permutation] for permutation in itertools.permutations(range(length))]
    assert deviations(counts, 30) < TOLERATED


@pytest.mark.parametrize("length", [6, 16, 17, 50])
def test_each_sample_is_as_likely_at_each_place_chi_square(length):
    counts = np.zeros((length, length))
    for epoch in range(800):
        counts[np.arange(length), SeekableOrder(length, seed=2).block(epoch, 0, length)] += 1
    assert deviations(counts, 800 / length) < TOLERATED


def test_large_orders_spread_each_part_over_all_parts_chi_square(orders):
    """Cut places and samples into 32 parts each: all pairs of parts are as frequent."""
    counts, _, _ = np.histogram2d(
        np.tile(np.arange(LARGE), len(orders)), orders.reshape(-1), bins=32, range=((0, LARGE), (0, LARGE))
    )
    assert deviations(counts, orders.size / 32**2) < TOLERATED


@pytest.mark.parametrize("bit", range(13))
def test_no_bit_of_the_place_shows_in_a_bit_of_the_sample_chi_square(orders, bit):
    for other in range(13):
        place = np.tile(np.arange(LARGE) >> bit & 1, len(orders))
        sample = orders.reshape(-1) >> other & 1
        counts = np.bincount(place * 2 + sample, minlength=4).reshape(2, 2)
        expected = counts.sum(1, keepdims=True) * counts.sum(0, keepdims=True) / counts.sum()
        assert ((counts - expected) ** 2 / expected).sum() < TOLERATED**2


@pytest.mark.parametrize("lag", [1, 2, 3, 4, 8, 16, 64, 128, 1024])
def test_neighbours_are_unrelated_serial_correlation(orders, lag):
    for order in orders:
        assert abs(np.corrcoef(order[lag:], order[:-lag])[0, 1]) * math.sqrt(LARGE - lag) < TOLERATED


def test_samples_are_moved_as_far_as_at_random_kolmogorov_smirnov(orders):
    """The distance of two independent uniform places has the distribution function 2x - x²."""
    moved = np.abs(orders - np.arange(LARGE)) / LARGE
    found = [kolmogorov_smirnov(distances, lambda x: 2 * x - x * x) for distances in moved]
    assert max(found) < LARGEST_OF_40
    assert 0.7 < np.mean(found) < 1.0


def test_places_between_neighbours_are_as_at_random_kolmogorov_smirnov(orders):
    apart = np.abs(np.diff(orders, axis=1)) / LARGE
    found = [kolmogorov_smirnov(distances, lambda x: 2 * x - x * x) for distances in apart]
    assert max(found) < LARGEST_OF_40
    assert 0.7 < np.mean(found) < 1.0


def test_fixed_points_are_as_rare_as_at_random():
    """A random permutation has one fixed point on average, with variance one."""
    found = [
        int((SeekableOrder(1000, seed).block(0, 0, 1000) == np.arange(1000)).sum()) for seed in range(1000)
    ]
    assert abs(np.mean(found) - 1) * math.sqrt(1000) < TOLERATED
    assert abs(np.var(found) - 1) < 0.2


def test_cycles_are_as_many_as_at_random(orders):
    """A random permutation of n has as many cycles as the sum of 1/k, with a variance just below."""
    harmonic = sum(1 / k for k in range(1, LARGE + 1))
    mean = np.mean([cycles(order) for order in orders])
    assert abs(mean - harmonic) / math.sqrt(harmonic / len(orders)) < TOLERATED


def cycles(order):
    seen, count = np.zeros(len(order), dtype=bool), 0
    for start in range(len(order)):
        count += not seen[start]
        while not seen[start]:
            seen[start] = True
            start = order[start]  # noqa: PLW2901 - the walk goes on from there
    return count


def test_epochs_are_unrelated_correlation(orders):
    table = np.corrcoef(orders)
    apart = table[np.triu_indices(len(orders), 1)] * math.sqrt(LARGE)
    assert np.abs(apart).max() < TOLERATED + 1
    assert abs(apart.std() - 1) < 0.15


@pytest.mark.parametrize("change", [1, -1, 2**32, 2**64])
def test_near_seeds_are_unrelated_correlation(change):
    first = SeekableOrder(LARGE, seed=9).block(0, 0, LARGE)
    second = SeekableOrder(LARGE, seed=9 + change).block(0, 0, LARGE)
    assert abs(np.corrcoef(first, second)[0, 1]) * math.sqrt(LARGE) < TOLERATED
    assert (first == second).sum() < 10


def test_huge_orders_fill_their_range_kolmogorov_smirnov():
    samples = SeekableOrder(10**12, seed=1).block(0, 10**11, 10**11 + 20_000)
    assert kolmogorov_smirnov(samples / 1e12, lambda x: x) < LARGEST_OF_40
    assert abs(np.corrcoef(samples[1:], samples[:-1])[0, 1]) * math.sqrt(20_000) < TOLERATED


@pytest.mark.parametrize("length", [0, -1, 2**62 + 1])
def test_a_length_that_cannot_be_is_refused(length):
    with pytest.raises(DataError, match="an order of"):
        SeekableOrder(length, 0)


@pytest.mark.parametrize("place", [-1, 10])
def test_a_place_outside_is_refused(place):
    with pytest.raises(IndexError):
        SeekableOrder(10, 0).sample(0, place)
