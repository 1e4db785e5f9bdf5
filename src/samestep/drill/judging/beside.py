"""Two runs laid side by side, step by step and at the points between. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from samestep.drill.judging.compare import same_batch, same_plain, weights_after

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from samestep.drill.judging.compare import Measure
    from samestep.trace import MicroStep, State, StepRecord, Trace

Found = TypeVar("Found")


@dataclass(frozen=True)
class Aligned:
    """A step of the resumed run and the control step it should repeat.

    Attributes:
        number: control step, from 1.
        offset: micro-steps of the control's window that lie before the resumed one's (inside a window: above 0).
    """

    number: int
    control: StepRecord
    resumed: StepRecord
    offset: int = 0

    @property
    def control_micros(self) -> list[MicroStep]:
        """The control's micro-steps from the point on where the resumed window begins."""
        return self.control.micro_steps[self.offset :]

    @property
    def control_rng(self) -> dict[str, str]:
        """Generators of the control where the resumed window begins."""
        if self.offset and self.control_micros:
            return self.control_micros[0].rng
        return self.control.before.rng

    @property
    def moment(self) -> Moment:
        """The point before the step."""
        return Moment(self.number - 1, self.control.before, self.resumed.before)


@dataclass(frozen=True)
class Moment:
    """A point between two steps, and what both runs hold there.

    Attributes:
        complete: steps of the control that are complete.
        control, resumed: their states.
        at_end: both runs are over.
    """

    complete: int
    control: State
    resumed: State
    at_end: bool = False

    @property
    def step(self) -> int:
        """The control step that a finding at this point belongs to: the one that follows, at the end the last."""
        return self.complete if self.at_end else self.complete + 1

    @property
    def when(self) -> str:
        """The point in words."""
        return f"at the end, after step {self.step}" if self.at_end else f"before step {self.step}"


@dataclass(frozen=True)
class Beside:
    """A resumed run laid beside the control, from one control step on.

    Attributes:
        basis: steps of the control that are complete where the resumed run is taken to go on.
        starts: positions in the control's micro-step stream where epochs begin.
        noise: paths of plain values, and of generators, that differ between the controls.
    """

    control: Trace
    resumed: Trace
    basis: int
    measure: Measure
    starts: Sequence[int] = (0,)
    noise: frozenset[str] = field(default_factory=frozenset)

    @cached_property
    def steps(self) -> list[Aligned]:
        """The steps that can be compared."""
        pairs = zip(self.control.steps[self.basis :], self.resumed.steps, strict=False)
        return [
            Aligned(self.basis + place + 1, control, resumed, 0 if place else _offset(control, resumed))
            for place, (control, resumed) in enumerate(pairs)
        ]

    @cached_property
    def position(self) -> int:
        """Position in the control's micro-step stream where the resumed run should begin."""
        whole = sum(len(step.micro_steps) for step in self.control.steps[: self.basis])
        return whole + (self.steps[0].offset if self.steps else 0)

    def first_seen(self, present: Callable[[State], bool]) -> Aligned | None:
        """Return the first step before which the resumed run shows some state.

        A probe may need a step or two to find an object. When the resumed run never shows it, that says
        something only if the control had shown it as early in its own life: then the first step is returned,
        and None otherwise.
        """
        for aligned in self.steps:
            if present(aligned.resumed.before):
                return aligned
        early = any(present(step.before) for step in self.control.steps[: len(self.steps)])
        return self.steps[0] if self.steps and early else None

    @cached_property
    def moments(self) -> list[Moment]:
        """The points that lie behind equally repeated steps only: what differs there differs of itself.

        From the first step on that was not repeated equally, everything else may follow from that.
        """
        found: list[Moment] = []
        for aligned in self.steps:
            found.append(aligned.moment)
            if not self.repeated(aligned):
                return found
        return found + self._end()

    def _end(self) -> list[Moment]:
        """Return the point where the resumed run ended, if the control was seen at the same one."""
        end, complete = self.resumed.end, self.basis + len(self.resumed.steps)
        if end is None or end.state.weights is None or not self.steps:
            return []
        if complete < len(self.control.steps) and end.reason == "step-limit":
            return [Moment(complete, self.control.steps[complete].before, end.state)]
        due = self.control.end
        if complete != len(self.control.steps) or due is None or due.state.weights is None:
            return []
        return [Moment(complete, due.state, end.state, at_end=True)] if due.reason == end.reason else []

    def later(
        self, since: Moment, difference: Callable[[Moment], Found | None]
    ) -> tuple[Moment, Found] | None:
        """Return the first point after ``since`` at which ``difference`` finds something, and what."""
        for moment in self.moments:
            if moment.complete > since.complete and (found := difference(moment)):
                return moment, found
        return None

    @cached_property
    def weights_differ_from(self) -> int | None:
        """First control step whose weights, before or after it, the resumed run did not have."""
        other = (a.number for a in self.steps if not (self.same_start(a) and self.same_result(a)))
        return next(other, None)

    def repeated(self, aligned: Aligned) -> bool:
        """Tell whether a step began from the control's weights, used its data and had its loss and result."""
        return (
            self.same_start(aligned)
            and self.same_data(aligned)
            and self.same_losses(aligned)
            and self.same_result(aligned)
        )

    def same_start(self, aligned: Aligned) -> bool:
        """Tell whether a step began from the control's weights."""
        before, seen = aligned.resumed.before.weights, weights_after(self.control, aligned.number - 1)
        return not (before and seen) or any(self.measure.same("weights", before, one) for one in seen)

    def same_data(self, aligned: Aligned) -> bool:
        """Tell whether a step used the control's data, in as many micro-steps."""
        micros, due = aligned.resumed.micro_steps, aligned.control_micros
        counted = len(micros) == len(due) or self.measure.ignores("micro-steps")
        return counted and all(map(self._same_micro, micros, due))

    def _same_micro(self, one: MicroStep, other: MicroStep) -> bool:
        if one.inputs and other.inputs and not self.measure.ignores("inputs"):
            return one.inputs == other.inputs
        judged = one.samples and other.samples and not self.measure.ignores("samples")
        return not judged or same_plain(one.samples, other.samples)

    def same_result(self, aligned: Aligned) -> bool:
        """Tell whether a step left the control's weights behind."""
        after = aligned.resumed.weights_after
        control = aligned.control.weights_after
        return after is None or control is None or self.measure.same("weights", after, control)

    def same_losses(self, aligned: Aligned) -> bool:
        """Tell whether the losses of a step agree, micro-step by micro-step."""
        pairs = zip(aligned.resumed.micro_steps, aligned.control_micros, strict=False)
        return all(self.measure.same_number("loss", one.loss, other.loss) for one, other in pairs)


def _offset(control: StepRecord, resumed: StepRecord) -> int:
    """Return where the resumed window begins in the control's, when it is a proper suffix of it."""
    missing = len(control.micro_steps) - len(resumed.micro_steps)
    if missing <= 0 or not resumed.micro_steps:
        return 0
    rest = control.micro_steps[missing:]
    return missing if all(map(same_batch, resumed.micro_steps, rest)) else 0
