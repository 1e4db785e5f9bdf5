"""Traces made up for the tests of judging: a control of a small deterministic run, and copies of it with one damage."""

from __future__ import annotations

import copy
import hashlib
import random
from typing import Any

from samestep.trace import (
    Average,
    EndRecord,
    Header,
    MicroStep,
    Quantity,
    State,
    StepRecord,
    Trace,
    Update,
)

BATCH = 2
PER_EPOCH = 6
"""Micro-steps of an epoch."""


def digest(*parts: object) -> str:
    return "xxh3:" + hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def content(values: list[float], tensors: int = 2) -> Quantity:
    return Quantity(digest(values), tensors, len(values), Quantity.encode(values))


def batch(samples: list[int], flavour: str = "") -> str:
    return digest("batch", samples, flavour).partition(":")[2]


def state_at(step: int, *, seed: int = 0) -> State:
    """Return the state with ``step`` complete steps: AdamW, a decaying rate, a scaler, an average."""
    source = random.Random(seed)
    start = [source.uniform(-1, 1) for _ in range(8)]
    weights = [value * 0.98**step + 0.01 * step for value in start]
    moments = [0.1 * value + 0.02 * step for value in start]
    state = State(
        weights=content(weights),
        buffers=content([0.5 + 0.1 * step, 1.0 + step], 1),
        schedules=[{"type": "LambdaLR", "last_epoch": step, "_step_count": step + 1}],
        scalers=[{"scale": 65536.0 / 2 ** (step // 5), "growth_tracker": step % 5}],
        averages=[Average("average", content([value * 0.99**step + 0.004 * step for value in start]), step)],
        groups=[[{"lr": rate_at(step), "weight_decay": 0.01}]],
        rng={"python": digest("python"), "torch": digest("torch", step, seed), "numpy": digest("numpy")},
    )
    if step:
        state.optimizer = {
            "0/exp_avg": content(moments),
            "0/exp_avg_sq": content([value * value for value in moments]),
            "0/step": content([float(step)] * 2),
        }
    return state


def rate_at(step: int) -> float:
    return round(0.01 * (1 - step / 40), 6)


def samples_at(position: int, per_epoch: int = PER_EPOCH) -> list[int]:
    """Return the samples of a micro-step; every epoch is shuffled in another way."""
    order = list(range(per_epoch * BATCH))
    random.Random(1000 + position // per_epoch).shuffle(order)
    start = position % per_epoch * BATCH
    return order[start : start + BATCH]


def step_at(number: int, *, micro_steps: int = 1) -> StepRecord:
    """Return step ``number`` (from 1) of the made-up run."""
    before = state_at(number - 1)
    micros = []
    for place in range(micro_steps):
        samples = samples_at((number - 1) * micro_steps + place)
        rng = (
            before.rng if not place else {**before.rng, "torch": digest("torch", number - 1, "micro", place)}
        )
        micros.append(MicroStep(batch(samples), 1, samples, 2.0 / (number + place / 10), dict(rng)))
    return StepRecord(
        index=number,
        before=before,
        micro_steps=micros,
        updates=[Update(0, "AdamW", groups=copy.deepcopy(before.groups[0]))],
        weights_after=state_at(number).weights,
        values={"self.global_step": number - 1, "best": round(9.0 / (1 + number // 3), 3), "noise.count": 7},
        generators={"augment.generator": digest("augment", 0)},
    )


def control(
    steps: int = 20, *, micro_steps: int = 1, rank: int = 0, world_size: int = 1, ended: bool = True
) -> Trace:
    """Return an uninterrupted run that ended by itself."""
    header = Header("control", ["python", "train.py"], 100 + rank, 1, rank=rank, world_size=world_size)
    trace = Trace(header, [step_at(number, micro_steps=micro_steps) for number in range(1, steps + 1)])
    if ended:
        trace.end = EndRecord("exit", steps, 0.0, state_at(steps))
    return trace


def resumed(reference: Trace, step: int, verify: int = 4) -> Trace:
    """Return a right continuation of ``reference`` from ``step`` complete steps on."""
    steps = copy.deepcopy(reference.steps[step : step + verify])
    for index, record in enumerate(steps, start=1):
        record.index = index
    header = copy.deepcopy(reference.header)
    header.attempt = "resumed"
    return Trace(header, steps, end=EndRecord("step-limit", len(steps), 0.0))


def blur(trace: Trace, size: float, seed: int) -> Trace:
    """Return a copy whose numbers are off by random relative errors of about ``size``."""
    source = random.Random(seed)
    made = copy.deepcopy(trace)
    for step in made.steps:
        _blur_state(step.before, size, source)
        step.weights_after = _blurred(step.weights_after, size, source)
        for micro in step.micro_steps:
            micro.loss = micro.loss and micro.loss * (1 + source.gauss(0, size))
    if made.end is not None:
        _blur_state(made.end.state, size, source)
    return made


def _blur_state(state: State, size: float, source: random.Random) -> None:
    state.weights = _blurred(state.weights, size, source)
    state.optimizer = {
        name: item if name.endswith("/step") else _blurred(item, size, source)
        for name, item in state.optimizer.items()
    }
    for average in state.averages:
        average.content = _blurred(average.content, size, source)


def _blurred(quantity: Any, size: float, source: random.Random) -> Any:
    if quantity is None:
        return None
    return content([value * (1 + source.gauss(0, size)) for value in quantity.values()], quantity.tensors)


def spoil_results(trace: Trace, start: int = 0) -> None:
    """Give all steps from index ``start`` on another loss and other weights, as a wrong step has."""
    for place, step in enumerate(trace.steps):
        if place >= start:
            for micro in step.micro_steps:
                micro.loss = (micro.loss or 0.0) + 0.5
            step.weights_after = content([value + 0.3 for value in step.weights_after.values()])
        if place > start:
            step.before.weights = content([value + 0.3 for value in step.before.weights.values()])
