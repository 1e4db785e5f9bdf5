"""The true resume step is found by content, the claimed one by the run's own counters."""

from __future__ import annotations

import copy

import pytest

from made_traces import content, control, digest, resumed, state_at
from samestep.drill.judging.align import claimed_step, find_resume_step
from samestep.drill.result import Criterion

EXACT = Criterion(kind="exact", rule="")
CONTROL = control()


@pytest.mark.parametrize("step", [0, 1, 8, 19])
def test_step_is_found_by_weights(step):
    found = find_resume_step(CONTROL, resumed(CONTROL, step), EXACT)
    assert (found.step, found.claimed_step) == (step, step)


def test_final_state_is_found_in_the_end_record():
    trace = resumed(CONTROL, 19, 1)
    trace.steps[0].before = state_at(20)
    assert find_resume_step(CONTROL, trace, EXACT).step == 20


def stand_still(trace, first, last):
    """Make the weights of all steps from ``first`` to ``last`` those of ``first``, as a rate of 0 does."""
    for step in range(first, last + 1):
        trace.steps[step].before.weights = state_at(first).weights
        if step > first:
            trace.steps[step - 1].weights_after = state_at(first).weights


def test_steps_with_equal_weights_are_told_apart_by_the_rest():
    reference = copy.deepcopy(CONTROL)
    stand_still(reference, 0, 5)
    assert [find_resume_step(reference, resumed(reference, k), EXACT).step for k in range(6)] == list(
        range(6)
    )


def test_equal_weights_with_one_lost_component_are_told_apart_by_the_majority():
    reference = copy.deepcopy(CONTROL)
    stand_still(reference, 0, 5)
    trace = resumed(reference, 4)
    trace.steps[0].before.optimizer = {}
    assert find_resume_step(reference, trace, EXACT).step == 4


def test_fresh_weights_with_other_state_are_no_fresh_start():
    trace = resumed(CONTROL, 8)
    trace.steps[0].before.weights = state_at(0).weights
    found = find_resume_step(CONTROL, trace, EXACT, saves=[4, 8])
    assert (found.fresh_weights_only, found.basis()) == (True, 8)


def test_counter_alone_makes_fresh_state_a_half_one_only_when_it_names_a_save():
    trace = resumed(CONTROL, 0)
    trace.steps[0].values["self.global_step"] = 8
    assert find_resume_step(CONTROL, trace, EXACT, saves=[8]).basis() == 8
    assert find_resume_step(CONTROL, trace, EXACT, saves=[4]).basis() == 0


def test_weights_of_no_step_leave_the_rest_to_tell():
    trace = resumed(CONTROL, 8)
    trace.steps[0].before.weights = content([5.0] * 8)
    found = find_resume_step(CONTROL, trace, EXACT)
    assert (found.step, found.basis()) == (None, 8)


def test_averaged_weights_are_told_from_raw_ones():
    trace = resumed(CONTROL, 8)
    average = copy.deepcopy(state_at(8).averages[0].content)
    average.digest = digest("other names")
    trace.steps[0].before.weights = average
    found = find_resume_step(CONTROL, trace, EXACT)
    assert (found.step, found.ema_step) == (None, 8)


def test_other_bytes_that_were_not_sampled_are_no_match():
    trace = resumed(CONTROL, 8)
    trace.steps[0].before.weights.digest = digest("one unsampled value differs")
    assert find_resume_step(CONTROL, trace, EXACT).step is None


def test_noisy_run_takes_the_nearest_step_within_the_tolerance():
    trace = resumed(CONTROL, 8)
    near = [value * (1 + 1e-7) for value in trace.steps[0].before.weights.values()]
    trace.steps[0].before.weights = content(near)
    noisy = Criterion(kind="tolerance", rule="", tolerances={"weights": 1e-6})
    assert find_resume_step(CONTROL, trace, noisy).step == 8
    assert find_resume_step(CONTROL, trace, EXACT).step is None


def with_values(made, path, values):
    for step, value in zip(made.steps, values, strict=True):
        step.values = {path: value}
    return made


def taking_turns(made):
    """Let two optimizers be called in turn."""
    for step in made.steps:
        step.updates[0].optimizer = step.index % 2
    return made


@pytest.mark.parametrize(
    ("path", "values", "first", "claimed"),
    [
        ("state.global_step", range(20), 8, 8),
        ("step", range(1, 21), 9, 8),
        ("samples_seen", range(0, 80, 4), 32, 8),
        ("epoch", [k // 6 for k in range(20)], 1, None),
        ("loss", [1.0 / (k + 1) for k in range(20)], 0.1, None),
    ],
)
def test_claimed_step_is_read_from_what_counts_in_the_control(path, values, first, claimed):
    reference = with_values(copy.deepcopy(CONTROL), path, values)
    trace = resumed(reference, 8)
    trace.steps[0].values = {path: first}
    claim = claimed_step(reference, trace)
    assert (claim.step if claim else None) == claimed


def test_a_counter_of_rounds_counts_when_optimizers_take_turns():
    rounds = [k // 2 for k in range(20)]
    reference = with_values(taking_turns(copy.deepcopy(CONTROL)), "iteration", rounds)
    trace = resumed(reference, 8)
    trace.steps[0].values = {"iteration": 4}
    assert claimed_step(reference, trace).step == 8


def test_a_counter_of_saves_is_no_step_counter():
    saves = [k // 3 for k in range(20)]
    reference = with_values(copy.deepcopy(CONTROL), "project_configuration.iteration", saves)
    trace = resumed(reference, 8)
    trace.steps[0].values = {"project_configuration.iteration": 0}
    assert claimed_step(reference, trace) is None


def test_the_most_telling_name_speaks():
    reference, trace = copy.deepcopy(CONTROL), resumed(CONTROL, 8)
    for place, step in enumerate(reference.steps):
        step.values["loader.fetched"] = place
    trace.steps[0].values["loader.fetched"] = 0
    assert claimed_step(reference, trace).path == "self.global_step"
