"""Weights, buffers, averaged weights and loss scalers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samestep.drill.judging.compare import is_number, relative_distance, same_plain, state_after
from samestep.drill.judging.diagnosis.records import PARTED, finding

if TYPE_CHECKING:
    from samestep.drill.judging.align import Alignment
    from samestep.drill.judging.beside import Beside, Moment
    from samestep.drill.result import FindingRecord
    from samestep.trace import Average, Quantity


def weights(pair: Beside, alignment: Alignment) -> list[FindingRecord]:
    """Tell whether the weights before the first step are those of the control."""
    first = pair.resumed.steps[0].before.weights
    if first is None:
        return []
    number = pair.basis + 1
    if alignment.ema_step is not None:
        text = f"weights before step {number} are the averaged weights of step {alignment.ema_step}"
        return [finding("weights-are-averaged", text, step=number, quantity="weights")]
    if alignment.fresh_weights_only:
        text = f"weights before step {number} are the control's initial ones, the rest is that of step {pair.basis}"
        return [finding("weights-not-restored", text, step=number, quantity="weights")]
    if alignment.step is not None:
        return []
    text = f"weights before step {number} match no step of the control{_nearest(alignment)}"
    return [finding("weights-not-restored", text, step=number, quantity="weights")]


def _nearest(alignment: Alignment) -> str:
    if alignment.nearest is None or alignment.distance == float("inf"):
        return ""
    return f"; the nearest is step {alignment.nearest} at relative distance {alignment.distance:.2g}"


def buffers(pair: Beside) -> list[FindingRecord]:
    """Tell whether buffers were restored, and stay the control's as long as the steps are.

    Buffers that soon agree of themselves (caches that the model rebuilds) were not lost: they must differ before
    every compared step. Once they agreed they may not part again while everything else agrees: batch-norm
    statistics have no influence on the steps that make them. Inside an accumulation window they cannot be compared.
    """
    compared = [a.moment for a in pair.steps if a.control.before.buffers and not a.offset]
    if not compared or pair.measure.ignores("buffers"):
        return []
    agreed = next((moment for moment in compared if not _buffers_differ(pair, moment)), None)
    if agreed is None:
        return [] if pair.steps[0].offset else [_lost_buffers(compared[0])]
    parted = pair.later(agreed, lambda moment: _buffers_differ(pair, moment))
    return [_parted(_lost_buffers(parted[0]))] if parted else []


def _parted(record: FindingRecord) -> FindingRecord:
    record.details = [*record.details, PARTED]
    return record


def _buffers_differ(pair: Beside, moment: Moment) -> bool:
    control, resumed = moment.control.buffers, moment.resumed.buffers
    if moment.at_end and _other_tensors(control, resumed):
        return False  # other models are alive at the end of a process than before its last step
    return not pair.measure.same("buffers", resumed, control)


def _other_tensors(one: Quantity | None, other: Quantity | None) -> bool:
    return one is None or other is None or (one.tensors, one.elements) != (other.tensors, other.elements)


def _lost_buffers(moment: Moment) -> FindingRecord:
    text = f"buffers {moment.when} {_how(moment.control.buffers, moment.resumed.buffers)}"
    return finding("buffers-lost", text, step=moment.step, quantity="buffers")


def _how(control: Quantity | None, resumed: Quantity | None) -> str:
    if control is None or resumed is None:
        return "are absent"
    return f"are not the control's (relative distance {relative_distance(resumed, control):.2g})"


def averages(pair: Beside) -> list[FindingRecord]:
    """Tell whether averaged weights and their update counters were restored, and go on as the control's."""
    seen = pair.first_seen(lambda state: bool(state.averages))
    if seen is None:
        return []
    lost = _lost_average(pair, seen.moment, absence_counts=True)
    parted = None if lost else pair.later(seen.moment, lambda moment: _lost_average(pair, moment))
    return [_parted(parted[1])] if parted else [lost] if lost else []


def _lost_average(pair: Beside, moment: Moment, *, absence_counts: bool = False) -> FindingRecord | None:
    """Return the finding for the first average that is not the control's.

    Args:
        pair: the two runs.
        moment: the point.
        absence_counts: an average that is not there is lost. Later one may not have been found yet.
    """
    if pair.measure.ignores("averages"):
        return None
    for place, (average, resumed) in enumerate(_paired(moment)):
        if resumed is None and not absence_counts:
            continue
        if difference := _average_difference(pair, place, average, resumed):
            text = f"{average.name} {moment.when} {difference}"
            return finding("ema-lost", text, step=moment.step, quantity=f"average/{place}")
    return None


def _paired(moment: Moment) -> list[tuple[Average, Average | None]]:
    """Put beside each of the control's averages the resumed run's of that name, or else one that no name claims."""
    left = list(moment.resumed.averages)
    found: list[Average | None] = []
    for average in moment.control.averages:
        same = next((other for other in left if other.name == average.name), None)
        found.append(same)
        left = [other for other in left if other is not same]
    if len(left) == found.count(None):
        found = [average or left.pop(0) for average in found]
    return list(zip(moment.control.averages, found, strict=True))


def _average_difference(pair: Beside, place: int, control: Average, resumed: Average | None) -> str:
    if resumed is None:
        return "is absent"
    name = f"average/{place}"
    if not pair.measure.ignores(name) and not pair.measure.same(name, resumed.content, control.content):
        initial = state_after(pair.control, 0)
        first = initial.averages[place] if initial and place < len(initial.averages) else None
        if first and resumed.content.digest == first.content.digest:
            return "is the control's before step 1"
        return f"is not the control's (relative distance {relative_distance(resumed.content, control.content):.2g})"
    counted = None not in (control.updates, resumed.updates) and not pair.measure.ignores(f"updates/{place}")
    if counted and control.updates != resumed.updates:
        return f"has {resumed.updates} updates, control {control.updates}"
    return ""


def scaler(pair: Beside) -> list[FindingRecord]:
    """Tell whether loss scales and their growth counters were restored, and go on as the control's."""
    seen = pair.first_seen(lambda state: bool(state.scalers))
    if seen is None or pair.measure.ignores("scalers"):
        return []
    lost = _lost_scaler(seen.moment, absence_counts=True)
    parted = None if lost else pair.later(seen.moment, _lost_scaler)
    return [_parted(parted[1])] if parted else [lost] if lost else []


def _lost_scaler(moment: Moment, *, absence_counts: bool = False) -> FindingRecord | None:
    found = moment.resumed.scalers
    for place, control in enumerate(moment.control.scalers):
        if place >= len(found):
            text = f"the loss scaler is absent {moment.when}"
            return finding("scaler-reset", text, step=moment.step) if absence_counts else None
        wrong = [
            name
            for name, value in control.items()
            if name in found[place] and not same_plain(found[place][name], value)
        ]
        if wrong:
            shown = ", ".join(
                f"{name} {_number(found[place][name])} (control {_number(control[name])})" for name in wrong
            )
            text = f"loss scaler {moment.when}: {shown}"
            return finding("scaler-reset", text, step=moment.step, quantity=f"scaler/{place}")
    return None


def _number(value: object) -> str:
    return f"{value:g}" if is_number(value) else str(value)
