"""Optimizer state before the first step, and the hyper-parameters that are no schedule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from samestep.contract import Component
from samestep.drill.judging.compare import numbers, relative_distance, same_plain, state_after
from samestep.drill.judging.diagnosis.records import finding, listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samestep.drill.judging.compare import Aligned, Beside
    from samestep.drill.result import FindingRecord
    from samestep.trace import MicroStep, Quantity, State, StepRecord

SCHEDULED = frozenset({"lr", "initial_lr"})
"""Hyper-parameters that belong to the schedule."""


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
    """Tell whether optimizer state was restored: all, part, or none of it."""
    seen = pair.first_seen(lambda state: bool(state.groups or state.optimizer))
    if seen is None:
        return []
    losses = [*_losses(pair, seen), *_unexpected(pair, seen)]
    if not losses:
        return []
    slug = "optimizer-reset" if _all_reset(seen.control.before, losses) else "optimizer-partly-reset"
    details = [f"{loss.name} {loss.how}" for loss in losses[1:]]
    return [
        finding(
            slug,
            f"{losses[0].name} {losses[0].how}",
            step=seen.number,
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


def _losses(pair: Beside, seen: Aligned) -> Iterator[_Loss]:
    resumed = seen.resumed.before.optimizer
    for name, content in seen.control.before.optimizer.items():
        if pair.measure.ignores(name) or pair.measure.same(name, resumed.get(name), content):
            continue
        yield _loss(pair, seen, name, resumed.get(name), content)


def _loss(pair: Beside, seen: Aligned, name: str, resumed: Quantity | None, control: Quantity) -> _Loss:
    when = f"before step {seen.number}"
    if resumed is None or (not resumed.tensors and control.tensors):
        return _Loss(name, fresh=True, how=f"is absent {when} (control: {control.tensors} tensors)")
    if resumed.tensors < control.tensors:
        return _Loss(name, fresh=False, how=f"has {resumed.tensors} of {control.tensors} tensors {when}")
    values, expected = numbers(resumed), numbers(control)
    if name.endswith("/step") and values.size and values.max() <= seen.number - pair.basis - 1:
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


def _unexpected(pair: Beside, seen: Aligned) -> Iterator[_Loss]:
    """Yield state that a fresh start must not have."""
    if pair.basis or seen.number != 1:
        return
    for name, content in seen.resumed.before.optimizer.items():
        if name not in seen.control.before.optimizer and numbers(content).any():
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
    other = [a for a in whole if len(a.resumed.micro_steps) != len(a.control.micro_steps)]
    if not whole or len(other) < len(whole) or len({len(a.resumed.micro_steps) for a in other}) > 1:
        return []
    if len(pair.steps) > 1 and len(pair.steps[1].resumed.micro_steps) == len(
        pair.steps[1].control.micro_steps
    ):
        return []
    first = other[0]
    gathered, due = len(first.resumed.micro_steps), len(first.control.micro_steps)
    text = f"step {first.number} gathered {gathered} micro-steps, control {due}"
    components = (Component.CONFIG, Component.DATA_POSITION)
    return [finding("config-drift", text, step=first.number, quantity="micro-steps", components=components)]


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
