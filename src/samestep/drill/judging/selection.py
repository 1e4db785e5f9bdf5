"""Which checkpoint a restart went on from, against those that lay there. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samestep.contract import Component, Family, Severity
from samestep.drill.judging.diagnosis.records import finding, listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from samestep.drill.judging.judge import View
    from samestep.drill.judging.judgement import Case
    from samestep.drill.result import FindingRecord


def selection(views: Sequence[View], case: Case) -> list[FindingRecord]:
    """Tell whether the run went on from the newest whole checkpoint of its own."""
    view = views[0]
    step = view.resume_step
    if view.restarted:
        return [_restart(view, case)]
    if case.finished:
        return [_after_finish(view)]
    if foreign := _foreign(case, step, view.alignment.claimed_step):
        return [foreign]
    if step is not None and (other := _other_point(view, step, case)):
        return [other]
    if case.damaged and not case.flipped and step == case.damaged_step:
        return _accepted(views, case)
    return []


def _other_point(view: View, step: int, case: Case) -> FindingRecord | None:
    """Return the finding for a resume from an older point than was there, or from a newer one than was on the disk."""
    if step + _inside(view) < case.due_step:
        return _older(step, case.due_step, case)
    held = max([*case.whole_steps, *case.foreign_steps, case.damaged_step or 0], default=0)
    # a save inside a step counts for that step, which the cut may have left undone
    if step > max(held + 1, case.cut_step or 0):
        text = f"went on from step {step}, the disk held no more than step {held}"
        return finding("leaned-on-lost-machine", text, step=step + 1)
    return None


def _inside(view: View) -> int:
    """Return 1 when the run went on inside an accumulation window: that save counts for the step it was made in."""
    offset = view.pair is not None and bool(view.pair.steps) and view.pair.steps[0].offset > 0
    return int(offset or any(record.slug == "accumulation-lost" for record in view.findings))


def _restart(view: View, case: Case) -> FindingRecord:
    claimed = view.alignment.claimed_step
    details = [f"its counters claim step {claimed}"] if claimed else []
    newest = max(case.whole_steps, default=0)
    text = f"began at step 1 although a whole checkpoint of step {newest} was there"
    if not newest:
        text = f"began at step 1 without a word about the damaged checkpoint of step {case.damaged_step}"
    components = (Component.PROGRESS, *((Component.COMPLETENESS,) if case.damaged else ()))
    return finding("silent-restart", text, step=1, details=details, components=components)


def _after_finish(view: View) -> FindingRecord:
    taken = len(view.pair.resumed.steps) if view.pair else 0
    steps = f"at least {taken} step{'' if taken == 1 else 's'}" if taken else "steps"
    where = "" if view.resume_step is None else f" from step {view.resume_step}"
    due = len(view.pair.control.steps) + 1 if view.pair else None
    return finding("steps-after-finish", f"took {steps}{where} although the run was finished", step=due)


def _foreign(case: Case, step: int | None, claimed: int | None) -> FindingRecord | None:
    own = {*case.whole_steps, case.damaged_step}
    held = step if step is not None else claimed
    if held is None or held not in case.foreign_steps or held in own:
        return None
    newest = max(case.whole_steps, default=0)
    return finding(
        "stale-checkpoint-selected",
        f"went on from another run's checkpoint of step {held}; its own newest is {newest}",
        step=held + 1,
    )


def _older(step: int, newest: int, case: Case) -> FindingRecord:
    """After damage an older point holds, though not the newest whole one: a note."""
    foreign = " (another run's checkpoint holds that step too)" if step in case.foreign_steps else ""
    text = f"went on from step {step}{foreign}, a whole checkpoint of step {newest} was there"
    if case.damaged or case.family == Family.TRANSFER:
        return finding("lost-work", text, step=step + 1, severity=Severity.NOTE)
    slug = "stale-checkpoint-selected" if step in case.whole_steps else "lost-work"
    return finding(slug, text, step=step + 1)


def _accepted(views: Sequence[View], case: Case) -> list[FindingRecord]:
    """Return the finding for damage that was loaded, unless the components lost say it better."""
    defects = [record for view in views for record in view.findings if record.severity is Severity.DEFECT]
    how = "torn or missing" if case.family == Family.CRASH else "damaged on purpose"
    parts = f"{how}: {listed(case.damaged)}"
    for record in defects:
        record.details = [*record.details, parts]
    if not defects or any(record.slug != "step-differs" for record in defects):
        return []
    slug = "torn-checkpoint-selected" if case.family == Family.CRASH else "damaged-checkpoint-accepted"
    text = f"went on from the damaged checkpoint of step {case.damaged_step}: {listed(case.damaged)}"
    return [finding(slug, text, step=(case.damaged_step or 0) + 1)]
