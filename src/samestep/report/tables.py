"""Tables as lines of text."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of text under headings.

    Attributes:
        head: the headings.
        rows: one text for every heading.
        numbers: columns whose texts are numbers, and so end at the same place.
    """

    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    numbers: frozenset[int] = frozenset()

    def text(self) -> str:
        """Return it as lines, aligned by blanks."""
        lines = [self.head, *self.rows]
        widths = [max(len(line[column]) for line in lines) for column in range(len(self.head))]
        return "\n".join(self._line(line, widths) for line in lines) + "\n"

    def _line(self, line: Sequence[str], widths: Sequence[int]) -> str:
        cells = (
            cell.rjust(width) if column in self.numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        return "  ".join(cells).rstrip()
