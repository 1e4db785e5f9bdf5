"""Damage is found before anything live is touched, and the message names the part."""

from __future__ import annotations

import os
import random

import pytest
import torch

from plain_trees import TrackedTree
from samestep.bundle import canonical
from samestep.bundle.errors import DamageError, FormatError
from samestep.state import Capture, RankFailed, StateError, leaves, restore, track
from samestep.state.document import parse
from state_saving import first_attempt, save
from thread_ranks import together


@pytest.fixture
def training(tmp_path):
    """A saved model and optimizer, and the live ones of another run to restore into."""
    torch.manual_seed(0)
    attempt = first_attempt(tmp_path)
    bundle = save(attempt, Capture(tracked(3.0)).take())
    return bundle, attempt.chain.storage


def tracked(value):
    net = torch.nn.Linear(700, 40)
    optimizer = torch.optim.Adam(net.parameters(), lr=value)
    net(torch.full((2, 700), value)).sum().backward()
    optimizer.step()
    return [
        track("net", net),
        track("adam", optimizer, models={"net": net}),
        TrackedTree("log", {"loss": value}),
    ]


def state_of(objects):
    return [leaves.encode(one.read()) for one in objects]


def unchanged(objects, before):
    now = state_of(objects)
    return all(
        one.value == other.value
        and all(torch.equal(tensor, other.tensors[name]) for name, tensor in one.tensors.items())
        for one, other in zip(now, before, strict=True)
    )


def copied(objects):
    states = state_of(objects)
    for state in states:
        state.tensors = {name: tensor.detach().clone() for name, tensor in state.tensors.items()}
    return states


def test_a_changed_byte_anywhere_in_a_part_that_is_needed_is_found(training):
    bundle, storage = training
    objects = tracked(5.0)
    before = copied(objects)
    places = random.Random(0)
    for part in bundle.manifest.parts:
        if part.path == "blocks.xxh3":
            continue
        path = storage.root / bundle.key_of(part)
        whole = path.read_bytes()
        path.chmod(0o644)
        for at in [0, part.size - 1, *(places.randrange(part.size) for _ in range(6))]:
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << places.randrange(8)]) + whole[at + 1 :])
            with pytest.raises(DamageError, match=part.path):
                restore(objects, bundle, storage)
            assert unchanged(objects, before)
        path.write_bytes(whole)
    restore(objects, bundle, storage)
    assert not unchanged(objects, before)


@pytest.mark.parametrize("harm", ["missing", "short"])
def test_a_missing_or_short_part_is_found(training, harm):
    bundle, storage = training
    objects = tracked(5.0)
    before = copied(objects)
    path = storage.root / "bundles" / bundle.id / "adam.safetensors"
    path.chmod(0o644)
    path.unlink() if harm == "missing" else os.truncate(path, 5000)
    with pytest.raises(DamageError, match=r"adam\.safetensors"):
        restore(objects, bundle, storage)
    assert unchanged(objects, before)


def test_what_one_rank_finds_damaged_no_rank_restores(training):
    bundle, storage = training
    objects = [tracked(5.0), tracked(6.0)]
    before = [copied(one) for one in objects]
    path = storage.root / "bundles" / bundle.id / "adam.safetensors"

    def work(ranks):
        own = objects[ranks.rank]
        if ranks.rank == 1:
            path.chmod(0o644)
            path.write_bytes(b"\0" * path.stat().st_size)
            return restore(own, bundle, storage, ranks=ranks)
        return restore(own[:1], bundle, storage, ranks=ranks, allow_extra=["adam", "log"])

    healthy, damaged = together(2, work)
    assert isinstance(damaged, DamageError)
    assert isinstance(healthy, DamageError)
    assert "rank 1" in healthy.message
    assert all(unchanged(one, was) for one, was in zip(objects, before, strict=True))


def test_what_does_not_fit_on_one_rank_no_rank_restores(training):
    bundle, storage = training
    objects = [tracked(5.0), tracked(6.0)[:2]]
    before = [copied(one) for one in objects]
    fitting, other = together(2, lambda ranks: restore(objects[ranks.rank], bundle, storage, ranks=ranks))
    assert isinstance(fitting, RankFailed)
    assert isinstance(other, StateError)
    assert "log" in other.message
    assert all(unchanged(one, was) for one, was in zip(objects, before, strict=True))


GOOD = {
    "schema": "samestep.state/1",
    "world": 1,
    "parts": [["a.safetensors", 0, 0]],
    "tracked": {
        "a": {
            "component": "weights",
            "kind": "x",
            "notes": {},
            "per_rank": False,
            "trees": [{}],
            "own": [],
            "tensors": {"w": ["float32", [2, 3], [[0, 8]]]},
        }
    },
}
SIZES = {"a.safetensors": 32, "blocks.xxh3": 16}


def test_a_well_formed_document_is_read():
    (extent,) = parse(canonical.encode(GOOD), SIZES).records["a"].tensors["w"].extents
    assert (extent.part, extent.begin, extent.sizes) == ("a.safetensors", 8, (2, 3))


def with_tensor(*fields):
    row = GOOD["tracked"]["a"] | {"tensors": {"w": list(fields)}}
    return GOOD | {"tracked": {"a": row}}


WRONG = {
    "another format": GOOD | {"schema": "samestep.state/2"},
    "no ranks": GOOD | {"world": 0},
    "absurdly many ranks": GOOD | {"world": 3_000_000_000_000},
    "a rank that is not there": GOOD | {"parts": [["a.safetensors", 1, 0]]},
    "blocks past the end": GOOD | {"parts": [["a.safetensors", 0, 1]]},
    "blocks before the beginning": GOOD | {"parts": [["a.safetensors", 0, -16]]},
    "no tree": GOOD | {"tracked": {"a": GOOD["tracked"]["a"] | {"trees": []}}},
    "tables of more ranks than there are": GOOD
    | {"tracked": {"a": GOOD["tracked"]["a"] | {"own": [{}, {}]}}},
    "unknown type": with_tensor("float33", [2, 3], [[0, 8]]),
    "larger than the part": with_tensor("float32", [2, 4], [[0, 8]]),
    "negative shape": with_tensor("float32", [-2, -3], [[0, 8]]),
    "begins too late": with_tensor("float32", [2, 3], [[0, 9]]),
    "begins before the part": with_tensor("float32", [2, 3], [[0, -1]]),
    "no such part": with_tensor("float32", [2, 3], [[1, 8]]),
    "no beginning": with_tensor("float32", [2, 3], [[0]]),
    "begins at a fraction": with_tensor("float32", [2, 3], [[0, 8.0]]),
    "piece too wide": with_tensor("float32", [2, 3], [[0, 8, [0, 0], [2, 4]]]),
    "piece sticks out": with_tensor("float32", [2, 3], [[0, 8, [1, 0], [2, 3]]]),
    "piece of another rank": with_tensor("float32", [2, 3], [[0, 8, [0], [6]]]),
    "piece missing": with_tensor("float32", [2, 3], [[0, 8, [0, 0], [1, 3]]]),
    "offsets that are no list": with_tensor("float32", [2, 3], [[0, 8, 0, 1]]),
    "the same piece twice": with_tensor("float32", [2, 3], [[0, 8, [0, 0], [1, 3]]] * 2),
    "no pieces": with_tensor("float32", [2, 3], []),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_malformed_document_is_refused(wrong):
    with pytest.raises(FormatError, match=r"state\.json"):
        parse(canonical.encode(wrong), SIZES)


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff", b'{"schema": 1}', b"[" * 100_000], ids=range(6))
def test_what_is_no_document_at_all_is_refused(text):
    with pytest.raises(FormatError, match=r"state\.json"):
        parse(text, SIZES)
