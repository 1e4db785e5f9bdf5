"""A tiny training with the run API, in processes that are really killed and started again."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from typing import TYPE_CHECKING, Any

import forks

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

TIMEOUT_SECONDS = 300


@dataclasses.dataclass(frozen=True)
class Ended:
    """What became of one process.

    Attributes:
        exit_code: negative for a signal.
        seconds: from its start to its end, by the clock of whoever started it.
    """

    exit_code: int
    seconds: float


def train(root: Path, *, kill_after: float | None = None, **options: Any) -> Ended:
    """Train in a process of its own.

    Args:
        root: of the run.
        kill_after: SIGKILL comes so many seconds after the start; None: never.
        options: of ``_train``.
    """
    process = _process(_train, root, options)
    began = time.monotonic()
    process.start()
    process.join(TIMEOUT_SECONDS if kill_after is None else max(0.0, began + kill_after - time.monotonic()))
    if process.is_alive():
        process.kill()
        process.join()
        if kill_after is None:
            raise TimeoutError(f"the training was still running after {TIMEOUT_SECONDS} s")
    return Ended(process.exitcode or 0, time.monotonic() - began)


def train_through(root: Path, lives: Sequence[float], **options: Any) -> list[Ended]:
    """Train until the run is finished: each process lives as long as ``lives`` says, then SIGKILL comes."""
    seconds_of_nothing()
    ended = []
    for seconds in lives:
        ended.append(train(root, kill_after=seconds, **options))
        if ended[-1].exit_code == 0:
            return ended
        if ended[-1].exit_code != -signal.SIGKILL:
            raise AssertionError(f"the training ended with {ended[-1].exit_code}")
    raise AssertionError(f"{len(lives)} lives did not suffice")


def _process(target: Any, *arguments: Any) -> Any:
    return forks.process(target, *arguments)


def seconds_of_nothing() -> float:
    """Return how long a process takes in which nothing happens; what all are forked from has loaded torch then."""
    took = 0.0
    for _ in range(3):
        process = _process(int)
        began = time.monotonic()
        process.start()
        process.join()
        took = time.monotonic() - began
    return took


def _train(root: Path, options: dict[str, Any]) -> None:
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    import samestep

    torch.set_num_threads(1)
    torch.manual_seed(0)
    if options.get("stuck_at") is not None:
        _get_stuck(options["stuck_at"])
    model = nn.Linear(8, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    inputs = torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
    loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=8, shuffle=True)
    run = samestep.Run(
        root,
        model=model,
        optimizer=optimizer,
        data=loader,
        steps=options["steps"],
        save=options["save"],
        progress=False,
    )
    for given, target in run:
        loss = nn.functional.mse_loss(model(given), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(options.get("step_seconds", 0.0))
        if run.step == options.get("kill_at"):  # inside the step after it
            os.kill(os.getpid(), signal.SIGKILL)


def _get_stuck(step: int) -> None:
    """Let the bundle of ``step`` never be committed, as if the place were slow: training goes on meanwhile."""
    from samestep.bundle.saving import Saving

    commit = Saving.commit

    def slow(saving: Saving, **said: Any) -> Any:
        if saving.step == step:
            time.sleep(TIMEOUT_SECONDS)
        return commit(saving, **said)

    Saving.commit = slow
