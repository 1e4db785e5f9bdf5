"""Objects with a state of their own, plain values, and what cannot be tracked."""

from __future__ import annotations

import collections
import dataclasses

import numpy as np
import pytest
import torch

from samestep.state import StateError, track
from state_exchange import carry


class Meter:
    def __init__(self, total=0.0):
        self.total, self.history, self.window = total, [], torch.zeros(2)

    def state_dict(self):
        return {"total": self.total, "history": self.history, "window": self.window, "shape": (1, 2)}

    def load_state_dict(self, state):
        self.total, self.history, self.window = state.pop("total"), state.pop("history"), state["window"]


@dataclasses.dataclass
class Progress:
    step: int = 0
    best: float = float("inf")
    losses: list = dataclasses.field(default_factory=list)
    average: torch.Tensor = dataclasses.field(default_factory=lambda: torch.zeros(2))
    seen: set = dataclasses.field(default_factory=set)


def test_an_object_with_a_state_dict_gets_it_back():
    one, other = Meter(3.5), Meter()
    one.history += [1, "two"]
    one.window += 2
    assert carry(track("meter", one), track("meter", other)) == []
    assert (other.total, other.history) == (3.5, [1, "two"])
    assert other.history is not one.history
    assert track("meter", one).component == "progress"


def test_an_object_that_ignores_a_part_of_its_state_is_found_out():
    class Careless(Meter):
        def load_state_dict(self, state):
            self.total = int(state["total"])

    one, other = Careless(3.0), Careless()
    one.history.append(1)
    with pytest.raises(
        StateError,
        match=r"meter \(.*Careless\) was given its state and does not hold it: "
        r"meter\.history, meter\.total read back otherwise",
    ):
        carry(track("meter", one), track("meter", other))
    assert carry(track("meter", one), track("meter", other, read_back=False)) == [
        "meter.history",
        "meter.total",
    ]


def test_an_object_whose_state_cannot_be_exchanged_is_named():
    class Broken(Meter):
        def load_state_dict(self, state):
            raise KeyError("missing")

    with pytest.raises(StateError, match=r"meter: .*KeyError: 'missing'"):
        carry(track("meter", Broken()), track("meter", Broken()))


@pytest.mark.parametrize("enabled", [True, False])
def test_a_scaler_goes_on_with_its_scale(enabled):
    one, other = (
        torch.amp.GradScaler("cpu", init_scale=s, growth_interval=3, enabled=enabled) for s in (64.0, 2.0)
    )
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for factor in (1.0, float("inf"), 1.0):
        one.scale(weight.sum() * factor).backward()
        one.step(optimizer)
        one.update()
        weight.grad = None
    tracked = track("scaler", other)
    assert tracked.component == "scaler"
    assert carry(track("scaler", one), tracked) == []
    assert other.get_scale() == one.get_scale() == (32.0 if enabled else 1.0)


def test_a_scaler_that_is_off_does_not_swallow_a_scale():
    on, off = (torch.amp.GradScaler("cpu", enabled=enabled) for enabled in (True, False))
    with pytest.raises(StateError, match="scaler"):
        carry(track("scaler", on), track("scaler", off))


def test_a_dataclass_is_filled_in_place():
    one, other = Progress(step=3, best=0.5, losses=[1.0, {"a": 2}], seen={4}), Progress()
    one.average += 1
    losses, average = other.losses, other.average
    assert carry(track("progress", one), track("progress", other)) == []
    assert other.losses is losses
    assert other.average is average
    assert (other.step, other.best, losses, other.seen) == (3, 0.5, [1.0, {"a": 2}], {4})


def test_fields_that_came_or_went_are_named():
    @dataclasses.dataclass
    class Then:
        step: int = 0
        epoch: int = 0

    @dataclasses.dataclass
    class Now:
        step: int = 0
        tokens: int = 0

    with pytest.raises(StateError) as caught:
        carry(track("progress", Then(step=2)), track("progress", Now()))
    assert "missing in the bundle: progress.tokens" in caught.value.message
    assert "only in the bundle: progress.epoch" in caught.value.message
    now = Now()
    carry(
        track("progress", Then(step=2)),
        track("progress", now),
        allow_missing=["*.tokens"],
        allow_extra=["*.epoch"],
    )
    assert now.step == 2


def test_a_dataclass_with_more_than_its_fields_is_refused():
    progress = Progress()
    progress.hidden = 1
    with pytest.raises(StateError, match="progress: its attribute 'hidden' is no field"):
        track("progress", progress)

    @dataclasses.dataclass(frozen=True)
    class Frozen:
        step: int = 0

    with pytest.raises(StateError, match="frozen"):
        track("progress", Frozen())


def test_containers_are_changed_in_place():
    inner = [1]
    one = {
        "step": 3,
        7: (1, 2),
        "inner": [5, 6],
        "counts": collections.Counter("aab"),
        "order": np.arange(5000),
    }
    other = {"inner": inner, "gone": 1}
    assert carry(track("values", one), track("values", other)) == []
    assert other["inner"] is inner
    assert inner == [5, 6]
    assert list(other) == list(one)
    losses = [9]
    assert carry(track("losses", [1.0, float("nan")]), track("losses", losses)) == []
    assert losses[0] == 1.0
    with pytest.raises(StateError, match="losses: in the bundle a list, here a dict"):
        carry(track("losses", [1]), track("losses", {}))


def test_one_object_at_two_places_takes_one_value():
    shared = [0]
    other = {"a": shared, "b": shared}
    assert carry(track("values", {"a": [1], "b": [2]}), track("values", other)) == []
    assert other["a"] is shared
    assert (other["a"], other["b"]) == ([1], [2])


def test_the_state_of_something_else_is_refused():
    with pytest.raises(StateError, match=r"thing: in the bundle the state of something else"):
        carry(track("thing", [1, 2]), track("thing", torch.nn.Linear(2, 2)))
    with pytest.raises(StateError, match=r"thing: in the bundle a generator of None, here of PCG64"):
        carry(track("thing", Meter()), track("thing", np.random.default_rng(1)))


@pytest.mark.parametrize(
    "thing",
    [object(), len, 3, Meter, Progress, "text"],
    ids=["object", "function", "number", "class", "dataclass", "text"],
)
def test_what_has_no_state_is_refused_with_the_ways_out(thing):
    with pytest.raises(StateError, match=r"thing is a .* whose state samestep cannot read") as caught:
        track("thing", thing)
    assert caught.value.slug == "untrackable"
    assert all(way in caught.value.hint for way in ("load_state_dict", "dataclass", "rebuilt", "irrelevant"))
