"""Two traces side by side."""

import dataclasses

import pytest

from samestep.report.traces import compare_traces, render_comparison
from samestep.trace import Average, Header, MicroStep, Quantity, State, StepRecord, Trace, Update


def quantity(name, number):
    return Quantity(f"xxh3:{name}-{number}", 2, 6, Quantity.encode([float(number), 1.0]))


def state(number):
    return State(
        weights=quantity("weights", number),
        optimizer={"0/exp_avg": quantity("moment", number)} if number else {},
        groups=[[{"lr": 0.1 / (number + 1)}]],
        schedules=[{"type": "StepLR", "last_epoch": number, "_step_count": number + 1}],
        rng={"python": f"xxh3:python-{number}", "torch": f"xxh3:torch-{number}"},
    )


def step(index, number):
    return StepRecord(
        index=index,
        before=state(number - 1),
        micro_steps=[MicroStep(inputs=f"xxh3:batch-{number}", forwards=1, samples=[number], loss=1 / number)],
        updates=[Update(optimizer=0, name="Adam")],
        weights_after=quantity("weights", number),
        values={"self.step": number - 1},
    )


def run(first=1, last=8, rank=0):
    header = Header(attempt="a", argv=["train.py"], pid=1, parent_pid=0, rank=rank)
    return Trace(header, [step(i + 1, n) for i, n in enumerate(range(first, last + 1))])


def test_a_run_is_the_same_as_itself():
    comparison = compare_traces([run()], [run()])
    assert comparison.same
    assert comparison.ranks[0].goes_on_from == 0
    assert len(comparison.ranks[0].rows) == 8


def test_a_restart_is_laid_beside_the_steps_it_repeats():
    comparison = compare_traces([run()], [run(first=5)])
    assert comparison.same
    assert comparison.ranks[0].goes_on_from == 4
    assert [row.step for row in comparison.ranks[0].rows] == [5, 6, 7, 8]
    assert "goes on from step 4; steps 5 to 8 compared, equal in" in render_comparison(comparison)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda s: s.before.optimizer.clear(), "optimizer 0/exp_avg"),
        (lambda s: s.before.rng.update(torch="xxh3:other"), "rng torch"),
        (lambda s: s.before.groups[0][0].update(lr=1.0), "groups"),
        (lambda s: setattr(s.micro_steps[0], "loss", 9.0), "loss"),
        (lambda s: setattr(s, "weights_after", quantity("weights", 99)), "weights after"),
    ],
)
def test_the_first_difference_is_named(change, name):
    other = run(first=5)
    change(other.steps[1])
    comparison = compare_traces([run()], [other])
    assert not comparison.same
    assert comparison.ranks[0].first_different_step == 6
    assert name in comparison.ranks[0].rows[1].different
    text = render_comparison(comparison)
    assert "first difference at step 6" in text
    assert name in text
    assert text.endswith("DIFFERENT\n")


def test_a_difference_in_content_tells_how_far_apart():
    other = run()
    other.steps[2].weights_after = quantity("weights", 99)
    text = compare_traces([run()], [other]).ranks[0].rows[2].different["weights after"]
    assert text.startswith("relative distance ")


def test_a_loss_that_is_no_number_on_both_sides_is_the_same():
    one, other = run(), run()
    for trace in (one, other):
        trace.steps[3].micro_steps[0].loss = float("nan")
    assert compare_traces([one], [other]).same


def test_a_rebuilt_schedule_may_count_its_calls_anew():
    other = run(first=5)
    for place, record in enumerate(other.steps):
        record.before.schedules[0]["_step_count"] = place + 1
    assert compare_traces([run()], [other]).same


def test_an_average_that_the_probe_finds_a_step_late_is_no_difference():
    one, other = run(), run(first=5)
    for trace, steps in ((one, one.steps), (other, other.steps[1:])):
        offset = 0 if trace is one else 4
        for record in steps:
            record.before.averages = [Average("ema", quantity("ema", record.index + offset))]
    assert compare_traces([one], [other]).same
    for record in other.steps:
        record.before.averages = []
    assert compare_traces([one], [other]).ranks[0].first_different_step == 7


def test_a_foreign_start_is_never_the_same():
    other = run()
    for record in other.steps:
        record.before.weights = quantity("foreign", record.index * 1000)
        record.weights_after = quantity("foreign", record.index * 1000 + 1)
    comparison = compare_traces([run()], [other])
    assert not comparison.same
    assert comparison.ranks[0].goes_on_from is None


def test_a_rank_that_only_one_run_has_is_a_difference():
    comparison = compare_traces([run(), run(rank=1)], [run()])
    assert not comparison.same
    assert comparison.unpaired_ranks == [1]
    assert "rank 1: only one of the two has it" in render_comparison(comparison)


def test_nothing_to_compare_is_not_the_same():
    comparison = compare_traces([run()], [dataclasses.replace(run(), steps=[])])
    assert not comparison.same
    assert compare_traces([], []).same is False
