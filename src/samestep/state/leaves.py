"""Trees of live objects as plain values, and back: everything survives exactly, and nothing is pickled.

A *tree* is nested dicts, lists and tuples whose leaves are tensors, plain values (None, bool, int, float, str, bytes)
and whatever has a codec. ``encode`` keeps plain values as they are, puts ``{"@tensor": NAME}`` in the place of a
tensor and ``{"@CODEC": …}`` in the place of everything else; ``samestep.bundle.canonical`` writes the result.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.tensor import DTensor

from samestep.bundle import canonical
from samestep.state import builtin_codecs as _builtin_codecs
from samestep.state.codecs import codec_for, codec_named, unknown_leaf
from samestep.state.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from samestep.state.codecs import Codec

_builtin_codecs.install()

DEPTH_LIMIT = 16
_PLAIN = frozenset({type(None), bool, int, float, str, bytes})
_PLAIN_TENSORS = frozenset({torch.Tensor, torch.nn.Parameter, DTensor})
_MARK = "@"
_LONGEST_PLAIN_INTEGER = 1900  # bits; canonical JSON takes up to 600 digits


@dataclasses.dataclass(slots=True)
class Encoded:
    """What ``encode`` made of a tree.

    Attributes:
        value: plain values for ``canonical.encode``.
        tensors: the live tensors by name; a name is the tensor's place in the tree, joined by dots.
        aliases: further places of a tensor that is there more than once, each with its name.
    """

    value: Any
    tensors: dict[str, torch.Tensor]
    aliases: dict[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class Coded:
    """A leaf whose codec has to wait, since tensors inside it are not loaded yet. ``finish`` resolves it."""

    codec: Codec
    payload: Any
    at: str


def encode(tree: Any, *, at: str = "") -> Encoded:
    """Return ``tree`` as plain values and named tensors; no tensor is copied.

    Args:
        tree: see the module.
        at: how a user would name the tree, for messages; names of tensors are relative to it.

    Raises:
        StateError: a leaf cannot be written; the message names its place and the way to register a codec.
    """
    encoder = _Encoder(at)
    value = encoder.value(tree, "", 0)
    return Encoded(value, encoder.tensors, encoder.aliases)


def decode(value: Any, tensor: Callable[[str], Any], *, at: str = "") -> Any:
    """Return the tree that ``value`` stands for.

    Args:
        value: as ``encode`` made it.
        tensor: returns what to put in the place of the tensor of that name; asked once for each name.
        at: how a user would name the tree.

    Raises:
        StateError: it is malformed, or needs a codec or a class that this program has not.
    """
    return _Decoder(functools.cache(tensor), at).tree(value, "", 0)


def finish(tree: Any) -> Any:
    """Return ``tree`` with every ``Coded`` leaf decoded: its tensors are loaded now."""
    return map_leaves(tree, lambda leaf: leaf)


def map_leaves(tree: Any, change: Callable[[Any], Any], *, coded: bool = False) -> Any:
    """Return a tree with ``change`` applied to every leaf.

    Args:
        tree: nested dicts, lists and tuples; other containers are leaves.
        change: given a leaf, returns what to put in its place.
        coded: keep ``Coded`` leaves (changed inside) instead of decoding them.
    """
    kind = type(tree)
    if kind is dict:
        return {key: map_leaves(item, change, coded=coded) for key, item in tree.items()}
    if kind is list or kind is tuple:
        return kind(map_leaves(item, change, coded=coded) for item in tree)
    if kind is Coded:
        payload = map_leaves(tree.payload, change, coded=coded)
        return Coded(tree.codec, payload, tree.at) if coded else _decoded(tree.codec, payload, tree.at)
    return change(tree)


def joined(*names: object) -> str:
    """Return names joined by dots, without the empty ones."""
    return ".".join(text for text in map(str, names) if text)


class _Encoder:
    def __init__(self, at: str) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self.aliases: dict[str, str] = {}
        self._at = at
        self._names: dict[int, str] = {}
        self._kinds = _PLAIN_TENSORS

    def value(self, leaf: Any, path: str, depth: int) -> Any:
        kind = type(leaf)
        if kind in _PLAIN:
            return leaf if kind is not int or leaf.bit_length() <= _LONGEST_PLAIN_INTEGER else _long(leaf)
        if kind in self._kinds or (isinstance(leaf, torch.Tensor) and codec_for(leaf) is None):
            return {"@tensor": self._tensor(leaf, path)}
        if depth > DEPTH_LIMIT:
            raise StateError(
                f"{self._place(path)[:200]}… is nested more than {DEPTH_LIMIT} deep, or holds itself",
                slug="state-nested",
            )
        if kind is dict:
            return self._dict(leaf, path, depth)
        if kind is list or kind is tuple:
            return kind(self._values(leaf, range(len(leaf)), path, depth))
        return self._coded(leaf, path, depth)

    def _dict(self, tree: dict[Any, Any], path: str, depth: int) -> Any:
        values = self._values(tree.values(), tree, path, depth)
        if _is_plain_object(tree):
            return dict(zip(tree, values, strict=True))
        return {"@dict": [self._values(tree, itertools.repeat("key"), path, depth), values]}

    def _values(self, items: Iterable[Any], keys: Iterable[Any], path: str, depth: int) -> list[Any]:
        prefix = f"{path}." if path else ""
        values: list[Any] = []
        for item, key in zip(items, keys, strict=False):
            if type(item) in self._kinds:  # most of a large state, so without a further call
                values.append({"@tensor": self._tensor(item, f"{prefix}{key}")})
            else:
                values.append(item if type(item) is str else self.value(item, f"{prefix}{key}", depth + 1))
        return values

    def _coded(self, leaf: Any, path: str, depth: int) -> Any:
        if type(leaf) is Coded:
            codec, payload = leaf.codec, leaf.payload
        else:
            found = codec_for(leaf)
            if found is None:
                raise unknown_leaf(leaf, self._place(path))
            codec, payload = found, _payload(found, leaf, self._place(path))
        return {_MARK + codec.name: self.value(payload, path, depth + 1)}

    def _tensor(self, tensor: torch.Tensor, path: str) -> str:
        name = self._names.get(id(tensor))
        if name is not None:
            self.aliases[path] = name
            return name
        why = why_not_saved(tensor)
        if why:
            raise unknown_leaf(tensor, self._place(path), why)
        if path in self.tensors:
            raise StateError(
                f"two tensors are called {self._place(path)}",
                slug="state-ambiguous",
                hint="Two keys of a dict read alike, such as 1 and '1'; rename one.",
            )
        self.tensors[path] = tensor
        self._names[id(tensor)] = path
        return path

    def _place(self, path: str) -> str:
        return joined(self._at, path) or "the state"


class _Decoder:
    def __init__(self, tensor: Callable[[str], Any], at: str) -> None:
        self._tensor = tensor
        self._at = at
        self.waiting = 0

    def tree(self, value: Any, path: str, depth: int) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return value
        if depth > 3 * DEPTH_LIMIT:
            raise self._malformed(path)
        if kind is list or kind is tuple:
            return kind(self.tree(item, joined(path, i), depth + 1) for i, item in enumerate(value))
        if kind is not dict:
            raise self._malformed(path)
        if len(value) == 1:
            ((key, inner),) = value.items()
            if type(key) is str and key.startswith(_MARK):
                return self._tagged(key[1:], inner, path, depth)
        if not all(type(key) is str and not key.startswith(_MARK) for key in value):
            raise self._malformed(path)
        return {key: self.tree(item, joined(path, key), depth + 1) for key, item in value.items()}

    def _tagged(self, name: str, inner: Any, path: str, depth: int) -> Any:
        if name == "tensor" and type(inner) is str:
            self.waiting += 1
            return self._tensor(inner)
        if name == "dict":
            return self._pairs(inner, path, depth)
        codec = codec_named(name)
        if codec is None:
            raise StateError(
                f"{self._place(path)} was written by the codec {name!r}, which this program has not registered",
                slug="unknown-leaf",
                hint="Call samestep.state.register_codec for it before the state is restored.",
            )
        before = self.waiting
        payload = self.tree(inner, path, depth + 1)
        if self.waiting > before:
            return Coded(codec, payload, self._place(path))
        return _decoded(codec, payload, self._place(path))

    def _pairs(self, inner: Any, path: str, depth: int) -> dict[Any, Any]:
        if type(inner) is not list or not all(type(half) is list for half in inner) or len(inner) != 2:
            raise self._malformed(path)
        try:
            keys = [self.tree(key, path, depth + 1) for key in inner[0]]
            items = zip(keys, inner[1], strict=True)
            return {key: self.tree(item, joined(path, key), depth + 1) for key, item in items}
        except (TypeError, ValueError):
            raise self._malformed(path) from None

    def _malformed(self, path: str) -> StateError:
        return StateError(f"{self._place(path)} is malformed in the bundle", slug="state-format")

    def _place(self, path: str) -> str:
        return joined(self._at, path) or "the state"


def why_not_saved(tensor: torch.Tensor) -> str:
    """Return why a tensor's elements alone are not its whole state; empty when they are."""
    kind = type(tensor)
    if kind not in _PLAIN_TENSORS:
        return "a subclass of Tensor may hold more than its elements"
    if tensor.device.type == "meta":
        return "it is on the meta device and has no elements"
    if tensor.layout is not torch.strided:
        return f"its layout is {tensor.layout}, and only dense tensors are saved"
    if isinstance(tensor, DTensor) and any(placement.is_partial() for placement in tensor.placements):
        return "it is a sum that the ranks have not added up yet"
    if tensor.is_quantized:
        return "it is quantised, and its scale is no part of its elements"
    return ""


def _long(value: int) -> Any:
    """Return an integer of more digits than canonical JSON takes."""
    return {"@integer": hex(value)}


def _is_plain_object(tree: dict[Any, Any]) -> bool:
    """Whether canonical JSON writes the dict as it is and gives it back in the same order."""
    previous = ""
    for key in tree:
        if type(key) is not str or key <= previous or key[0] in "@$":
            return False
        previous = key
    return True


def _payload(codec: Codec, leaf: Any, at: str) -> Any:
    with _told(f"the codec {codec.name!r} could not write {at}", at):
        return codec.encode(leaf)


def _decoded(codec: Codec, payload: Any, at: str) -> Any:
    with _told(f"the codec {codec.name!r} could not read {at}", at):
        return codec.decode(payload)


@contextlib.contextmanager
def _told(doing: str, at: str) -> Iterator[None]:
    """Say of what a codec raises where in the tree it happened."""
    try:
        yield
    except StateError as error:
        raise StateError(f"{at}: {error.message}", slug=error.slug, hint=error.hint) from None
    except Exception as error:
        raise StateError(f"{doing}: {type(error).__name__}: {error}", slug="codec") from error


def differences(one: Any, other: Any, *, at: str = "") -> list[str]:
    """Return the places at which two trees are not exactly the same: types, values and bits of tensors.

    Raises:
        StateError: a leaf cannot be written.
    """
    left, right = encode(one, at=at), encode(other, at=at)
    places = _unlike(left.value, right.value, "")
    places += [
        name
        for name in left.tensors.keys() & right.tensors.keys()
        if not same_tensor(left.tensors[name], right.tensors[name])
    ]
    return sorted({joined(at, place) or "the state" for place in places})


def same_tensor(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have the same type, shape and bits; of sharded ones the local part counts."""
    one, other = local_part(one), local_part(other)
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    left, right = (part.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for part in (one, other))
    return torch.equal(left, right)


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """Return what of a tensor lies on this rank."""
    local = getattr(tensor, "to_local", None)
    return tensor if local is None else local()


def _unlike(one: Any, other: Any, path: str) -> list[str]:
    """Return the places at which two encoded trees differ."""
    if type(one) is not type(other):
        return [path]
    if type(one) is dict:
        return _unlike_dicts(one, other, path)
    if not isinstance(one, list | tuple):
        return [] if canonical.encode(one) == canonical.encode(other) else [path]
    if len(one) != len(other):
        return [path]
    pairs = enumerate(zip(one, other, strict=True))
    return [place for i, (left, right) in pairs for place in _unlike(left, right, joined(path, i))]


def _unlike_dicts(one: dict[str, Any], other: dict[str, Any], path: str) -> list[str]:
    if list(one) != list(other):
        return [joined(path, key) for key in one.keys() ^ other.keys()] or [path]
    if list(one) == ["@dict"]:
        return _unlike_pairs(one["@dict"], other["@dict"], path)
    return [place for key in one for place in _unlike(one[key], other[key], _inside(path, key))]


def _unlike_pairs(one: list[list[Any]], other: list[list[Any]], path: str) -> list[str]:
    """Compare two dicts that are spelled as their keys and their values."""
    keys, values = one
    if keys != other[0]:
        texts = [{key for key in half if type(key) is str} for half in (keys, other[0])]
        return [joined(path, key) for key in texts[0] ^ texts[1]] or [path]
    triples = zip(keys, values, other[1], strict=True)
    return [place for key, left, right in triples for place in _unlike(left, right, joined(path, key))]


def _inside(path: str, key: str) -> str:
    return path if key.startswith(_MARK) else joined(path, key)
