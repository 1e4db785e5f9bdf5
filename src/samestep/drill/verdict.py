"""What a drill concludes from its results. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samestep.contract import Outcome, Severity, worst_outcome
from samestep.drill.result import Observation, ScenarioResult
from samestep.errors import ExitCode, SamestepError

if TYPE_CHECKING:
    from samestep.drill.result import DrillResult
    from samestep.drill.scenario import Scenario


def not_carried_out(scenario: Scenario, error: Exception, log: str) -> ScenarioResult:
    """Return the result of a scenario that failed for reasons of the drill's own: nothing is known."""
    what = error.message if isinstance(error, SamestepError) else f"{type(error).__name__}: {error}"
    return ScenarioResult(
        name=scenario.name,
        family=scenario.family,
        title=scenario.title,
        expected=scenario.expected,
        observed=Observation(outcome=Outcome.INCONCLUSIVE, summary=f"could not be carried out: {what}"),
        holds=False,
        cut_step=scenario.case.cut_step,
        log=log,
    )


def outcome_of(result: DrillResult) -> Outcome:
    """Return the worst outcome of the scenarios that do not hold; ``same`` when all hold and nothing is in doubt."""
    failing = [item.observed.outcome for item in result.scenarios if not item.holds]
    doubtful = any(found.severity is not Severity.NOTE for found in result.findings)
    if failing or doubtful or result.interrupted or not result.scenarios:
        return worst_outcome(failing)
    return Outcome.SAME


def exit_code_of(result: DrillResult, *, strict: bool) -> ExitCode:
    """Return what the command's exit status must be: a defect weighs more than a doubt."""
    findings = [*result.findings, *(found for item in result.scenarios for found in item.findings)]
    severities = {found.severity for found in findings if not found.silenced}
    unclear = [item for item in result.scenarios if item.observed.outcome is Outcome.INCONCLUSIVE]
    failed = [item for item in result.scenarios if not item.holds and item not in unclear]
    if failed or Severity.DEFECT in severities or (strict and Severity.NOTE in severities):
        return ExitCode.DEFECT
    if unclear or Severity.MEASUREMENT in severities:
        return ExitCode.INCONCLUSIVE
    return ExitCode.HOLDS if result.scenarios else ExitCode.NOTHING_RAN


def watching_proof(
    watched: dict[str, str], unwatched: dict[str, str], *, exact: bool, limited: bool
) -> tuple[bool | None, str]:
    """Compare the tensors two runs left, one watched and one not.

    Returns:
        Whether it is proven that watching changes nothing (None: cannot be told), and how, in words.
    """
    by = "counting steps only" if limited else "with and without"
    if not unwatched:
        return None, "not proven: the unwatched run left no tensors"
    if watched == unwatched:
        return True, f"proven not to change the run (final state equal {by})"
    if not exact:
        return None, "not provable bit for bit: two controls already differ"
    names = sorted(name for name in {*watched, *unwatched} if watched.get(name) != unwatched.get(name))
    return False, f"CHANGES the run: {', '.join(names[:3])} differ without the probe"
