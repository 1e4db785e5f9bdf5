"""What a run has cost in steps and time over all its attempts, from their journals."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from samestep.bundle.history import attempts_of, unix

if TYPE_CHECKING:
    from pathlib import Path

    from samestep.bundle.history import PastAttempt
    from samestep.bundle.store import Store


@dataclasses.dataclass(frozen=True)
class Life:
    """One attempt of a run, as far as its journal tells.

    Attributes:
        attempt: its id.
        resumed: the step that it went on from.
        last: the last step that it is known to have executed.
        step_seconds: that its steps took, by ranges of first and last step.
        began: seconds since 1970.
        seen: when it was last seen, seconds since 1970.
        ended: it ended by itself, with its state committed.
    """

    attempt: str
    resumed: int
    last: int
    step_seconds: tuple[tuple[int, int, float], ...]
    began: float
    seen: float
    ended: bool

    @property
    def lived_seconds(self) -> float:
        """How long it is known to have lived."""
        return max(0.0, self.seen - self.began)


@dataclasses.dataclass(frozen=True)
class Accounts:
    """What the run came to so far.

    Attributes:
        attempts: how many there were.
        steps: accepted ones.
        steps_lost: executed and lost with an interruption, as far as known.
        step_seconds: that the accepted steps took.
        wall_seconds: since the first attempt began.
    """

    attempts: int
    steps: int
    steps_lost: int
    step_seconds: float
    wall_seconds: float

    @property
    def goodput(self) -> float:
        """The share of the time in which accepted steps were made."""
        return self.step_seconds / self.wall_seconds if self.wall_seconds > 0 else 0.0

    def text(self) -> str:
        """Return the summary of a run that ends."""
        lost = f"{self.steps_lost} step{'' if self.steps_lost == 1 else 's'} lost"
        tries = f"{self.attempts} attempt{'' if self.attempts == 1 else 's'}"
        return (
            f"{self.steps} steps in {tries}, {lost}; {self.step_seconds:.1f} s in steps that count, "
            f"{self.wall_seconds:.1f} s since the first start: goodput {self.goodput:.0%}"
        )


def lives_of(store: Store, folder: Path) -> list[Life]:
    """Return the attempts of a run, oldest first; those whose journal is lost tell only when they began.

    Args:
        store: of the run.
        folder: where journals of attempts on this machine lie; they reach further than what commits carried.
    """
    return [_life(past) for past in attempts_of(store, folder)]


def accounts_of(lives: list[Life], step: int, now: float) -> Accounts:
    """Sum up.

    Args:
        lives: of all attempts, oldest first, the present one last.
        step: accepted so far.
        now: seconds since 1970.
    """
    lost, useful, accepted = 0, 0.0, step
    for life in reversed(lives):
        lost += max(0, life.last - max(accepted, life.resumed))
        useful += sum(_seconds_until(accepted, *piece) for piece in life.step_seconds)
        # An attempt that falls back behind the one before it takes back steps of earlier ones, too.
        accepted = min(accepted, life.resumed)
    wall = now - lives[0].began if lives else 0.0
    return Accounts(len(lives), step, lost, useful, wall)


def interrupted_lives(lives: list[Life]) -> list[float]:
    """Return how long each attempt lived that did not end by itself, the present one left out."""
    return [life.lived_seconds for life in lives[:-1] if not life.ended]


def _seconds_until(accepted: int, first: int, last: int, seconds: float) -> float:
    """Return the share of a range's seconds that went into accepted steps."""
    counted = min(last, accepted) - first + 1
    return seconds * max(0, counted) / (last - first + 1)


def _life(past: PastAttempt) -> Life:
    began = unix(past.record.written)
    return Life(
        attempt=past.record.attempt,
        resumed=past.resumed,
        last=past.reached,
        step_seconds=tuple(past.ranges),
        began=began,
        seen=max([began, *(unix(event.at) for event in past.events[-1:])]),
        ended=any(event.event == "ended" for event in past.events),
    )
