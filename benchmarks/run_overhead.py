"""What the run API adds to a training step when no save is due, as a share of a step of 10 ms.

    python benchmarks/run_overhead.py [--steps 2000]

Two loops train the same model on the same batches in one process and take turns step by step, so that whatever else the
machine does meets both; the medians of a whole turn, fetching the batch included, are compared. The goal is 1 %.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, TensorDataset

import samestep

if TYPE_CHECKING:
    from collections.abc import Iterator

WIDTH, BATCH, STEP_SECONDS, WARM_UP = 64, 16, 0.010, 50


def make() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 1))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def make_loader(samples: int) -> DataLoader[Any]:
    inputs = torch.randn(samples, WIDTH)
    return DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=BATCH, shuffle=True)


def turns(batches: Any, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[float]:
    """Yield the seconds of each turn: take a batch, train on it, and whatever the loop does in between."""
    started = time.perf_counter()
    for inputs, targets in batches:
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        stopped = time.perf_counter()
        yield stopped - started
        started = time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=2000)
    steps = parser.parse_args().steps
    torch.set_num_threads(1)
    loader = make_loader((steps + 1) * BATCH)
    plain_model, plain_optimizer = make()
    model, optimizer = make()
    with tempfile.TemporaryDirectory() as root:
        run = samestep.Run(
            root, model=model, optimizer=optimizer, data=loader, steps=steps + 1, save=10**9, progress=False
        )
        for name in ("plain_optimizer", "plain_model"):
            run.irrelevant(name, because="it trains beside the run, to be compared with")
        plain, watched = turns(loader, plain_model, plain_optimizer), turns(run, model, optimizer)
        pairs = [(next(plain), next(watched)) for _ in range(steps)][WARM_UP:]
        run.close()
    without, with_run = (statistics.median(seconds) for seconds in zip(*pairs, strict=True))
    added = with_run - without
    print(f"plain loop    {without * 1e6:8.1f} us a step")
    print(f"samestep.Run  {with_run * 1e6:8.1f} us a step")
    print(f"added         {added * 1e6:8.1f} us a step: {added / STEP_SECONDS:.2%} of a step of 10 ms")


if __name__ == "__main__":
    main()
