"""Comparing what traces recorded: contents, numbers, plain values. Pure."""

from __future__ import annotations

import base64
import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from samestep.drill.result import Criterion
    from samestep.trace import MicroStep, Quantity, State, Trace

RATE_PRECISION = 1e-9
"""Relative difference below which two learning rates are one: closed and recursive formulas round differently."""


def numbers(quantity: Quantity) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the sampled values of ``quantity``, shape (samples,)."""
    return np.frombuffer(base64.b64decode(quantity.sample), dtype="<f8")


def relative_distance(one: Quantity, other: Quantity) -> float:
    """Return ``|one - other| / |other|`` (Euclidean, over the sampled values).

    0.0 when the contents are equal; the smallest positive number when they differ in values that were not sampled;
    infinite when the shapes differ, nothing was sampled, or a value is infinite or undefined on one side only.
    """
    if digests_tell(one, other) and one.digest == other.digest:
        return 0.0
    if (one.tensors, one.elements) != (other.tensors, other.elements):
        return math.inf
    left, right = numbers(one), numbers(other)
    if left.shape != right.shape or not left.size:
        return math.inf
    odd = ~(np.isfinite(left) & np.isfinite(right))
    if not np.array_equal(left[odd], right[odd], equal_nan=True):
        return math.inf
    unseen = math.ulp(0.0) if digests_tell(one, other) else 0.0
    return _ratio(left[~odd], right[~odd]) or unseen


def digests_tell(one: Quantity, other: Quantity) -> bool:
    """Tell whether both digests were made in the same way: some steps may be sampled only."""
    return (
        bool(one.digest and other.digest) and one.digest.partition(":")[0] == other.digest.partition(":")[0]
    )


def _ratio(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> float:
    scale = max(np.abs(left).max(initial=0.0), np.abs(right).max(initial=0.0))
    if scale == 0:
        return 0.0
    gap = float(np.linalg.norm(left / scale - right / scale))
    size = float(np.linalg.norm(right / scale))
    if gap == 0:
        return 0.0
    return gap / size if size else math.inf


def number_distance(one: float, other: float) -> float:
    """Return the relative distance of two numbers; undefined equals undefined."""
    if one == other or (math.isnan(one) and math.isnan(other)):
        return 0.0
    if not (math.isfinite(one) and math.isfinite(other)):
        return math.inf
    return abs(one - other) / max(abs(one), abs(other))


def same_plain(one: object, other: object) -> bool:
    """Tell whether two plain values are equal, an undefined number being equal to itself."""
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_plain, one, other))
    return one == other


def same_rates(one: Sequence[float], other: Sequence[float]) -> bool:
    """Tell whether learning rates agree, pair by pair, as far as both were recorded."""
    return all(number_distance(a, b) <= RATE_PRECISION for a, b in zip(one, other, strict=False))


def same_setting(one: object, other: object) -> bool:
    """Tell whether two hyper-parameters agree; numbers as far as rounding goes."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_setting, one, other))
    if is_number(one) and is_number(other):
        return number_distance(one, other) <= RATE_PRECISION  # type: ignore[arg-type]
    return same_plain(one, other)


def is_number(value: object) -> bool:
    """Tell whether ``value`` is an integer or a float, and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def schedule_counts(state: State) -> list[dict[str, int]]:
    """Return the whole-number counters of every schedule."""
    return [
        {
            name: value
            for name, value in sorted(schedule.items())
            if isinstance(value, int) and not isinstance(value, bool)
        }
        for schedule in state.schedules
    ]


def schedule_values(state: State) -> list[dict[str, float]]:
    """Return the numbers of every schedule that are no whole ones (the best metric of a plateau)."""
    return [
        {name: value for name, value in sorted(schedule.items()) if isinstance(value, float)}
        for schedule in state.schedules
    ]


class Measure:
    """Tells same from different by a criterion.

    Args:
        criterion: its ``tolerances`` are the largest accepted relative distances; a quantity without one is
            compared exactly, one in ``ignored`` not at all.
    """

    def __init__(self, criterion: Criterion) -> None:
        self.exact = criterion.kind == "exact"
        self._tolerances = criterion.tolerances
        self._ignored = frozenset(criterion.ignored)

    def ignores(self, name: str) -> bool:
        """Tell whether the controls themselves disagree on ``name``, so that nothing can be judged by it."""
        return name in self._ignored

    def tolerance(self, name: str) -> float:
        """Return the largest accepted relative distance."""
        return self._tolerances.get(name, 0.0)

    def same(self, name: str, one: Quantity | None, other: Quantity | None) -> bool:
        """Tell whether two contents agree; absent agrees with absent only."""
        if one is None or other is None:
            return one is other
        if digests_tell(one, other) and not self.tolerance(name):
            return one.digest == other.digest
        return relative_distance(one, other) <= self.tolerance(name)

    def same_number(self, name: str, one: float | None, other: float | None) -> bool:
        """Tell whether two numbers agree; one that was not recorded is not compared."""
        if one is None or other is None:
            return True
        return number_distance(one, other) <= self.tolerance(name)


def by_rank(traces: Sequence[Trace]) -> dict[int, Trace]:
    """Return the trace of each rank, ascending; of several processes of one rank the one with most steps."""
    chosen: dict[int, Trace] = {}
    for trace in traces:
        known = chosen.get(trace.header.rank)
        if trace.steps and (known is None or len(trace.steps) > len(known.steps)):
            chosen[trace.header.rank] = trace
    return dict(sorted(chosen.items()))


def state_after(trace: Trace, step: int) -> State | None:
    """Return the state with ``step`` steps complete; None when it was not recorded."""
    if 0 <= step < len(trace.steps):
        return trace.steps[step].before
    if step == len(trace.steps) and trace.end is not None and trace.end.state.weights is not None:
        return trace.end.state
    return None


def weights_after(trace: Trace, step: int) -> list[Quantity]:
    """Return the weights seen with ``step`` steps complete: right after the update, and before the next step."""
    seen = [trace.steps[step - 1].weights_after] if 0 < step <= len(trace.steps) else []
    state = state_after(trace, step)
    return [content for content in [*seen, state.weights if state else None] if content is not None]


def micro_stream(trace: Trace, start: int = 0) -> list[MicroStep]:
    """Return the micro-steps of all steps from index ``start`` on, in order of use."""
    return [micro for step in trace.steps[start:] for micro in step.micro_steps]


def epoch_starts(trace: Trace, epoch_ends: Sequence[int] = ()) -> list[int]:
    """Return the positions in the micro-step stream where an epoch begins, ascending, 0 first.

    Args:
        trace: a control.
        epoch_ends: steps known to end an epoch. Without any, an epoch is taken to begin where a sample (or,
            without sample numbers, a whole batch) comes that was already used since the last beginning.
    """
    if epoch_ends:
        counts = [len(step.micro_steps) for step in trace.steps]
        return sorted({0, *(sum(counts[:end]) for end in epoch_ends if 0 < end < len(counts))})
    starts, used = [0], set[str]()
    for position, micro in enumerate(micro_stream(trace)):
        items = {repr(item) for item in micro.samples} if micro.samples else {micro.inputs}
        if used & items:
            starts.append(position)
            used = set()
        used |= items
    return starts


def epoch_ends(trace: Trace) -> list[int]:
    """Return the steps of ``trace`` that ended an epoch, as far as its data order shows it."""
    starts = set(epoch_starts(trace)[1:])
    ends, position = [], 0
    for number, step in enumerate(trace.steps, start=1):
        position += len(step.micro_steps)
        if position in starts:
            ends.append(number)
    return ends


def same_batch(one: MicroStep, other: MicroStep) -> bool:
    """Tell whether two micro-steps used the same data: equal content, or else equal sample numbers."""
    if one.inputs and one.inputs == other.inputs:
        return True
    return bool(one.samples) and same_plain(one.samples, other.samples)
