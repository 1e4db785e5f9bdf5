"""The drill on a terminal: one line a scenario, failures in full, one summary line."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import click

from .view import (
    BAD,
    GOOD,
    UNKNOWN,
    component_names,
    control_text,
    criterion_text,
    expectation_text,
    finding_kind,
    likeness,
    observation_text,
    outcome_word,
    scenario_tone,
    shown_findings,
    tallies,
    verdict,
    watching_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from samestep.drill.result import Control, Criterion, DrillResult, FindingRecord, ScenarioResult

DEFAULT_WIDTH = 100
"""Columns where the output is no terminal."""

DEFAULT_REPORT = ".samestep/latest/report.html"
"""Where the page of the newest drill lies."""

_FAMILY_WIDTH = 10
_TITLE_WIDTH_MIN, _TITLE_WIDTH_MAX = 40, 60
_OUTCOME_WIDTH = 12
_COLOURS = {GOOD: "green", BAD: "red", UNKNOWN: "yellow"}


class TerminalReport:
    """Renders the parts of a drill as they come in, and remembers which findings were already explained.

    Args:
        colour: paint with ANSI codes.
        width: columns to wrap at.
        titles: titles of the scenarios to come, so that their column fits from the first line on.
    """

    def __init__(
        self, *, colour: bool = False, width: int = DEFAULT_WIDTH, titles: Iterable[str] = ()
    ) -> None:
        self._colour = colour
        self._width = max(width, 60)
        longest = max((len(title) for title in titles), default=0)
        self._title_width = min(max(longest + 2, _TITLE_WIDTH_MIN), _TITLE_WIDTH_MAX)
        self._explained: set[tuple[str, str, str]] = set()

    def control(self, control: Control, criterion: Criterion | None = None) -> str:
        """Render the control, what watching it did, and a criterion that is not exact."""
        lines = self._labelled("control", control_text(control), UNKNOWN if not control.bit_equal else None)
        tone = None if control.watching_proven else UNKNOWN
        lines += self._labelled("watching", watching_text(control), tone)
        if criterion is not None and criterion.kind != "exact":
            lines += self._labelled("criterion", criterion_text(criterion), None)
        return "\n".join(lines)

    def scenario(self, scenario: ScenarioResult) -> str:
        """Render one scenario: its line, and every finding when it does not hold."""
        lines = [self._scenario_line(scenario)]
        findings = shown_findings(scenario.findings, holds=scenario.holds)
        if not scenario.holds and not findings:
            lines.append(f"  expected {expectation_text(scenario)}; observed {observation_text(scenario)}")
        lines += [line for finding in findings for line in self._finding(finding)]
        return "\n".join(lines)

    def findings(self, findings: Iterable[FindingRecord]) -> str:
        """Render findings that belong to no single scenario."""
        shown = shown_findings(findings, holds=False)
        return "\n".join(line for finding in shown for line in self._finding(finding))

    def summary(self, result: DrillResult, report: str = DEFAULT_REPORT) -> str:
        """Render the last line; the exit code stands at its right end."""
        parts = [f"{tally.family} {tally.sentence}" for tally in tallies(result.scenarios)]
        if not parts:
            parts = [verdict(result).headline.lower()]
        if result.interrupted:
            parts.append("ended before the plan was done")
        if report:
            parts.append(f"report {report}")
        text = " · ".join(parts)
        tone = verdict(result).tone
        ending = self._paint(f"exit {result.exit_code}", tone, bold=True)
        gap = max(3, self._width - len(text) - len(f"exit {result.exit_code}"))
        return text + " " * gap + ending

    def _scenario_line(self, scenario: ScenarioResult) -> str:
        word = outcome_word(scenario)
        painted = self._paint(word, scenario_tone(scenario), bold=not scenario.holds)
        padding = " " * max(2, _OUTCOME_WIDTH - len(word))
        start = f"{scenario.family!s:<{_FAMILY_WIDTH}}{_column(scenario.title, self._title_width)}"
        return f"{start}{painted}{padding}{scenario.observed.summary}".rstrip()

    def _finding(self, finding: FindingRecord) -> list[str]:
        names = component_names(finding)
        slug = self._paint(finding.slug, UNKNOWN, bold=True)
        head = f"  {slug}{' ' * max(2, 26 - len(finding.slug))}{names}".rstrip()
        key = (finding.slug, names, likeness(finding.evidence))
        if key in self._explained:
            return [f"{head}   as above".rstrip()]
        first_of_its_kind = not any(slug == finding.slug for slug, _, _ in self._explained)
        self._explained.add(key)
        lines = [head, *self._wrapped(finding.evidence)]
        for detail in finding.details:
            lines += self._wrapped(detail)
        return lines + (self._advice(finding) if first_of_its_kind else [])

    def _advice(self, finding: FindingRecord) -> list[str]:
        kind = finding_kind(finding)
        lines = self._wrapped(f"usual cause: {kind.cause}") if kind.cause else []
        pointer = f"samestep explain {finding.slug}"
        if not kind.fix:
            return lines
        fix = self._wrapped(f"fix: {kind.fix}")
        if len(fix[-1]) + 5 + len(pointer) <= self._width:
            fix[-1] += " " * 5 + self._dim(pointer)
        else:
            fix.append(" " * 4 + self._dim(pointer))
        return lines + fix

    def _labelled(self, label: str, text: str, tone: str | None) -> list[str]:
        wrapped = textwrap.wrap(text, self._width - _FAMILY_WIDTH, break_on_hyphens=False) or [""]
        painted = [self._paint(line, tone) for line in wrapped]
        return [
            f"{label:<{_FAMILY_WIDTH}}{painted[0]}",
            *(" " * _FAMILY_WIDTH + line for line in painted[1:]),
        ]

    def _wrapped(self, text: str) -> list[str]:
        return textwrap.wrap(
            text,
            self._width,
            initial_indent=" " * 4,
            subsequent_indent=" " * 6,
            break_long_words=False,
            break_on_hyphens=False,
        )

    def _paint(self, text: str, tone: str | None, *, bold: bool = False) -> str:
        if not self._colour or tone is None:
            return text
        return click.style(text, fg=_COLOURS.get(tone), bold=bold or None)

    def _dim(self, text: str) -> str:
        return click.style(text, dim=True) if self._colour else text


def _column(text: str, width: int) -> str:
    return f"{text:<{width - 2}}  "


def render_terminal(
    result: DrillResult,
    *,
    colour: bool = False,
    width: int = DEFAULT_WIDTH,
    report: str = DEFAULT_REPORT,
) -> str:
    """Render a whole drill as text.

    Args:
        result: what to show.
        colour: paint with ANSI codes.
        width: columns to wrap at.
        report: path of the page named in the last line; empty: none is named.
    """
    titles = [scenario.title for scenario in result.scenarios]
    page = TerminalReport(colour=colour, width=width, titles=titles)
    blocks = [page.control(result.control, result.criterion) + "\n"] if result.control else []
    blocks += [page.scenario(scenario) for scenario in result.scenarios]
    if result.findings:
        blocks.append(page.findings(result.findings))
    if result.message:
        blocks.append(result.message)
    return "\n".join([*blocks, "", page.summary(result, report)]) + "\n"


def render_scenario_line(
    scenario: ScenarioResult, *, colour: bool = False, width: int = DEFAULT_WIDTH
) -> str:
    """Render one scenario on its own, findings in full."""
    return TerminalReport(colour=colour, width=width).scenario(scenario)
