"""The learning-rate schedule: its counters before the first step, and the rates that the steps really used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from samestep.contract import Component
from samestep.drill.judging.compare import is_number, same_rates, schedule_counts, state_after
from samestep.drill.judging.diagnosis.records import finding

if TYPE_CHECKING:
    from samestep.drill.judging.compare import Aligned, Beside
    from samestep.drill.result import FindingRecord
    from samestep.trace import StepRecord

REBUILT = "_step_count"
"""Counter that rightly starts anew in a schedule that is built again for a later epoch or step."""


@dataclass(frozen=True)
class _Counts:
    """Counters of a schedule that are not the control's."""

    step: int
    restarted: bool
    text: str


def schedule(pair: Beside, data_from: int | None) -> list[FindingRecord]:
    """Tell whether the learning rates go on as the control's.

    The first resumed step may still have the right rate (it sits in the optimizer's groups), so all compared
    steps count, and so do the schedule's counters. Counters alone do not make a defect where the rate moves and agrees
    at every step: such a schedule was rebuilt in another way.

    Args:
        pair: the two runs.
        data_from: first step with wrong data: epochs, and what a schedule does at their ends, shift with it.
    """
    if pair.measure.ignores("groups"):
        return []
    counts = _wrong_counts(pair)
    wrong = _first_wrong_rate(pair)
    if wrong is None:
        return (
            []
            if counts is None or _moved(pair)
            else [_record(pair, counts.step, counts.restarted, counts.text)]
        )
    follows = data_from is not None and data_from < wrong.number
    if follows and counts is None and pair.control.steps[0].before.schedules:
        return []
    text = f"learning rate {_shown(wrong.resumed)} at step {wrong.number}, control {_shown(wrong.control)}"
    restarted = counts.restarted if counts else _like_start(pair, wrong)
    record = _record(pair, wrong.number, restarted, text)
    record.details = [counts.text] if counts else []
    return [record]


def _record(pair: Beside, step: int, restarted: bool, text: str) -> FindingRecord:
    scheduled = any(state.before.schedules for state in pair.control.steps) or _varies(pair)
    if not scheduled:
        return finding(
            "config-drift", text, step=step, quantity="lr", components=(Component.CONFIG, Component.SCHEDULE)
        )
    return finding("schedule-restarted" if restarted else "schedule-shifted", text, step=step, quantity="lr")


def rates(step: StepRecord) -> list[float]:
    """Return the learning rate of every parameter group that a step used."""
    calls = [update.groups for update in step.updates if update.groups] or step.before.groups
    return [float(group["lr"]) for groups in calls for group in groups if is_number(group.get("lr"))]


def _first_wrong_rate(pair: Beside) -> Aligned | None:
    return next((a for a in pair.steps if not same_rates(rates(a.resumed), rates(a.control))), None)


def _shown(step: StepRecord) -> str:
    values = list(dict.fromkeys(f"{rate:.6g}" for rate in rates(step)))
    return ", ".join(values) if values else "unknown"


def _varies(pair: Beside) -> bool:
    first = rates(pair.control.steps[0])
    return any(not same_rates(rates(step), first) for step in pair.control.steps)


def _moved(pair: Beside) -> bool:
    """Tell whether the control's rate took at least three values in the compared steps."""
    return len({tuple(rates(aligned.control)) for aligned in pair.steps}) > 2


def _like_start(pair: Beside, wrong: Aligned) -> bool:
    """Tell whether the rates from the first wrong one on are those of the control's first steps."""
    skipped = wrong.number - pair.basis - 1
    resumed = [rates(aligned.resumed) for aligned in pair.steps[skipped:]]
    starts = [rates(step) for step in pair.control.steps]
    for shift in (0, skipped):
        begin = starts[shift : shift + len(resumed)]
        if len(begin) == len(resumed) and all(map(same_rates, resumed, begin)):
            return True
    return False


def _wrong_counts(pair: Beside) -> _Counts | None:
    seen = pair.first_seen(lambda state: bool(state.schedules))
    if seen is None or pair.measure.ignores("schedules"):
        return None
    initial = state_after(pair.control, seen.number - pair.basis - 1)
    starts = schedule_counts(initial) if initial else []
    found = schedule_counts(seen.resumed.before)
    for place, control in enumerate(schedule_counts(seen.control.before)):
        resumed = found[place] if place < len(found) else {}
        start = starts[place] if place < len(starts) else {}
        wrong = [name for name in control if name != REBUILT and resumed.get(name) != control[name]]
        wrong = [name for name in wrong if name in resumed and _counts(pair, place, name)]
        if wrong:
            shown = ", ".join(f"{name} {resumed[name]} (control {control[name]})" for name in wrong)
            restarted = all(resumed[name] == start.get(name) for name in wrong)
            return _Counts(seen.number, restarted, f"schedule before step {seen.number}: {shown}")
    return None


def _counts(pair: Beside, place: int, name: str) -> bool:
    """Tell whether a field of a schedule changes in the control: others are its settings."""
    seen = set()
    for step in pair.control.steps:
        counts = schedule_counts(step.before)
        if place < len(counts):
            seen.add(counts[place].get(name))
    return len(seen) > 1
