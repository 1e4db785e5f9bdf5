"""Learning-rate schedules: what is restored agrees with the optimizer, whatever the order of building and loading."""

from __future__ import annotations

import functools

import pytest
import torch
from torch.optim import lr_scheduler as lrs
from torch.optim.swa_utils import SWALR

from samestep.state import StateError, track
from state_exchange import Kept


def halved(epoch, base):
    return base**-epoch


class Ramp:
    """A schedule function with state."""

    def __init__(self):
        self.calls = 0

    def __call__(self, epoch):
        self.calls += 1
        return 1 / (1 + epoch) + self.calls * 1e-3


SCHEDULES = {
    "lambda": lambda o: lrs.LambdaLR(o, lambda epoch: 0.9**epoch),
    "lambda-object": lambda o: lrs.LambdaLR(o, Ramp()),
    "multiplicative": lambda o: lrs.MultiplicativeLR(o, lambda epoch: 0.9),
    "step": lambda o: lrs.StepLR(o, 2),
    "multi-step": lambda o: lrs.MultiStepLR(o, [2, 5, 5]),
    "constant": lambda o: lrs.ConstantLR(o, 0.5, 4),
    "linear": lambda o: lrs.LinearLR(o, 0.1, total_iters=9),
    "exponential": lambda o: lrs.ExponentialLR(o, 0.9),
    "cosine": lambda o: lrs.CosineAnnealingLR(o, 10),
    "polynomial": lambda o: lrs.PolynomialLR(o, 10, 2.0),
    "warm-restarts": lambda o: lrs.CosineAnnealingWarmRestarts(o, 3, 2),
    "one-cycle": lambda o: lrs.OneCycleLR(o, 0.5, total_steps=20),
    "cyclic": lambda o: lrs.CyclicLR(o, 0.01, 0.1, step_size_up=3, cycle_momentum=False),
    "plateau": lambda o: lrs.ReduceLROnPlateau(o, patience=1),
    "swa": lambda o: SWALR(o, 0.05, anneal_epochs=4),
    "sequential": lambda o: lrs.SequentialLR(o, [lrs.LinearLR(o, 0.1, total_iters=3), lrs.StepLR(o, 2)], [3]),
    "chained": lambda o: lrs.ChainedScheduler([lrs.ConstantLR(o, 0.5, 3), lrs.ExponentialLR(o, 0.9)]),
}


class Loop:
    """A training that only moves the learning rate."""

    def __init__(self, make):
        self.weight = torch.nn.Parameter(torch.ones(2))
        self.optimizer = torch.optim.AdamW([self.weight], lr=0.3)
        self.schedule = make(self.optimizer)
        self.losses = iter([3.0, 2.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0])

    def steps(self, count):
        rates = []
        for _ in range(count):
            self.weight.grad = torch.ones(2)
            self.optimizer.step()
            loss = next(self.losses)
            self.schedule.step(*([loss] if isinstance(self.schedule, lrs.ReduceLROnPlateau) else []))
            rates.append(self.optimizer.param_groups[0]["lr"])
        return rates

    def tracked(self):
        optimizer = track("optimizer", self.optimizer, models={"weight": self.weight})
        return [optimizer, track("schedule", self.schedule)]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["optimizer-first", "schedule-first"])
@pytest.mark.parametrize("kind", SCHEDULES)
def test_rates_go_on_where_they_were(kind, order):
    one = Loop(SCHEDULES[kind])
    one.steps(4)
    kept = [Kept(tracked) for tracked in one.tracked()]
    other = Loop(SCHEDULES[kind])
    for _ in range(4):
        next(other.losses)
    targets = other.tracked()
    for at in order:
        kept[at].into(targets[at])
    assert other.optimizer.param_groups[0]["lr"] == one.optimizer.param_groups[0]["lr"]
    assert other.optimizer.param_groups[0].get("initial_lr") == one.optimizer.param_groups[0].get(
        "initial_lr"
    )
    assert getattr(other.schedule, "_last_lr", None) == getattr(one.schedule, "_last_lr", None)
    assert other.steps(8) == one.steps(8)


def test_functions_are_code_and_said_to_be_no_state():
    notes = track("schedule", Loop(SCHEDULES["lambda"]).schedule).notes
    assert notes["not_saved"] == [f"{__name__}.<lambda>.<locals>.<lambda>"]
    partial = Loop(lambda o: lrs.LambdaLR(o, functools.partial(halved, base=2))).schedule
    assert track("schedule", partial).notes["not_saved"] == [f"{__name__}.halved"]
    assert "not_saved" not in track("schedule", Loop(SCHEDULES["step"]).schedule).notes


def test_a_schedule_with_a_function_in_its_state_is_refused_by_name():
    class Custom(lrs.LRScheduler):
        def __init__(self, optimizer):
            self.shape = lambda: 1
            super().__init__(optimizer)

        def get_lr(self):
            return [1.0 for _ in self.base_lrs]

    with pytest.raises(StateError, match=r"schedule\.shape is a builtins\.function"):
        track("schedule", Loop(Custom).schedule)
