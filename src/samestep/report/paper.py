"""Lines of text for a terminal: colour, wrapping, and advice that is given once."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import click

from .view import BAD, GOOD, UNKNOWN, finding_kind

if TYPE_CHECKING:
    from samestep.drill.result import FindingRecord

LABEL_WIDTH = 10
"""Columns of the family's name at the beginning of a line."""

OUTCOME_WIDTH = 12

_TITLE_WIDTH_MIN, _TITLE_WIDTH_MAX = 40, 60
_COLOURS = {GOOD: "green", BAD: "red", UNKNOWN: "yellow"}


class Paper:
    """What the lines of one drill share.

    Args:
        colour: paint with ANSI codes.
        width: columns to wrap at.
        longest: characters of the longest title to come, so that their column fits from the first line on.
    """

    def __init__(self, *, colour: bool, width: int, longest: int = 0) -> None:
        self.width = max(width, 60)
        self._colour = colour
        self._title_width = min(max(longest + 2, _TITLE_WIDTH_MIN), _TITLE_WIDTH_MAX)
        self._advised: set[str] = set()

    def row(self, label: str, title: str, word: str, rest: str, *, tone: str | None, bold: bool) -> str:
        """Return a line in columns: family, title, outcome, and what happened."""
        padding = " " * max(2, OUTCOME_WIDTH - len(word))
        column = f"{title:<{self._title_width - 2}}  "
        return f"{label:<{LABEL_WIDTH}}{column}{self.paint(word, tone, bold=bold)}{padding}{rest}".rstrip()

    def head(self, slug: str, rest: str) -> str:
        """Return the first line of a finding."""
        painted = self.paint(slug, UNKNOWN, bold=True)
        return f"  {painted}{' ' * max(2, 26 - len(slug))}{rest}".rstrip()

    def advice(self, finding: FindingRecord) -> list[str]:
        """Return usual cause and fix, the first time that the finding is met."""
        if finding.slug in self._advised:
            return []
        self._advised.add(finding.slug)
        kind = finding_kind(finding)
        lines = self.wrapped(f"usual cause: {kind.cause}") if kind.cause else []
        pointer = f"samestep explain {finding.slug}"
        if not kind.fix:
            return lines
        fix = self.wrapped(f"fix: {kind.fix}")
        if len(fix[-1]) + 5 + len(pointer) <= self.width:
            fix[-1] += " " * 5 + self.dim(pointer)
        else:
            fix.append(" " * 4 + self.dim(pointer))
        return lines + fix

    def labelled(self, label: str, text: str, tone: str | None) -> list[str]:
        """Wrap ``text`` beside a label."""
        wrapped = textwrap.wrap(text, self.width - LABEL_WIDTH, break_on_hyphens=False) or [""]
        painted = [self.paint(line, tone) for line in wrapped]
        return [
            f"{label:<{LABEL_WIDTH}}{painted[0]}",
            *(" " * LABEL_WIDTH + line for line in painted[1:]),
        ]

    def wrapped(self, text: str) -> list[str]:
        """Wrap ``text`` below the line it belongs to."""
        return textwrap.wrap(
            text,
            self.width,
            initial_indent=" " * 4,
            subsequent_indent=" " * 6,
            break_long_words=False,
            break_on_hyphens=False,
        )

    def paint(self, text: str, tone: str | None, *, bold: bool = False) -> str:
        """Colour ``text`` by its tone."""
        if not self._colour or tone is None:
            return text
        return click.style(text, fg=_COLOURS.get(tone), bold=bold or None)

    def dim(self, text: str) -> str:
        """Make ``text`` step back."""
        return click.style(text, dim=True) if self._colour else text
