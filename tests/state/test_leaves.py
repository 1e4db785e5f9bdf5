"""Trees: names of tensors, what is refused and how it is said, codecs, bits of generators."""

from __future__ import annotations

import dataclasses
import enum
import random
import sys
import types

import numpy as np
import pytest
import torch

from samestep.state import StateError, leaves, register_codec
from samestep.state.leaves import differences, encode
from samestep.state.seam import Stored
from state_exchange import survives


class Odd:
    def __init__(self, number):
        self.number = number


class Ring:
    """Holds a tensor; written by a codec of its own."""

    def __init__(self, values, at):
        self.values, self.at = values, at


@dataclasses.dataclass
class Window:
    values: torch.Tensor
    at: int


def test_tensors_are_referenced_by_place_and_not_copied():
    tensor = torch.ones(2)
    encoded = encode({"state": {"layer1.weight": {"exp_avg": tensor, "old": [tensor + 1]}}})
    assert encoded.tensors["state.layer1.weight.exp_avg"] is tensor
    assert list(encoded.tensors) == ["state.layer1.weight.exp_avg", "state.layer1.weight.old.0"]


def test_a_tensor_that_stands_twice_is_stored_once_and_comes_back_as_one():
    tensor = torch.ones(2)
    encoded = encode([tensor, tensor])
    assert encoded.aliases == {"1": "0"}
    one, other = leaves.decode(encoded.value, lambda _: tensor.clone())
    assert one is other


def test_an_unknown_leaf_is_named_with_its_place_and_the_way_out():
    with pytest.raises(StateError, match=r"optimizer\.state\.layer1\.weight\.foo is a .*Odd") as caught:
        encode({"state": {"layer1.weight": {"foo": Odd(1)}}}, at="optimizer")
    assert caught.value.slug == "unknown-leaf"
    assert "register_codec(Odd" in caught.value.hint


@pytest.mark.parametrize(
    "leaf",
    [
        len,
        lambda: 1,
        object(),
        torch.ones(2).to_sparse(),
        torch.empty(2, device="meta"),
        np.array([object()]),
        np.zeros(2, dtype=[("a", "i4")]),
        enum.Enum("Here", "A").A,
    ],
    ids=[
        "builtin",
        "lambda",
        "object",
        "sparse",
        "meta",
        "array-of-objects",
        "structured-array",
        "nameless-enum",
    ],
)
def test_what_cannot_be_written_exactly_is_refused(leaf):
    with pytest.raises(StateError, match=r"here\.x") as caught:
        encode({"x": leaf}, at="here")
    assert caught.value.slug == "unknown-leaf"


def test_a_subclass_may_hold_more_than_its_elements():
    class Tagged(torch.Tensor):
        pass

    class Dict(dict):
        pass

    for leaf in (torch.ones(1).as_subclass(Tagged), Dict()):
        with pytest.raises(StateError, match=r"x"):
            encode({"x": leaf})


def test_a_tree_that_holds_itself_is_refused():
    tree = {}
    tree["again"] = tree
    with pytest.raises(StateError, match="holds itself"):
        encode(tree)


def test_two_names_that_read_alike_are_refused():
    with pytest.raises(StateError, match=r"things\.1"):
        encode({1: torch.ones(1), "1": torch.zeros(1)}, at="things")


def test_a_registered_codec_writes_its_type_also_with_tensors_inside():
    register_codec(
        Ring, "test.ring", lambda ring: {"at": ring.at, "values": ring.values}, lambda kept: Ring(**kept)
    )
    ring = Ring(torch.arange(3.0), 2)
    back = survives({"ring": ring})["ring"]
    assert isinstance(back, Ring)
    assert (back.at, back.values) == (2, ring.values)


def test_a_leaf_with_tensors_waits_until_they_are_loaded():
    encoded = encode({"window": Window(torch.arange(3.0), 7)})
    stored = leaves.decode(encoded.value, lambda name: Stored((3,), torch.float32, name))
    assert stored["window"].payload[1]["values"] == Stored((3,), torch.float32, "window.1.values")
    loaded = leaves.map_leaves(stored, lambda leaf: torch.arange(3.0) if isinstance(leaf, Stored) else leaf)
    assert loaded["window"].values.tolist() == [0, 1, 2]


def test_codec_names_are_checked():
    for name in ("Upper", "tensor", "dict", "", "set"):
        with pytest.raises(StateError):
            register_codec(Odd, name, vars, Odd)


def test_a_codec_that_fails_is_named_with_the_place():
    register_codec(Odd, "test.odd", lambda odd: odd.missing, Odd)
    try:
        with pytest.raises(StateError, match=r"test\.odd.* here\.a: AttributeError"):
            encode({"a": Odd(1)}, at="here")
    finally:
        register_codec(Odd, "test.odd", lambda odd: odd.number, Odd)
    assert survives(Odd(5)).number == 5


def test_reading_imports_nothing():
    with pytest.raises(StateError, match="not imported here"):
        leaves.decode({"@enum": ["antigravity:X", "A"]}, id)
    with pytest.raises(StateError, match="has not registered"):
        leaves.decode({"@somebody.elses": 1}, id)


def test_a_module_that_makes_what_it_is_asked_for_is_not_asked(monkeypatch):
    asked = []
    lazy = types.ModuleType("lazy")
    lazy.__getattr__ = asked.append
    monkeypatch.setitem(sys.modules, "lazy", lazy)
    with pytest.raises(StateError, match="not imported here"):
        leaves.decode({"@enum": ["lazy:Colour", "RED"]}, id)
    assert asked == []


def test_a_class_that_is_no_dataclass_is_not_filled():
    with pytest.raises(StateError, match="no dataclass"):
        leaves.decode({"@dataclass": ["subprocess:Popen", {"args": "true"}]}, id)


@pytest.mark.parametrize(
    "draw",
    [
        (lambda: random.Random(5), lambda generator: generator.gauss(0, 1)),
        (lambda: np.random.default_rng(5), lambda generator: generator.standard_normal()),
        (lambda: np.random.Generator(np.random.MT19937(3)), lambda generator: generator.integers(9)),
        (lambda: np.random.Generator(np.random.Philox(3)), lambda generator: generator.integers(9)),
        (lambda: np.random.Generator(np.random.SFC64(3)), lambda generator: generator.random(dtype="f4")),
        (lambda: np.random.RandomState(5), lambda generator: generator.randn()),
        (
            lambda: torch.Generator().manual_seed(5),
            lambda generator: float(torch.randn(1, generator=generator)),
        ),
    ],
    ids=["random", "pcg64", "mt19937", "philox", "sfc64", "random-state", "torch"],
)
def test_generators_go_on_where_they_were(draw):
    make, next_of = draw
    generator = make()
    next_of(generator)
    copy = survives([generator])[0]
    assert [next_of(copy) for _ in range(5)] == [next_of(generator) for _ in range(5)]


def test_a_generator_spawns_the_children_it_would_have_spawned():
    generator = np.random.default_rng(5)
    generator.spawn(2)
    copy = survives(generator)
    assert copy.spawn(1)[0].random() == generator.spawn(1)[0].random()


def test_large_arrays_are_stored_like_tensors():
    array = np.arange(5000, dtype=np.uint16)
    encoded = encode({"order": array})
    assert encoded.tensors["order"].dtype is torch.uint16
    back = survives({"order": array})["order"]
    assert back.dtype == array.dtype
    assert (back == array).all()


def test_differences_name_the_places():
    one = {"a": {"b": torch.zeros(2), "c": 1.0}, "d": [1, 2]}
    other = {"a": {"b": torch.tensor([0.0, -0.0]), "c": 1}, "d": [1, 3]}
    assert differences(one, other, at="x") == ["x.a.b", "x.a.c", "x.d.1"]


def test_not_a_number_is_like_itself():
    tree = {"loss": float("nan"), "t": torch.tensor([float("nan")])}
    assert differences(tree, survives(tree)) == []
