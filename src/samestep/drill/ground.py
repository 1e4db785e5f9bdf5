"""What all scenarios of one drill share."""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from samestep.drill.attempt import AttemptPlan
from samestep.drill.command import restart_command, start_command
from samestep.drill.judging.judgement import Reference
from samestep.drill.units import newest_unit
from samestep.errors import MachineError
from samestep.process import tree_digest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from samestep.drill.attempt import AttemptRecord
    from samestep.drill.crashing import Crashes
    from samestep.drill.observe import ControlFacts
    from samestep.drill.options import DrillOptions
    from samestep.drill.result import Criterion
    from samestep.process import Machine, Site

_PATIENCE_SECONDS, _PATIENCE_FACTOR = 60.0, 5.0


@dataclass
class ControlRun:
    """An uninterrupted run that has ended.

    Attributes:
        record: its traces and its end.
        facts: what planning needs.
        final: copy of its durable folder after the end.
        strays: checkpoints that it left on its machine outside the durable folder.
    """

    record: AttemptRecord
    facts: ControlFacts
    final: Path
    strays: list[str] = field(default_factory=list)


@dataclass
class Workshop:
    """Where a drill works: its options, its machines and its folders.

    Attributes:
        options: what was asked for.
        site: makes the machines.
        snapshots: folder of kept disk states.
        stop: set when the drill is being ended, so that no new attempt begins.
    """

    options: DrillOptions
    site: Site
    snapshots: Path
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def jobs(self) -> int:
        """How many attempts run at a time: as asked, else one per core; one where machines cannot be kept apart."""
        return (self.options.jobs or usable_cores()) if self.site.parallel else 1

    @property
    def threads(self) -> dict[str, str]:
        """Each attempt's share of the cores, for all attempts alike, unless the user has decided it.

        Numbers may depend on the number of threads, and more threads than cores spend their time waiting.
        """
        if "OMP_NUM_THREADS" in os.environ:
            return {}
        return {"OMP_NUM_THREADS": str(max(1, usable_cores() // self.jobs))}

    @property
    def recording(self) -> Path:
        """Folder that the recording of the control is kept in."""
        return self.site.base / "recording"

    def snapshot(self, name: str) -> Path:
        """Return the folder of the snapshot called ``name``."""
        return self.snapshots / name

    @contextlib.contextmanager
    def machine(self, name: str) -> Iterator[Machine]:
        """Give a fresh machine, which is gone after the block.

        Raises:
            MachineError: the drill is being ended, or the machine could not be made.
        """
        if self.stop.is_set():
            raise MachineError("the drill is being ended")
        machine = self.site.machine(name)
        try:
            yield machine
        except BaseException:
            machine.destroy()
            raise
        machine.retire()

    def code_digest(self) -> str:
        """Return a digest of the project files that every machine gets."""
        with self.machine("code") as machine:
            return tree_digest(machine.project)

    def patience(self, control_seconds: float) -> float:
        """Return how long a restart may take: not much longer than the whole control, and never more than allowed."""
        return min(self.options.timeout_seconds, _PATIENCE_SECONDS + _PATIENCE_FACTOR * control_seconds)

    def plan(
        self, name: str, command: list[str], *, timeout_seconds: float = 0.0, **changes: object
    ) -> AttemptPlan:
        """Return an attempt plan with the drill's settings."""
        return AttemptPlan(
            name=name,
            command=command,
            folder=self.options.working_folder,
            timeout_seconds=timeout_seconds or self.options.timeout_seconds,
            sample_values=self.options.sample_values,
            full_digest_every=self.options.full_digest_every,
            env={**self.threads, **self.options.env},
            **changes,  # type: ignore[arg-type]
        )

    def start_command(self, machine: Machine) -> list[str]:
        """Return the command of a fresh run on ``machine``."""
        return start_command(self.options, str(machine.seat_out))

    def restart_command(self, machine: Machine) -> list[str]:
        """Return the command of a restart from what lies on ``machine``."""
        newest = newest_unit(machine.out)
        checkpoint = "" if newest is None else str(machine.seat_out / newest.path)
        return restart_command(self.options, str(machine.seat_out), checkpoint)


def usable_cores() -> int:
    """Return on how many cores this process may run."""
    return max(1, len(os.sched_getaffinity(0)))


@dataclass(frozen=True)
class Ground:
    """What all scenarios of a drill are judged against.

    Attributes:
        workshop: where to work.
        control: the run that wrote the checkpoints.
        other: the first control, for what differs between runs without meaning anything.
        criterion: the rule for the same.
        crashes: the control's saves, operation by operation; None when they were not recorded.
    """

    workshop: Workshop
    control: ControlRun
    other: ControlRun
    criterion: Criterion
    crashes: Crashes | None = None

    @property
    def exact(self) -> bool:
        """Whether the controls agreed bit for bit."""
        return self.criterion.kind == "exact"

    @property
    def reference(self) -> Reference:
        """The control as the judge sees it."""
        facts = self.control.facts
        return Reference(
            traces=self.control.record.traces,
            save_steps=facts.save_steps,
            epoch_ends=facts.epoch_ends,
            followers=self.other.record.traces,
        )
