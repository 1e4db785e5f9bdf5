"""The learning-rate schedule: its counters, and the rates that the steps really used."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from samestep.contract import Component
from samestep.drill.judging.compare import (
    is_number,
    same_rates,
    same_setting,
    schedule_counts,
    schedule_values,
    state_after,
)
from samestep.drill.judging.diagnosis.records import finding

if TYPE_CHECKING:
    from samestep.drill.judging.beside import Aligned, Beside, Moment
    from samestep.drill.result import FindingRecord
    from samestep.trace import State, StepRecord

REBUILT = "_step_count"
"""Counter that rightly starts anew in a schedule that is built again for a later epoch or step."""


METRIC = frozenset({"best", "num_bad_epochs", "cooldown_counter"})
"""Fields of a schedule that waits for a metric: the rates of a few steps say nothing about them."""


@dataclass(frozen=True)
class _Counts:
    """Counters of a schedule that are not the control's.

    Attributes:
        step: control step before which that shows.
        restarted: they are those of a fresh start.
        text: what was seen.
        certain: no other way of building the schedule explains them: they were right when the run went on, or they
            follow a metric.
    """

    step: int
    restarted: bool
    text: str
    certain: bool = False


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
        if counts is None or (_moved(pair) and not counts.certain):
            return _rates_in_the_end(pair)
        return [_record(pair, counts.step, counts.restarted, counts.text)]
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
    return _listed(rates(step))


def _listed(values: list[float]) -> str:
    return ", ".join(dict.fromkeys(f"{value:.6g}" for value in values)) or "unknown"


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


def _rates_in_the_end(pair: Beside) -> list[FindingRecord]:
    """Tell whether the rates left in the optimizers' groups agree where the resumed run ended.

    Where they disagree before a step whose call used the right ones, the script sets them only then.
    """
    if not pair.moments or not all(_same_group_rates(moment) for moment in pair.moments[:-1]):
        return []
    last = pair.moments[-1]
    if len(pair.moments) <= len(pair.steps) or _same_group_rates(last):
        return []
    left, due = _listed(_group_rates(last.resumed)), _listed(_group_rates(last.control))
    text = f"learning rate {left} {last.when}, control {due}"
    return [_record(pair, last.step, restarted=False, text=text)]


def _same_group_rates(moment: Moment) -> bool:
    return same_rates(_group_rates(moment.resumed), _group_rates(moment.control))


def _group_rates(state: State) -> list[float]:
    return [float(group["lr"]) for groups in state.groups for group in groups if is_number(group.get("lr"))]


def _wrong_counts(pair: Beside) -> _Counts | None:
    seen = pair.first_seen(lambda state: bool(state.schedules))
    if seen is None or pair.measure.ignores("schedules"):
        return None
    at_first = _counts_at(pair, seen.moment)
    if at_first is not None:
        return at_first
    parted = pair.later(seen.moment, lambda moment: _parted_counts(pair, moment))
    return replace(parted[1], certain=True) if parted else None


def _parted_counts(pair: Beside, moment: Moment) -> _Counts | None:
    """Compare later counters, unless other schedules are alive by then."""
    types = [[each.get("type") for each in state.schedules] for state in (moment.control, moment.resumed)]
    return _counts_at(pair, moment) if types[0] == types[1] else None


def _counts_at(pair: Beside, moment: Moment) -> _Counts | None:
    initial = state_after(pair.control, moment.complete - pair.basis)
    starts = schedule_counts(initial) if initial else []
    found = _progress_of(pair, moment.resumed)
    for place, control in enumerate(_progress_of(pair, moment.control)):
        resumed = found[place] if place < len(found) else {}
        start = starts[place] if place < len(starts) else {}
        wrong = [name for name in control if name != REBUILT and name in resumed]
        wrong = [name for name in wrong if not same_setting(resumed[name], control[name])]
        wrong = [name for name in wrong if _counts(pair, place, name)]
        if wrong:
            shown = ", ".join(f"{name} {resumed[name]} (control {control[name]})" for name in wrong)
            restarted = all(resumed[name] == start.get(name) for name in wrong)
            text = f"schedule {moment.when}: {shown}"
            return _Counts(moment.step, restarted, text, certain=not METRIC.isdisjoint(wrong))
    return None


def _progress_of(pair: Beside, state: State) -> list[dict[str, int | float]]:
    """Return what moves in every schedule: counters, and numbers such as the best metric of a plateau."""
    counts = schedule_counts(state)
    if pair.measure.ignores("schedule-values"):
        return [dict(each) for each in counts]
    return [{**each, **values} for each, values in zip(counts, schedule_values(state), strict=True)]


def _counts(pair: Beside, place: int, name: str) -> bool:
    """Tell whether a field of a schedule changes in the control: others are its settings."""
    seen = set()
    for step in pair.control.steps:
        progress = _progress_of(pair, step.before)
        if place < len(progress):
            seen.add(progress[place].get(name))
    return len(seen) > 1
