"""One turn of one way: a training in a process of its own, first undisturbed, then saved now and then.

    python -m peers.stall_worker WAY FOLDER JSON

It prints one JSON line: what the turn cost, or why it failed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import resource
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from peers import measuring
from peers.stalls import NOTHING, OURS, WAYS, version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from peers.stalls import Way
    from peers.training import Training

_WARM_UP: Final = 3
_WAIT_SECONDS, _MOST_WAITS, _IDLE = 0.5, 30, 0.1
_ENOUGH: Final = 0.95
"""A save must have put at least so much of the state on the disk."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a turn does.

    Attributes:
        scale: of the state.
        plain: steps without a save, to compare with.
        gap: steps from a save to the next.
        saves: that are measured, after the first, which is measured apart.
        small: whether the state is 16,000 small tensors, which are saved one after the other.
    """

    scale: float
    plain: int
    gap: int
    saves: int
    small: bool = False


class Loop:
    """The training loop, with a clock."""

    def __init__(self, training: Training, way: Way) -> None:
        self._training, self._way = training, way
        self.waited = 0.0
        if training.optimizer is not None:
            training.optimizer.register_step_pre_hook(lambda *_: self._wait())

    def steps(self, count: int) -> None:
        """Make so many steps."""
        for _ in range(count):
            self._training.step()
            self._way.passed()

    def save(self, number: int) -> float:
        """Save, and return how long that kept the training from going on."""
        started = time.perf_counter()
        self._way.save(number)
        return time.perf_counter() - started

    def _wait(self) -> None:
        started = time.perf_counter()
        self._way.before_update()
        self.waited += time.perf_counter() - started


@dataclasses.dataclass
class Spent:
    """Seconds of wall time, and processor seconds of this process and of its children."""

    seconds: float
    processor: float
    children: float


def main() -> None:
    """Take the turn."""
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a way prints goes where errors go
    way, folder, plan = sys.argv[1:]
    try:
        answer = {"version": version_of(way), **_turn(way, Path(folder), Plan(**json.loads(plan)))}
    except BaseException as error:  # noqa: BLE001 - whatever a peer raises is its result
        traceback.print_exc()
        text = str(error).strip().splitlines() or [""]
        answer = {"failed": f"{type(error).__name__}: {text[0][:200]}"}
    replies.write(json.dumps(answer) + "\n")
    replies.flush()
    os._exit(0)  # helper processes of a peer that failed must not keep the turn from ending


def _turn(name: str, folder: Path, plan: Plan) -> dict[str, Any]:
    import torch
    from peers.training import Small, Training

    torch.set_num_threads(1)
    training: Any = Small(plan.scale) if plan.small else Training(plan.scale)
    for _ in range(_WARM_UP):
        training.step()
    found: dict[str, Any] = {"state_bytes": training.size(), "tensors": sum(1 for _ in training.tensors())}
    os.sync()
    resident = measuring.reset_peak()
    way = WAYS[name](training, folder)
    found |= _small(way, training, plan) if plan.small else _trained(name, way, training, plan)
    found["extra_mib"] = (measuring.status("VmHWM") - resident) / 1024 + _children_mib()
    if name != NOTHING:
        stored = measuring.size_of_tree(way.newest())
        if stored < _ENOUGH * training.size() and name != "Orbax async":
            raise ValueError(f"the newest save holds {stored:,} bytes of {training.size():,}")
    way.close()
    return found | (
        {"warm_copy": _warm_copy(training), "auto": _auto(training, folder)} if name == NOTHING else {}
    )


def _trained(name: str, way: Way, training: Training, plan: Plan) -> dict[str, Any]:
    loop = Loop(training, way)
    if name in OURS:
        with _guards_timed(loop):
            return _section(loop, way, plan)
    return _section(loop, way, plan, saving=name != NOTHING)


def _section(loop: Loop, way: Way, plan: Plan, *, saving: bool = True) -> dict[str, Any]:
    loop.steps(_WARM_UP)
    _settle()
    plain = _spent(lambda: loop.steps(plan.plain))
    blocked: list[float] = []

    def saved(saves: int) -> None:
        for _ in range(saves):
            loop.waited = 0.0
            seconds = loop.save(len(blocked) + 1) if saving else 0.0
            loop.steps(plan.gap)
            blocked.append(seconds + loop.waited)
        way.finish()

    first = _spent(lambda: saved(1))
    rest = _spent(lambda: saved(plan.saves))
    return {
        "step": plain.seconds / plan.plain,
        "first_blocked": blocked[0],
        "first_added": _added(first, plain, plan, 1, "seconds"),
        "blocked": sum(blocked[1:]) / plan.saves,
        "most_blocked": max(blocked[1:]),
        "added": _added(rest, plain, plan, plan.saves, "seconds"),
        "processor": _added(rest, plain, plan, plan.saves, "processor"),
        "children": _added(rest, plain, plan, plan.saves, "children"),
    }


def _settle() -> None:
    """Return when what a way began in the background, such as a helper process, is ready."""
    for _ in range(_MOST_WAITS):
        before = _processor() + _children_seconds()
        time.sleep(_WAIT_SECONDS)
        if _processor() + _children_seconds() - before < _IDLE * _WAIT_SECONDS:
            return


def _small(way: Way, training: Any, plan: Plan) -> dict[str, Any]:
    """Save small tensors and wait for each save."""
    seconds, blocked = [], []
    for number in range(1, plan.saves + 2):
        training.step()
        way.passed()
        started = time.perf_counter()
        way.save(number)
        blocked.append(time.perf_counter() - started)
        way.finish()
        seconds.append(time.perf_counter() - started)
    return {"blocked": sum(blocked[1:]) / plan.saves, "whole": sum(seconds[1:]) / plan.saves}


def _added(spent: Spent, plain: Spent, plan: Plan, saves: int, field: str) -> float:
    """Return what each save added to the steps that were made meanwhile."""
    steps = saves * plan.gap
    value: float = (getattr(spent, field) - getattr(plain, field) * steps / plan.plain) / saves
    return value


def _spent(act: Callable[[], None]) -> Spent:
    started, processor, children = time.perf_counter(), _processor(), _children_seconds()
    act()
    return Spent(time.perf_counter() - started, _processor() - processor, _children_seconds() - children)


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _children_seconds() -> float:
    """Return the processor seconds of the living children and of those that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    tick = os.sysconf("SC_CLK_TCK")
    living = 0.0
    for child in _children():
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
            living += sum(map(int, fields[11:15])) / tick
    return ended.ru_utime + ended.ru_stime + living


def _children_mib() -> float:
    """Return the memory that living children have for themselves."""
    found = 0.0
    for child in _children():
        with contextlib.suppress(OSError, LookupError):
            found += measuring.status("RssAnon", child) / 1024
    return found


def _children() -> list[str]:
    tasks = Path("/proc/self/task").glob("*/children")
    return [child for task in tasks for child in task.read_text().split()]


@contextlib.contextmanager
def _guards_timed(loop: Loop) -> Iterator[None]:
    """Count what samestep's own hook keeps the optimizer waiting for."""
    from samestep.state import Snapshot

    original = Snapshot.wait_staged
    home = threading.get_ident()

    def timed(snapshot: Snapshot) -> None:
        started = time.perf_counter()
        original(snapshot)
        if threading.get_ident() == home:
            loop.waited += time.perf_counter() - started

    Snapshot.wait_staged = timed  # type: ignore[method-assign]
    try:
        yield
    finally:
        Snapshot.wait_staged = original  # type: ignore[method-assign]


def _warm_copy(training: Training) -> float:
    """Return how long one thread takes to copy the state into memory that is in use."""
    tensors = [tensor.detach() for tensor in training.tensors()]
    copies = [tensor.clone() for tensor in tensors]
    times = []
    for _ in range(5):
        started = time.perf_counter()
        for copy, tensor in zip(copies, tensors, strict=True):
            copy.copy_(tensor)
        times.append(time.perf_counter() - started)
    return sorted(times)[2]


def _auto(training: Training, folder: Path) -> str:
    """Return what ``asynchronous="auto"`` chooses here."""
    import samestep

    run = samestep.Run(
        folder / "auto",
        model=training.model,
        optimizer=training.optimizer,
        progress=False,
        asynchronous="auto",
    )
    run.restore()
    chosen = run.copying
    run.fail(RuntimeError("asked only"))
    return chosen


if __name__ == "__main__":
    main()
