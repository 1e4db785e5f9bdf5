"""What a run is made by is described alike at every fresh start, and every change of it is named."""

from __future__ import annotations

import functools

import pytest
import torch
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    LambdaLR,
    LinearLR,
    OneCycleLR,
    ReduceLROnPlateau,
    SequentialLR,
)

from samestep.run.errors import MethodChanged
from samestep.run.method import describe, differences, require_same


def optimizer(kind=torch.optim.AdamW, **options):
    return kind(torch.nn.Linear(2, 2).parameters(), **{"lr": 0.1, **options})


def described(made, schedule=None):
    found = {"optimizer": ("optimizer", made)}
    return describe(found | ({"schedule": ("schedule", schedule)} if schedule else {}))


def warm_up(steps):
    return lambda step: min(1.0, step / steps)


SCHEDULES = {
    "cosine": lambda o: CosineAnnealingLR(o, 100),
    "lambda": lambda o: LambdaLR(o, warm_up(10)),
    "partial": lambda o: LambdaLR(o, functools.partial(lambda step, end: step / end, end=5)),
    "cycle": lambda o: OneCycleLR(o, 0.1, total_steps=50),
    "plateau": ReduceLROnPlateau,
    "sequence": lambda o: SequentialLR(o, [LinearLR(o, 0.1), CosineAnnealingLR(o, 90)], milestones=[10]),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_two_fresh_starts_of_one_script_are_described_alike(name):
    one, other = optimizer(), optimizer()
    assert described(one, SCHEDULES[name](one)) == described(other, SCHEDULES[name](other))


@pytest.mark.parametrize(
    ("before", "now", "named"),
    [
        ({}, {"kind": torch.optim.SGD}, "optimizer.kind was torch.AdamW and is now torch.SGD"),
        ({}, {"lr": 0.2}, "optimizer.groups[0].lr was 0.1 and is now 0.2"),
        ({}, {"betas": (0.5, 0.9)}, "betas"),
        ({}, {"weight_decay": 0.5}, "weight_decay"),
    ],
    ids=["class", "rate", "betas", "decay"],
)
def test_a_changed_optimizer_is_named(before, now, named):
    changed = differences(described(optimizer(**before)), described(optimizer(**now)))
    assert named in "; ".join(changed)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (lambda o: CosineAnnealingLR(o, 100), lambda o: CosineAnnealingLR(o, 200)),
        (lambda o: LambdaLR(o, warm_up(10)), lambda o: LambdaLR(o, warm_up(20))),
        (
            lambda o: LambdaLR(o, lambda step: 1 / (1 + step)),
            lambda o: LambdaLR(o, lambda step: 2 / (1 + step)),
        ),
        (
            SCHEDULES["sequence"],
            lambda o: SequentialLR(o, [LinearLR(o, 0.1), CosineAnnealingLR(o, 80)], [10]),
        ),
    ],
    ids=["length", "closed-over", "function", "nested"],
)
def test_a_changed_schedule_is_named(before, now):
    one, other = optimizer(), optimizer()
    changed = differences(described(one, before(one)), described(other, now(other)))
    assert any(line.startswith("schedule.") for line in changed)


def test_what_is_gone_and_what_is_new_are_named():
    one = optimizer()
    schedule = CosineAnnealingLR(one, 10)
    assert differences(described(one, schedule), described(one)) == [
        "schedule was a torch.CosineAnnealingLR and is gone"
    ]
    assert differences(described(one), described(one, schedule)) == [
        "schedule is new: a torch.CosineAnnealingLR"
    ]


def test_a_changed_method_is_refused_with_the_way_to_a_new_run():
    with pytest.raises(MethodChanged, match=r"lr was 0\.1") as caught:
        require_same(described(optimizer()), described(optimizer(lr=0.3)), "b-1")
    assert "new_run" in caught.value.hint
