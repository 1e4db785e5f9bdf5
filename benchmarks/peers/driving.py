"""Has the peers take turns: one process for each, one order at a time."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from peers.worker import DISK, OURS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_BENCHMARKS: Final = Path(__file__).resolve().parents[1]
_NOT_RESTORED: Final = "lora"
_PATIENCE_SECONDS: Final = 12.0
"""A peer that takes longer for a save and a restore takes part in two rounds only, so that the run has an end."""


@dataclasses.dataclass
class Result:
    """What one peer did, by round; an order that failed is None."""

    version: str = ""
    failed: str = ""
    saves: list[dict[str, float] | None] = dataclasses.field(default_factory=list)
    restores: list[dict[str, float] | None] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Run:
    """What all of them did with one workload."""

    workload: str
    scale: float
    rounds: int
    state_bytes: int = 0
    tensors: int = 0
    load: tuple[float, float] = (0.0, 0.0)  #: load average of a minute, at the beginning and at the end
    results: dict[str, Result] = dataclasses.field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """Return it as plain data."""
        return dataclasses.asdict(self)


@contextlib.contextmanager
def crew(peers: Iterable[str], python: Path, threads: int, folder: Path) -> Iterator[list[Worker]]:
    """Lend samestep, its peers and the bare disk, each in a process of its own.

    Args:
        peers: which of them.
        python: of the environment with the peers.
        threads: for each of them.
        folder: where they may write.
    """
    workers: list[Worker] = []
    try:
        for number, peer in enumerate((OURS, *peers, DISK)):
            program = Path(sys.executable) if peer in {OURS, DISK} else python
            workers.append(Worker(peer, program, threads, folder / str(number)))
        yield workers
    finally:
        for worker in workers:
            worker.end()


def measured(workload: str, workers: list[Worker], *, scale: float, rounds: int) -> Run:
    """Let the workers save and restore in turns.

    Args:
        workload: which state.
        workers: who takes turns.
        scale: of the state.
        rounds: how many, with the one that warms up.
    """
    run = Run(workload, scale, rounds)
    for worker in workers:
        about = worker.ask(f"begin {workload} {scale}")
        run.results[worker.peer] = Result(about.get("version", ""), about.get("failed", ""))
        if worker.peer == OURS and "failed" not in about:
            run.state_bytes, run.tensors = about["state_bytes"], about["tensors"]
    before = os.getloadavg()[0]
    for turn in range(rounds):
        _round(run, turn, workers)
    run.load = (before, os.getloadavg()[0])
    return run


class Worker:
    """A peer in a process of its own."""

    def __init__(self, peer: str, python: Path, threads: int, folder: Path) -> None:
        self.peer = peer
        folder.mkdir()
        with (folder / "log").open("w") as log:
            self._process = subprocess.Popen(
                [python, "-m", "peers.worker", peer, str(threads), str(folder)],
                cwd=_BENCHMARKS,
                env=_environment(threads),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def ask(self, order: str) -> dict[str, Any]:
        """Have something done and return what it cost, or why it failed."""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(order + "\n")
            self._process.stdin.flush()
        return self._answer()

    def end(self) -> None:
        """Let the process end, in good time."""
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            self._process.communicate("end\n", timeout=30)
        self._process.kill()
        self._process.wait()

    def _answer(self) -> dict[str, Any]:
        line = self._process.stdout.readline()
        return json.loads(line) if line else {"failed": f"its process ended with {self._process.wait()}"}


def _environment(threads: int) -> dict[str, str]:
    pinned = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads))
    return {
        **os.environ,
        **pinned,
        "XLA_FLAGS": f"--xla_cpu_multi_thread_eigen={'true' if threads > 1 else 'false'}",
        "JAX_PLATFORMS": "cpu",
        "PYTHONWARNINGS": "ignore",
    }


def _round(run: Run, turn: int, workers: list[Worker]) -> None:
    """Let every peer that still works save and restore once."""
    for worker in random.Random(turn).sample(workers, len(workers)):
        result = run.results[worker.peer]
        if result.failed or (turn > 1 and _is_slow(result)):
            continue
        began = time.monotonic()
        restores = worker.peer != DISK and run.workload != _NOT_RESTORED
        for order, kept in (("save", result.saves), ("restore", result.restores))[: 1 + restores]:
            answer = worker.ask(order)
            result.failed = result.failed or answer.get("failed", "")
            kept.append(None if "failed" in answer else answer)
        done = result.failed or f"{time.monotonic() - began:.1f} s"
        print(f"{run.workload}, round {turn}, {worker.peer}: {done}", file=sys.stderr)


def _is_slow(result: Result) -> bool:
    done = [cost for cost in (result.saves[-1], *result.restores[-1:]) if cost]
    return sum(cost["seconds"] for cost in done) > _PATIENCE_SECONDS
