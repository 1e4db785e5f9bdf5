"""Carrying out one scenario: lay out its disk state, restart from it, judge what follows."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import msgspec

from samestep.checkpoints import holds_only_random_state, is_log
from samestep.contract import FINDINGS, Family, Outcome, Severity
from samestep.drill.artefacts import differing_artefacts, differing_tensors
from samestep.drill.attempt import Attempt
from samestep.drill.cutting import make_disk_state
from samestep.drill.judging.crash import as_notes, crash_findings
from samestep.drill.judging.diagnosis.records import finding
from samestep.drill.judging.judge import judge
from samestep.drill.judging.judgement import Judgement
from samestep.drill.result import Expectation, Observation, ScenarioResult
from samestep.drill.scenario import Arrangement
from samestep.drill.series import series_of
from samestep.drill.units import whole_steps_told

if TYPE_CHECKING:
    from pathlib import Path

    from samestep.drill.attempt import AttemptRecord
    from samestep.drill.crashing import Crashes
    from samestep.drill.cutting import DiskStateMade
    from samestep.drill.ground import Ground
    from samestep.drill.judging.judgement import Case
    from samestep.drill.options import DrillOptions
    from samestep.drill.result import CrashPoint, FindingRecord
    from samestep.drill.scenario import Scenario
    from samestep.process import Machine, Preloaded
    from samestep.trace import ParkPoint


@dataclass(frozen=True)
class Origins:
    """Where the processes of a scenario come from.

    Attributes:
        before: process to fork those from that run before the restart, to be cut; None: fresh ones.
        restart: process to fork the restart from; None: a fresh one.
    """

    before: Preloaded | None = None
    restart: Preloaded | None = None


FRESH = Origins()

_AS_LEFT = {Family.CUT, Family.NOTICE}
"""Families that restart from what an interruption left, nobody having changed it since."""

_BAD = {Outcome.DIFFERENT, Outcome.RESTARTED, Outcome.CRASHED}


def run_scenario(
    ground: Ground, scenario: Scenario, *, sabotage: str = "", origins: Origins = FRESH
) -> ScenarioResult:
    """Carry out ``scenario`` and judge it.

    Args:
        ground: what it is judged against.
        scenario: what to do.
        sabotage: damage the restarted process on purpose (the criterion's own test).
        origins: where its processes come from.
    """
    started = time.monotonic()
    label = scenario.name.replace("/", "-") + (f"-sabotaged-{sabotage}" if sabotage else "")
    label += "-forked" if origins != FRESH else ""
    folder = ground.workshop.snapshots / f"state-{label}"
    try:
        made = make_disk_state(ground, scenario, folder, label, origins.before)
        records = list(made.records)
        judgement = _before_the_cut(ground, scenario, made)
        if judgement.observation.outcome is Outcome.SAME:
            case = _case(scenario, made, begin=judgement.observation.resume_step or 0)
            each = ground.control.facts.steps_each
            scenario = _as_told(replace(scenario, case=case), made.folder, each)
            record, artefacts = _restart(
                ground, scenario, made, label, sabotage=sabotage, preloaded=origins.restart
            )
            records.append(record)
            judgement = _judged(ground, scenario, made, record)
            if artefacts and judgement.observation.outcome is Outcome.SAME:
                add_artefacts(judgement, artefacts, ground.control.facts.steps)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return _result(ground, scenario, judgement, records, time.monotonic() - started)


def _as_told(scenario: Scenario, folder: Path, each: int) -> Scenario:
    """Expect what the disk state itself tells, where its checkpoints say their steps and which of them count.

    Those are written in the background as well: whether one was complete at the cut is a matter of milliseconds.
    """
    as_left = scenario.family in _AS_LEFT or scenario.arrangement is Arrangement.FAULT
    told = whole_steps_told(folder) if as_left else None
    if told is None:
        return scenario
    told = [step * each for step in told]
    expected = scenario.expected
    if expected.resume_step is not None:
        expected = msgspec.structs.replace(expected, resume_step=max(told, default=0))
    return replace(scenario, case=replace(scenario.case, whole_steps=told), expected=expected)


def _restart(
    ground: Ground,
    scenario: Scenario,
    made: DiskStateMade,
    label: str,
    *,
    sabotage: str,
    preloaded: Preloaded | None,
) -> tuple[AttemptRecord, list[str]]:
    workshop = ground.workshop
    with workshop.machine(label) as machine:
        machine.place(made.folder)
        plan = workshop.plan(
            label,
            [*workshop.restart_command(machine), *scenario.extra_args],
            step_limit=_step_limit(scenario, workshop.options),
            sabotage=sabotage,
            ranks=ground.control.facts.ranks,
            timeout_seconds=workshop.patience(ground.control.record.seconds),
        )
        with Attempt(machine, plan, workshop.options.run_folder, preloaded) as attempt:
            attempt.wait()
        record = attempt.record()
        return record, _artefacts(ground, scenario, machine, record)


def _step_limit(scenario: Scenario, options: DrillOptions) -> int:
    """Return after how many steps to end the restarted process; 0: it ends by itself."""
    if scenario.verify_steps:
        return scenario.verify_steps
    if not options.steps:
        return 0
    # the drill ended the control, so it must end the continuation at the same step
    return options.steps - max(scenario.case.whole_steps, default=0)


def _artefacts(ground: Ground, scenario: Scenario, machine: Machine, record: AttemptRecord) -> list[str]:
    """Return final files that are not the control's, of a run that was followed to its end or had reached it."""
    if scenario.case.finished and not record.steps and record.ending.exit_code == 0 and ground.exact:
        return differing_tensors(ground.control.final, machine.out)
    ended = record.ending.exit_code == 0 or record.ending.hit_step_limit
    if scenario.verify_steps or not ended or not ground.exact or scenario.family is Family.TRANSFER:
        return []
    differing = differing_artefacts(ground.control.final, ground.other.final, machine.out, is_log)
    return [path for path in differing if path not in scenario.case.damaged]


def add_artefacts(judgement: Judgement, artefacts: list[str], step: int) -> None:
    """Let final files that are not the control's count against a run whose steps agree.

    A saved generator that no step drew from, and that is known not to be the control's, stays a note in its file too.

    Args:
        judgement: of the steps; changed in place.
        artefacts: the files.
        step: last one of the control.
    """
    known = any(record.slug == "rng-not-restored" for record in judgement.findings)
    idle = [path for path in artefacts if known and holds_only_random_state(PurePosixPath(path).name)]
    counted = [path for path in artefacts if path not in idle]
    text = "after the last step these files are not the control's: "
    if idle:
        evidence = f"{text}{_some(idle)}; they hold generators that no step drew from"
        judgement.findings.append(finding("artefacts-differ", evidence, step=step, severity=Severity.NOTE))
    if counted:
        judgement.findings.append(finding("artefacts-differ", text + _some(counted), step=step))
        judgement.observation.outcome = Outcome.DIFFERENT
        judgement.observation.first_divergent_step = step
        judgement.observation.summary = "steps agree, final files differ"


def _some(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _judged(ground: Ground, scenario: Scenario, made: DiskStateMade, record: AttemptRecord) -> Judgement:
    verdict = judge(
        ground.reference, record.traces, record.ending, scenario.case, scenario.expected, ground.criterion
    )
    if verdict.observation.outcome in _BAD:
        made.findings += _leanings(ground)
    whole = Judgement(verdict.observation, [*made.findings, *verdict.findings])
    if ground.crashes is not None and scenario.family is Family.CRASH:
        point = made.crash or ground.crashes.point(scenario.name)
        _explain_crash(ground.crashes, scenario.name, point, whole)
    return whole


def _explain_crash(crashes: Crashes, name: str, point: CrashPoint, judgement: Judgement) -> None:
    judgement.findings += crash_findings(point, crashes.history(name), judgement)
    if not point.allowed:
        as_notes(judgement.findings, point, crashes.record.storage)


def _leanings(ground: Ground) -> list[FindingRecord]:
    """A restart that is not the same, of a run that keeps state on its machine: that state is the first suspect."""
    strays = ground.control.strays
    return [finding("leaned-on-lost-machine", f"the control left {', '.join(strays[:3])}")] if strays else []


def _before_the_cut(ground: Ground, scenario: Scenario, made: DiskStateMade) -> Judgement:
    """Judge what came before the cut: it must have been reached, and a restart in between must have been the same."""
    if scenario.arrangement is Arrangement.TWICE and scenario.point is not None:
        verdict = _first_restart(ground, scenario, scenario.point, made.records[0])
        if verdict.observation.outcome is not Outcome.SAME:
            verdict.observation.summary += ", before the second cut"
            return verdict
    else:
        verdict = Judgement(Observation(outcome=Outcome.SAME, resume_step=0))
    if made.reached:
        return verdict
    observation = Observation(
        outcome=Outcome.INCONCLUSIVE,
        exit_code=made.records[-1].ending.exit_code,
        summary="the run to be cut ended before the cut",
    )
    return Judgement(observation, made.findings)


def _first_restart(ground: Ground, scenario: Scenario, point: ParkPoint, record: AttemptRecord) -> Judgement:
    resumed = (scenario.case.cut_step or 0) - point.step
    case = replace(scenario.case, whole_steps=[save for save in scenario.case.whole_steps if save <= resumed])
    expected = Expectation(outcomes=scenario.expected.outcomes, resume_step=resumed)
    return judge(ground.reference, record.traces, record.ending, case, expected, ground.criterion)


def _case(scenario: Scenario, made: DiskStateMade, *, begin: int) -> Case:
    """Return the scenario's case, completed by what the attempt that was cut really did.

    Args:
        scenario: as planned.
        made: its disk state.
        begin: control step from which the attempt that was cut had started.
    """
    case = replace(scenario.case, wanted=scenario.verify_steps)
    if not made.records:
        return case
    complete = begin + made.steps
    saves = {begin + save for save in made.saves}
    earlier = {save for save in case.whole_steps if save <= begin}
    return replace(case, cut_step=complete, whole_steps=sorted(saves | earlier))


def silence(findings: list[FindingRecord], slugs: frozenset[str]) -> bool:
    """Mark findings that are intended and turn them into notes.

    Returns:
        Whether that explains everything: there were defects, and all of them are intended.
    """
    defects = [record for record in findings if record.severity is Severity.DEFECT]
    for record in findings:
        if record.slug in slugs:
            record.silenced, record.severity = True, Severity.NOTE
    return bool(defects) and all(record.silenced for record in defects)


def _result(
    ground: Ground,
    scenario: Scenario,
    judgement: Judgement,
    records: list[AttemptRecord],
    seconds: float,
) -> ScenarioResult:
    observed = judgement.observation
    options = ground.workshop.options
    silenced = silence(judgement.findings, options.silence)
    counted = {Severity.DEFECT, Severity.NOTE} if options.strict else {Severity.DEFECT}
    failing = [record for record in judgement.findings if record.severity in counted and not record.silenced]
    holds = not failing and (observed.outcome in scenario.expected.outcomes or silenced)
    last = records[-1]
    crash = (
        ground.crashes.point(scenario.name)
        if ground.crashes and scenario.disk and scenario.disk.crash
        else None
    )
    return ScenarioResult(
        name=scenario.name,
        family=scenario.family,
        title=scenario.title,
        expected=scenario.expected,
        observed=observed,
        holds=holds,
        cut_step=scenario.case.cut_step,
        attempts=[record.name for record in records],
        findings=sorted(judgement.findings, key=lambda record: FINDINGS[record.slug].rank),
        series=[]
        if crash and holds
        else [series_of(trace, observed.resume_step or 0) for trace in last.traces],
        crash=crash,
        log=str(last.log.relative_to(options.run_folder)),
        seconds=seconds,
    )
