"""The drill as markdown for the summary page of a CI job: worst first, never over the size that is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .crash.groups import not_recorded, ordinary, summaries, word_of
from .view import (
    SYMBOLS,
    command_line,
    component_names,
    control_text,
    criterion_text,
    expectation_text,
    failure_groups,
    finding_kind,
    observation_text,
    outcome_word,
    replay_command,
    scenario_tone,
    shown_findings,
    tallies,
    verdict,
    watching_text,
    worst_first,
)

if TYPE_CHECKING:
    from samestep.drill.result import DrillResult, FindingRecord, ScenarioResult

    from .crash.groups import Group, Summary
    from .view import FailureGroup

SIZE_LIMIT_BYTES = 1024 * 1024
"""GitHub shows no job summary beyond 1 MiB."""

_ROOM_FOR_THE_END = 400


def render_markdown(result: DrillResult, limit: int = SIZE_LIMIT_BYTES) -> str:
    """Render the drill as markdown of at most ``limit`` bytes."""
    blocks = [_head(result), _table(result), *_failures(result), _foot(result)]
    kept: list[str] = []
    left = limit - _ROOM_FOR_THE_END
    for block in blocks:
        left -= len(block.encode()) + 2
        if left < 0:
            kept.append("The rest is left out here; it is in report.html and drill.json.")
            break
        kept.append(block)
    return "\n\n".join(block for block in kept if block) + "\n"


def _head(result: DrillResult) -> str:
    answer = verdict(result)
    lines = [
        f"## {answer.symbol} {escaped(answer.headline)}",
        "",
        f"{escaped(answer.sentence)} Exit code {result.exit_code}.",
        "",
        _code(command_line(result.command)),
    ]
    return "\n".join(lines)


def _table(result: DrillResult) -> str:
    if not result.scenarios:
        return ""
    lines = ["| | family | scenario | outcome | what happened |", "|---|---|---|---|---|"]
    scenarios = worst_first(ordinary(result.scenarios))
    lines += [_row(scenario) for scenario in scenarios if not scenario.holds]
    lines += [line for summary in summaries(result) for line in _save_rows(summary)]
    lines += [_row(scenario) for scenario in scenarios if scenario.holds]
    summary = " · ".join(f"{tally.family} {tally.sentence}" for tally in tallies(result.scenarios))
    return "\n".join([escaped(summary), "", *lines])


def _row(scenario: ScenarioResult) -> str:
    outcome = outcome_word(scenario)
    cells = (
        SYMBOLS[scenario_tone(scenario)],
        str(scenario.family),
        escaped(scenario.title),
        outcome if scenario.holds else f"**{outcome}**",
        escaped(scenario.observed.summary),
    )
    return f"| {' | '.join(cells)} |"


def _save_rows(summary: Summary) -> list[str]:
    """One row for a save, and one for each way in which it fails."""
    outcome = f"**{summary.word}**" if summary.failing else summary.word
    rows = [
        f"| {SYMBOLS[summary.tone]} | crash | {escaped(summary.title)} | {outcome} | {escaped(summary.tally)} |"
    ]
    for group in summary.groups:
        what = f"{summary.window.name}: {group.title} {summary.share(group)}"
        cells = (escaped(what), f"**{word_of(group.telling)}**", escaped(group.sentence))
        rows.append(f"| {SYMBOLS[scenario_tone(group.telling)]} | crash | {' | '.join(cells)} |")
    return rows


def _failures(result: DrillResult) -> list[str]:
    blocks = [_finding(finding) for finding in shown_findings(result.findings, holds=result.exit_code == 0)]
    blocks += [_failure(group) for group in failure_groups(ordinary(result.scenarios))]
    return blocks + [_save(summary) for summary in summaries(result) if summary.groups or summary.noted]


def _save(summary: Summary) -> str:
    """What an interruption of one save does, one item a finding."""
    lines = [f"### {escaped(summary.title)}: {summary.tally}", ""]
    lines += [_group(group, summary.share(group)) for group in summary.groups]
    lines += [
        f"- noted: **{group.title}** {summary.share(group)}: {escaped(group.sentence)}"
        for group in summary.noted
    ]
    return "\n".join(lines)


def _group(group: Group, share: str) -> str:
    names = f" ({group.components})" if group.components else ""
    lines = [f"- **{group.title}**{names} {share}: {escaped(group.sentence)}"]
    kind = finding_kind(group.finding) if group.finding else None
    if kind and kind.fix:
        lines += [f"  - usual cause: {escaped(kind.cause)}", f"  - fix: {escaped(kind.fix)}"]
    lines += [f"  - replay: `{group.telling.replay}`"] if group.telling.replay else []
    return "\n".join(lines)


def _failure(group: FailureGroup) -> str:
    scenario = group.first
    lines = [
        f"### {escaped(scenario.title)}: {outcome_word(scenario)}",
        "",
        f"Expected {escaped(expectation_text(scenario))}; observed {escaped(observation_text(scenario))}.",
    ]
    for finding in shown_findings(scenario.findings, holds=False):
        lines += ["", _finding(finding)]
    if scenario.replay:
        lines += ["", _code(scenario.replay)]
    if group.others:
        lines += ["", "The same in:", "", *(f"- {escaped(other.title)}" for other in group.others)]
    return "\n".join(lines)


def _finding(finding: FindingRecord) -> str:
    kind = finding_kind(finding)
    names = component_names(finding)
    lines = [f"- **{finding.slug}**{f' ({names})' if names else ''}: {escaped(finding.evidence)}"]
    lines += [f"  - {escaped(detail)}" for detail in finding.details]
    if kind.fix:
        lines += [f"  - usual cause: {escaped(kind.cause)}", f"  - fix: {escaped(kind.fix)}"]
    return "\n".join(lines)


def _foot(result: DrillResult) -> str:
    lines = []
    if result.control is not None:
        lines += [f"- control: {escaped(control_text(result.control))}"]
        lines += [f"- watching: {escaped(watching_text(result.control))}"]
    if result.criterion is not None:
        lines.append(f"- criterion: {escaped(criterion_text(result.criterion))}")
    lines += [f"- recording: {escaped(sentence)}" for sentence in not_recorded(result)]
    lines += [f"- not checked: {escaped(item)}" for item in result.not_checked]
    return "\n".join([*lines, "", "Repeat it:", "", _code(replay_command(result))]).lstrip("\n")


def _code(text: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}"


def escaped(text: str) -> str:
    """Escape what markdown or HTML would take for markup, and keep the text on one line."""
    flat = " ".join(text.split())
    for character in "\\`*_[]|":
        flat = flat.replace(character, "\\" + character)
    return flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
