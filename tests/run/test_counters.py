"""Counters of the script that a restart sets back, and that nobody has named, are named when the run goes on."""

from __future__ import annotations

import re
import sys
import weakref

import pytest

from run_scripts import run_script
from samestep.probe.reach.frames import Frames
from samestep.run.counters import Counters, accumulated

BEGIN = """
    import dataclasses, os, sys, time
    import torch, samestep

    class Meter:
        def __init__(self):
            self.total, self.last = 0.0, 0.0
        def update(self, value):
            self.total += value
            self.last = value

    class Model(torch.nn.Linear):
        calls = 0
        def forward(self, inputs):
            self.calls += 1
            return super().forward(inputs)

    @dataclasses.dataclass
    class Kept:
        seen: int = 0

    def make(root, **tracked):
        torch.manual_seed(0)
        model = Model(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, 50)
        samples = torch.utils.data.TensorDataset(torch.randn(80, 4, generator=torch.Generator().manual_seed(1)))
        loader = torch.utils.data.DataLoader(samples, batch_size=8, shuffle=True)
        data = {} if "own" in sys.argv else {"data": loader, "steps": 40}
        run = samestep.Run(root, model=model, optimizer=optimizer, schedule=schedule, save=3, asynchronous=False,
                           **data, **tracked)
        return run, model, optimizer, schedule, samples

    def step_of(model, optimizer, schedule, inputs):
        loss = model(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss.item()
"""

AT_THE_TOP = """
    kept, meter = Kept(), Meter()
    run, model, optimizer, schedule, samples = make("root", kept=kept)
    for name in sys.argv[2:]:
        run.irrelevant(name, because="it is only shown")
    began = time.time()
    own = int(open("own").read()) if os.path.exists("own") else 0
    tokens, total, loss, rate, index, done, elapsed, rare = 0, 0.0, 0.0, 1e-2, 0, 0, 0.0, 0
    for index, batch in enumerate(run):
        loss = step_of(model, optimizer, schedule, *batch)
        tokens += 512
        total = total + loss
        meter.update(loss)
        kept.seen += 8
        own += 1
        open("own", "w").write(str(own))
        done = run.step
        rate = schedule.get_last_lr()[0]
        elapsed = time.time() - began
        rare += index % 3 == 0
        if index == int(sys.argv[1]):
            os._exit(0)
"""

IN_FUNCTIONS = """
    def train(run, *parts):
        meter, tokens, best = Meter(), 0, 1e9
        for batch in run:
            meter.update(step_of(*parts, *batch))
            tokens += len(batch[0])
            best = min(best, meter.last)
            if run.step == int(sys.argv[1]) % 20:
                os._exit(0)

    def main():
        run, *parts, _ = make("root")
        train(run, *parts)

    main()
"""

OWN_LOOP = """
    run, model, optimizer, schedule, samples = make("root")
    step = run.restore()
    position, drawn = step * 8, 0
    while step < 40:
        places = torch.randperm(80, generator=torch.Generator().manual_seed(step))[:8]
        step_of(model, optimizer, schedule, samples.tensors[0][places])
        step += 1
        position += 8
        drawn += 8
        run.step_done()
        if run.due():
            run.save()
        if step == int(sys.argv[1]):
            os._exit(0)
    run.close()
"""


def named(ran):
    assert ran.exit_code == 0, ran.text
    return dict(re.findall(r"warning: (\S+) has begun again at \S+: it was (\S+) at step", ran.text))


def test_what_adds_up_and_begins_again_is_named_and_nothing_else(tmp_path):
    assert named(run_script(BEGIN + AT_THE_TOP, tmp_path, 10)) == {}
    resumed = run_script(BEGIN + AT_THE_TOP, tmp_path, 10)
    assert "at step 9, and every step changes it" in resumed.text
    found = named(resumed)
    assert found.keys() == {"tokens", "total", "meter.total", "model.calls"}
    assert found["tokens"] == str(9 * 512)
    assert found["model.calls"] == "9"
    again = run_script(BEGIN + AT_THE_TOP, tmp_path, 10, "tokens", "meter.total")
    assert named(again).keys() == {"total", "model.calls"}


@pytest.mark.full
def test_counters_of_functions_are_named_as_the_function_names_them(tmp_path):
    assert named(run_script(BEGIN + IN_FUNCTIONS, tmp_path, 10)) == {}
    assert named(run_script(BEGIN + IN_FUNCTIONS, tmp_path, 40)).keys() == {
        "tokens",
        "meter.total",
        "parts[0].calls",
    }


def test_in_a_loop_of_one_s_own_what_is_taken_from_the_restored_step_is_not_named(tmp_path):
    assert named(run_script(BEGIN + OWN_LOOP, tmp_path, 10, "own")) == {}
    assert named(run_script(BEGIN + OWN_LOOP, tmp_path, 40, "own")).keys() == {"drawn", "model.calls"}


SUMS = {
    "added in place": ("x += 1", True),
    "added": ("x = x + f(y, k=2)", True),
    "over several lines": ("x = (\n    f(y)\n    + x\n)", True),
    "in a function inside": ("def g():\n    global x\n    x += 1", True),
    "of an object": ("state.x += 1", True),
    "of an object in a method": ("class C:\n    def step(self):\n        self.x -= f(self.y)", True),
    "under a condition": ("if y:\n    x = x * 2 if y else x", True),
    "set anew": ("x = f(y)", False),
    "set anew after it was used": ("f(x)\nx = y + 1", False),
    "set by a loop": ("for x, (a, b) in enumerate(f(y)):\n    f(x)", False),
    "set by a loop that uses it last": ("for x in f(y):\n    z[x] = x", False),
    "set from an attribute": ("x = run.step", False),
}


@pytest.mark.parametrize("name", SUMS)
def test_a_sum_is_what_a_statement_reads_before_it_sets_it(name):
    source, is_sum = SUMS[name]
    assert ("x" in accumulated([compile(source, name, "exec")])) == is_sum


def test_after_the_first_boundaries_nothing_is_looked_at_any_more(monkeypatch):
    looked = []
    roots = Frames.roots
    monkeypatch.setattr(Frames, "roots", lambda self, frame: looked.append(1) or roots(self, frame))
    counters = Counters(sys._getframe(), (), print)
    for _ in range(20):
        counters.look()
    assert 2 <= len(looked) <= 10


def test_looking_keeps_nothing_alive():
    class Batch:
        pass

    counters = Counters(sys._getframe(), (), print)
    batch = Batch()
    counters.look()
    batch = weakref.ref(batch)
    assert batch() is None


def test_whatever_goes_wrong_with_looking_no_training_ends_by_it(monkeypatch):
    counters = Counters(sys._getframe(), (), print)
    monkeypatch.setattr(Frames, "roots", lambda *_: 1 / 0)
    counters.look()
    assert counters.told() == {}
