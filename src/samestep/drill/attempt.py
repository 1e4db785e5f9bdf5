"""One attempt: a command living on one machine, watched by the probe, from start to end."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from samestep import probe
from samestep.crash.recorder import Fault, Order, supervisor_command
from samestep.drill.judging.judgement import Ending
from samestep.process import ProcessTree
from samestep.trace import Orders, ParkPoint, Trace, load_traces
from samestep.trace.reading import BOOT_PATTERN

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from samestep.process import Machine, Preloaded

POLL_SECONDS = 0.01
LOG_TAIL_BYTES = 64_000
ORDERS_NAME = "orders.json"
STACK_SECONDS = 5.0
STACKS = {"PYTHONFAULTHANDLER": "1"}
"""Environment of every attempt: a process that hangs can be told to show its stacks."""


@dataclass(frozen=True)
class AttemptPlan:
    """What one attempt does.

    Attributes:
        name: unique inside the drill; names its traces and its log.
        command: argv with ``{out}`` already filled in.
        folder: working folder inside the project copy.
        recording: folder, as the command sees it, where its file operations are recorded; empty: nowhere.
        looks: folder, as the command sees it, for what its process sees of saves; empty: it does not look.
        faults: errors that the recorder puts in.
        step_limit, park, sabotage, watch, list_modules: see ``samestep.trace.Orders``.
        ranks: processes that must reach a park point.
        timeout_seconds: longest life.
        env: variables on top of the drill's own environment.
    """

    name: str
    command: list[str]
    folder: str = "."
    step_limit: int = 0
    park: list[ParkPoint] = field(default_factory=list)
    sabotage: str = ""
    watch: bool = True
    ranks: int = 1
    timeout_seconds: float = 600.0
    sample_values: int = 1024
    full_digest_every: int = 1
    list_modules: bool = False
    recording: str = ""
    looks: str = ""
    faults: tuple[Fault, ...] = ()
    env: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class NoticeRecord:
    """How a run took its notice.

    Attributes:
        left_in_time: it was gone before the grace ended.
        seconds: from the notice to its end; the grace when it did not leave.
        grace_seconds: the grace.
        exit_code: of the command, 128 + number when a signal ended it; None when it did not leave.
        handled: a training process had a handler for SIGTERM.
    """

    left_in_time: bool
    seconds: float
    grace_seconds: float
    exit_code: int | None
    handled: bool


@dataclass(frozen=True)
class AttemptRecord:
    """What became of an attempt.

    Attributes:
        name: as planned.
        traces: one per rank.
        ending: how it ended.
        seconds: wall time.
        log: its output.
    """

    name: str
    traces: list[Trace]
    ending: Ending
    seconds: float
    log: Path

    @property
    def steps(self) -> int:
        """Steps taken by the rank that took the fewest."""
        return min((len(trace.steps) for trace in self.traces), default=0)


class Attempt:
    """A running attempt.

    Use as a context manager: whatever happens, no process of it outlives the block.

    Args:
        machine: a fresh machine.
        plan: what to do.
        results: folder of the drill's run; traces and logs are kept there.
        preloaded: process to fork the command from, if it is one that runs such commands; None: start a fresh one.
    """

    def __init__(
        self, machine: Machine, plan: AttemptPlan, results: Path, preloaded: Preloaded | None = None
    ) -> None:
        self.machine = machine
        self.plan = plan
        self._preloaded = preloaded if preloaded is not None and preloaded.runs(plan.command) else None
        self.traces = results / "traces" / plan.name
        self.log = results / "logs" / f"{plan.name}.log"
        self._exit_code: int | None = None
        self._timed_out = False
        self._started = time.monotonic()
        self._tree: ProcessTree | None = None

    def __enter__(self) -> Self:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.traces.mkdir(parents=True, exist_ok=True)
        self._started = time.monotonic()
        self._tree = ProcessTree.start(
            self.plan.command,
            env=self._environment(),
            cwd=self.machine.seat_project / self.plan.folder,
            log_path=self.log,
            enter=self.machine.enter,
            preloaded=self._preloaded,
            supervisor=self._recorder(),
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.tree.kill()

    @property
    def tree(self) -> ProcessTree:
        """The process tree."""
        if self._tree is None:
            raise RuntimeError("the attempt has not been started")
        return self._tree

    def _recorder(self) -> list[str]:
        """Return the prefix of the command that records its file operations, durable folder first."""
        if not self.plan.recording:
            return []
        seat = self.machine.site.seat
        roots = [self.machine.seat_out, *(seat / name for name in ("tmp", "project", "home", "cache"))]
        return supervisor_command(Order(tuple(map(str, roots)), self.plan.recording, faults=self.plan.faults))

    def wait(self) -> int | None:
        """Wait for the end; None (and every process gone) when the time is up."""
        deadline = self._started + self.plan.timeout_seconds
        self._exit_code = self.tree.wait(deadline - time.monotonic())
        if self._exit_code is None:
            self._timed_out = True
            self._dump_stacks()
        return self._exit_code

    def _dump_stacks(self) -> None:
        """Let every Python process write where each of its threads is into the log, and end."""
        self.tree.terminate(signal.SIGABRT, everyone=True)
        self.tree.wait_gone(STACK_SECONDS)

    def wait_parked(self, point: ParkPoint) -> bool:
        """Wait until every rank stands at ``point``; False when the attempt ended before, or waits at another point."""
        deadline = self._started + self.plan.timeout_seconds
        others = [other for other in self.plan.park if other != point]
        while len(list(self.traces.glob(f"{point.name}.rank*.waiting"))) < self.plan.ranks:
            if self.tree.poll() is not None or any(map(self._stands_at, others)):
                return False
            if time.monotonic() > deadline:
                self._timed_out = True
                return False
            time.sleep(POLL_SECONDS)
        return True

    def _stands_at(self, point: ParkPoint) -> bool:
        """Say whether a rank waits at a point, and will wait until it is told to go on."""
        told = (self.traces / f"{point.name}.go").exists()
        return not told and any(self.traces.glob(f"{point.name}.rank*.waiting"))

    def release(self, point: ParkPoint) -> None:
        """Let a parked attempt go on."""
        (self.traces / f"{point.name}.go").touch()

    def notify(self, point: ParkPoint, grace_seconds: float) -> NoticeRecord:
        """Send SIGTERM to every process while all ranks stand at ``point``, let them go on, and wait for the grace."""
        noticed = time.monotonic()
        self.tree.terminate(everyone=True)
        self.release(point)
        gone = self.tree.wait_gone(grace_seconds)
        self._exit_code = self.tree.poll()
        seconds = time.monotonic() - noticed
        return NoticeRecord(gone, seconds, grace_seconds, self._exit_code, self._handles_sigterm())

    def _handles_sigterm(self) -> bool:
        events = [event for trace in load_traces(self.traces, trained=False) for event in trace.events]
        return any(event.name == "parked" and event.detail.get("handles_sigterm") for event in events)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop every process of the tree inside the block, so that the durable folder holds still."""
        self.tree.freeze()
        try:
            yield
        finally:
            self.tree.thaw()

    def record(self) -> AttemptRecord:
        """Read the traces of the ended attempt."""
        traces = load_traces(self.traces, trained=False)
        ranks = one_per_rank([trace for trace in traces if trace.steps])
        limit = bool(ranks) and all(
            trace.end is not None and trace.end.reason == "step-limit" for trace in ranks
        )
        ending = Ending(
            exit_code=None if limit else self._exit_code,
            timed_out=self._timed_out,
            log_tail=read_tail(self.log),
            hit_step_limit=limit,
            booted=len(list(self.traces.glob(BOOT_PATTERN))),
            not_followed=not_followed(traces),
        )
        return AttemptRecord(
            name=self.plan.name,
            traces=ranks,
            ending=ending,
            seconds=time.monotonic() - self._started,
            log=self.log,
        )

    def _environment(self) -> dict[str, str]:
        orders = Orders(
            attempt=self.plan.name,
            trace_folder=str(self.traces),
            durable=str(self.machine.seat_out),
            step_limit=self.plan.step_limit,
            park=self.plan.park,
            sabotage=self.plan.sabotage,
            watch=self.plan.watch,
            sample_values=self.plan.sample_values,
            full_digest_every=self.plan.full_digest_every,
            list_modules=self.plan.list_modules,
            marks=bool(self.plan.recording or self.plan.looks),
            looks=self.plan.looks,
        )
        path = self.traces / ORDERS_NAME
        orders.write(path)
        surroundings = self.machine.environment({**STACKS, **os.environ, **self.plan.env})
        return probe.environment(path, surroundings)


def one_per_rank(traces: list[Trace]) -> list[Trace]:
    """Keep the trace with the most steps of each rank (a helper process may step an optimizer too)."""
    best: dict[int, Trace] = {}
    for trace in traces:
        rank = trace.header.rank
        if rank not in best or len(trace.steps) > len(best[rank].steps):
            best[rank] = trace
    return [best[rank] for rank in sorted(best)]


def not_followed(traces: list[Trace]) -> list[str]:
    """Return what probes could not follow, each once, in the order it was met."""
    events = [event for trace in traces for event in trace.events if event.name == "not-followed"]
    return list(dict.fromkeys(f"{event.detail.get('what')}: {event.detail.get('why')}" for event in events))


def read_tail(path: Path, size_bytes: int = LOG_TAIL_BYTES) -> str:
    """Return the end of a text file, at most ``size_bytes``; empty when there is none."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - size_bytes))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
