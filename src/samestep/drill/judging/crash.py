"""What an interrupted save did wrong, from what it left on disk. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from samestep.contract import Outcome, Severity
from samestep.drill.judging.diagnosis.records import finding, listed

if TYPE_CHECKING:
    from samestep.drill.judging.judgement import Judgement
    from samestep.drill.result import CrashPoint, FindingRecord

FAULT = "fault"
"""Model of what a run on a failing disk has left."""

LOST_NAME = "lost"
"""Way of damage of a state in which a change of a name never reached the disk."""


@dataclass(frozen=True)
class SaveHistory:
    """What is known of the save that was interrupted.

    Attributes:
        had_whole: a whole checkpoint was there when it began.
        overwrites: it writes over the checkpoint of an earlier save.
        finished: all that it wrote is there, whole: nothing of it needed to be made durable any more.
    """

    had_whole: bool
    overwrites: bool
    finished: bool = False


def crash_findings(point: CrashPoint, history: SaveHistory, judgement: Judgement) -> list[FindingRecord]:
    """Return what the order of the save's operations has to do with the outcome.

    A restart that goes on from the newest whole checkpoint, or begins anew where there never was one, needs no
    explanation. Where the storage does not allow the state, everything found is a note.
    """
    outcome = judgement.observation.outcome
    # a run on a failing disk is another run: its checkpoints may be whole and yet not those of the recording
    resumed = point.model == FAULT and outcome is Outcome.SAME and judgement.observation.resume_step
    nothing_left = point.whole is None and history.had_whole and not resumed
    if outcome in {Outcome.SAME, Outcome.INCONCLUSIVE} and not nothing_left:
        return _torn_but_the_same(point, judgement)
    where = f"{point.last}" + (f"; {point.damage}" if point.damage else "")
    found = []
    if nothing_left:
        slug = "in-place-overwrite" if history.overwrites else "last-good-deleted-first"
        found.append(finding(slug, f"{where}: no whole checkpoint is left, before the save there was one"))
    elif point.torn and outcome is not Outcome.LOST_WORK:
        whole = "" if point.whole is None else f"; the whole one of step {point.whole} was not used"
        found.append(
            finding("torn-checkpoint-selected", f"{where}: {listed(point.torn)} is torn and was met{whole}")
        )
    if point.mixed and outcome is not Outcome.REFUSED:
        found.append(
            finding("mixed-generations", f"{where}: {listed(point.mixed)} holds files of several saves")
        )
    if point.way == LOST_NAME:
        found.append(finding("rename-not-durable", where))
    elif point.lasting and not history.finished:
        found.append(finding("not-durable-after-save", f"{where}, after the save had returned"))
    return found


def _torn_but_the_same(point: CrashPoint, judgement: Judgement) -> list[FindingRecord]:
    """Note a restart that went on from what equals no save, and yet took the same steps as far as compared."""
    step = judgement.observation.resume_step or 0
    if judgement.observation.outcome is not Outcome.SAME or not point.torn or step <= (point.whole or 0):
        return []
    evidence = (
        f"went on from step {step} although {listed(point.torn)} equals no save; the steps compared agree"
    )
    return [finding("torn-checkpoint-selected", evidence, severity=Severity.NOTE)]


def as_notes(findings: list[FindingRecord], point: CrashPoint, storage: str) -> None:
    """Turn findings into notes: the storage in use does not allow this state."""
    reason = f"only under {point.model}, which {storage or 'the storage in use'} rules out"
    for record in findings:
        if record.severity is Severity.DEFECT:
            record.severity = Severity.NOTE
            record.details = [*record.details, reason]
