"""The drill as JUnit XML: one suite, one case a scenario; of interrupted saves one a save and persistence model."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from samestep.contract import Family, Outcome

from .crash.groups import ordinary, summaries, summary_by_model
from .view import (
    component_names,
    expectation_text,
    finding_kind,
    observation_text,
    shown_findings,
    verdict,
)

if TYPE_CHECKING:
    from samestep.drill.result import DrillResult, FindingRecord, ScenarioResult

    from .crash.groups import Group, Summary

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render_junit(result: DrillResult) -> str:
    """Render the drill as JUnit XML.

    A scenario that does not hold is a failure whose type is the slug of its first finding; one that is
    inconclusive is an error, since it says nothing about the run.
    """
    suite = ET.Element("testsuite", name="samestep drill", time=f"{result.seconds:.3f}")
    for scenario in ordinary(result.scenarios):
        suite.append(_case(scenario))
    for summary in summaries(result):
        for model, part in summary_by_model(summary).items():
            suite.append(_save_case(part, model))
    if result.findings or not result.scenarios:
        suite.append(_drill_case(result))
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("errors", str(len(suite.findall("testcase/error"))))
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _case(scenario: ScenarioResult) -> ET.Element:
    case = ET.Element(
        "testcase",
        classname=f"samestep.{scenario.family}",
        name=_clean(scenario.name),
        time=f"{scenario.seconds:.3f}",
    )
    if not scenario.holds:
        kind = "error" if scenario.observed.outcome is Outcome.INCONCLUSIVE else "failure"
        findings = shown_findings(scenario.findings, holds=False)
        problem = ET.SubElement(case, kind)
        problem.set("type", _clean(findings[0].slug if findings else str(scenario.observed.outcome)))
        problem.set(
            "message", _clean(f"{scenario.title}: {scenario.observed.outcome} {scenario.observed.summary}")
        )
        problem.text = _clean("\n".join(_explanation(scenario, findings)))
    return case


def _save_case(summary: Summary, model: str) -> ET.Element:
    """A case for the states that one model allows of one interrupted save."""
    case = ET.Element(
        "testcase",
        classname=f"samestep.{Family.CRASH}",
        name=f"{summary.window.name}/{model}",
        time=f"{sum(state.seconds for state in summary.states):.3f}",
    )
    if summary.failing:
        kind = "error" if summary.outcome is Outcome.INCONCLUSIVE else "failure"
        problem = ET.SubElement(case, kind)
        problem.set("type", _clean(summary.groups[0].title))
        problem.set("message", _clean(f"{summary.title}: {summary.tally}"))
        problem.text = _clean(
            "\n".join(line for group in summary.groups for line in _group_lines(summary, group))
        )
    return case


def _group_lines(summary: Summary, group: Group) -> list[str]:
    lines = [f"{group.title}: {summary.share(group)}", f"  {group.sentence}"]
    kind = finding_kind(group.finding) if group.finding else None
    lines += [f"  usual cause: {kind.cause}", f"  fix: {kind.fix}"] if kind and kind.fix else []
    return [*lines, f"  replay: {group.telling.replay}"] if group.telling.replay else lines


def _explanation(scenario: ScenarioResult, findings: list[FindingRecord]) -> list[str]:
    lines = [f"expected {expectation_text(scenario)}", f"observed {observation_text(scenario)}"]
    for finding in findings:
        lines += _finding_lines(finding)
    return [*lines, f"replay: {scenario.replay}"] if scenario.replay else lines


def _finding_lines(finding: FindingRecord) -> list[str]:
    kind = finding_kind(finding)
    lines = [f"{finding.slug}: {component_names(finding)}", f"  {finding.evidence}"]
    lines += [f"  {detail}" for detail in finding.details]
    lines += [f"  usual cause: {kind.cause}", f"  fix: {kind.fix}"] if kind.fix else []
    return lines


def _drill_case(result: DrillResult) -> ET.Element:
    """A case for what belongs to no scenario, so that a drill without one never looks like a pass."""
    case = ET.Element("testcase", classname="samestep.drill", name="drill", time="0.000")
    findings = shown_findings(result.findings, holds=result.exit_code == 0)
    if not findings and result.scenarios:
        return case
    problem = ET.SubElement(case, "failure" if result.exit_code == 1 else "error")
    problem.set("type", _clean(findings[0].slug if findings else str(result.outcome)))
    problem.set("message", _clean(verdict(result).sentence))
    problem.text = _clean("\n".join(line for finding in findings for line in _finding_lines(finding)))
    return case


def _clean(text: str) -> str:
    """Replace what XML 1.0 cannot hold (control characters of a log)."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
