"""Optimizer state, and the hyper-parameters that are no learning rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from samestep.contract import Component
from samestep.drill.judging.compare import numbers, relative_distance, same_plain, same_setting, state_after
from samestep.drill.judging.diagnosis.records import PARTED, finding, listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samestep.drill.judging.beside import Aligned, Beside, Moment
    from samestep.drill.result import FindingRecord
    from samestep.trace import MicroStep, Quantity, State, StepRecord

SCHEDULED = frozenset({"lr", "initial_lr"})
"""Hyper-parameters that belong to the schedule."""

CYCLED = frozenset({"momentum", "betas"})
"""Hyper-parameters that schedules such as one-cycle move beside the learning rate."""


@dataclass(frozen=True)
class _Loss:
    """One kind of state of one optimizer that is not the control's."""

    name: str
    fresh: bool
    how: str

    @property
    def optimizer(self) -> str:
        return self.name.partition("/")[0]


def optimizer(pair: Beside) -> list[FindingRecord]:
    """Tell whether optimizer state was restored (all, part, or none of it), and goes on as the control's."""
    seen = pair.first_seen(lambda state: bool(state.groups or state.optimizer))
    if seen is None:
        return []
    moment, losses = seen.moment, [*_losses(pair, seen.moment), *_unexpected(pair, seen.moment)]
    parted = None if losses else pair.later(moment, lambda later: list(_losses(pair, later)))
    if parted:
        moment, losses = parted
    if not losses:
        return []
    slug = "optimizer-reset" if _all_reset(moment.control, losses) else "optimizer-partly-reset"
    details = [*(f"{loss.name} {loss.how}" for loss in losses[1:]), *([PARTED] if parted else [])]
    return [
        finding(
            slug,
            f"{losses[0].name} {losses[0].how}",
            step=moment.step,
            quantity=losses[0].name,
            details=details,
        )
    ]


def _all_reset(control: State, losses: list[_Loss]) -> bool:
    """Tell whether every optimizer that had state began anew.

    Counters tell it as well as moments: after a first step from nothing the moments are no longer zero.
    """
    had = {name.partition("/")[0] for name in control.optimizer}
    return bool(had) and all(_reset(index, control, losses) for index in had)


def _reset(index: str, control: State, losses: list[_Loss]) -> bool:
    names = {name for name in control.optimizer if name.partition("/")[0] == index}
    lost = {loss.name: loss.fresh for loss in losses}
    counter = f"{index}/step"
    if counter in names and names <= lost.keys():
        return lost[counter]
    return all(lost.get(name, False) for name in names)


def _losses(pair: Beside, moment: Moment) -> Iterator[_Loss]:
    resumed = moment.resumed.optimizer
    for name, content in moment.control.optimizer.items():
        if pair.measure.ignores(name) or pair.measure.same(name, resumed.get(name), content):
            continue
        if name not in resumed and moment.at_end:
            continue  # an optimizer may be gone when the process ends
        yield _loss(pair, moment, name, resumed.get(name), content)


def _loss(pair: Beside, moment: Moment, name: str, resumed: Quantity | None, control: Quantity) -> _Loss:
    when = moment.when
    if resumed is None or (not resumed.tensors and control.tensors):
        return _Loss(name, fresh=True, how=f"is absent {when} (control: {control.tensors} tensors)")
    if resumed.tensors < control.tensors:
        return _Loss(name, fresh=False, how=f"has {resumed.tensors} of {control.tensors} tensors {when}")
    values, expected = numbers(resumed), numbers(control)
    if name.endswith("/step") and values.size and values.max() <= moment.complete - pair.basis:
        return _Loss(name, fresh=True, how=f"is {values.max():g} {when}, control {expected.max(initial=0):g}")
    if values.size and not values.any():
        return _Loss(name, fresh=True, how=f"is all zero {when}")
    return _Loss(name, fresh=False, how=_difference(pair, name, resumed, control, when))


def _difference(pair: Beside, name: str, resumed: Quantity, control: Quantity, when: str) -> str:
    if (step := _step_of(pair, name, resumed)) is not None:
        return f"{when} is the control's with {step} steps complete"
    if _same_set(numbers(resumed), numbers(control)):
        return f"{when} holds the control's numbers in another order: they belong to other parameters"
    return f"{when} is not the control's (relative distance {relative_distance(resumed, control):.2g})"


def _step_of(pair: Beside, name: str, content: Quantity) -> int | None:
    for step in range(len(pair.control.steps) + 1):
        state = state_after(pair.control, step)
        if state and name in state.optimizer and state.optimizer[name].digest == content.digest:
            return step
    return None


def _same_set(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    """Tell whether the same numbers stand in another order."""
    if not one.size or one.size != other.size or np.array_equal(one, other):
        return False
    return np.array_equal(np.sort(one), np.sort(other))


def _unexpected(pair: Beside, moment: Moment) -> Iterator[_Loss]:
    """Yield state that a fresh start must not have."""
    if pair.basis or moment.complete:
        return
    for name, content in moment.resumed.optimizer.items():
        if name not in moment.control.optimizer and numbers(content).any():
            yield _Loss(name, fresh=False, how="is there before step 1, where a fresh start has none")


def settings(pair: Beside) -> list[FindingRecord]:
    """Tell whether hyper-parameters, micro-steps per step and batch size are those of the control."""
    return [*_hyper_parameters(pair), *_micro_steps(pair), *_batch_size(pair)]


def _hyper_parameters(pair: Beside) -> list[FindingRecord]:
    constant = _constants(pair)
    for aligned in pair.steps:
        used = _settings(aligned.resumed)
        wrong = [
            name for name, value in constant.items() if name in used and not same_plain(used[name], value)
        ]
        if wrong:
            shown = [
                f"{name} {used[name]} at step {aligned.number}, control {constant[name]}" for name in wrong
            ]
            return [
                finding("config-drift", shown[0], step=aligned.number, quantity=wrong[0], details=shown[1:])
            ]
    return []


def cycled(pair: Beside) -> list[FindingRecord]:
    """Tell whether hyper-parameters that change in the control (a cycled momentum, a count kept in a group) agree."""
    constant = _constants(pair)
    for aligned in pair.steps[: len(pair.moments)]:
        used, due = _settings(aligned.resumed), _settings(aligned.control)
        wrong = [
            name
            for name, value in due.items()
            if name in used and name not in constant and not same_setting(used[name], value)
        ]
        if wrong and not pair.measure.ignores("groups"):
            text = f"{wrong[0]} {used[wrong[0]]} at step {aligned.number}, control {due[wrong[0]]}"
            by_schedule = wrong[0].rpartition("/")[2] in CYCLED
            slug = "schedule-shifted" if by_schedule else "optimizer-partly-reset"
            return [finding(slug, text, step=aligned.number, quantity=wrong[0])]
    return []


def _constants(pair: Beside) -> dict[str, Any]:
    """Return the hyper-parameters that the control never changes."""
    if pair.measure.ignores("groups") or not pair.control.steps:
        return {}
    constant = _settings(pair.control.steps[0])
    for step in pair.control.steps[1:]:
        now = _settings(step)
        constant = {
            name: value for name, value in constant.items() if name in now and same_plain(now[name], value)
        }
    return constant


def _settings(step: StepRecord) -> dict[str, Any]:
    """Return ``<optimizer>/<group>/<name>`` and value of every hyper-parameter that a step used, rates apart."""
    return {
        f"{update.optimizer}/{place}/{name}": value
        for update in step.updates
        for place, group in enumerate(update.groups)
        for name, value in group.items()
        if name not in SCHEDULED
    }


def _micro_steps(pair: Beside) -> list[FindingRecord]:
    """Find another number of micro-steps in every compared step (one short window is another matter)."""
    whole = [aligned for aligned in pair.steps[:-1] or pair.steps if not aligned.offset]
    other = [a for a in whole if _regrouped(a)]
    if not whole or len(other) < len(whole) or len({len(a.resumed.micro_steps) for a in other}) > 1:
        return []
    if len(pair.steps) > 1 and not _regrouped(pair.steps[1]):
        return []
    components = (Component.CONFIG, Component.DATA_POSITION)
    return [_other_micro_steps(other[0], components)]


def regrouped(pair: Beside) -> list[FindingRecord]:
    """Tell whether a window behind equally repeated ones gathers another number of micro-steps."""
    if pair.measure.ignores("micro-steps"):
        return []
    reached = pair.steps[1 : len(pair.moments)]
    other = next((aligned for aligned in reached if _regrouped(aligned)), None)
    return [_other_micro_steps(other, (Component.CONFIG, Component.ACCUMULATION))] if other else []


def _regrouped(aligned: Aligned) -> bool:
    return len(aligned.resumed.micro_steps) != len(aligned.control_micros)


def _other_micro_steps(aligned: Aligned, components: tuple[Component, ...]) -> FindingRecord:
    gathered, due = len(aligned.resumed.micro_steps), len(aligned.control.micro_steps)
    text = f"step {aligned.number} gathered {gathered} micro-steps, control {due}"
    return finding("config-drift", text, step=aligned.number, quantity="micro-steps", components=components)


def _batch_size(pair: Beside) -> list[FindingRecord]:
    sizes, used = _batch_sizes(pair.control.steps), _batch_sizes(pair.resumed.steps)
    if not pair.steps or not sizes or not used or max(used) in sizes:
        return []  # an epoch's last batch may be small: a size that the control has too is no other setting
    first = pair.steps[0]
    taken, due = _first_samples(first.resumed.micro_steps), _first_samples(first.control_micros)
    return [
        finding(
            "config-drift",
            f"batches of {max(used)} samples, control {max(sizes)}",
            step=first.number,
            quantity="batch-size",
            components=(Component.CONFIG, Component.DATA_POSITION),
            details=[f"step {first.number} trained on samples {taken}, control on {due}"],
        )
    ]


def _first_samples(micros: list[MicroStep]) -> str:
    return listed(micros[0].samples or []) if micros else "none"


def _batch_sizes(steps: list[StepRecord]) -> set[int]:
    return {len(micro.samples) for step in steps for micro in step.micro_steps if micro.samples}
