"""The rule for "the same": exact where two controls agree, otherwise a tolerance taken from their spread. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

from samestep.contract import Component
from samestep.drill.judging.compare import (
    by_rank,
    number_distance,
    relative_distance,
    same_batch,
    same_plain,
    schedule_counts,
    schedule_values,
)
from samestep.drill.judging.diagnosis.records import finding
from samestep.drill.result import Criterion

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from samestep.drill.judging.judgement import Judgement, Reference
    from samestep.drill.result import FindingRecord, ScenarioResult
    from samestep.trace import Quantity, State, StepRecord, Trace

SAFETY = 10.0
"""Tolerance over the largest spread seen.

The spread of two controls is one draw of the same chance that a resumed run makes. For one normally distributed number
the ratio of two draws exceeds 10 in 6 % of cases (2/pi * arctan(1/10)); for the largest of many steps, and for the
length of a vector of many numbers, practically never.
"""

FLOOR = 1e-6
"""Least tolerance of weights and loss in a noisy run: about eight units in the last place of single precision."""

EXACT_RULE = "two controls agree in every number, so every number must agree"
NOISY_RULE = (
    f"per quantity {SAFETY:g} times the largest relative Euclidean distance between the two controls at any step, at "
    f"least {FLOOR:g} for weights and loss; quantities in which they never differ must agree exactly"
)

SABOTAGED = {
    "optimizer": (Component.OPTIMIZER,),
    "schedule": (Component.SCHEDULE,),
    "data": (Component.DATA_POSITION, Component.DATA_ORDER),
    "rng": (Component.RNG,),
}
"""What each sabotage damages; a finding that names one of the components has caught it."""


@dataclass
class _Spread:
    """Differences between two controls: ``numeric`` as largest relative distance, ``other`` by name alone."""

    numeric: dict[str, float] = field(default_factory=dict)
    other: set[str] = field(default_factory=set)

    def contents(self, name: str, one: Quantity | None, other: Quantity | None) -> None:
        if one is None or other is None:
            if one is not other:
                self._add(name, math.inf)
        elif distance := relative_distance(one, other):
            self._add(name, distance)

    def values(self, name: str, one: float | None, other: float | None) -> None:
        if (one is None) != (other is None):
            self._add(name, math.inf)
        elif one is not None and other is not None and (distance := number_distance(one, other)):
            self._add(name, distance)

    def plain(self, name: str, one: object, other: object) -> None:
        if not same_plain(one, other):
            self.other.add(name)

    def _add(self, name: str, distance: float) -> None:
        self.numeric[name] = max(distance, self.numeric.get(name, 0.0))


def derive(control_a: Sequence[Trace], control_b: Sequence[Trace]) -> Criterion:
    """Fix the criterion from two uninterrupted runs, each given as one trace per rank.

    Numbers (contents of tensors, losses) in which the runs differ get a tolerance, see `SAFETY` and `FLOOR`. What has
    no size (sample numbers, generators, learning rates, step counts, presence of a component) stays exact, or, where
    the runs themselves differ in it, is not judged.
    """
    spread = _spread(control_a, control_b)
    finite = {name: distance for name, distance in spread.numeric.items() if math.isfinite(distance)}
    ignored = sorted(spread.other | (spread.numeric.keys() - finite.keys()))
    if not spread.numeric:
        return Criterion(kind="exact", rule=EXACT_RULE, ignored=ignored)
    tolerances = {name: SAFETY * distance for name, distance in finite.items()}
    for name in ("weights", "loss"):
        tolerances[name] = max(tolerances.get(name, 0.0), FLOOR)
    return Criterion(
        kind="tolerance", rule=NOISY_RULE, tolerances=dict(sorted(tolerances.items())), ignored=ignored
    )


def differing(control_a: Sequence[Trace], control_b: Sequence[Trace]) -> list[str]:
    """Return the names of the quantities in which two controls differ: none means bit for bit equal."""
    spread = _spread(control_a, control_b)
    return sorted({*spread.numeric, *spread.other})


def too_noisy(
    criterion: Criterion, control_a: Sequence[Trace], control_b: Sequence[Trace]
) -> FindingRecord | None:
    """Return a ``noisy-control`` finding when the controls differ so much that a third run cannot be judged.

    That is so when they took different numbers of steps, trained on different data, or when the distance between their
    weights is larger than the median distance by which one step moves the weights: a run could then be a step off
    and yet lie within the noise.
    """
    if criterion.kind == "exact" and not {"samples", "steps"} & set(criterion.ignored):
        return None
    one, other = by_rank(control_a), by_rank(control_b)
    for rank in sorted(one.keys() | other.keys()):
        reason = (
            "the ranks differ" if rank not in one or rank not in other else _noise(one[rank], other[rank])
        )
        if reason:
            return finding("noisy-control", reason, rank=rank)
    return None


def sensitivity(
    judgements: Mapping[str, Judgement | ScenarioResult], reference: Reference | None = None
) -> tuple[dict[str, bool], list[Component]]:
    """Tell which sabotages were caught, and the components that the criterion is blind to.

    Args:
        judgements: of each sabotaged resume, by the name in the orders (``optimizer``, ``schedule``, ``data``,
            ``rng``).
        reference: the control; sabotages that it offers nothing for (it has no schedule, its optimizer keeps no
            state) are left out of the answer.
    """
    there = {name for name in SABOTAGED if reference is None or _offers(reference, name)}
    caught = {
        name: _caught(judgement.findings, SABOTAGED[name])
        for name, judgement in judgements.items()
        if name in there
    }
    blind = [component for name, seen in caught.items() if not seen for component in SABOTAGED[name]]
    return caught, blind


def _caught(findings: Sequence[FindingRecord], components: Sequence[Component]) -> bool:
    named = {component for record in findings for component in record.components}
    return bool(named & set(components))


def _offers(reference: Reference, sabotage: str) -> bool:
    """Tell whether the control has what a sabotage damages."""
    states = [step.before for trace in reference.traces for step in trace.steps]
    if sabotage == "optimizer":
        return any(state.optimizer for state in states)
    return sabotage != "schedule" or any(state.schedules for state in states)


def _spread(control_a: Sequence[Trace], control_b: Sequence[Trace]) -> _Spread:
    spread = _Spread()
    one, other = by_rank(control_a), by_rank(control_b)
    spread.plain("ranks", sorted(one), sorted(other))
    for rank in one.keys() & other.keys():
        spread.plain("steps", len(one[rank].steps), len(other[rank].steps))
        for left, right in zip(one[rank].steps, other[rank].steps, strict=False):
            _add_step(spread, left, right)
        if (left_end := one[rank].end) and (right_end := other[rank].end):
            _add_state(spread, left_end.state, right_end.state)
    return spread


def _add_step(spread: _Spread, one: StepRecord, other: StepRecord) -> None:
    _add_state(spread, one.before, other.before)
    spread.contents("weights", one.weights_after, other.weights_after)
    spread.plain("micro-steps", len(one.micro_steps), len(other.micro_steps))
    for left, right in zip(one.micro_steps, other.micro_steps, strict=False):
        spread.plain("samples", left.samples, right.samples)
        spread.plain("inputs", left.inputs, right.inputs)
        spread.values("loss", left.loss, right.loss)
        _add_named(spread, "rng", left.rng, right.rng)
    _add_named(spread, "generators", one.generators, other.generators)
    for left_call, right_call in zip(one.updates, other.updates, strict=False):
        spread.plain("groups", left_call.groups, right_call.groups)


def _add_state(spread: _Spread, one: State, other: State) -> None:
    spread.contents("weights", one.weights, other.weights)
    spread.contents("buffers", one.buffers, other.buffers)
    spread.contents("gradients", one.gradients, other.gradients)
    for name in one.optimizer.keys() | other.optimizer.keys():
        spread.contents(name, one.optimizer.get(name), other.optimizer.get(name))
    spread.plain("averages", len(one.averages), len(other.averages))
    for place, (left, right) in enumerate(zip(one.averages, other.averages, strict=False)):
        spread.contents(f"average/{place}", left.content, right.content)
        spread.plain(f"updates/{place}", left.updates, right.updates)
    spread.plain("groups", one.groups, other.groups)
    spread.plain("schedules", schedule_counts(one), schedule_counts(other))
    spread.plain("schedule-values", schedule_values(one), schedule_values(other))
    spread.plain("scalers", one.scalers, other.scalers)
    _add_named(spread, "rng", one.rng, other.rng)


def _add_named(spread: _Spread, prefix: str, one: dict[str, str], other: dict[str, str]) -> None:
    for name in one.keys() | other.keys():
        spread.plain(f"{prefix}/{name}", one.get(name), other.get(name))


def _noise(one: Trace, other: Trace) -> str:
    """Return why two controls of one rank are too far apart; empty when they are not."""
    if len(one.steps) != len(other.steps):
        return f"the controls took {len(one.steps)} and {len(other.steps)} steps"
    if step := _first_other_data(one, other):
        return f"the controls trained on different data at step {step}"
    moved = [distance for distance in _movements(one) if math.isfinite(distance) and distance > 0] or [0.0]
    step, apart = _widest(one, other)
    if math.isinf(apart):
        return f"at step {step} the weights of the controls differ, and no numbers were sampled to tell by how much"
    if apart <= median(moved):
        return ""
    return (
        f"at step {step} the weights of the controls lie {apart:.2g} apart (relative distance), a step moves them by "
        f"{median(moved):.2g}"
    )


def _first_other_data(one: Trace, other: Trace) -> int | None:
    """Return the first step with other samples, or with other content when it is the very first batch.

    Later batches without sample numbers may hold what the model itself made, and so its noise.
    """
    for number, (left, right) in enumerate(zip(one.steps, other.steps, strict=False), start=1):
        for micro, twin in zip(left.micro_steps, right.micro_steps, strict=False):
            known = micro.samples is not None and twin.samples is not None
            if known and not same_plain(micro.samples, twin.samples):
                return number
            if not known and number == 1 and not same_batch(micro, twin):
                return number
    return None


def _movements(trace: Trace) -> Iterable[float]:
    for step in trace.steps:
        if step.before.weights and step.weights_after:
            yield relative_distance(step.weights_after, step.before.weights)


def _widest(one: Trace, other: Trace) -> tuple[int, float]:
    """Return the step at which the weights lie furthest apart, and how far."""
    found = (0, 0.0)
    for number, (left, right) in enumerate(zip(one.steps, other.steps, strict=False), start=1):
        if left.weights_after and right.weights_after:
            apart = relative_distance(left.weights_after, right.weights_after)
            found = max(found, (number, apart), key=lambda pair: pair[1])
    return found
