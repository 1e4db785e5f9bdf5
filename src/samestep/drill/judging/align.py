"""Where a resumed run really goes on: the control step whose state it holds, and the one its counters claim. Pure."""

from __future__ import annotations

import math
import re
from collections import Counter as Tally
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from samestep.drill.judging.compare import (
    Measure,
    is_number,
    numbers,
    relative_distance,
    same_batch,
    schedule_counts,
    state_after,
    weights_after,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from samestep.drill.result import Criterion
    from samestep.trace import Quantity, State, Trace

AVERAGE_DISTANCE = 1e-3
"""Relative distance at which weights count as the control's average: half precision rounds by up to 2**-11 (4.9e-4)."""

NEAR_DISTANCE = 0.1
"""Weights further than this from every control step say nothing about the step."""

LEADING_NAMES = frozenset(
    {"global_step", "global_steps", "global_iter", "iteration", "iterations", "current_step", "current_iter"}
    | {"cur_iter", "completed_steps", "steps_done", "steps_completed", "step_count", "optimizer_step"}
    | {"optimizer_steps", "total_steps", "num_updates", "num_steps", "steps_taken", "train_step"}
    | {"overall_step", "iter_num", "step_num", "iteration_count", "total_iterations", "num_iterations"}
)
"""Last parts of paths that only ever name a run's own step counter; what one of them says is decisive."""

LOOP_NAMES = frozenset({"step", "steps", "it", "iter", "i", "n", "idx", "step_idx", "current"})
"""Last parts of paths that often name it."""

MOST_CALLS = 4
"""A counter may stand still for this many optimizer steps (several optimizers trained in turn)."""


@dataclass(frozen=True)
class Counter:
    """A plain value that counts the control's steps: ``start + rise * ((steps + shift) // period)``."""

    path: str
    start: float
    rise: float
    period: int = 1
    shift: int = 0

    @property
    def tier(self) -> int:
        """How much its name says: 0 decides, 1 speaks when none of those is there, 2 only hints."""
        name = re.split(r"[.\[\]'\"]+", self.path.rstrip("]'\""))[-1].lower().strip("_")
        return 0 if name in LEADING_NAMES else 1 if name in LOOP_NAMES else 2

    def steps(self, value: object) -> range:
        """Return the numbers of complete steps at which the counter holds ``value``."""
        if not is_number(value):
            return range(0)
        turns = (value - self.start) / self.rise  # type: ignore[operator]
        if not math.isfinite(turns) or turns != int(turns):
            return range(0)
        first = int(turns) * self.period - self.shift
        return range(max(first, 0), first + self.period)


@dataclass(frozen=True)
class Claim:
    """What the run's own counters say: the step, and the path of the counter."""

    step: int
    path: str
    tier: int


@dataclass(frozen=True)
class Alignment:
    """Where a resumed run goes on.

    Attributes:
        step: steps of the control complete in the state it holds, by its weights; 0: the control's initial state;
            None: its weights match no step.
        ema_step: the step whose averaged weights it holds instead, if so.
        claim: what its counters say; None when it has none.
        elsewhere: the step that the rest of its state speaks for, when the weights are the initial ones or match none.
        nearest, distance: closest control step by weights, when none matches.
        fresh: the rest of its state is that of a fresh start, as far as it tells.
    """

    step: int | None
    ema_step: int | None = None
    claim: Claim | None = None
    elsewhere: int | None = None
    nearest: int | None = None
    distance: float = math.inf
    fresh: bool = False

    @property
    def claimed_step(self) -> int | None:
        """The step that its counters claim."""
        return self.claim.step if self.claim else None

    @property
    def fresh_weights_only(self) -> bool:
        """Whether only the weights are a fresh start's: they were not restored, and the rest was."""
        return self.step == 0 and self.elsewhere is not None

    def basis(self, expected: int | None = None) -> int | None:
        """Return the step from which the rest of the state is compared; None when nothing tells."""
        if self.step is not None and not self.fresh_weights_only:
            return self.step
        near = self.nearest if self.distance <= NEAR_DISTANCE else None
        ordered = [self.ema_step, self.elsewhere, near, 0 if self.fresh else None, expected]
        return next((step for step in ordered if step is not None), None)


@dataclass
class _Signals:
    """Steps of the control at which each further component is the resumed run's; only where it tells them apart."""

    steps: dict[str, frozenset[int]] = field(default_factory=dict)

    def votes(self, step: int) -> int:
        return sum(step in steps for steps in self.steps.values())


def find_resume_step(
    reference: Trace, resumed: Trace, criterion: Criterion, saves: Sequence[int] = ()
) -> Alignment:
    """Find the control step whose state a resumed run holds before its first step.

    Weights decide. Where several control steps share them (a warm-up from learning rate 0, steps skipped by a loss
    scaler), the optimizer's state, the schedule, the data and the counters do. Noisy runs take the nearest
    control step within the tolerance.

    Args:
        reference: the control, of the same rank.
        resumed: at least one step.
        criterion: fixed before.
        saves: steps at which checkpoints lay on disk; they break ties.
    """
    measure = Measure(criterion)
    claim = claimed_step(reference, resumed)
    if not resumed.steps or resumed.steps[0].before.weights is None:
        return Alignment(None, claim=claim)
    weights = resumed.steps[0].before.weights
    distances = _weights_distances(reference, weights)
    signals = _signals(reference, resumed, measure)
    matches = _matches(distances, measure.tolerance("weights"))
    step = _best(matches, signals, claim, saves, distances)
    elsewhere = _elsewhere(signals, claim, saves) if not step else None
    nearest = min(distances, key=lambda known: distances[known], default=None)
    return Alignment(
        step=step,
        ema_step=_average_step(reference, weights, distances, saves) if step is None else None,
        claim=claim,
        elsewhere=elsewhere,
        nearest=nearest,
        distance=distances[nearest] if nearest is not None else math.inf,
        fresh=elsewhere is None and _all_fresh(signals, claim),
    )


def claimed_step(reference: Trace, resumed: Trace) -> Claim | None:
    """Return the step that the run's own counters claim before its first step.

    A counter is a plain value that goes up steadily with the control's steps. Of several the one with the most telling
    name speaks.
    """
    if not resumed.steps:
        return None
    values = resumed.steps[0].values
    claims = [
        Claim(min(counter.steps(values[counter.path])), counter.path, counter.tier)
        for counter in counters(reference)
        if counter.path in values and counter.steps(values[counter.path])
    ]
    return min(claims, key=lambda claim: (claim.tier, len(claim.path), claim.path), default=None)


def counters(control: Trace) -> list[Counter]:
    """Return the plain values that count the control's steps."""
    if len(control.steps) < MOST_CALLS:
        return []
    calls = min(len({update.optimizer for step in control.steps for update in step.updates}) or 1, MOST_CALLS)
    found = (
        _counter(path, [step.values.get(path) for step in control.steps], calls)
        for path in control.steps[0].values
    )
    return [counter for counter in found if counter is not None]


def _counter(path: str, seen: list[object], calls: int) -> Counter | None:
    if not all(isinstance(value, int) and not isinstance(value, bool) for value in seen):
        return None
    values = [int(value) for value in seen]  # type: ignore[call-overload]
    start, rise = values[0], next((value - values[0] for value in values if value != values[0]), 0)
    if rise <= 0:
        return None
    for period in range(1, calls + 1):
        for shift in range(period):
            if all(value == start + rise * ((k + shift) // period) for k, value in enumerate(values)):
                return Counter(path, start, rise, period, shift)
    return None


def _weights_distances(reference: Trace, weights: Quantity) -> dict[int, float]:
    found = {}
    for step in range(len(reference.steps) + 1):
        candidates = weights_after(reference, step)
        if candidates:
            found[step] = min(relative_distance(weights, content) for content in candidates)
    return found


def _matches(distances: dict[int, float], tolerance: float) -> list[int]:
    """Return the steps that match: all equal ones, or else those as near as the nearest within the tolerance."""
    best = min(distances.values(), default=math.inf)
    if best > tolerance:
        return []
    return [step for step, distance in distances.items() if distance == best]


def _best(
    matches: list[int],
    signals: _Signals,
    claim: Claim | None,
    saves: Sequence[int],
    distances: dict[int, float],
) -> int | None:
    def merit(step: int) -> tuple[int, bool, bool, float, int]:
        claimed = claim is not None and claim.step == step
        return signals.votes(step), claimed, step in saves, -distances[step], step

    return max(matches, key=merit, default=None)


def _elsewhere(signals: _Signals, claim: Claim | None, saves: Sequence[int]) -> int | None:
    """Return the step other than 0 that the optimizer, the schedule or a credible counter speak for."""
    votes: Tally[int] = Tally()
    for name in ("optimizer", "schedule"):
        steps = signals.steps.get(name, frozenset())
        if 0 not in steps:
            votes.update(steps)
    if claim is not None and claim.step and (votes or claim.step in saves):
        votes[claim.step] += 1
    return max(votes, key=lambda step: (votes[step], step in saves, step), default=None)


def _all_fresh(signals: _Signals, claim: Claim | None) -> bool:
    told = [steps for name, steps in signals.steps.items() if name != "data"]
    claims_start = claim is None or claim.step == 0
    return claims_start and bool(told or claim) and all(0 in steps for steps in told)


def _signals(reference: Trace, resumed: Trace, measure: Measure) -> _Signals:
    first = resumed.steps[0]
    states = {step: state_after(reference, step) for step in range(len(reference.steps) + 1)}
    known = {step: state for step, state in states.items() if state is not None}
    found = {
        "optimizer": _where(known, lambda state: _same_optimizer(state, first.before, measure)),
        "schedule": _where(known, lambda state: _schedule_key(state) == _schedule_key(first.before)),
        "data": frozenset(
            step
            for step, record in enumerate(reference.steps)
            if first.micro_steps
            and any(same_batch(micro, first.micro_steps[0]) for micro in record.micro_steps)
        ),
    }
    telling = {name: steps for name, steps in found.items() if steps and len(steps) < len(known)}
    return _Signals(telling)


def _where(states: dict[int, State], same: object) -> frozenset[int]:
    return frozenset(step for step, state in states.items() if same(state))  # type: ignore[operator]


def _same_optimizer(one: State, other: State, measure: Measure) -> bool:
    names = one.optimizer.keys()
    return names == other.optimizer.keys() and all(
        measure.same(name, other.optimizer[name], one.optimizer[name]) for name in names
    )


def _schedule_key(state: State) -> str:
    """Return what tells schedules apart; ``_step_count`` starts anew in a schedule that was rightly rebuilt."""
    counts = [
        {name: value for name, value in counts.items() if name != "_step_count"}
        for counts in schedule_counts(state)
    ]
    rates = [group.get("lr") for groups in state.groups for group in groups]
    return repr((counts, rates))


def _average_step(
    reference: Trace, weights: Quantity, distances: dict[int, float], saves: Sequence[int]
) -> int | None:
    """Return the step whose averaged weights are ``weights``, if they are nearer than any raw weights."""
    found = {}
    for step in range(1, len(reference.steps) + 1):
        state = state_after(reference, step)
        contents = [average.content for average in state.averages] if state else []
        if contents:
            found[step] = min(_average_distance(weights, content) for content in contents)
    near = {step: distance for step, distance in found.items() if distance <= AVERAGE_DISTANCE}
    best = min(near, key=lambda step: (near[step], step not in saves, -step), default=None)
    raw = min(distances.values(), default=math.inf)
    return best if best is not None and near[best] < raw else None


def _average_distance(weights: Quantity, average: Quantity) -> float:
    """Return the distance over the sampled values alone: an average's names and buffers are its own."""
    if weights.digest and weights.digest == average.digest:
        return 0.0
    left, right = numbers(weights), numbers(average)
    if left.size != right.size or not left.size:
        return math.inf
    gaps = abs(left - right).max(initial=0.0)
    scale = abs(right).max(initial=0.0)
    return float(gaps / scale) if scale else math.inf
