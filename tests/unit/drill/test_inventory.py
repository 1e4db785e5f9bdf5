"""What a drill says it did not judge: quantities in which the controls differ, and data that were not seen."""

from __future__ import annotations

import pytest

from made_traces import control
from samestep.contract import Component, Outcome
from samestep.drill.inventory import UNSEEN_DATA, ignored_quantity, not_checked, unjudged
from samestep.drill.options import DrillOptions
from samestep.drill.result import Criterion, DrillResult, InventoryRow


def drilled(ignored=(), rows=()):
    return DrillResult(
        version="0",
        run_id="r",
        outcome=Outcome.SAME,
        exit_code=0,
        command=[],
        criterion=Criterion(kind="exact", rule="", ignored=list(ignored)),
        inventory=list(rows),
    )


def options(tmp_path):
    return DrillOptions(command=["python"], project=tmp_path, run_folder=tmp_path)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("rng/numpy", "the generator numpy"),
        ("generators/augment.rng", "the script's own generator augment.rng"),
        ("groups", "learning rates and other hyper-parameters"),
        ("inputs", "the content of batches"),
        ("average/0", "averaged weights number 0"),
        ("0/exp_avg", "0/exp_avg"),
        ("buffers", "buffers"),
    ],
)
def test_a_quantity_that_is_not_judged_has_a_name_that_can_be_read(tmp_path, name, words):
    assert ignored_quantity(name) == words
    expected = f"{words}: two uninterrupted runs already differ there"
    assert expected in not_checked(drilled([name]), options(tmp_path))


def test_without_such_quantities_nothing_is_said_of_them(tmp_path):
    assert not any("already differ" in line for line in not_checked(drilled(), options(tmp_path)))


def test_data_that_could_not_be_seen_are_named(tmp_path):
    row = InventoryRow(component="data-order", state="absent", detail=UNSEEN_DATA)
    assert f"data order and position: {UNSEEN_DATA}" in not_checked(drilled(rows=[row]), options(tmp_path))


@pytest.mark.parametrize(
    ("ignored", "components"),
    [
        ([], set()),
        (["schedules"], set()),
        (["schedules", "groups"], {Component.SCHEDULE}),
        (["scalers"], {Component.SCALER}),
        (["rng/numpy"], set()),
        (["rng/numpy", "rng/python", "rng/torch"], {Component.RNG}),
        (["inputs"], set()),
        (["inputs", "samples"], {Component.DATA_ORDER, Component.DATA_POSITION}),
        (["average/0"], {Component.EMA}),
        (["averages"], {Component.EMA}),
        (["0/exp_avg", "0/exp_avg_sq", "0/step"], {Component.OPTIMIZER}),
    ],
)
def test_a_component_is_unjudged_when_all_that_shows_it_is_ignored(ignored, components):
    assert unjudged(Criterion(kind="exact", rule="", ignored=ignored), control(4)) == components


def test_without_sample_numbers_the_content_alone_shows_the_data():
    trace = control(4)
    for step in trace.steps:
        step.micro_steps[0].samples = None
    found = unjudged(Criterion(kind="exact", rule="", ignored=["inputs"]), trace)
    assert found == {Component.DATA_ORDER, Component.DATA_POSITION}
