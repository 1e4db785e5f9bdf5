"""Digests tell contents apart, and equal contents are equal; generators are found and seeded."""

from __future__ import annotations

import dataclasses
import itertools
import random

import numpy as np
import pytest
import torch

from samestep.data.content import digest, rows_in
from samestep.data.generators import held_generators, reseed
from samestep.data.streams import seed_of


@dataclasses.dataclass
class Pair:
    left: object
    right: object


DIFFERENT = [
    None, True, 1, 2, 1.0, float("nan"), "1", b"1", "", [], (), {}, [1], [1, 2], [[1], 2], {"a": 1}, {"a": [1]},
    {1, 2}, Pair(1, 2), Pair(2, 1), 1 + 2j,
    torch.tensor(1), torch.tensor([1]), torch.tensor([[1]]), torch.tensor([1.0]), torch.tensor([1.0]).bfloat16(),
    torch.tensor([1, 2]), torch.tensor([2, 1]), torch.zeros(0), torch.zeros(0, 2), torch.tensor([1 + 1j]),
    np.array([1]), np.array([1.0]), np.float32(1), np.array(["a"]), np.array(["a", None], dtype=object),
    torch.eye(3).to_sparse(), torch.eye(2).to_sparse(),
]  # fmt: skip


def test_different_contents_have_different_digests():
    for one, other in itertools.combinations(DIFFERENT, 2):
        assert digest(one) != digest(other), (one, other)


def test_equal_contents_have_equal_digests():
    assert digest({"a": torch.arange(6).reshape(2, 3)}) == digest(
        {"a": torch.arange(6).reshape(3, 2).reshape(2, 3)}
    )
    assert digest(torch.arange(6).reshape(2, 3).T) == digest(torch.tensor([[0, 3], [1, 4], [2, 5]]))
    assert digest({3, 1, 2}) == digest({2, 3, 1})
    assert digest(torch.tensor([1 + 1j]).conj()) == digest(torch.tensor([1 - 1j]))


def test_of_a_long_tensor_the_ends_may_do():
    long = torch.zeros(10_000)
    ends, middle = long.clone(), long.clone()
    ends[-1] = 1
    middle[5_000] = 1
    assert digest(ends, most=1024) != digest(long, most=1024) == digest(middle, most=1024)
    assert digest(middle) != digest(long)
    assert (
        digest(long.numpy(), most=1024)
        == digest(middle.numpy(), most=1024)
        != digest(ends.numpy(), most=1024)
    )


@pytest.mark.parametrize(
    ("batch", "rows"),
    [
        (torch.zeros(4, 2), 4),
        ({"x": torch.zeros(3, 2), "y": torch.zeros(1)}, 3),
        ([torch.zeros(5, 2), torch.zeros(5)], 5),
        (["a", "b"], 2),
        ([{"x": torch.zeros(7)}], 7),
        (torch.tensor(1.0), 1),
        ("text", 1),
        ({}, 1),
    ],
    ids=str,
)
def test_a_batch_tells_how_many_samples_it_holds(batch, rows):
    assert rows_in(batch) == rows


def test_generators_are_found_wherever_they_are_held_and_seeded_by_their_path():
    class Holder:
        def __init__(self, **entries):
            vars(self).update(entries)

    kinds = [random.Random(1), np.random.default_rng(1), np.random.RandomState(1), torch.Generator()]
    holder = Holder(
        transforms=[Holder(own=kinds[0]), {"own": kinds[1]}], other=kinds[2], rest=(kinds[3], random)
    )
    holder.again = holder
    holder.world = [random._inst, np.random.mtrand._rand, torch.default_generator]
    holder.samples = [random.Random(7) for _ in range(1000)]
    found = held_generators(holder)
    assert {id(one) for one in found.values()} == {id(one) for one in kinds}
    draws = []
    for _ in range(2):
        for path, generator in found.items():
            reseed(generator, seed_of(path))
        drawn = (
            kinds[0].random(),
            kinds[1].random(),
            kinds[2].rand(),
            torch.rand(2, generator=kinds[3]).tolist(),
        )
        draws.append(drawn)
    assert draws[0] == draws[1]
    del holder.transforms
    assert set(held_generators(holder)) < set(found)
