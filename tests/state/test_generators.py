"""Random generators: the next draws are those that would have come, and keeping the state draws nothing."""

# ruff: noqa: NPY002 - the global generator is the subject
from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from samestep.state import StateError, TrackedRng, track
from samestep.state.mismatches import Mismatches
from state_exchange import Kept, carry


@pytest.fixture
def seeded():
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    random.seed(1)
    np.random.seed(2)
    torch.manual_seed(3)
    yield
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])


def draws():
    return [random.random(), random.gauss(0, 1), np.random.randn(), float(torch.randn(())), np.random.rand()]


def test_the_process_draws_on_where_it_was(seeded):
    draws()
    kept = Kept(TrackedRng())
    expected = [draws() for _ in range(3)]
    random.seed(7)
    np.random.seed(7)
    torch.manual_seed(7)
    kept.into(TrackedRng())
    assert [draws() for _ in range(3)] == expected


def test_keeping_the_state_draws_nothing(seeded):
    expected = draws()
    random.seed(1)
    np.random.seed(2)
    torch.manual_seed(3)
    Kept(TrackedRng())
    assert draws() == expected


def test_the_state_of_a_process_is_its_own_and_small():
    tracked = TrackedRng()
    kept = Kept(tracked)
    assert (tracked.per_rank, tracked.component, kept.tensors) == (True, "rng", {})
    assert len(kept.text) < 20_000


MAKERS = {
    "random": (random.Random, lambda generator: generator.gauss(0, 1)),
    "numpy": (np.random.default_rng, lambda generator: generator.standard_normal()),
    "numpy-philox": (lambda seed: np.random.Generator(np.random.Philox(seed)), lambda g: g.integers(1000)),
    "numpy-legacy": (np.random.RandomState, lambda generator: generator.randn()),
    "torch": (lambda seed: torch.Generator().manual_seed(seed), lambda g: float(torch.rand((), generator=g))),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_a_generator_of_the_program_is_set_in_place(kind):
    make, draw = MAKERS[kind]
    one, other = make(5), make(6)
    for _ in range(3):
        draw(one)
    tracked = track("noise", other)
    assert (tracked.component, tracked.per_rank) == ("rng", True)
    assert carry(track("noise", one), tracked) == []
    assert [draw(other) for _ in range(5)] == [draw(one) for _ in range(5)]


def test_a_generator_in_place_spawns_as_it_would_have():
    one, other = np.random.default_rng(5), np.random.default_rng(6)
    one.spawn(3)
    assert carry(track("noise", one), track("noise", other)) == []
    assert other.spawn(1)[0].random() == one.spawn(1)[0].random()


def test_a_generator_of_another_kind_is_refused():
    one, other = np.random.default_rng(5), np.random.Generator(np.random.MT19937(5))
    with pytest.raises(StateError, match="noise: in the bundle a generator of PCG64, here of MT19937"):
        carry(track("noise", one), track("noise", other))


def test_a_generator_without_a_state_is_refused():
    with pytest.raises(StateError, match="operating system"):
        track("noise", random.SystemRandom())


def test_a_device_that_is_not_here_is_named():
    kept = TrackedRng().read()
    kept["devices"] = {"cuda": [b"\0" * 16] * 9}
    with pytest.raises(
        StateError, match=r"only in the bundle: rng\.cuda\.8 \(there is no such device here\)"
    ):
        TrackedRng().prepare(kept)
    allowed = TrackedRng().prepare(kept, Mismatches(allow_extra=["rng.cuda.*"]))
    assert len(allowed["devices"]["cuda"]) < 9
