"""One silent change of one component at one compared step, and no other sign of it: the judge names it there.

Every change is made so that weights, losses and data still agree, as far as the component allows, and lasts to the end
of the trace, as lost state does. The reverse is checked too: equal traces, and state that is rightly rebuilt, raise no
finding.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from made_traces import batch, blur, content, control, digest, resumed, samples_at, state_at
from samestep.contract import Component, Outcome, Severity
from samestep.drill.judging import criterion as criteria
from samestep.drill.judging.judge import judge
from samestep.drill.judging.judgement import Case, Ending, Reference
from samestep.drill.result import Criterion, Expectation
from samestep.trace import Average, EndRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from samestep.trace import State, StepRecord, Trace

SAVE, VERIFIED = 8, 4
EXACT = Criterion(kind="exact", rule="")
AT_SAVE = Expectation(outcomes=[Outcome.SAME], resume_step=SAVE)


def made_control() -> Trace:
    """Return a run with all that can be lost: a cycled momentum, a plateau, two averages, three micro-steps a step."""
    trace = control(20, micro_steps=3)
    states = [*((step.before, step.index - 1) for step in trace.steps), (trace.end.state, 20)]
    for state, complete in states:
        state.groups[0][0]["momentum"] = round(0.9 - 0.01 * complete, 4)
        state.schedules.append(
            {"type": "ReduceLROnPlateau", "num_bad_epochs": complete % 3, "best": 1 / (1 + complete)}
        )
        state.averages.append(Average("slow", content([0.1 * complete] * 8), complete))
        state.optimizer["1/momentum_buffer"] = content([0.5 + complete] * 4)
    for step in trace.steps:
        step.updates[0].groups[0] |= step.before.groups[0][0]
        step.generators["augment.generator"] = digest("augment", step.index)
        step.values |= {"state.samples_seen": 6 * (step.index - 1), "stopper.patience": step.index // 4}
    return trace


CONTROL = made_control()


def followed(save: int = SAVE, verified: int = VERIFIED) -> Trace:
    """Return a right continuation that the probe ended, with the state it saw there."""
    trace = resumed(CONTROL, save, verified)
    trace.end.state = copy.deepcopy(CONTROL.steps[save + verified].before)
    return trace


def to_the_end() -> Trace:
    """Return a right continuation up to the end of the run."""
    trace = resumed(CONTROL, SAVE, 12)
    trace.end = EndRecord("exit", 12, 0.0, copy.deepcopy(CONTROL.end.state))
    return trace


def judged(trace: Trace, *, criterion: Criterion = EXACT, reference: Reference | None = None):
    case = Case("cut", cut_step=10, whole_steps=[4, SAVE])
    ending = Ending(hit_step_limit=trace.end.reason == "step-limit")
    return judge(reference or Reference([CONTROL]), [trace], ending, case, AT_SAVE, criterion)


def defects(judgement) -> list[tuple[str, int | None]]:
    return [(record.slug, record.step) for record in judgement.findings if record.severity is Severity.DEFECT]


@dataclass(frozen=True)
class Change:
    """A silent change of one component.

    Attributes:
        component: that a finding must name.
        slugs: one of them must be the only defect.
        of_state, of_step: change what a step starts from; change the step itself.
        also_first: named so before the first step too. Otherwise another rule holds there: a schedule that was rebuilt
            in another way has other counters, and a window that is short from the start is a setting.
    """

    component: Component
    slugs: tuple[str, ...]
    of_state: Callable[[State], None] | None = None
    of_step: Callable[[StepRecord], None] | None = None
    also_first: bool = True


def scale(name: str) -> Callable[[State], None]:
    def change(state: State) -> None:
        seen = state.optimizer[name]
        state.optimizer[name] = content([value * 1.5 + 1 for value in seen.values()], seen.tensors)

    return change


def drop(name: str) -> Callable[[State], None]:
    return lambda state: state.optimizer.pop(name)


def drift_of_average(place: int) -> Callable[[State], None]:
    def change(state: State) -> None:
        average = state.averages[place]
        average.content = content([value + 1e-9 for value in average.content.values()])

    return change


def count(place: int) -> Callable[[State], None]:
    def change(state: State) -> None:
        state.averages[place].updates += 1

    return change


def weigh(state: State) -> None:
    state.weights = content([value + 1e-12 for value in state.weights.values()])


def buffer(state: State) -> None:
    state.buffers = content([value + 1e-12 for value in state.buffers.values()], 1)


def scaler(name: str) -> Callable[[State], None]:
    return lambda state: state.scalers[0].update({name: state.scalers[0][name] + 1})


def schedule(place: int, name: str) -> Callable[[State], None]:
    return lambda state: state.schedules[place].update({name: state.schedules[place][name] + 1})


def rate(step: StepRecord) -> None:
    step.updates[0].groups[0]["lr"] *= 1.0001
    step.before.groups[0][0]["lr"] *= 1.0001


def setting(name: str) -> Callable[[StepRecord], None]:
    return lambda step: step.updates[0].groups[0].update({name: 0.5})


def generator(step: StepRecord) -> None:
    step.before.rng["torch"] = step.micro_steps[0].rng["torch"] = digest("other", step.index)


def inner_generator(step: StepRecord) -> None:
    step.micro_steps[-1].rng["torch"] = digest("other", step.index)


def own_generator(step: StepRecord) -> None:
    step.generators["augment.generator"] = digest("other", step.index)
    step.weights_after = content([value + 1e-12 for value in step.weights_after.values()])


def other_order(step: StepRecord) -> None:
    for place, micro in enumerate(step.micro_steps):
        micro.samples = samples_at(600 + 3 * step.index + place)
        micro.inputs = batch(micro.samples)


def other_position(step: StepRecord) -> None:
    for place, micro in enumerate(step.micro_steps):
        micro.samples = samples_at(3 * (SAVE + step.index) + place)
        micro.inputs = batch(micro.samples)


def other_content(step: StepRecord) -> None:
    step.micro_steps[0].inputs = batch(step.micro_steps[0].samples, "other noise")


def other_samples(step: StepRecord) -> None:
    step.micro_steps[0].samples = [901, 902]
    step.micro_steps[0].inputs = batch([901, 902])


def shorter_window(step: StepRecord) -> None:
    del step.micro_steps[-1]


def value(name: str) -> Callable[[StepRecord], None]:
    return lambda step: step.values.update({name: step.values[name] + 5})


def loss(step: StepRecord) -> None:
    step.micro_steps[-1].loss += 1e-12


def result(step: StepRecord) -> None:
    step.weights_after = content([value + 1e-12 for value in step.weights_after.values()])


C = Component
PARTLY = ("optimizer-partly-reset", "optimizer-reset")
SHIFTED = ("schedule-shifted", "schedule-restarted")
STATES = {
    "weights": Change(C.WEIGHTS, ("weights-not-restored",), weigh),
    "buffers": Change(C.WEIGHTS, ("buffers-lost",), buffer),
    "first moment": Change(C.OPTIMIZER, PARTLY, scale("0/exp_avg")),
    "second moment": Change(C.OPTIMIZER, PARTLY, scale("0/exp_avg_sq")),
    "optimizer's count": Change(C.OPTIMIZER, PARTLY, scale("0/step")),
    "absent moment": Change(C.OPTIMIZER, PARTLY, drop("0/exp_avg")),
    "second optimizer": Change(C.OPTIMIZER, PARTLY, scale("1/momentum_buffer")),
    "absent second optimizer": Change(C.OPTIMIZER, PARTLY, drop("1/momentum_buffer")),
    "schedule's count": Change(C.SCHEDULE, SHIFTED, schedule(0, "last_epoch"), also_first=False),
    "plateau's count": Change(C.SCHEDULE, SHIFTED, schedule(1, "num_bad_epochs")),
    "plateau's best": Change(C.SCHEDULE, SHIFTED, schedule(1, "best")),
    "loss scale": Change(C.SCALER, ("scaler-reset",), scaler("scale")),
    "growth count": Change(C.SCALER, ("scaler-reset",), scaler("growth_tracker")),
    "average": Change(C.EMA, ("ema-lost",), drift_of_average(0)),
    "second average": Change(C.EMA, ("ema-lost",), drift_of_average(1)),
    "average's count": Change(C.EMA, ("ema-lost",), count(0)),
}
STEPS = {
    "learning rate": Change(C.SCHEDULE, SHIFTED, of_step=rate),
    "cycled momentum": Change(C.SCHEDULE, SHIFTED, of_step=setting("momentum")),
    "weight decay": Change(C.CONFIG, ("config-drift",), of_step=setting("weight_decay")),
    "global generator": Change(C.RNG, ("rng-not-restored",), of_step=generator),
    "generator inside a window": Change(C.RNG, ("rng-not-restored",), of_step=inner_generator),
    "own generator": Change(C.RNG, ("rng-not-restored",), of_step=own_generator),
    "order": Change(C.DATA_ORDER, ("data-order-changed",), of_step=other_order),
    "position": Change(C.DATA_POSITION, ("data-skipped",), of_step=other_position),
    "content": Change(C.RNG, ("worker-rng-not-restored",), of_step=other_content),
    "samples": Change(C.DATA_ORDER, ("data-order-changed",), of_step=other_samples),
    "accumulation": Change(C.ACCUMULATION, ("config-drift",), of_step=shorter_window, also_first=False),
    "step counter": Change(C.PROGRESS, ("progress-wrong",), of_step=value("self.global_step")),
    "sample counter": Change(C.PROGRESS, ("progress-wrong",), of_step=value("state.samples_seen")),
    "best metric": Change(C.CALLBACKS, ("callbacks-reset",), of_step=value("best")),
    "patience": Change(C.CALLBACKS, ("callbacks-reset",), of_step=value("stopper.patience")),
    "loss": Change(C.ENVIRONMENT, ("step-differs",), of_step=loss),
    "result": Change(C.ENVIRONMENT, ("step-differs",), of_step=result),
}


def apply(change: Change, trace: Trace, place: int) -> None:
    """Change a trace from the step at ``place`` on, and the state where it ended."""
    for step in trace.steps[place:]:
        if change.of_state:
            change.of_state(step.before)
        if change.of_step:
            change.of_step(step)
    if change.of_state:
        change.of_state(trace.end.state)


def expect(judgement, change: Change, step: int) -> None:
    assert judgement.observation.outcome is Outcome.DIFFERENT, judgement.observation.summary
    (found,) = [record for record in judgement.findings if record.severity is Severity.DEFECT]
    assert found.slug in change.slugs
    assert change.component in found.components
    assert found.step == step
    assert judgement.observation.first_divergent_step == step


ALL = {**STATES, **STEPS}


PLACES = [(name, place) for name in ALL for place in range(0 if ALL[name].also_first else 1, VERIFIED)]


@pytest.mark.parametrize(("name", "place"), PLACES)
def test_a_silent_change_is_named_at_its_step(name: str, place: int):
    change = ALL[name]
    if name == "weights" and place:
        change = Change(C.ENVIRONMENT, ("step-differs",), weigh)
    trace = followed()
    apply(change, trace, place)
    expect(judged(trace), change, SAVE + 1 + place)


FOLLOWERS = [name for name in STATES if name != "weights"]
"""The weights behind a step are compared with the step itself."""


@pytest.mark.parametrize("name", FOLLOWERS)
def test_a_change_by_the_last_compared_step_shows_in_what_it_left(name: str):
    trace = followed()
    STATES[name].of_state(trace.end.state)
    expect(judged(trace), STATES[name], SAVE + VERIFIED + 1)


@pytest.mark.parametrize("name", [name for name in FOLLOWERS if "absent" not in name])
def test_a_change_at_the_end_of_the_run_is_named(name: str):
    trace = to_the_end()
    STATES[name].of_state(trace.end.state)
    expect(judged(trace), STATES[name], 20)


def test_a_rate_left_behind_by_the_last_compared_step_is_named():
    trace = followed()
    trace.end.state.groups[0][0]["lr"] *= 2
    assert defects(judged(trace)) == [("schedule-shifted", SAVE + VERIFIED + 1)]


@pytest.mark.parametrize("save", [0, 1, 8, 15])
@pytest.mark.parametrize("verified", [1, 2, 4])
def test_equal_traces_raise_no_finding(save: int, verified: int):
    case = Case("cut", cut_step=save + 1, whole_steps=[save] if save else [])
    expected = Expectation(outcomes=[Outcome.SAME], resume_step=save)
    ending = Ending(hit_step_limit=True)
    judgement = judge(Reference([CONTROL]), [followed(save, verified)], ending, case, expected, EXACT)
    assert (judgement.observation.outcome, judgement.findings) == (Outcome.SAME, [])


def test_an_equal_run_to_the_end_raises_no_finding():
    judgement = judged(to_the_end())
    assert (judgement.observation.outcome, judgement.findings) == (Outcome.SAME, [])
    assert judgement.observation.ran_to_end


# What is rightly rebuilt, or follows from something else, raises no finding of its own.


def test_caches_that_agree_after_the_first_step_are_rebuilt():
    trace = followed()
    buffer(trace.steps[0].before)
    assert judged(trace).findings == []


def test_an_average_found_late_is_not_lost():
    trace = followed()
    trace.steps[0].before.averages = []
    trace.steps[2].before.averages.pop()
    assert judged(trace).findings == []


def test_averages_that_are_found_in_another_order_are_told_by_name():
    trace = followed()
    for step in trace.steps:
        step.before.averages.reverse()
    assert judged(trace).findings == []


def test_two_averages_of_one_name_are_told_by_their_order():
    reference, trace = copy.deepcopy(CONTROL), followed()
    for step in [*reference.steps, *trace.steps]:
        for average in step.before.averages:
            average.name = "AveragedModel"
    assert judged(trace, reference=Reference([reference])).findings == []


def test_a_schedule_that_is_alive_in_one_run_only_shifts_no_counter():
    trace = followed()
    for step in trace.steps[2:]:
        del step.before.schedules[0]
    assert judged(trace).findings == []


def test_an_optimizer_that_is_gone_when_the_process_ends_is_not_lost():
    trace = to_the_end()
    trace.end.state.optimizer = {}
    assert judged(trace).findings == []


def test_other_models_alive_at_the_end_are_no_lost_buffers():
    trace = to_the_end()
    trace.end.state.buffers = content([1.0] * 6, 3)
    assert judged(trace).findings == []


def test_an_end_of_another_kind_is_not_compared():
    trace = to_the_end()
    trace.end.reason = "exception"
    buffer(trace.end.state)
    assert judged(trace).findings == []


@pytest.mark.parametrize("name", ["buffers", "first moment", "growth count", "average", "plateau's count"])
def test_what_differs_behind_wrong_data_follows_from_them(name: str):
    trace = followed()
    other_position(trace.steps[1])
    for step in trace.steps[2:]:
        other_position(step)
        STATES[name].of_state(step.before)
    STATES[name].of_state(trace.end.state)
    assert defects(judged(trace)) == [("data-skipped", SAVE + 2)]


@pytest.mark.parametrize("name", ["buffers", "average", "average's count", "growth count", "plateau's best"])
def test_what_the_controls_disagree_on_is_not_judged(name: str):
    follower = copy.deepcopy(CONTROL)
    for step in follower.steps[3:]:
        STATES[name].of_state(step.before)
    criterion = criteria.derive([CONTROL], [follower])
    trace = followed()
    apply(STATES[name], trace, 1)
    assert defects(judged(trace, criterion=criterion)) == []


def test_noise_in_later_state_is_within_the_tolerance():
    first, second = blur(CONTROL, 1e-7, 1), blur(CONTROL, 1e-7, 2)
    criterion = criteria.derive([first], [second])
    trace = blur(followed(), 1e-7, 3)
    reference = Reference([second], followers=[first])
    assert judged(trace, criterion=criterion, reference=reference).findings == []
    for step in trace.steps[2:]:
        drift = step.before.averages[0]
        drift.content = content([number * 1.01 for number in drift.content.values()])
    assert defects(judged(trace, criterion=criterion, reference=reference)) == [("ema-lost", SAVE + 3)]


def test_data_or_losses_that_only_the_control_shows_prove_nothing():
    for name, empty in (("data", {"inputs": "", "samples": None}), ("losses", {"loss": None})):
        trace = followed()
        for step in trace.steps:
            for micro in step.micro_steps:
                for field, nothing in empty.items():
                    setattr(micro, field, nothing)
        judgement = judged(trace)
        assert judgement.observation.outcome is Outcome.INCONCLUSIVE
        assert judgement.observation.summary == f"the probe saw no {name} of the restarted run"


def test_every_component_of_a_state_is_in_the_table():
    """World, configuration of the machine, selection and the like are judged from outside a state."""
    named = {change.component for change in ALL.values()}
    outside = {C.WORLD, C.SELECTION, C.COMPLETENESS, C.ROTATION, C.ACCESS}
    assert named | outside == set(Component)
    assert state_at(3).scalers
