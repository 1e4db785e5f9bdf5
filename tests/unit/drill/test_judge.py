"""One known damage each: the judge names exactly what was lost."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from made_traces import (
    batch,
    blur,
    content,
    control,
    digest,
    resumed,
    samples_at,
    spoil_results,
    state_at,
    step_at,
)
from samestep.contract import Component, Outcome, Severity
from samestep.drill.judging import criterion as criteria
from samestep.drill.judging.judge import judge
from samestep.drill.judging.judgement import Case, Ending, Reference
from samestep.drill.result import Criterion, Expectation
from samestep.trace import EndRecord

EXACT = Criterion(kind="exact", rule="")
CUT = Case("cut", cut_step=10, whole_steps=[4, 8])
STOPPED = Ending(hit_step_limit=True)
AT_8 = Expectation(outcomes=[Outcome.SAME], resume_step=8)
CONTROL = control()


def judged(trace, case=CUT, ending=STOPPED, expected=AT_8, *, criterion=EXACT, reference=None, **more):
    reference = reference or Reference([CONTROL], save_steps=[4, 8, 12, 16, 20], **more)
    traces = trace if isinstance(trace, list) else [trace]
    return judge(reference, traces, ending, case, expected, criterion)


def defects(judgement):
    return [record.slug for record in judgement.findings if record.severity is Severity.DEFECT]


def notes(judgement):
    return [record.slug for record in judgement.findings if record.severity is Severity.NOTE]


def at_8(verify=4):
    return resumed(CONTROL, 8, verify)


def use_data(trace, positions):
    due = [step.micro_steps[0].samples for step in trace.steps]
    for step, position in zip(trace.steps, positions, strict=True):
        samples = samples_at(position)
        for micro in step.micro_steps:
            micro.samples, micro.inputs = samples, batch(samples)
    used = [step.micro_steps[0].samples for step in trace.steps]
    spoil_results(trace, next(place for place in range(len(due)) if due[place] != used[place]))
    return trace


# What holds.


def test_right_resume_is_the_same():
    judgement = judged(at_8())
    seen = judgement.observation
    assert (seen.outcome, seen.resume_step, seen.claimed_step, seen.steps_lost) == (Outcome.SAME, 8, 8, 2)
    assert (seen.steps_verified, seen.summary, judgement.findings) == (4, "resumed at 8, 2 steps lost", [])


def test_fresh_start_with_nothing_to_resume_is_the_same():
    case = Case("cut", cut_step=2)
    judgement = judged(
        resumed(CONTROL, 0), case, expected=Expectation(outcomes=[Outcome.SAME], resume_step=0)
    )
    assert judgement.observation.outcome is Outcome.SAME
    assert judgement.observation.summary == "a true fresh start, 2 steps lost"


def test_schedule_that_was_rebuilt_with_a_fresh_call_count_is_the_same():
    trace = at_8()
    for place, step in enumerate(trace.steps):
        step.before.schedules[0]["_step_count"] = 1 + place
    assert judged(trace).findings == []


def test_schedule_with_other_counters_and_a_moving_rate_that_agrees_is_the_same():
    trace = at_8()
    for place, step in enumerate(trace.steps):
        step.before.schedules[0]["last_epoch"] = place
    assert judged(trace).findings == []


def test_finished_run_that_takes_no_step_is_the_same():
    case = Case("restart", cut_step=20, whole_steps=[16, 20], finished=True)
    seen = judged([], case, Ending(exit_code=0)).observation
    assert (seen.outcome, seen.resume_step) == (Outcome.SAME, 20)


def test_run_counters_of_the_process_do_not_make_progress_wrong():
    trace = at_8()
    reference = copy.deepcopy(CONTROL)
    for place, step in enumerate(reference.steps):
        step.values["loop.batches_fetched"] = place
    for place, step in enumerate(trace.steps):
        step.values["loop.batches_fetched"] = place
    assert judged(trace, reference=Reference([reference])).findings == []


# What is lost.


def test_weights_that_stay_fresh_are_no_restart():
    trace = at_8()
    trace.steps[0].before.weights = state_at(0).weights
    spoil_results(trace)
    judgement = judged(trace)
    assert defects(judgement) == ["weights-not-restored"]
    assert judgement.observation.outcome is Outcome.DIFFERENT
    assert (judgement.observation.resume_step, judgement.observation.claimed_step) == (None, 8)


def test_weights_of_no_step_are_not_restored():
    trace = at_8()
    trace.steps[0].before.weights = content([9.0] * 8)
    spoil_results(trace)
    assert defects(judged(trace)) == ["weights-not-restored"]


def test_weights_that_are_the_average():
    trace = at_8()
    average = state_at(8).averages[0].content
    average.digest = digest("names of its own")
    trace.steps[0].before.weights = average
    spoil_results(trace)
    judgement = judged(trace)
    assert defects(judgement) == ["weights-are-averaged"]
    assert judgement.observation.resume_step == 8


def test_buffers_that_stay_other():
    trace = at_8()
    for place, step in enumerate(trace.steps):
        step.before.buffers = content([0.5 + 0.1 * place, 1.0 + place], 1)
    assert defects(judged(trace)) == ["buffers-lost"]


def test_buffers_that_the_model_rebuilds_are_not_lost():
    trace = at_8()
    trace.steps[0].before.buffers = content([0.0, 0.0], 1)
    assert judged(trace).findings == []


def fresh_optimizer(trace):
    trace.steps[0].before.optimizer = {}
    spoil_results(trace)
    return trace


def test_absent_optimizer_state():
    judgement = judged(fresh_optimizer(at_8()))
    assert defects(judgement) == ["optimizer-reset"]
    assert judgement.findings[0].evidence == "0/exp_avg is absent before step 9 (control: 2 tensors)"
    assert judgement.observation.first_divergent_step == 9
    assert judgement.observation.summary == "first at step 9"


def test_optimizer_state_of_zeros_is_a_reset():
    trace = at_8()
    zeros = {name: content([0.0] * item.elements) for name, item in trace.steps[0].before.optimizer.items()}
    trace.steps[0].before.optimizer = zeros
    spoil_results(trace)
    assert defects(judged(trace)) == ["optimizer-reset"]


def test_one_kind_of_optimizer_state_is_part_of_it():
    trace = at_8()
    del trace.steps[0].before.optimizer["0/exp_avg_sq"]
    spoil_results(trace)
    assert defects(judged(trace)) == ["optimizer-partly-reset"]


def test_one_of_two_optimizers_is_part_of_it():
    reference = copy.deepcopy(CONTROL)
    for step in reference.steps:
        step.before.optimizer |= {f"1/{k[2:]}": v for k, v in step.before.optimizer.items()}
    trace = resumed(reference, 8)
    for name in [name for name in trace.steps[0].before.optimizer if name.startswith("1/")]:
        del trace.steps[0].before.optimizer[name]
    spoil_results(trace)
    assert defects(judged(trace, reference=Reference([reference]))) == ["optimizer-partly-reset"]


def test_moments_of_other_parameters():
    trace = at_8()
    state = trace.steps[0].before.optimizer
    state["0/exp_avg"] = content(state["0/exp_avg"].values()[::-1])
    spoil_results(trace)
    judgement = judged(trace)
    assert defects(judgement) == ["optimizer-partly-reset"]
    assert "they belong to other parameters" in judgement.findings[0].evidence


def restart_schedule(trace, first_rate_right=False):
    for place, step in enumerate(trace.steps):
        step.before.schedules = state_at(place).schedules
        if place or not first_rate_right:
            step.before.groups = state_at(place).groups
            step.updates[0].groups = state_at(place).groups[0]
    spoil_results(trace, int(first_rate_right))
    return trace


@pytest.mark.parametrize("first_rate_right", [False, True])
def test_schedule_that_begins_again(first_rate_right):
    judgement = judged(restart_schedule(at_8(), first_rate_right))
    assert defects(judgement) == ["schedule-restarted"]
    assert judgement.findings[0].step == 9 + first_rate_right


def test_rate_that_is_a_step_off_is_a_shifted_schedule():
    trace = at_8()
    for place, step in enumerate(trace.steps):
        step.updates[0].groups = state_at(9 + place).groups[0]
    spoil_results(trace)
    judgement = judged(trace)
    assert defects(judgement) == ["schedule-shifted"]
    assert judgement.findings[0].evidence == "learning rate 0.00775 at step 9, control 0.008"


def test_constant_rate_with_lost_counters_is_a_restart_of_the_schedule():
    reference = copy.deepcopy(CONTROL)
    for step in reference.steps:
        step.before.groups[0][0]["lr"] = step.updates[0].groups[0]["lr"] = 0.01
    trace = resumed(reference, 8)
    for place, step in enumerate(trace.steps):
        step.before.schedules = state_at(place).schedules
    assert defects(judged(trace, reference=Reference([reference]))) == ["schedule-restarted"]


def test_optimizer_and_schedule_lost_together_are_one_finding():
    judgement = judged(restart_schedule(fresh_optimizer(at_8())))
    assert defects(judgement) == ["optimizer-reset"]
    assert judgement.findings[0].components == [Component.OPTIMIZER, Component.SCHEDULE]


def test_scaler_that_starts_over():
    trace = at_8()
    for place, step in enumerate(trace.steps):
        step.before.scalers = [{"scale": 65536.0, "growth_tracker": place}]
    judgement = judged(trace)
    assert defects(judgement) == ["scaler-reset"]
    assert "scale 65536 (control 32768)" in judgement.findings[0].evidence


def test_average_that_begins_as_a_copy_of_the_weights():
    trace = at_8()
    for place, step in enumerate(trace.steps):
        step.before.averages[0].content = step.before.weights
        step.before.averages[0].updates = place
    assert defects(judged(trace)) == ["ema-lost"]


def reseed(trace, name="torch"):
    for place, step in enumerate(trace.steps):
        step.before.rng = {**step.before.rng, name: digest("other seed", place)}
        step.micro_steps[0].rng = dict(step.before.rng)
    return trace


def test_generator_that_steps_draw_from_is_a_defect():
    trace = reseed(at_8())
    spoil_results(trace)
    judgement = judged(trace)
    assert defects(judgement) == ["rng-not-restored"]
    assert judgement.findings[0].evidence == "generator torch before step 9 is not in the control's state"


def test_generator_that_nothing_draws_from_is_a_note():
    judgement = judged(reseed(at_8(), "numpy"))
    assert (defects(judgement), notes(judgement)) == ([], ["rng-not-restored"])
    assert judgement.observation.outcome is Outcome.SAME


def test_generator_drawn_from_at_epoch_starts_alone_is_a_note():
    reference = copy.deepcopy(CONTROL)
    for step in reference.steps:
        step.before.rng["torch"] = step.micro_steps[0].rng["torch"] = digest("epoch", (step.index - 1) // 6)
    judgement = judged(reseed(resumed(reference, 8)), reference=Reference([reference]))
    assert (defects(judgement), notes(judgement)) == ([], ["rng-not-restored"])


def test_generator_in_which_the_controls_differ_is_not_judged():
    criterion = Criterion(kind="exact", rule="", ignored=["rng/numpy"])
    assert judged(reseed(at_8(), "numpy"), criterion=criterion).findings == []


def test_own_generator_without_influence_is_untracked():
    trace = at_8()
    trace.steps[0].generators["augment.generator"] = "other"
    judgement = judged(trace)
    assert (defects(judgement), notes(judgement)) == ([], ["untracked-state"])


def test_own_generator_with_influence_is_a_defect():
    trace = at_8()
    trace.steps[0].generators["augment.generator"] = "other"
    spoil_results(trace)
    assert defects(judged(trace)) == ["rng-not-restored"]


def test_result_that_nothing_explains():
    trace = at_8()
    spoil_results(trace, 1)
    judgement = judged(trace)
    assert (defects(judgement), judgement.findings[0].step) == (["step-differs"], 10)


# Data. Epochs have 6 batches: step 9 is the third of the second epoch.


@pytest.mark.parametrize(
    ("positions", "slug"),
    [
        ([6, 7, 8, 9], "data-position-restarted"),
        ([7, 8, 9, 10], "data-repeated"),
        ([9, 10, 11, 12], "data-skipped"),
        ([2, 3, 4, 5], "data-order-changed"),
        ([0, 1, 2, 3], "data-position-restarted"),
        ([200, 201, 202, 203], "data-order-changed"),
        ([8, 9, 6, 7], "data-position-restarted"),
    ],
)
@pytest.mark.parametrize("indices", [True, False])
def test_wrong_data_by_samples_and_by_content(positions, slug, indices):
    reference = copy.deepcopy(CONTROL)
    trace = use_data(at_8(), positions)
    if not indices:
        for step in [*reference.steps, *trace.steps]:
            step.micro_steps[0].samples = None
    judgement = judged(trace, reference=Reference([reference], epoch_ends=[6, 12, 18]))
    assert defects(judgement) == [slug]


def test_evidence_names_the_samples():
    judgement = judged(use_data(at_8(), [6, 7, 8, 9]))
    shown, due = (" ".join(map(str, samples_at(position))) for position in (6, 8))
    assert judgement.findings[0].evidence == f"step 9 trained on samples {shown}, control on {due}"


def test_data_that_begin_again_only_after_the_epoch():
    trace = use_data(resumed(CONTROL, 10), [10, 11, 0, 1])
    judgement = judged(trace, replace(CUT, cut_step=12, whole_steps=[4, 8, 10]))
    assert (defects(judgement), judgement.findings[0].step) == (["data-order-changed"], 13)


def test_right_samples_with_other_content():
    trace = at_8()
    for step in trace.steps:
        step.micro_steps[0].inputs = batch(step.micro_steps[0].samples, "other noise")
    spoil_results(trace)
    assert defects(judged(trace)) == ["worker-rng-not-restored"]


def test_content_drawn_from_a_global_generator_is_explained_by_it():
    trace = reseed(at_8())
    for step in trace.steps:
        step.micro_steps[0].inputs = batch(step.micro_steps[0].samples, "other noise")
    spoil_results(trace)
    assert defects(judged(trace)) == ["rng-not-restored"]


def test_content_drawn_from_an_own_generator_is_explained_by_it():
    reference = copy.deepcopy(CONTROL)
    for step in reference.steps:
        step.generators["augment.generator"] = digest("augment", step.index)
    trace = resumed(reference, 8)
    for place, step in enumerate(trace.steps):
        step.generators["augment.generator"] = digest("augment", 1 + place)
        step.micro_steps[0].inputs = batch(step.micro_steps[0].samples, "other noise")
    spoil_results(trace)
    judgement = judged(trace, reference=Reference([reference]))
    assert defects(judgement) == ["rng-not-restored"]
    assert "augment.generator" in judgement.findings[0].evidence


def test_lost_position_and_lost_generator_are_two_findings():
    trace = use_data(reseed(at_8()), [6, 7, 8, 9])
    assert sorted(defects(judged(trace))) == ["data-position-restarted", "rng-not-restored"]


def test_generator_that_parts_after_wrong_data_follows_from_them():
    trace = use_data(at_8(), [6, 7, 8, 9])
    trace.steps[2].before.rng["torch"] = "drawn by the loader"
    assert defects(judged(trace)) == ["data-position-restarted"]


# Accumulation.


IN_WINDOW = Case("cut", cut_step=4, whole_steps=[3, 4])


def windows(micro_steps=3):
    return control(12, micro_steps=micro_steps)


def inside_window(reference):
    trace = resumed(reference, 3)
    first = trace.steps[0]
    del first.micro_steps[:1]
    first.before.rng = dict(first.micro_steps[0].rng)
    return trace


def test_rest_of_a_window_without_its_first_gradients():
    reference = windows()
    trace = inside_window(reference)
    spoil_results(trace)
    judgement = judged(trace, IN_WINDOW, reference=Reference([reference]))
    assert defects(judgement) == ["accumulation-lost"]
    assert judgement.findings[0].evidence.startswith("step 4 used 2 of the control's 3 micro-steps")


def test_rest_of_a_window_with_its_gradients_is_the_same():
    reference = windows()
    trace = inside_window(reference)
    judgement = judged(trace, IN_WINDOW, reference=Reference([reference]))
    assert judgement.findings == []
    assert judgement.observation.outcome is Outcome.SAME


def test_window_that_begins_anew_in_its_middle():
    reference = windows()
    trace = resumed(reference, 3)
    positions = range(10, 22)
    for micro, position in zip((m for s in trace.steps for m in s.micro_steps), positions, strict=True):
        micro.samples, micro.inputs = samples_at(position), batch(samples_at(position))
    spoil_results(trace)
    assert defects(judged(trace, IN_WINDOW, reference=Reference([reference]))) == ["accumulation-lost"]


# Settings, counters, callbacks, length.


def test_other_weight_decay_is_a_drift():
    trace = at_8()
    for step in trace.steps:
        step.updates[0].groups[0]["weight_decay"] = 0.1
    spoil_results(trace)
    judgement = judged(trace)
    assert defects(judgement) == ["config-drift"]
    assert judgement.findings[0].evidence == "0/0/weight_decay 0.1 at step 9, control 0.01"


def test_other_batch_size_is_a_drift_of_configuration_and_position():
    trace = at_8()
    for step in trace.steps:
        step.micro_steps[0].samples = step.micro_steps[0].samples[:1]
        step.micro_steps[0].inputs = batch(step.micro_steps[0].samples)
    spoil_results(trace)
    judgement = judged(trace)
    assert defects(judgement) == ["config-drift"]
    assert judgement.findings[0].components == [Component.CONFIG, Component.DATA_POSITION]


def test_other_accumulation_is_a_drift():
    reference = windows()
    trace = resumed(reference, 3)
    for step in trace.steps:
        del step.micro_steps[2:]
    spoil_results(trace)
    at_3 = Case("cut", cut_step=4, whole_steps=[3])
    assert defects(judged(trace, at_3, reference=Reference([reference]))) == ["config-drift"]


def test_counter_that_disagrees_with_the_state():
    trace = at_8()
    for place, step in enumerate(trace.steps):
        step.values["self.global_step"] = 4 + place
    judgement = judged(trace)
    assert defects(judgement) == ["progress-wrong"]
    assert (judgement.observation.resume_step, judgement.observation.claimed_step) == (8, 4)


def test_best_value_that_begins_anew():
    trace = at_8()
    for place, step in enumerate(trace.steps):
        step.values["best"] = step_at(1 + place).values["best"]
    assert defects(judged(trace)) == ["callbacks-reset"]


def test_best_value_of_an_object_that_another_has_taken_the_place_of():
    trace = at_8()
    for place, step in enumerate(trace.steps):
        step.values["handler.callbacks[1].best"] = step.values["best"]
        step.values["best"] = step_at(1 + place).values["best"]
    assert defects(judged(trace)) == []


def test_value_that_differs_between_controls_is_not_judged():
    follower = copy.deepcopy(CONTROL)
    trace = at_8()
    for step in follower.steps:
        step.values["best"] += 1
    for place, step in enumerate(trace.steps):
        step.values["best"] = step_at(1 + place).values["best"]
    assert judged(trace, followers=[follower]).findings == []


def test_run_that_ends_too_late():
    trace = resumed(CONTROL, 8, 12)
    trace.steps.append(copy.deepcopy(trace.steps[-1]))
    trace.end = EndRecord("exit", 13, 0.0)
    judgement = judged(trace, ending=Ending(exit_code=0))
    assert defects(judgement) == ["run-length-changed"]
    assert judgement.findings[0].evidence == "the restarted run ended at step 21, the control ended at 20"


# Selection and endings.


def test_silent_restart():
    judgement = judged(resumed(CONTROL, 0))
    assert defects(judgement) == ["silent-restart"]
    assert judgement.observation.outcome is Outcome.RESTARTED
    assert judgement.observation.summary == "began again at step 0, 10 steps lost"


def test_restart_with_other_initial_weights():
    trace = resumed(CONTROL, 0)
    trace.steps[0].before.weights = content([7.0] * 8)
    spoil_results(trace)
    assert defects(judged(trace)) == ["silent-restart"]


def test_older_checkpoint():
    judgement = judged(resumed(CONTROL, 4))
    assert defects(judgement) == ["stale-checkpoint-selected"]
    assert judgement.observation.outcome is Outcome.LOST_WORK
    assert judgement.observation.summary == "resumed at 4, 6 steps lost"


def test_another_runs_checkpoint():
    case = Case("damage", cut_step=10, whole_steps=[4, 8], foreign_steps=[4])
    judgement = judged(resumed(CONTROL, 4), case)
    assert (defects(judgement), judgement.observation.outcome) == (
        ["stale-checkpoint-selected"],
        Outcome.DIFFERENT,
    )


DAMAGED = Case("damage", cut_step=10, whole_steps=[4], damaged=["ckpt-8/optimizer.pt"], damaged_step=8)


def test_fallback_to_the_newest_whole_checkpoint_holds():
    judgement = judged(resumed(CONTROL, 4), DAMAGED)
    assert (judgement.observation.outcome, judgement.findings) == (Outcome.SAME, [])
    assert (
        judgement.observation.summary
        == "resumed at 4, the newest whole checkpoint, next step 5, 6 steps lost"
    )


def test_fallback_further_than_needed_is_lost_work_and_no_defect():
    case = Case("damage", cut_step=14, whole_steps=[4, 8], damaged=["ckpt-12"], damaged_step=12)
    judgement = judged(resumed(CONTROL, 4), case)
    assert (judgement.observation.outcome, defects(judgement)) == (Outcome.LOST_WORK, [])


def test_damage_that_costs_a_component_names_it_and_the_damage():
    judgement = judged(fresh_optimizer(at_8()), DAMAGED)
    assert defects(judgement) == ["optimizer-reset"]
    assert "damaged on purpose: ckpt-8/optimizer.pt" in judgement.findings[0].details


def test_damage_with_an_effect_that_nothing_names():
    trace = at_8()
    spoil_results(trace)
    assert "damaged-checkpoint-accepted" in defects(judged(trace, DAMAGED))


def test_flipped_byte_is_a_note():
    case = Case("damage", whole_steps=[4], damaged=["ckpt-8/optimizer.pt"], damaged_step=8, flipped=True)
    judgement = judged(fresh_optimizer(at_8()), case)
    assert (defects(judgement), notes(judgement)) == ([], ["byte-flip-accepted"])
    assert judgement.observation.outcome is Outcome.DIFFERENT


def test_finished_run_that_goes_on():
    case = Case("restart", cut_step=20, whole_steps=[16, 20], finished=True)
    trace = resumed(CONTROL, 19, 1)
    trace.steps[0].before = state_at(20)
    judgement = judged(trace, case)
    assert (defects(judgement), judgement.observation.outcome) == (["steps-after-finish"], Outcome.DIFFERENT)


UNUSUAL_NAME = """Traceback (most recent call last):
  File "train.py", line 3, in main
    run.restore()
pkg.errors.AllDamaged: nothing there can be used
  set aside ckpt-8: optimizer.pt has 3 bytes of 9"""


@pytest.mark.parametrize(
    ("log", "outcome"),
    [
        ("RuntimeError: ckpt-8/optimizer.pt is damaged: 0 bytes", Outcome.REFUSED),
        ("error: cannot read the optimizer state", Outcome.REFUSED),
        ("cannot resume from ckpt-8: incomplete", Outcome.REFUSED),
        ("resuming from ckpt-8\nEOFError: Ran out of input", Outcome.CRASHED),
        (UNUSUAL_NAME, Outcome.REFUSED),
        (
            'Traceback (most recent call last):\n  File "train.py", line 3\n    load(out / "optimizer.pt")\nEOFError',
            Outcome.CRASHED,
        ),
    ],
)
def test_stop_is_a_refusal_only_when_its_message_names_the_damage(log, outcome):
    judgement = judged([], DAMAGED, Ending(exit_code=1, log_tail=log))
    assert judgement.observation.outcome is outcome
    assert defects(judgement) == ([] if outcome is Outcome.REFUSED else ["crash-on-resume"])


def test_stop_with_nothing_damaged_is_a_crash():
    judgement = judged(
        [], ending=Ending(exit_code=1, log_tail="FileNotFoundError: ckpt-8/optimizer.pt not found")
    )
    assert judgement.observation.outcome is Outcome.CRASHED


@pytest.mark.parametrize(
    ("log", "component"),
    [
        ("ValueError: loaded state dict contains a parameter group that doesn't match", Component.OPTIMIZER),
        (
            'Traceback (most recent call last):\n  File "t.py", line 3\n    scheduler.load_state_dict(x)\nKeyError: 1',
            Component.SCHEDULE,
        ),
        ("RuntimeError: Error(s) in loading state_dict for Net: Missing key(s)", Component.WEIGHTS),
        ("TypeError: RNG state must be a torch.ByteTensor", Component.RNG),
        ("ValueError: boom", Component.COMPLETENESS),
    ],
)
def test_crash_names_what_was_being_loaded(log, component):
    assert judged([], ending=Ending(exit_code=1, log_tail=log)).findings[0].components == [component]


def test_fresh_start_over_a_damaged_checkpoint_is_silent_only_without_a_word():
    case = Case("damage", cut_step=10, damaged=["last.pt"], damaged_step=8)
    fresh = Expectation(outcomes=[Outcome.SAME])
    silent = judged(resumed(CONTROL, 0), case, expected=fresh)
    assert (defects(silent), silent.observation.outcome) == (["silent-restart"], Outcome.RESTARTED)
    told = judged(resumed(CONTROL, 0), case, Ending(hit_step_limit=True, log_tail="last.pt: damaged"), fresh)
    assert (defects(told), told.observation.outcome) == ([], Outcome.SAME)


def test_transfer_to_other_ranks_names_the_world():
    case = Case("transfer", cut_step=10, whole_steps=[8], changed="--ranks 1")
    judgement = judged(use_data(at_8(), [6, 7, 8, 9]), case)
    assert judgement.findings[0].components == [Component.WORLD, Component.DATA_POSITION]


def test_transfer_that_says_what_does_not_fit_is_refused():
    case = Case("transfer", whole_steps=[8], changed="--width 9")
    log = "RuntimeError: size mismatch for head.weight"
    assert judged([], case, Ending(exit_code=1, log_tail=log)).observation.outcome is Outcome.REFUSED


def test_silent_end_without_a_step_is_another_length():
    judgement = judged([], ending=Ending(exit_code=0))
    assert (defects(judgement), judgement.observation.outcome) == (["run-length-changed"], Outcome.DIFFERENT)


@pytest.mark.parametrize(
    ("ending", "slugs"),
    [(Ending(exit_code=0, booted=0), ["not-watched"]), (Ending(timed_out=True), [])],
)
def test_no_step_without_proof_is_inconclusive(ending, slugs):
    judgement = judged([], ending=ending)
    assert judgement.observation.outcome is Outcome.INCONCLUSIVE
    assert [record.slug for record in judgement.findings] == slugs


def test_crash_after_right_steps():
    judgement = judged(at_8(2), ending=Ending(exit_code=1, log_tail="ValueError: boom"))
    assert (defects(judgement), judgement.observation.outcome) == (["crash-on-resume"], Outcome.CRASHED)


def test_blind_component_makes_a_pass_inconclusive():
    criterion = Criterion(kind="exact", rule="", blind=[Component.RNG])
    judgement = judged(at_8(), criterion=criterion)
    assert judgement.observation.outcome is Outcome.INCONCLUSIVE
    assert [record.slug for record in judgement.findings] == ["blind-criterion"]


# Ranks.


def ranks(step, other=None):
    controls = [control(rank=rank, world_size=2) for rank in (0, 1)]
    traces = [resumed(controls[0], step), resumed(controls[1], step if other is None else other)]
    return Reference(controls), traces


def test_verdict_names_the_rank():
    reference, traces = ranks(8)
    use_data(traces[1], [6, 7, 8, 9])
    judgement = judged(traces, reference=reference)
    assert defects(judgement) == ["data-position-restarted"]
    assert (judgement.findings[0].rank, judgement.observation.rank) == (1, 1)


def test_loss_on_every_rank_is_one_finding():
    reference, traces = ranks(8)
    judgement = judged([fresh_optimizer(trace) for trace in traces], reference=reference)
    assert defects(judgement) == ["optimizer-reset"]
    assert "also on rank 1" in judgement.findings[0].details


def test_ranks_that_went_on_from_different_steps():
    reference, traces = ranks(8, 4)
    judgement = judged(traces, reference=reference)
    assert "world-changed" in defects(judgement)


def test_rank_that_is_gone_folds_its_data_into_the_world():
    reference, traces = ranks(8)
    judgement = judged([use_data(traces[0], [6, 7, 8, 9])], reference=reference)
    assert defects(judgement) == ["world-changed"]
    assert Component.DATA_POSITION in judgement.findings[0].components


TRANSFER = Case("transfer", cut_step=10, whole_steps=[8], changed="--ranks 1")


def dealt_out_anew(reference, step):
    """One rank instead of two: it takes the samples of both in turn, and so all results differ."""
    trace = resumed(reference.traces[0], step)
    together = [
        list(whole.steps[number].micro_steps[0].samples)
        for number in range(step, 20)
        for whole in reference.traces
    ]
    spoil_results(trace)
    for number, record in enumerate(trace.steps):
        record.micro_steps[0].samples = together[number]
        record.micro_steps[0].inputs = batch(together[number])
    return trace


def test_transfer_to_fewer_ranks_holds_when_the_samples_of_all_go_on_in_order():
    reference, _ = ranks(8)
    judgement = judged([dealt_out_anew(reference, 8)], TRANSFER, reference=reference)
    assert (defects(judgement), notes(judgement)) == ([], ["world-changed"])
    assert judgement.observation.outcome is Outcome.SAME
    assert "1 rank instead of 2" in judgement.observation.summary


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (lambda trace: trace.steps[1].micro_steps[0].samples.reverse(), "world-changed"),
        (fresh_optimizer, "optimizer-reset"),
    ],
    ids=["order", "optimizer"],
)
def test_transfer_to_fewer_ranks_that_loses_something_does_not_hold(spoil, named):
    reference, _ = ranks(8)
    trace = dealt_out_anew(reference, 8)
    spoil(trace)
    assert named in defects(judged([trace], TRANSFER, reference=reference))


# Noise.


def test_noisy_resume_is_the_same_and_a_sabotaged_one_is_not():
    first, second = blur(CONTROL, 1e-7, 1), blur(CONTROL, 1e-7, 2)
    criterion = criteria.derive([first], [second])
    assert criterion.kind == "tolerance"
    assert criteria.too_noisy(criterion, [first], [second]) is None
    reference = Reference([second], followers=[first])
    noisy = resumed(blur(CONTROL, 1e-7, 3), 8)
    right = judged(noisy, criterion=criterion, reference=reference)
    assert (right.observation.outcome, right.observation.resume_step) == (Outcome.SAME, 8)
    assert right.findings == []
    wrong = judged(fresh_optimizer(noisy), criterion=criterion, reference=reference)
    assert defects(wrong) == ["optimizer-reset"]


def test_fewer_steps_than_wanted_prove_nothing():
    judgement = judged(at_8(1), replace(CUT, wanted=4), Ending(exit_code=0))
    assert judgement.observation.outcome is Outcome.INCONCLUSIVE
    assert judgement.observation.summary == "only 1 of 4 steps could be compared"


def test_as_many_steps_as_the_control_holds_are_enough():
    judgement = judged(resumed(CONTROL, 18, 2), replace(CUT, cut_step=19, whole_steps=[16, 18], wanted=4))
    assert judgement.observation.outcome is Outcome.SAME


def test_a_silent_restart_after_a_flipped_byte_is_no_mere_note():
    case = replace(CUT, family="damage", damaged=["ckpt-8.pt"], damaged_step=8, whole_steps=[4], flipped=True)
    judgement = judged(resumed(CONTROL, 0), case)
    assert judgement.observation.outcome is Outcome.RESTARTED


def test_a_resume_from_beyond_what_the_disk_held_leaned_on_something_else():
    judgement = judged(resumed(CONTROL, 14), replace(CUT, cut_step=10, whole_steps=[4, 8]))
    assert defects(judgement) == ["leaned-on-lost-machine"]
