"""What a judge is given and what it returns: plain data, so that judging never touches a process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from samestep.drill.result import FindingRecord, Observation
    from samestep.trace import Trace


@dataclass(frozen=True)
class Reference:
    """The run that wrote the checkpoint, and its own continuation.

    Attributes:
        traces: one per rank, ordered by rank.
        save_steps: steps complete at each save, ascending.
        epoch_ends: steps that ended an epoch, as far as known.
        followers: optional second control (per rank) for values that are noise: a plain value that differs
            between the controls is never judged.
    """

    traces: list[Trace]
    save_steps: list[int] = field(default_factory=list)
    epoch_ends: list[int] = field(default_factory=list)
    followers: list[Trace] = field(default_factory=list)


@dataclass(frozen=True)
class Ending:
    """How the restarted command ended.

    Attributes:
        exit_code: None when the drill stopped it after enough verified steps.
        timed_out: it neither stepped nor ended in time.
        log_tail: the last lines of its output (stdout and stderr together).
        hit_step_limit: the probe ended it because enough steps were verified.
        booted: number of processes in which the probe came up.
        not_followed: what the probes could not follow, and why.
    """

    exit_code: int | None = None
    timed_out: bool = False
    log_tail: str = ""
    hit_step_limit: bool = False
    booted: int = 1
    not_followed: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Case:
    """What is known about a scenario before its result is judged.

    Attributes:
        family: ``cut``, ``notice``, ``damage``, ``transfer`` or ``restart``.
        cut_step: steps complete when the machine was lost.
        whole_steps: steps of all whole checkpoints on the disk state, ascending; empty: nothing to resume from.
        unfinished_step: of a whole checkpoint whose save was interrupted before its end (of a marker or pointer file,
            say): to resume from it is right, and so is to pass it over.
        damaged: names of the damaged parts, relative to the durable folder (``checkpoint-18/optimizer.pt``);
            empty when none.
        damaged_step: step of the checkpoint that was damaged.
        flipped: the damage is one flipped byte.
        foreign_steps: steps of checkpoints of another run that lie there too.
        finished: the run had already reached its end (the restart must take no step).
        changed: what a transfer changed (its extra arguments), empty otherwise.
        to_end: the restarted run was followed to its end.
        wanted: steps that must have been compared for a pass, as far as the control goes; 0: all to its end.
        first_attempt: traces of the attempt between (cut twice), per rank.
    """

    family: str
    cut_step: int | None = None
    whole_steps: list[int] = field(default_factory=list)
    unfinished_step: int | None = None
    damaged: list[str] = field(default_factory=list)
    damaged_step: int | None = None
    flipped: bool = False
    foreign_steps: list[int] = field(default_factory=list)
    finished: bool = False
    changed: str = ""
    to_end: bool = False
    wanted: int = 1

    @property
    def due_step(self) -> int:
        """Step of the newest whole checkpoint that must not be passed over; 0 when there is none."""
        return max((step for step in self.whole_steps if step != self.unfinished_step), default=0)


@dataclass
class Judgement:
    """The verdict on one restarted run."""

    observation: Observation
    findings: list[FindingRecord] = field(default_factory=list)
