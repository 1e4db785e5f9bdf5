"""The registry of codecs: how a leaf that is no tensor and no plain value is written, and read again.

A codec turns an object of one type into a tree of simpler things and back. Nothing is ever pickled, and reading never
imports anything: a class is only found among the modules that the program has imported itself.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

from samestep.state.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Callable

_NAME = re.compile(r"[a-z][a-z0-9._-]{0,62}")
_TAKEN = frozenset({"tensor", "dict"})


@dataclasses.dataclass(frozen=True, slots=True)
class Codec:
    """How one type of leaf is written.

    Attributes:
        name: under which it stands in a bundle.
        encode: returns a tree of plain values, tensors and leaves that have codecs.
        decode: returns the object, given what ``encode`` returned.
    """

    name: str
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


_by_type: dict[type, Codec] = {}
_by_name: dict[str, Codec] = {}
_families: list[tuple[Callable[[Any], bool], Codec]] = []


def register_codec(kind: type, name: str, encode: Callable[[Any], Any], decode: Callable[[Any], Any]) -> None:
    """Make objects of exactly the type ``kind`` part of what can be saved.

    Args:
        kind: the type; its subclasses need codecs of their own, for they may hold more.
        name: stands in the bundle; choose one that stays, such as ``mylab.curriculum``.
        encode: returns plain values, tensors and containers of them.
        decode: returns an equal object from what ``encode`` returned; it must not execute what it reads.

    Raises:
        StateError: the name is malformed, or another type has it.
    """
    if not _NAME.fullmatch(name):
        raise StateError(
            f"{name!r} cannot name a codec",
            slug="codec-name",
            hint="Use lower-case letters, digits, dots and dashes, beginning with a letter.",
        )
    present = _by_type.get(kind)
    if name in _TAKEN or (name in _by_name and (present is None or present.name != name)):
        raise StateError(f"another type has the codec name {name!r}", slug="codec-name")
    _keep(Codec(name, encode, decode), kind)


def register_family(
    belongs: Callable[[Any], bool], name: str, encode: Callable[[Any], Any], decode: Callable[[Any], Any]
) -> None:
    """Register a codec for all objects for which ``belongs`` holds and whose type has no codec of its own."""
    codec = Codec(name, encode, decode)
    _by_name[name] = codec
    _families.append((belongs, codec))


def codec_for(leaf: Any) -> Codec | None:
    """Return the codec that writes ``leaf``, if there is one."""
    codec = _by_type.get(type(leaf))
    if codec is not None:
        return codec
    return next((codec for belongs, codec in _families if belongs(leaf)), None)


def codec_named(name: str) -> Codec | None:
    """Return the codec that wrote a leaf, if this program has it."""
    return _by_name.get(name)


def unknown_leaf(leaf: Any, at: str, why: str = "") -> StateError:
    """Return the error for a leaf that nothing can write."""
    kind = f"{type(leaf).__module__}.{type(leaf).__qualname__}"
    return StateError(
        f"{at} is a {kind}, and samestep does not know how to save one{': ' + why if why else ''}",
        slug="unknown-leaf",
        hint=f"Register a codec: samestep.state.register_codec({type(leaf).__qualname__}, 'a.name', encode, decode), "
        "where encode returns plain values and tensors. Or keep the object out of the state.",
    )


def _keep(codec: Codec, kind: type) -> None:
    previous = _by_type.get(kind)
    if previous is not None:
        _by_name.pop(previous.name, None)
    _by_type[kind] = codec
    _by_name[codec.name] = codec
