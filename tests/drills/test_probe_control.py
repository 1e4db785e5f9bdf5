"""Orders to the probe: limits, parking, sabotage; and that watching changes nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import samestep
from samestep.trace import ParkPoint, load_traces

LOOP = """
import torch, random, sys, os, pathlib
import numpy as np
torch.manual_seed(1); random.seed(1); np.random.seed(1)
out = pathlib.Path(os.environ["OUT"]); out.mkdir(exist_ok=True)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
data = torch.utils.data.TensorDataset(torch.randn(48, 4), torch.randn(48, 1))
start, last = 0, out / "last.pt"
if last.exists():
    saved = torch.load(last)
    model.load_state_dict(saved["model"]); optimizer.load_state_dict(saved["optimizer"])
    schedule.load_state_dict(saved["schedule"]); start = saved["step"]
loader = torch.utils.data.DataLoader(torch.utils.data.Subset(data, range(4 * start, 48)), batch_size=2)
micro = 0
for x, y in loader:
    loss = torch.nn.functional.mse_loss(model(x + 0.01 * random.random() + 0.01 * np.random.rand()), y) / 2
    loss.backward(); micro += 1
    if micro % 2: continue
    optimizer.step(); schedule.step(); optimizer.zero_grad(); start += 1
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}
    torch.save({**state, "step": start}, last)
    if start == 6: break
print("finished", start)
"""


@pytest.fixture
def out(tmp_path):
    return {"OUT": str(tmp_path / "out")}


def wait_for(path, process):
    deadline = time.monotonic() + 120
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_step_limit_ends_the_script_after_the_saves_of_the_last_step(watch, tmp_path, out):
    import torch

    seen = watch(LOOP, env=out, step_limit=3, durable=out["OUT"])
    assert "finished" not in seen.output
    end = seen.trace.end
    assert (end.reason, end.steps, len(seen.trace.steps)) == ("step-limit", 3, 3)
    assert torch.load(tmp_path / "out" / "last.pt")["step"] == 3
    assert [step.durable for step in seen.trace.steps] == [["last.pt"]] * 3
    assert "0/exp_avg" in end.state.optimizer
    resumed = watch(LOOP, env=out, step_limit=2, durable=out["OUT"])
    assert resumed.events("read") == [{"path": "last.pt"}]
    assert resumed.trace.steps[0].before.weights == end.state.weights
    assert resumed.trace.steps[0].before.optimizer == end.state.optimizer
    assert resumed.trace.steps[0].before.schedules == end.state.schedules


def test_a_process_parks_at_every_kind_of_point_and_can_be_killed_there(bench, out):
    points = [
        ParkPoint("boundary", 0),
        ParkPoint("micro", 1, 2),
        ParkPoint("update", 2),
        ParkPoint("boundary", 2),
    ]
    folder, env = bench.orders(park=points)
    process = subprocess.Popen(
        [sys.executable, str(bench.script(LOOP))],
        env={**env, **out},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        steps = []
        for point in points:
            mark = folder / f"{point.name}.rank0.waiting"
            wait_for(mark, process)
            assert mark.read_text() == str(process.pid)
            steps.append(sum(len(trace.steps) for trace in load_traces(folder)))
            if point != points[-1]:
                (folder / f"{point.name}.go").touch()
        os.kill(process.pid, signal.SIGKILL)
        process.wait(30)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    (trace,) = load_traces(folder)
    assert steps == [0, 0, 1, 2]
    assert trace.end is None
    assert [e.detail["point"] for e in trace.events if e.name == "parked"] == [point.name for point in points]
    assert [e.name for e in trace.events].count("released") == 3


@pytest.mark.parametrize("what", ["optimizer", "schedule", "data", "rng"])
def test_a_sabotage_damages_its_component_and_no_other(watch, out, what):
    watch(LOOP, env=out, step_limit=2)
    checkpoint = Path(out["OUT"], "last.pt")
    kept = checkpoint.read_bytes()
    clean = watch(LOOP, env=out, step_limit=3).trace
    checkpoint.write_bytes(kept)
    seen = watch(LOOP, env=out, step_limit=3, sabotage=what)
    assert seen.events("sabotaged") == [{"what": what, "found": True}]
    good, bad = clean.steps[0].before, seen.trace.steps[0].before
    differs = {
        "optimizer": good.optimizer != bad.optimizer,
        "schedule": good.schedules != bad.schedules and good.groups != bad.groups,
        "rng": good.rng != bad.rng,
        "data": [s.micro_steps[0].samples for s in clean.steps]
        != [s.micro_steps[0].samples for s in seen.trace.steps],
    }
    assert differs == {name: name == what for name in differs}
    assert good.weights == bad.weights


def test_watching_changes_nothing_and_unwatched_processes_only_count(watch, tmp_path):
    import torch

    results = {}
    for name, orders in (("none", {}), ("counted", {"watch": False}), ("full", {})):
        unwatched = {"SAMESTEP_ORDERS": ""} if name == "none" else {}
        seen = watch(LOOP, env={"OUT": str(tmp_path / name), **unwatched}, **orders)
        assert "finished 6" in seen.output
        results[name] = torch.load(tmp_path / name / "last.pt")
        if name == "counted":
            assert [step.index for step in seen.trace.steps] == [1, 2, 3, 4, 5, 6]
            assert seen.trace.steps[0].before.weights is None
        if name == "full":
            assert len(seen.trace.steps) == 6
    for name in ("counted", "full"):
        for one, other in zip(
            results["none"]["model"].values(), results[name]["model"].values(), strict=True
        ):
            assert torch.equal(one, other)


def test_an_uncaught_exception_is_an_end_of_its_own(bench):
    text = """
import torch
w = torch.nn.Parameter(torch.ones(2)); optimizer = torch.optim.SGD([w], lr=0.1)
w.sum().backward(); optimizer.step()
raise RuntimeError("out of luck")
"""
    seen = bench.run([sys.executable, str(bench.script(text))])
    assert seen.returncode == 1
    assert "out of luck" in seen.output
    assert "samestep" not in seen.output
    assert (seen.trace.end.reason, seen.trace.end.steps) == ("exception", 1)


def test_a_script_without_xxhash_is_watched_with_the_one_that_samestep_brings(watch, out):
    seen = watch("import sys; sys.modules['xxhash'] = None\n" + LOOP, env=out, step_limit=2)
    assert seen.trace.header.digest == "xxh3_128"


def test_without_any_xxhash_torch_is_watched_with_its_own_arithmetic(watch, out):
    without = "import os, sys; sys.modules['xxhash'] = None; os.environ['SAMESTEP_XXHASH'] = ''\n"
    seen = watch(without + LOOP, env=out, step_limit=2)
    assert seen.trace.header.digest == "mix128"
    assert seen.trace.steps[0].before.weights.digest.startswith("mix128:")
    assert seen.trace.steps[0].weights_after == seen.trace.steps[1].before.weights


def test_full_digests_can_be_rarer_than_steps(watch, out):
    seen = watch(LOOP, env=out, full_digest_every=2, step_limit=4)
    kinds = [step.before.weights.digest.split(":")[0] for step in seen.trace.steps]
    assert kinds == ["xxh3_128", "sample", "xxh3_128", "sample"]


def test_the_probe_can_be_installed_by_hand_where_sitecustomize_is_skipped(bench):
    text = """
import sys; sys.path.insert(0, {source!r})
import torch, samestep.probe
assert samestep.probe.install() and samestep.probe.install()
w = torch.nn.Parameter(torch.ones(2)); optimizer = torch.optim.SGD([w], lr=0.1)
w.sum().backward(); optimizer.step()
"""
    source = str(Path(samestep.__file__).parent.parent)
    seen = bench.run([sys.executable, "-I", str(bench.script(text.format(source=source)))])
    assert seen.returncode == 0, seen.output
    assert len(seen.trace.steps) == 1
    assert json.loads(next(seen.folder.glob("boot-*.json")).read_text())["ppid"] == os.getpid()
