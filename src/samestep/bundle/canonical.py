"""Canonical JSON: one value has one spelling, and what JSON cannot hold is spelled with a typed tag.

Values are None, bool, int, float, str, bytes, list, tuple and dict, nested as one likes. What comes back from
``decode`` equals what was given to ``encode``; only the order of a dict's keys is not kept.
"""

from __future__ import annotations

import base64
import binascii
import bisect
import itertools
import json
import math
import re
from typing import TYPE_CHECKING, Any, NoReturn

from samestep.bundle.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Callable

DEPTH_LIMIT = 64
BYTES_LIMIT = 64 << 20
VALUES_LIMIT = 2_000_000
DIGITS_LIMIT = 600
_PLAIN_INTEGERS = 2**53 - 1
_INTEGER = re.compile(rf"-?[1-9][0-9]{{0,{DIGITS_LIMIT - 1}}}")
_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_SHOWN = 60
_NESTED = (list, dict)


def encode(value: Any, *, what: str = "the value") -> bytes:
    """Return the one spelling of ``value``: UTF-8, sorted keys, no blanks, one final newline.

    Args:
        value: see the module; a subclass is written as the type it is made of.
        what: how a user would name the value, for the message.

    Raises:
        FormatError: something in it cannot be written; the message names the place.
    """
    return dump(spelled(value, what), what)


def decode(data: bytes, *, what: str, limit: int = BYTES_LIMIT) -> Any:
    """Return the value that ``data`` spells.

    Args:
        data: what ``encode`` wrote, or anything at all.
        what: how a user would name it, for the message.
        limit: the most bytes it may have.

    Raises:
        FormatError: it is not canonical JSON; the message names the place.
    """
    value = typed(load(data, what=what, limit=limit), what)
    check_spelling(data, encode(value, what=what), what)
    return value


def load(data: bytes, *, what: str, limit: int = BYTES_LIMIT) -> Any:
    """Return the JSON of ``data`` with its tags unread and its spelling unchecked, in bounded memory."""
    if len(data) > limit:
        raise FormatError(f"{what} has {len(data):,} bytes; at most {limit:,} are read")
    if sum(map(data.count, (b",", b"[", b"{"))) > VALUES_LIMIT:
        raise FormatError(f"{what} holds more than {VALUES_LIMIT:,} values")
    try:
        return json.loads(
            data.decode(), object_pairs_hook=_object, parse_int=_integer, parse_constant=_no_constant
        )
    except RecursionError:
        raise _too_deep(what, "$") from None
    except UnicodeDecodeError as error:
        raise FormatError(f"{what} is not UTF-8 at byte {error.start}") from None
    except ValueError as error:
        raise FormatError(f"{what} cannot be read as JSON: {error}") from None


def dump(tree: Any, what: str) -> bytes:
    """Return the bytes of JSON that ``spelled`` made."""
    text = json.dumps(tree, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError as error:
        near = text[max(0, error.start - _SHOWN) : error.start]
        raise FormatError(
            f"{what} holds text that is not valid Unicode, after {near!r}",
            hint="A file name that is not UTF-8 cannot be stored; rename the file.",
        ) from None


def check_spelling(data: bytes, canonical: bytes, what: str) -> None:
    """Refuse ``data`` unless it is exactly ``canonical``."""
    if data == canonical:
        return
    at = bisect.bisect_left(range(1, min(len(data), len(canonical)) + 1), 1, key=_differs(data, canonical))
    raise FormatError(
        f"{what} is not spelled canonically from byte {at} on: "
        f"{_shown(data[at:])} should be {_shown(canonical[at:])}",
        hint="Somebody changed or rewrote it. samestep never reads a record that it would not write like that.",
    )


def spelled(value: Any, what: str, path: str = "$", depth: int = 0) -> Any:
    """Return ``value`` as plain JSON, with a tag for everything that JSON cannot hold."""
    if value is None or isinstance(value, bool):
        return value
    spell = next((spell for kind, spell in _SPELLINGS if isinstance(value, kind)), None)
    if spell is None:
        raise FormatError(
            f"{what} holds a {type(value).__module__}.{type(value).__qualname__} at {path}",
            hint="Only None, bool, int, float, str, bytes, list, tuple and dict can be written.",
        )
    return spell(value, what, path, depth)


def typed(tree: Any, what: str, path: str = "$", depth: int = 0) -> Any:
    """Return the value that plain JSON with tags stands for."""
    if not isinstance(tree, _NESTED):
        return tree
    if isinstance(tree, list):
        _check_depth(depth, what, path)
        return [
            typed(item, what, f"{path}[{at}]", depth + 1) if isinstance(item, _NESTED) else item
            for at, item in enumerate(tree)
        ]
    tag = next((key for key in tree if key.startswith("$")), None)
    if tag is None:
        _check_depth(depth, what, path)
        return {
            key: typed(item, what, f"{path}.{_cut(key)}", depth + 1) if isinstance(item, _NESTED) else item
            for key, item in tree.items()
        }
    read = _TAGS.get(tag)
    if read is None or len(tree) != 1:
        raise FormatError(f"{what} has an unknown tag {_cut(tag)!r} at {path}", hint=_NEWER)
    return read(tree[tag], what, path, depth)


_NEWER = "It may come from a newer samestep; read it with that version."


def _spelled_text(value: str, _what: str, _path: str, _depth: int) -> str:
    return str.__str__(value)


def _spelled_integer(value: int, what: str, path: str, _depth: int) -> Any:
    if abs(value) <= _PLAIN_INTEGERS:
        return int(value)
    if abs(value) >= 10**DIGITS_LIMIT:
        raise FormatError(f"{what} holds an integer of more than {DIGITS_LIMIT} digits at {path}")
    return {"$int": str(int(value))}


def _spelled_float(value: float, _what: str, _path: str, _depth: int) -> Any:
    if math.isfinite(value):
        return float(value)
    return {"$float": "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}


def _spelled_bytes(value: bytes, _what: str, _path: str, _depth: int) -> Any:
    return {"$bytes": base64.b64encode(value).decode()}


def _spelled_list(value: list[Any], what: str, path: str, depth: int) -> list[Any]:
    _check_depth(depth, what, path)
    return [
        item if type(item) is str else spelled(item, what, f"{path}[{at}]", depth + 1)
        for at, item in enumerate(value)
    ]


def _spelled_tuple(value: tuple[Any, ...], what: str, path: str, depth: int) -> Any:
    return {"$tuple": _spelled_list(list(value), what, path, depth + 1)}


def _spelled_dict(value: dict[Any, Any], what: str, path: str, depth: int) -> Any:
    _check_depth(depth, what, path)
    if not all(isinstance(key, str) and not key.startswith("$") for key in value):
        return {"$map": _spelled_pairs(value, what, path, depth + 3)}
    return {
        str.__str__(key): item if type(item) is str else spelled(item, what, f"{path}.{_cut(key)}", depth + 1)
        for key, item in value.items()
    }


def _spelled_pairs(value: dict[Any, Any], what: str, path: str, depth: int) -> list[Any]:
    """Return a dict's entries in the order in which their keys are spelled."""
    pairs = []
    for at, entry in enumerate(value.items()):
        pair = [spelled(half, what, f"{path}[{at}]", depth) for half in entry]
        pairs.append((dump(pair[0], what), pair))
    pairs.sort(key=lambda entry: entry[0])
    if any(one[0] == other[0] for one, other in itertools.pairwise(pairs)):
        raise FormatError(f"{what} has two keys that are spelled alike at {path}")
    return [pair for _, pair in pairs]


_SPELLINGS: tuple[tuple[type, Callable[[Any, str, str, int], Any]], ...] = (
    (str, _spelled_text),
    (int, _spelled_integer),
    (float, _spelled_float),
    (dict, _spelled_dict),
    (list, _spelled_list),
    (tuple, _spelled_tuple),
    (bytes, _spelled_bytes),
)


def _typed_float(inner: Any, what: str, path: str, _depth: int) -> float:
    if not isinstance(inner, str) or inner not in _FLOATS:
        raise _bad_tag("$float", what, path)
    return _FLOATS[inner]


def _typed_integer(inner: Any, what: str, path: str, _depth: int) -> int:
    if not isinstance(inner, str) or not _INTEGER.fullmatch(inner):
        raise _bad_tag("$int", what, path)
    return int(inner)


def _typed_bytes(inner: Any, what: str, path: str, _depth: int) -> bytes:
    try:
        return base64.b64decode(inner, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise _bad_tag("$bytes", what, path) from None


def _typed_tuple(inner: Any, what: str, path: str, depth: int) -> tuple[Any, ...]:
    if not isinstance(inner, list):
        raise _bad_tag("$tuple", what, path)
    return tuple(typed(inner, what, path, depth + 1))


def _typed_map(inner: Any, what: str, path: str, depth: int) -> dict[Any, Any]:
    if not isinstance(inner, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in inner):
        raise _bad_tag("$map", what, path)
    value = {}
    for at, (key, item) in enumerate(inner):
        place = f"{path}[{at}]"
        name = typed(key, what, place, depth + 3)
        try:
            value[name] = typed(item, what, place, depth + 3)
        except TypeError:
            raise _bad_tag("$map", what, place) from None
    return value


_TAGS: dict[str, Callable[[Any, str, str, int], Any]] = {
    "$float": _typed_float,
    "$int": _typed_integer,
    "$bytes": _typed_bytes,
    "$tuple": _typed_tuple,
    "$map": _typed_map,
}


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [key for key, _ in pairs]
        twice = next(one for one, other in itertools.pairwise(sorted(names)) if one == other)
        raise ValueError(f"the key {_cut(twice)!r} is given twice")
    return found


def _integer(text: str) -> int:
    value = int(text) if len(text) <= 17 else 0
    if len(text) > 17 or abs(value) > _PLAIN_INTEGERS:
        raise ValueError(f"the integer {_cut(text)} needs the tag $int")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} needs the tag $float")


def _bad_tag(tag: str, what: str, path: str) -> FormatError:
    return FormatError(f"{what} has a malformed {tag} at {path}")


def _check_depth(depth: int, what: str, path: str) -> None:
    if depth >= DEPTH_LIMIT:
        raise _too_deep(what, path)


def _too_deep(what: str, path: str) -> FormatError:
    return FormatError(f"{what} is nested more than {DEPTH_LIMIT} deep, at {_cut(path)}")


def _differs(data: bytes, canonical: bytes) -> Callable[[int], int]:
    """Return a function that tells for a length whether the first so many bytes differ."""
    return lambda length: int(not canonical.startswith(data[:length]))


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _shown(data: bytes) -> str:
    return repr(data[:24].decode(errors="backslashreplace"))
