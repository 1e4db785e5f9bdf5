"""The drill on a terminal: one line a scenario, failures in full, one summary line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samestep.contract.redaction import redacted_text

from .crash.groups import not_recorded, ordinary, summaries
from .crash.lines import SaveLines
from .paper import Paper
from .view import (
    UNKNOWN,
    component_names,
    control_text,
    criterion_text,
    expectation_text,
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

    from samestep.drill.result import (
        Control,
        CrashRecord,
        Criterion,
        DrillResult,
        FindingRecord,
        ScenarioResult,
    )

DEFAULT_WIDTH = 100
"""Columns where the output is no terminal."""

DEFAULT_REPORT = ".samestep/latest/report.html"
"""Where the page of the newest drill lies."""


class TerminalReport:
    """Renders the parts of a drill as they come in, and remembers which findings were already explained.

    Args:
        colour: paint with ANSI codes.
        width: columns to wrap at.
        titles: titles of the scenarios to come, so that their column fits from the first line on.
        record: what is known of the saves that are taken apart.
        live: show the first failing state of each kind as soon as it comes in.
    """

    def __init__(
        self,
        *,
        colour: bool = False,
        width: int = DEFAULT_WIDTH,
        titles: Iterable[str] = (),
        record: CrashRecord | None = None,
        live: bool = False,
    ) -> None:
        self._paper = Paper(colour=colour, width=width, longest=max(map(len, titles), default=0))
        self._explained: set[tuple[str, str, str]] = set()
        self._saves = SaveLines(self._paper, record, live=live)

    def control(self, control: Control, criterion: Criterion | None = None) -> str:
        """Render the control, what watching it did, and a criterion that is not exact."""
        lines = self._paper.labelled(
            "control", control_text(control), UNKNOWN if not control.bit_equal else None
        )
        tone = None if control.watching_proven else UNKNOWN
        lines += self._paper.labelled("watching", watching_text(control), tone)
        if criterion is not None and criterion.kind != "exact":
            lines += self._paper.labelled("criterion", criterion_text(criterion), None)
        return "\n".join(lines)

    def scenario(self, scenario: ScenarioResult) -> str:
        """Render one scenario: its line, and every finding when it does not hold.

        States of interrupted saves are counted, and summed up when the save is done: empty until then.
        """
        if scenario.crash is not None:
            return "\n".join(self._saves.take(scenario))
        lines = [*self._saves.finish(), self._scenario_line(scenario)]
        findings = shown_findings(scenario.findings, holds=scenario.holds)
        if not scenario.holds and not findings:
            lines.append(f"  expected {expectation_text(scenario)}; observed {observation_text(scenario)}")
        lines += [line for finding in findings for line in self._finding(finding)]
        return "\n".join(lines)

    def saves(self) -> str:
        """Render the save whose states came in last, if it has not been; empty otherwise."""
        return "\n".join(self._saves.finish())

    def recording(self, result: DrillResult) -> str:
        """Render what weakens the recording that the family ``crash`` rests on; empty when nothing does."""
        sentences = not_recorded(result)
        return (
            "\n".join(self._paper.labelled("recording", "; ".join(sentences), UNKNOWN)) if sentences else ""
        )

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
        ending = self._paper.paint(f"exit {result.exit_code}", tone, bold=True)
        gap = max(3, self._paper.width - len(text) - len(f"exit {result.exit_code}"))
        return text + " " * gap + ending

    def _scenario_line(self, scenario: ScenarioResult) -> str:
        return self._paper.row(
            str(scenario.family),
            redacted_text(scenario.title),
            outcome_word(scenario),
            scenario.observed.summary,
            tone=scenario_tone(scenario),
            bold=not scenario.holds,
        )

    def _finding(self, finding: FindingRecord) -> list[str]:
        names = component_names(finding)
        head = self._paper.head(finding.slug, names)
        key = (finding.slug, names, likeness(finding.evidence))
        if key in self._explained:
            return [f"{head}   as above".rstrip()]
        self._explained.add(key)
        lines = [head, *self._paper.wrapped(finding.evidence)]
        for detail in finding.details:
            lines += self._paper.wrapped(detail)
        return lines + self._paper.advice(finding)


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
    titles = [scenario.title for scenario in ordinary(result.scenarios)]
    titles += [summary.title for summary in summaries(result)]
    page = TerminalReport(colour=colour, width=width, titles=titles, record=result.crash)
    blocks = [page.control(result.control, result.criterion) + "\n"] if result.control else []
    told = [*map(page.scenario, result.scenarios), page.saves(), page.recording(result)]
    blocks += [text for text in told if text]
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
