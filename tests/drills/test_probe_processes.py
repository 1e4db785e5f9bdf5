"""Every way a training process can come into being: launchers, workers, forks."""

from __future__ import annotations

import sys

import pytest

from samestep.trace import load_traces

TRAIN = """
import torch
def train(steps=2, workers=0, context=None):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.utils.data.TensorDataset(torch.randn(2 * steps, 3))
    loader = torch.utils.data.DataLoader(data, batch_size=2, num_workers=workers, multiprocessing_context=context)
    for (x,) in loader:
        model(x).sum().backward(); optimizer.step(); optimizer.zero_grad()
"""


def test_loader_workers_leave_the_trace_of_their_parent_alone(watch):
    for context in ("fork", "spawn"):
        seen = watch(TRAIN + f"if __name__ == '__main__': train(3, 2, {context!r})")
        assert seen.trace.end.steps == 3
        assert [step.micro_steps[0].samples for step in seen.trace.steps] == [[0, 1], [2, 3], [4, 5]]
        assert seen.trace.end.reason == "exit"


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_that_train_have_traces_of_their_own(watch, method):
    seen = watch(
        TRAIN
        + f"""
if __name__ == "__main__":
    import multiprocessing
    train(1)
    children = [multiprocessing.get_context({method!r}).Process(target=train, args=(n,)) for n in (2, 3)]
    for child in children: child.start()
    for child in children: child.join()
"""
    )
    assert sorted(len(trace.steps) for trace in seen.traces) == [1, 2, 3]
    assert sorted(trace.end.steps for trace in seen.traces) == [1, 2, 3]
    assert len({trace.header.pid for trace in seen.traces}) == 3


def test_modules_and_subprocesses_are_reached(bench):
    package = bench.folder / "pkg"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(TRAIN + "train(2)")
    (bench.folder / "go.sh").write_text(f"exec {sys.executable} -m pkg")
    seen = bench.run(["sh", "go.sh"])
    assert seen.returncode == 0, seen.output
    assert len(seen.trace.steps) == 2


def test_two_ranks_under_torchrun_are_traced_apart(bench):
    script = bench.script(
        """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    model(torch.randn(2, 3)).sum().backward(); optimizer.step(); optimizer.zero_grad()
dist.destroy_process_group()
"""
    )
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    seen = bench.run([sys.executable, *command], step_limit=3)
    assert seen.returncode == 0, seen.output
    first, second = load_traces(seen.folder)
    assert [(t.header.rank, t.header.world_size, t.end.reason, len(t.steps)) for t in (first, second)] == [
        (0, 2, "step-limit", 3),
        (1, 2, "step-limit", 3),
    ]
    for one, other in zip(first.steps, second.steps, strict=True):
        assert one.weights_after == other.weights_after
        assert one.micro_steps[0].inputs != other.micro_steps[0].inputs


def test_a_rank_that_only_the_process_group_knows_is_found(watch):
    seen = watch(
        """
import torch, torch.distributed as dist, tempfile
def main(rank, path):
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
    w = torch.nn.Parameter(torch.ones(2)); optimizer = torch.optim.SGD([w], lr=0.1)
    w.sum().backward(); optimizer.step()
    dist.barrier(); dist.destroy_process_group()
if __name__ == "__main__":
    torch.multiprocessing.spawn(main, (tempfile.mktemp(),), 2)
"""
    )
    assert [(trace.header.rank, trace.header.world_size) for trace in seen.traces] == [(0, 2), (1, 2)]
