"""Spelling large trees again and again, most of which have not changed since the last time."""

from __future__ import annotations

import json
import marshal
from typing import Any, Final

from samestep.bundle import canonical

_LARGE: Final = 64
_MARSHAL_WITHOUT_REFERENCES: Final = 2


class Speller:
    """Spells trees as canonical JSON does, and remembers the spelling of large subtrees.

    Args:
        what: how a user would name the trees, for messages.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._known: dict[str, tuple[bytes, bytes]] = {}

    def spell(self, value: Any, path: str) -> bytes:
        """Return the canonical JSON of ``value``, without a newline.

        Args:
            value: of the values that canonical JSON can hold; dicts with text for keys only, none beginning with $.
            path: where it stands, to find its former spelling by.
        """
        kind = type(value)
        if kind is dict and len(value) < _LARGE:
            items = [
                json.dumps(key, ensure_ascii=False).encode() + b":" + self.spell(value[key], f"{path}\0{key}")
                for key in sorted(value)
            ]
            return b"{" + b",".join(items) + b"}"
        if kind is list and len(value) < _LARGE:
            items = [self.spell(item, f"{path}\0{at}") for at, item in enumerate(value)]
            return b"[" + b",".join(items) + b"]"
        if kind is dict or kind is list:
            return self._large(value, path)
        return self._fresh(value)

    def _large(self, value: Any, path: str) -> bytes:
        # Exact for the types of plain values, unlike ==, to which 1 and 1.0 and True are the same.
        content = marshal.dumps(value, _MARSHAL_WITHOUT_REFERENCES)
        known = self._known.get(path)
        if known is None or known[0] != content:
            known = self._known[path] = (content, self._fresh(value))
        return known[1]

    def _fresh(self, value: Any) -> bytes:
        return canonical.encode(value, what=self._what)[:-1]
