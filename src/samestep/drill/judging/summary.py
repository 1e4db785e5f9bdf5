"""The short phrase that tells a scenario's result on one line. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samestep.contract import Outcome, Severity

if TYPE_CHECKING:
    from samestep.drill.judging.judgement import Case, Ending
    from samestep.drill.result import FindingRecord, Observation


def summary_of(observation: Observation, findings: list[FindingRecord], ending: Ending, case: Case) -> str:
    """Return the phrase for a restart that took steps."""
    outcome = observation.outcome
    if outcome is Outcome.INCONCLUSIVE:
        return _inconclusive(observation, findings, ending)
    if outcome is Outcome.CRASHED:
        return f"exit code {observation.exit_code} after {observation.steps_verified} steps"
    if outcome is Outcome.RESTARTED:
        return f"began again at step 0{_lost(observation)}"
    if outcome is Outcome.DIFFERENT:
        return _different(observation, case)
    moved = next((f"; {record.evidence}" for record in findings if record.slug == "world-changed"), "")
    return _resumed(observation, case) + moved


def _inconclusive(observation: Observation, findings: list[FindingRecord], ending: Ending) -> str:
    measured = [record.evidence for record in findings if record.severity is Severity.MEASUREMENT]
    if measured:
        return measured[0]
    if ending.timed_out:
        return f"stopped responding after {observation.steps_verified} steps"
    if observation.resume_step is None:
        return "where the run went on could not be told"
    return "no step could be compared"


def _different(observation: Observation, case: Case) -> str:
    if case.finished:
        return "went on training although the run was finished"
    if observation.first_divergent_step is not None:
        return f"first at step {observation.first_divergent_step}"
    return _resumed(observation, case)


def _resumed(observation: Observation, case: Case) -> str:
    step = observation.resume_step
    if step == 0 and not case.whole_steps:
        return f"a true fresh start{_lost(observation)}"
    newest = max(case.whole_steps, default=None)
    fallback = ""
    if case.damaged and step is not None and step == newest:
        fallback = f", the newest whole checkpoint, next step {step + 1}"
    return f"resumed at {step}{fallback}{_lost(observation)}"


def _lost(observation: Observation) -> str:
    lost = observation.steps_lost
    return "" if lost is None else f", {lost} step{'' if lost == 1 else 's'} lost"
