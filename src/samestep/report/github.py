"""The drill as GitHub workflow annotations: at most ten, worst first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samestep.contract import Outcome

from .crash.groups import ordinary, summaries
from .view import failure_groups, finding_kind, outcome_word, shown_findings

if TYPE_CHECKING:
    from samestep.drill.result import DrillResult, FindingRecord

    from .crash.groups import Group, Summary

ANNOTATION_LIMIT = 10
"""GitHub shows no more of a kind per step."""


def render_annotations(result: DrillResult) -> str:
    """Render workflow commands, one line for every way in which scenarios fail; empty when all hold."""
    findings = shown_findings(result.findings, holds=result.exit_code == 0)
    lines = [_command("error", finding.slug, _finding_text(finding)) for finding in findings]
    for group in failure_groups(ordinary(result.scenarios)):
        scenario = group.first
        kind = "warning" if scenario.observed.outcome is Outcome.INCONCLUSIVE else "error"
        shown = shown_findings(scenario.findings, holds=False)
        reason = _finding_text(shown[0]) if shown else scenario.observed.summary
        more = f" ({len(group.others)} more like it)" if group.others else ""
        title = shown[0].slug if shown else str(scenario.observed.outcome)
        lines.append(_command(kind, title, f"{scenario.title}: {outcome_word(scenario)}{more}. {reason}"))
    lines += [_save_command(summary, group) for summary in summaries(result) for group in summary.groups]
    return "".join(f"{line}\n" for line in lines[:ANNOTATION_LIMIT])


def _save_command(summary: Summary, group: Group) -> str:
    kind = "warning" if group.telling.observed.outcome is Outcome.INCONCLUSIVE else "error"
    fix = finding_kind(group.finding).fix if group.finding else ""
    text = f"{summary.window.name}, {summary.share(group)}: {group.sentence}."
    return _command(kind, group.title, f"{text} Fix: {fix}" if fix else text)


def _finding_text(finding: FindingRecord) -> str:
    fix = finding_kind(finding).fix
    return f"{finding.evidence}. Fix: {fix}" if fix else finding.evidence


def _command(kind: str, title: str, text: str) -> str:
    for character, code in (("%", "%25"), ("\r", "%0D"), ("\n", "%0A")):
        text = text.replace(character, code)
    return f"::{kind} title=samestep {title}::{text}"
