"""The criterion comes from the controls alone, before any scenario runs."""

from __future__ import annotations

import copy

from made_traces import blur, content, control, digest, resumed
from samestep.contract import Component, Outcome
from samestep.drill.judging import criterion as criteria
from samestep.drill.judging.diagnosis.records import finding
from samestep.drill.judging.judgement import Judgement, Reference
from samestep.drill.result import Observation

CONTROL = control()


def test_equal_controls_demand_exactness():
    made = criteria.derive([CONTROL], [copy.deepcopy(CONTROL)])
    assert (made.kind, made.tolerances, made.ignored) == ("exact", {}, [])
    assert criteria.differing([CONTROL], [copy.deepcopy(CONTROL)]) == []


def test_tolerance_is_ten_times_the_widest_spread():
    other = copy.deepcopy(CONTROL)
    values = other.steps[5].before.optimizer["0/exp_avg"].values()
    other.steps[5].before.optimizer["0/exp_avg"] = content([value * 1.001 for value in values])
    made = criteria.derive([CONTROL], [other])
    assert abs(made.tolerances["0/exp_avg"] - 0.01) < 1e-4
    assert "0/exp_avg_sq" not in made.tolerances
    assert criteria.differing([CONTROL], [other]) == ["0/exp_avg"]


def test_generator_that_differs_is_ignored_and_everything_else_stays_exact():
    other = copy.deepcopy(CONTROL)
    for step in other.steps:
        step.before.rng["python"] = "seeded by the clock"
    made = criteria.derive([CONTROL], [other])
    assert (made.kind, made.ignored) == ("exact", ["rng/python"])


def test_small_noise_can_be_judged():
    first, second = blur(CONTROL, 1e-7, 1), blur(CONTROL, 1e-7, 2)
    made = criteria.derive([first], [second])
    assert made.kind == "tolerance"
    assert made.tolerances["weights"] >= criteria.FLOOR
    assert criteria.too_noisy(made, [first], [second]) is None


def test_noise_larger_than_a_step_cannot():
    first, second = blur(CONTROL, 0.5, 1), blur(CONTROL, 0.5, 2)
    made = criteria.derive([first], [second])
    assert criteria.too_noisy(made, [first], [second]).slug == "noisy-control"


def test_other_data_cannot():
    other = blur(CONTROL, 1e-7, 1)
    other.steps[3].micro_steps[0].samples = [90, 91]
    made = criteria.derive([CONTROL], [other])
    found = criteria.too_noisy(made, [CONTROL], [other])
    assert found.evidence == "the controls trained on different data at step 4"


def test_noise_without_sampled_numbers_cannot():
    other = copy.deepcopy(CONTROL)
    for step in other.steps:
        step.weights_after.digest, step.weights_after.sample = digest("unknown", step.index), ""
    made = criteria.derive([CONTROL], [other])
    assert "no numbers were sampled" in criteria.too_noisy(made, [CONTROL], [other]).evidence


def test_other_number_of_steps_cannot():
    made = criteria.derive([CONTROL], [control(18)])
    assert criteria.too_noisy(made, [CONTROL], [control(18)]).evidence == "the controls took 20 and 18 steps"


def judgement(*findings):
    return Judgement(Observation(outcome=Outcome.DIFFERENT), list(findings))


def test_sabotage_that_no_finding_names_makes_the_criterion_blind():
    seen = {
        "optimizer": judgement(finding("optimizer-partly-reset", "")),
        "data": judgement(finding("data-skipped", "")),
        "rng": judgement(finding("step-differs", "")),
    }
    caught, blind = criteria.sensitivity(seen)
    assert caught == {"optimizer": True, "data": True, "rng": False}
    assert blind == [Component.RNG]


def test_sabotage_of_what_the_run_does_not_have_is_left_out():
    plain = resumed(CONTROL, 0, 20)
    for step in plain.steps:
        step.before.schedules = []
    caught, blind = criteria.sensitivity({"schedule": judgement(), "rng": judgement()}, Reference([plain]))
    assert (caught, blind) == ({"rng": False}, [Component.RNG])
