"""Weights, buffers, averaged weights and loss scalers before the first step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samestep.drill.judging.compare import is_number, relative_distance, same_plain, state_after
from samestep.drill.judging.diagnosis.records import finding

if TYPE_CHECKING:
    from samestep.drill.judging.align import Alignment
    from samestep.drill.judging.compare import Aligned, Beside
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
    """Tell whether buffers were restored.

    Buffers that soon agree of themselves (caches that the model rebuilds) were not lost: they must differ before
    every compared step. Inside an accumulation window they cannot be compared.
    """
    compared = [aligned for aligned in pair.steps if aligned.control.before.buffers]
    if not compared or pair.steps[0].offset or any(_same_buffers(pair, aligned) for aligned in compared):
        return []
    control, resumed = compared[0].control.before.buffers, compared[0].resumed.before.buffers
    text = f"buffers before step {compared[0].number} {_how(control, resumed)}"
    return [finding("buffers-lost", text, step=compared[0].number, quantity="buffers")]


def _same_buffers(pair: Beside, aligned: Aligned) -> bool:
    return pair.measure.same("buffers", aligned.resumed.before.buffers, aligned.control.before.buffers)


def _how(control: Quantity | None, resumed: Quantity | None) -> str:
    if control is None or resumed is None:
        return "are absent"
    return f"are not the control's (relative distance {relative_distance(resumed, control):.2g})"


def averages(pair: Beside) -> list[FindingRecord]:
    """Tell whether averaged weights, and their update counters, were restored."""
    seen = pair.first_seen(lambda state: bool(state.averages))
    if seen is None:
        return []
    known = {average.name: average for average in seen.resumed.before.averages}
    for place, average in enumerate(seen.control.before.averages):
        resumed = known.get(average.name) or _at(seen.resumed.before.averages, place)
        if difference := _average_difference(pair, place, average, resumed):
            text = f"{average.name} before step {seen.number} {difference}"
            return [finding("ema-lost", text, step=seen.number, quantity=f"average/{place}")]
    return []


def _at(items: list[Average], place: int) -> Average | None:
    return items[place] if place < len(items) else None


def _average_difference(pair: Beside, place: int, control: Average, resumed: Average | None) -> str:
    if resumed is None:
        return "is absent"
    if not pair.measure.same(f"average/{place}", resumed.content, control.content):
        initial = state_after(pair.control, 0)
        first = _at(initial.averages, place) if initial else None
        if first and resumed.content.digest == first.content.digest:
            return "is the control's before step 1"
        return f"is not the control's (relative distance {relative_distance(resumed.content, control.content):.2g})"
    if None not in (control.updates, resumed.updates) and control.updates != resumed.updates:
        return f"has {resumed.updates} updates, control {control.updates}"
    return ""


def scaler(pair: Beside) -> list[FindingRecord]:
    """Tell whether loss scales and their growth counters were restored."""
    seen = pair.first_seen(lambda state: bool(state.scalers))
    if seen is None or pair.measure.ignores("scalers"):
        return []
    found = seen.resumed.before.scalers
    for place, control in enumerate(seen.control.before.scalers):
        if place >= len(found):
            return [
                finding(
                    "scaler-reset", f"the loss scaler is absent before step {seen.number}", step=seen.number
                )
            ]
        wrong = [
            name
            for name, value in control.items()
            if name in found[place] and not same_plain(found[place][name], value)
        ]
        if wrong:
            shown = ", ".join(
                f"{name} {_number(found[place][name])} (control {_number(control[name])})" for name in wrong
            )
            text = f"loss scaler before step {seen.number}: {shown}"
            return [finding("scaler-reset", text, step=seen.number, quantity=f"scaler/{place}")]
    return []


def _number(value: object) -> str:
    return f"{value:g}" if is_number(value) else str(value)
