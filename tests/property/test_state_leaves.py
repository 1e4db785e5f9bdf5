"""Leaves of a training state: whatever can be written comes back exactly, of the same type and in the same order."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import datetime as dt
import decimal
import enum
import math
import pathlib
import typing

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from samestep.bundle import canonical
from samestep.state import StateError, codecs, leaves
from state_exchange import survives


class Colour(enum.Enum):
    RED = 1
    BLUE = "b"


class Rights(enum.IntFlag):
    READ = 1
    WRITE = 2


class Point(typing.NamedTuple):
    x: object
    y: object


@dataclasses.dataclass
class Progress:
    step: object
    best: object = None


DTYPES = [torch.float32, torch.bfloat16, torch.float64, torch.int8, torch.uint8, torch.bool, torch.complex64]
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
words = texts | texts.map("@".__add__) | texts.map("$".__add__)
plain = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**2200), 2**2200)
    | st.floats()
    | words
    | st.binary(max_size=6)
)
arrays = st.builds(
    lambda values, dtype, order: np.array(values, order=order).astype(dtype),
    st.lists(st.lists(st.integers(0, 100), min_size=2, max_size=2), max_size=4),
    st.sampled_from(["<f4", ">f8", "<i2", "|b1", "<u8", "<c16", "<U3", "<M8[s]"]),
    st.sampled_from(["C", "F"]),
)
hashable = (
    st.integers(-5, 5)
    | words
    | st.tuples(st.integers(0, 3), words)
    | st.sampled_from([*Colour, Rights.READ | Rights.WRITE, None, True])
    | st.frozensets(st.integers(0, 9), max_size=3)
)
leaf = (
    plain
    | hashable
    | st.sampled_from(DTYPES)
    | st.complex_numbers()
    | arrays
    | st.sampled_from(
        [np.float32(1.5), np.int64(-3), np.bool_(1), np.float16("nan"), np.str_("ü"), np.uint8(7)]
    )
    | st.sampled_from([torch.device("cuda:3"), torch.device("cpu"), torch.Size([2, 3]), torch.Size([])])
    | st.datetimes(timezones=st.none() | st.just(dt.UTC))
    | st.timedeltas()
    | st.dates()
    | st.decimals()
    | st.sampled_from([pathlib.Path("runs/a"), pathlib.PurePosixPath("/x"), range(1, 9, 2), slice(None, 4)])
    | st.sampled_from([np.dtype("<i4"), decimal.Decimal("0.10"), bytearray(b"ab")])
)


def containers(inner):
    return (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(hashable, inner, max_size=3)
        | st.dictionaries(words, inner, max_size=3).map(collections.OrderedDict)
        | st.builds(collections.deque, st.lists(inner, max_size=3), st.none() | st.integers(3, 5))
        | st.dictionaries(hashable, st.integers(0, 3), max_size=3).map(collections.Counter)
        | st.dictionaries(words, inner, max_size=2).map(lambda items: collections.defaultdict(list, items))
        | st.sets(hashable, max_size=3)
        | st.builds(Point, inner, inner)
        | st.builds(Progress, inner, inner)
    )


trees = st.recursive(leaf, containers, max_leaves=10)


@given(trees)
def test_a_tree_comes_back_exactly(tree):
    assert_identical(survives(tree), tree)


@given(trees)
def test_a_tree_has_one_spelling(tree):
    text = canonical.encode(leaves.encode(tree).value)
    back = leaves.decode(canonical.decode(text, what="a tree"), {}.__getitem__)
    again = leaves.encode(back)
    assert canonical.encode(again.value) == text


@given(st.recursive(plain | st.sampled_from(DTYPES), containers, max_leaves=6), trees)
def test_differences_are_found_exactly_where_trees_are_spelled_unlike(one, other):
    unlike = canonical.encode(leaves.encode(one).value) != canonical.encode(leaves.encode(other).value)
    assert bool(leaves.differences(one, other)) == unlike
    assert not leaves.differences(one, one)


TAGS = ["tensor", "dict", *codecs._by_name, "unknown"]
JSON = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", *(f"@{tag}" for tag in TAGS)]), inner, max_size=2)
    ),
    max_leaves=8,
)


@given(JSON)
def test_whatever_a_damaged_bundle_says_is_read_or_refused(value):
    with contextlib.suppress(StateError):
        leaves.finish(leaves.decode(value, lambda name: torch.zeros(1)))


def assert_identical(one, other):
    """Equal, of equal types, in equal order; a NaN is like itself."""
    assert type(one) is type(other)
    if isinstance(other, np.ndarray):
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
        assert one.flags.f_contiguous == other.flags.f_contiguous
    elif isinstance(other, np.generic):
        assert (one.dtype, one.tobytes()) == (other.dtype, other.tobytes())
    elif isinstance(other, dict):
        assert_identical(list(one.items()), list(other.items()))
        assert getattr(one, "default_factory", None) is getattr(other, "default_factory", None)
    elif isinstance(other, list | tuple | collections.deque):
        assert len(one) == len(other)
        assert getattr(one, "maxlen", None) == getattr(other, "maxlen", None)
        for left, right in zip(one, other, strict=True):
            assert_identical(left, right)
    elif dataclasses.is_dataclass(other):
        assert_identical(vars(one), vars(other))
    elif isinstance(other, float | complex) and other != other:  # noqa: PLR0124 - not a number
        assert repr(one) == repr(other)
    elif isinstance(other, float):
        assert (one, math.copysign(1, one)) == (other, math.copysign(1, other))
    elif isinstance(other, decimal.Decimal):
        assert str(one) == str(other)
    else:
        assert one == other
        assert repr(one) == repr(other) or isinstance(other, set | frozenset)
