"""Codecs of numpy: arrays, scalars, dtypes and generators."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch

from samestep.state.codecs import register_codec, register_family
from samestep.state.errors import StateError

INLINE_BYTES = 4096
_SIMPLE_KINDS = frozenset("biufcmMSU")
_BIT_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")


def install() -> None:
    """Register them."""
    register_codec(np.ndarray, "array", _from_array, _to_array)
    register_family(lambda leaf: isinstance(leaf, np.generic), "scalar", _from_scalar, _to_scalar)
    register_family(lambda leaf: isinstance(leaf, np.dtype), "numpy-dtype", _from_dtype, _to_dtype)
    register_codec(
        np.random.Generator,
        "numpy-generator",
        lambda leaf: bit_generator_state(leaf.bit_generator),
        lambda spelled: np.random.Generator(_to_bit_generator(spelled)),
    )
    register_codec(
        np.random.RandomState,
        "random-state",
        lambda leaf: leaf.get_state(legacy=False),
        _to_random_state,
    )
    register_family(
        lambda leaf: isinstance(leaf, np.random.BitGenerator),
        "bit-generator",
        bit_generator_state,
        _to_bit_generator,
    )


def bit_generator_state(generator: np.random.BitGenerator) -> dict[str, Any]:
    """Return the state of a bit generator and of the seeds that it spawns children from.

    Raises:
        StateError: it is none of numpy's own.
    """
    name = type(generator).__name__
    if name not in _BIT_GENERATORS or type(generator) is not getattr(np.random, name):
        raise StateError(f"the bit generator {name} is none of numpy's own", slug="unknown-leaf")
    return {"seeds": _spelled_seeds(generator.seed_seq), "state": dict(generator.state)}


def set_bit_generator_state(generator: np.random.BitGenerator, spelled: dict[str, Any]) -> None:
    """Give a bit generator a state.

    Raises:
        StateError: it is of another kind than the one the state was taken from.
    """
    stored = spelled["state"]["bit_generator"]
    if stored != type(generator).__name__:
        raise StateError(
            f"the stored generator is a {stored}, the present one a {type(generator).__name__}",
            slug="state-mismatch",
            hint=f"Build it as before: numpy.random.Generator(numpy.random.{stored}(seed)).",
        )
    generator.state = spelled["state"]
    seeds = generator.seed_seq
    if spelled["seeds"] is not None and isinstance(seeds, np.random.SeedSequence):
        seeds.__init__(**spelled["seeds"])  # type: ignore[misc] # numpy has no other way to set it in place


def _spelled_seeds(seeds: Any) -> dict[str, Any] | None:
    if not isinstance(seeds, np.random.SeedSequence):
        return None
    return {
        "entropy": seeds.entropy,
        "n_children_spawned": seeds.n_children_spawned,
        "pool_size": seeds.pool_size,
        "spawn_key": seeds.spawn_key,
    }


def _to_bit_generator(spelled: dict[str, Any]) -> np.random.BitGenerator:
    name = spelled["state"]["bit_generator"]
    if name not in _BIT_GENERATORS:
        raise StateError(f"numpy has no bit generator {name!r}", slug="state-format")
    seeds = np.random.SeedSequence(**spelled["seeds"]) if spelled["seeds"] is not None else None
    generator: np.random.BitGenerator = getattr(np.random, name)(seeds)
    generator.state = spelled["state"]
    return generator


def _to_random_state(spelled: dict[str, Any]) -> np.random.RandomState:
    generator = np.random.RandomState()
    generator.set_state(spelled)
    return generator


def _from_array(leaf: np.ndarray[Any, Any]) -> Any:
    if leaf.dtype.kind not in _SIMPLE_KINDS:
        raise StateError(
            f"an array of dtype {leaf.dtype} has no plain elements",
            slug="unknown-leaf",
            hint="Keep numbers and texts in arrays, other objects in lists.",
        )
    if leaf.nbytes > INLINE_BYTES and leaf.flags.c_contiguous and leaf.flags.writeable and _is_native(leaf):
        return torch.from_numpy(leaf)
    order: Literal["C", "F"] = "F" if leaf.flags.f_contiguous and not leaf.flags.c_contiguous else "C"
    return {"data": leaf.tobytes(order), "dtype": leaf.dtype.str, "order": order, "shape": leaf.shape}


def _to_array(payload: Any) -> np.ndarray[Any, Any]:
    if isinstance(payload, torch.Tensor):
        return payload.numpy()
    flat = np.frombuffer(bytearray(payload["data"]), dtype=_to_dtype(payload["dtype"]))
    return flat.reshape(payload["shape"], order=payload["order"])


def _is_native(leaf: np.ndarray[Any, Any]) -> bool:
    """Whether torch has this dtype, so that a large array can be stored like a tensor."""
    return (
        leaf.dtype.isnative
        and leaf.dtype.kind in "biufc"
        and leaf.dtype.name not in ("longdouble", "float128", "clongdouble", "complex256")
    )


def _from_scalar(leaf: np.generic) -> dict[str, Any]:
    if leaf.dtype.kind not in _SIMPLE_KINDS:
        raise StateError(f"a scalar of dtype {leaf.dtype} is no plain value", slug="unknown-leaf")
    return {"data": leaf.tobytes(), "dtype": leaf.dtype.str}


def _to_scalar(payload: dict[str, Any]) -> np.generic:
    dtype = _to_dtype(payload["dtype"])
    scalar: np.generic = np.frombuffer(payload["data"], dtype=dtype)[0] if dtype.itemsize else dtype.type()
    return scalar


def _from_dtype(leaf: np.dtype[Any]) -> str:
    if leaf.kind not in _SIMPLE_KINDS:
        raise StateError(f"the dtype {leaf} is not a simple one", slug="unknown-leaf")
    return leaf.str


def _to_dtype(text: str) -> np.dtype[Any]:
    dtype = np.dtype(text)
    if dtype.kind not in _SIMPLE_KINDS:
        raise StateError(f"the dtype {text!r} is not a simple one", slug="state-format")
    return dtype
