"""Where a value of a case stands: its file, line and key, for messages."""

from __future__ import annotations

import dataclasses
import difflib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

_HEAD = re.compile(r"\s*\[\[?\s*([\w.-]+)\s*\]?\]")


@dataclasses.dataclass(frozen=True)
class Place:
    """One key of a case.

    Attributes:
        source: file, or where else it was said.
        key: with its section, ``risk.wait`` or ``offers[2].spot``.
        line: from 1; 0: not known.
    """

    source: str
    key: str
    line: int = 0

    def __str__(self) -> str:
        where = f"{self.source}:{self.line}" if self.line else self.source
        return f"{where}: {self.key}"


class Places:
    """Finds the lines of keys in the text of a case.

    Args:
        source: file, or where else it was said.
        content: of the file; empty where there is none.
        flagged: keys and tables that the command line has put over the file.
    """

    def __init__(self, source: str, content: str = "", *, flagged: Collection[str] = ()) -> None:
        self.source, self._flagged = source, flagged
        self._lines = _lines_of(content)

    def of(self, key: str) -> Place:
        """Return the place of a key: of its line, or of that of the nearest thing around it."""
        around = key
        while around and around not in self._lines and around not in self._flagged:
            around = around.rpartition(".")[0]
        if around in self._flagged:
            return Place("command line", key)
        return Place(self.source, key, self._lines.get(around, 0))


def near(word: str, known: Iterable[str]) -> str:
    """Return a hint that names the known word nearest to ``word``, or all that are known."""
    words = list(known)
    candidates = difflib.get_close_matches(word.removesuffix("_seconds"), words, n=1, cutoff=0.5)
    return f"did you mean {candidates[0]}?" if candidates else f"known: {', '.join(words)}"


def _lines_of(content: str) -> dict[str, int]:
    """Return the line of every table and key, as TOML is usually laid out: one key a line."""
    lines: dict[str, int] = {}
    counts: dict[str, int] = {}
    section = ""
    for number, line in enumerate(content.splitlines(), start=1):
        head = _HEAD.fullmatch(line.split("#")[0].rstrip())
        if head:
            section = head[1]
            if "[[" in line:
                counts[section] = counts.get(section, 0) + 1
                section = f"{section}[{counts[section]}]"
            lines.setdefault(section, number)
        elif key := re.match(r"""\s*["']?([\w.-]+)["']?\s*=""", line):
            lines.setdefault(".".join(filter(None, (section, key[1]))), number)
    return lines
