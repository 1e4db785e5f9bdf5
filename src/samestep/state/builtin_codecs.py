"""The codecs that are always there: containers, enums, dataclasses, dates, and the small types of torch."""

from __future__ import annotations

import array
import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import functools
import pathlib
import random
import sys
import types
import uuid
from typing import Any, cast

import torch

from samestep.state import numpy_codecs
from samestep.state.codecs import register_codec, register_family
from samestep.state.errors import StateError

_FACTORIES: dict[str, Any] = {
    kind.__name__: kind for kind in (int, float, str, bytes, list, dict, set, tuple, bool)
}


@functools.cache
def install() -> None:
    """Register them all."""
    _install_containers()
    _install_values()
    _install_torch()
    numpy_codecs.install()
    register_family(lambda leaf: isinstance(leaf, enum.Enum), "enum", _from_enum, _to_enum)
    register_family(_is_named_tuple, "namedtuple", _from_named_tuple, _to_named_tuple)
    register_family(
        lambda leaf: dataclasses.is_dataclass(leaf) and not isinstance(leaf, type),
        "dataclass",
        _from_dataclass,
        _to_dataclass,
    )


def _install_containers() -> None:
    register_codec(set, "set", _sorted, set)
    register_codec(frozenset, "frozenset", _sorted, frozenset)
    register_codec(collections.OrderedDict, "ordered-dict", _pairs, collections.OrderedDict)
    register_codec(collections.Counter, "counter", _pairs, lambda pairs: collections.Counter(dict(pairs)))
    register_codec(
        collections.deque,
        "deque",
        lambda leaf: [list(leaf), leaf.maxlen],
        lambda payload: collections.deque(*payload),
    )
    register_codec(collections.defaultdict, "default-dict", _from_default_dict, _to_default_dict)
    register_codec(
        types.SimpleNamespace,
        "namespace",
        lambda leaf: dict(vars(leaf)),
        lambda kept: types.SimpleNamespace(**kept),
    )


def _install_values() -> None:
    register_codec(int, "integer", hex, lambda text: int(text, 16))
    register_codec(complex, "complex", lambda leaf: [leaf.real, leaf.imag], lambda parts: complex(*parts))
    register_codec(bytearray, "bytearray", bytes, bytearray)
    register_codec(range, "range", lambda leaf: [leaf.start, leaf.stop, leaf.step], lambda ends: range(*ends))
    register_codec(slice, "slice", lambda leaf: [leaf.start, leaf.stop, leaf.step], lambda ends: slice(*ends))
    register_codec(decimal.Decimal, "decimal", str, decimal.Decimal)
    register_codec(
        fractions.Fraction,
        "fraction",
        lambda leaf: [leaf.numerator, leaf.denominator],
        lambda halves: fractions.Fraction(*halves),
    )
    register_codec(uuid.UUID, "uuid", str, uuid.UUID)
    register_codec(dt.datetime, "datetime", _from_datetime, _to_datetime)
    register_codec(dt.date, "date", dt.date.isoformat, dt.date.fromisoformat)
    register_codec(dt.time, "time", _from_datetime, _to_time)
    register_codec(
        dt.timedelta,
        "timedelta",
        lambda leaf: [leaf.days, leaf.seconds, leaf.microseconds],
        lambda parts: dt.timedelta(*parts),
    )
    register_codec(type(pathlib.Path()), "path", str, pathlib.Path)
    register_codec(pathlib.PurePosixPath, "pure-path", str, pathlib.PurePosixPath)
    register_codec(random.Random, "random", lambda leaf: spelled_random(leaf.getstate()), _to_random)


def _install_torch() -> None:
    register_codec(torch.dtype, "dtype", lambda leaf: str(leaf).removeprefix("torch."), dtype_named)
    register_codec(torch.device, "device", str, torch.device)
    register_codec(torch.Size, "size", list, torch.Size)
    register_codec(torch.Generator, "generator", _from_generator, _to_generator)


def dtype_named(name: str) -> torch.dtype:
    """Return the dtype of torch that has this name, such as ``bfloat16``."""
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise StateError(f"this torch has no dtype {name!r}", slug="state-format")
    return found


def spelled_random(state: tuple[Any, ...]) -> dict[str, Any]:
    """Return the state of a ``random.Random``, its 625 words as bytes."""
    version, words, gauss = state
    return {"gauss": gauss, "version": version, "words": array.array("I", words).tobytes()}


def random_state(spelled: dict[str, Any]) -> tuple[Any, ...]:
    """Return what ``random.setstate`` takes."""
    words = array.array("I")
    words.frombytes(spelled["words"])
    return spelled["version"], tuple(words), spelled["gauss"]


def class_named(name: str) -> type:
    """Return a class of this program by ``module:qualified.name``; nothing is imported for it."""
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):  # not getattr: some modules import what they are asked for
        found = getattr(found, "__dict__", {}).get(part)
    if not isinstance(found, type):
        raise StateError(
            f"it is a {path} of the module {module}, which is not imported here",
            slug="unknown-leaf",
            hint=f"Import {module} before the state is restored.",
        )
    return found


def name_of_class(kind: type) -> str:
    """Return ``module:qualified.name``, by which ``class_named`` finds the class again."""
    name = f"{kind.__module__}:{kind.__qualname__}"
    if "<locals>" in name or class_named(name) is not kind:
        raise StateError(
            f"its class {kind.__qualname__} cannot be found by name",
            slug="unknown-leaf",
            hint=f"Define {kind.__name__} at the top of a module, or register a codec for it.",
        )
    return name


def _pairs(leaf: dict[Any, Any]) -> list[list[Any]]:
    return [[key, value] for key, value in leaf.items()]


def _sorted(leaf: set[Any] | frozenset[Any]) -> list[Any]:
    """Return the members in an order that does not hang on hashes."""
    return sorted(leaf, key=lambda member: (type(member).__name__, repr(member)))


def _from_default_dict(leaf: collections.defaultdict[Any, Any]) -> list[Any]:
    factory = leaf.default_factory
    name = None if factory is None else getattr(factory, "__name__", "")
    if name is not None and _FACTORIES.get(name) is not factory:
        raise StateError("a defaultdict whose factory is a function of the program", slug="unknown-leaf")
    return [name, _pairs(leaf)]


def _to_default_dict(payload: list[Any]) -> collections.defaultdict[Any, Any]:
    name, pairs = payload
    return collections.defaultdict(None if name is None else _FACTORIES[name], pairs)


def _from_datetime(leaf: dt.datetime | dt.time) -> list[Any]:
    if leaf.tzinfo is not None and type(leaf.tzinfo) is not dt.timezone:
        raise StateError("its time zone is no fixed offset", slug="unknown-leaf", hint="Use UTC.")
    return [leaf.isoformat(), leaf.fold]


def _to_datetime(payload: list[Any]) -> dt.datetime:
    return dt.datetime.fromisoformat(payload[0]).replace(fold=payload[1])


def _to_time(payload: list[Any]) -> dt.time:
    return dt.time.fromisoformat(payload[0]).replace(fold=payload[1])


def _to_random(spelled: dict[str, Any]) -> random.Random:
    generator = random.Random()  # noqa: S311 - no secrets, and the state is set at once
    generator.setstate(random_state(spelled))
    return generator


def _from_generator(leaf: torch.Generator) -> dict[str, Any]:
    return {"device": str(leaf.device), "state": leaf.get_state().numpy().tobytes()}


def _to_generator(payload: dict[str, Any]) -> torch.Generator:
    generator = torch.Generator(payload["device"])
    generator.set_state(byte_tensor(payload["state"]))
    return generator


def byte_tensor(data: bytes) -> torch.Tensor:
    """Return bytes as a tensor of its own, as ``set_state`` of a generator takes it."""
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _from_enum(leaf: enum.Enum) -> list[Any]:
    kind = type(leaf)
    if isinstance(leaf, enum.Flag):
        return [name_of_class(kind), leaf.value]
    return [name_of_class(kind), leaf.name]


def _to_enum(payload: list[Any]) -> enum.Enum:
    kind, member = class_named(payload[0]), payload[1]
    if not issubclass(kind, enum.Enum):
        raise StateError(f"{payload[0]} is no enum", slug="state-format")
    if issubclass(kind, enum.Flag):
        return kind(member)
    if member not in kind.__members__:
        raise StateError(f"the enum {payload[0]} has no member {member!r}", slug="state-mismatch")
    return kind[member]


def _is_named_tuple(leaf: Any) -> bool:
    return type(leaf).__bases__ == (tuple,) and isinstance(getattr(leaf, "_fields", None), tuple)


def _from_named_tuple(leaf: Any) -> list[Any]:
    return [name_of_class(type(leaf)), dict(zip(leaf._fields, leaf, strict=True))]


def _to_named_tuple(payload: list[Any]) -> Any:
    kind, fields = class_named(payload[0]), payload[1]
    if not issubclass(kind, tuple) or list(fields) != list(getattr(kind, "_fields", ())):
        raise StateError(f"the fields of {payload[0]} are not those of the bundle", slug="state-mismatch")
    return tuple.__new__(kind, fields.values())


def _from_dataclass(leaf: Any) -> list[Any]:
    return [name_of_class(type(leaf)), fields_of(leaf)]


def fields_of(leaf: Any) -> dict[str, Any]:
    """Return the fields of a dataclass; refuse one that holds more than its fields.

    Raises:
        StateError: it has attributes that are no fields, or fields that are not set.
    """
    names = [field.name for field in dataclasses.fields(leaf)]
    further = [name for name in getattr(leaf, "__dict__", {}) if name not in names]
    unset = [name for name in names if not hasattr(leaf, name)]
    if further or unset:
        raise StateError(
            f"its attribute {(further or unset)[0]!r} is {'no field' if further else 'not set'}",
            slug="unknown-leaf",
            hint="Declare every attribute that is state as a field of the dataclass, and set it.",
        )
    return {name: getattr(leaf, name) for name in names}


def _to_dataclass(payload: list[Any]) -> Any:
    kind, fields = class_named(payload[0]), payload[1]
    if not dataclasses.is_dataclass(kind):
        raise StateError(f"{payload[0]} is no dataclass", slug="state-format")
    if {field.name for field in dataclasses.fields(kind)} != set(fields):
        raise StateError(f"the fields of {payload[0]} are not those of the bundle", slug="state-mismatch")
    leaf = object.__new__(kind)
    for name, value in fields.items():
        object.__setattr__(leaf, name, value)
    return cast("Any", leaf)
