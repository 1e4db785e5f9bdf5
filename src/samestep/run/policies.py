"""When to save: as often as said, or as often as costs least."""

from __future__ import annotations

import dataclasses
import re
from typing import Protocol

from samestep.contract.durations import seconds_in
from samestep.ledger.intervals import daly_interval

from .errors import RunError

ASSUMED_LIFE_SECONDS = 8 * 3600.0
"""Mean life of a machine of which nothing is known."""

_STEPS = re.compile(r"(\d+)\s*steps?")


@dataclasses.dataclass(frozen=True)
class Every:
    """Save after so many steps, or so many seconds, whichever comes first.

    Raises:
        RunError: neither is given, or one is not positive.
    """

    steps: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        given = [number for number in (self.steps, self.seconds) if number is not None]
        if not given or min(given) <= 0:
            raise RunError(f"{self} says no interval", hint="Every(steps=500), or Every(seconds=600)")


@dataclasses.dataclass(frozen=True)
class Auto:
    """Save as often as costs least: the measured cost of a save against the life of the machine.

    Args:
        max_loss_seconds: the most work that an interruption may cost; saves are never further apart.
        mean_life_seconds: mean time between interruptions; None to learn it from the attempts of the run.
        first_steps: steps of this attempt after which the first save comes, which shows early that saving works
            and what it costs.
        max_share: the most of the training time that saves may take, where the optimum would take more.

    Raises:
        RunError: a number is not positive.
    """

    max_loss_seconds: float = 900.0
    mean_life_seconds: float | None = None
    first_steps: int = 5
    max_share: float = 0.05

    def __post_init__(self) -> None:
        numbers = (self.max_loss_seconds, self.first_steps, self.max_share, self.mean_life_seconds or 1.0)
        if min(numbers) <= 0:
            raise RunError(f"{self} has a number that is not positive")


Policy = Every | Auto


def policy_of(save: int | str | Every | Auto | None) -> Policy:
    """Return the policy that a user wrote: ``500``, ``"10 min"``, ``"auto"``, or a policy itself.

    Raises:
        RunError: it is none.
    """
    if isinstance(save, Every | Auto):
        return save
    if save is None or save == "auto":
        return Auto()
    if isinstance(save, int) and not isinstance(save, bool):
        return Every(steps=save)
    text = save.strip().lower() if isinstance(save, str) else ""
    if steps := _STEPS.fullmatch(text):
        return Every(steps=int(steps[1]))
    seconds = seconds_in(text)
    if seconds is None:
        raise RunError(
            f"save={save!r} says nothing of when to save",
            hint='a number of steps, a text such as "10 min", "auto", samestep.Every(…) or samestep.Auto(…)',
        )
    return Every(seconds=seconds)


class Timer(Protocol):
    """Answers at each boundary whether a save is due."""

    def due(self, step: int, now: float) -> bool:
        """Say whether a save is due after ``step`` steps, at the monotonic time ``now``."""

    def saved(self, step: int, now: float) -> None:
        """Take note that a save has begun."""

    def learned(self, added_seconds: float, until_committed: float) -> None:
        """Take note of what a save has cost, and how long it took to exist."""

    def failed(self, step: int) -> None:
        """Take note, after ``step`` steps, that a save has failed."""

    @property
    def needs_clock(self) -> bool:
        """Whether the answer depends on the time, so that ranks could disagree."""


class EveryTimer:
    """Times the saves of ``Every``."""

    def __init__(self, policy: Every, step: int, now: float) -> None:
        self._policy, self._step, self._saved = policy, step, now

    @property
    def needs_clock(self) -> bool:
        """See ``Timer``."""
        return self._policy.seconds is not None

    def due(self, step: int, now: float) -> bool:
        """See ``Timer``; steps are counted from the beginning of the run, so that restarts do not shift saves."""
        steps, seconds = self._policy.steps, self._policy.seconds
        if steps is not None and step // steps > self._step // steps:
            return True
        return seconds is not None and now - self._saved >= seconds

    def saved(self, step: int, now: float) -> None:
        """See ``Timer``."""
        self._step, self._saved = step, now

    def learned(self, added_seconds: float, until_committed: float) -> None:
        """See ``Timer``."""

    def failed(self, step: int) -> None:
        """See ``Timer``."""


class AutoTimer:
    """Times the saves of ``Auto``.

    Attributes:
        mean_life_seconds: that the interval is for.
        interval_seconds: between the beginnings of two saves, as far as known.
    """

    def __init__(self, policy: Auto, step: int, now: float, *, mean_life_seconds: float) -> None:
        self._policy, self._saved = policy, now
        self._first: int | None = step + policy.first_steps
        self._costs: list[float] = []
        self.mean_life_seconds = mean_life_seconds
        self.interval_seconds = policy.max_loss_seconds

    @property
    def needs_clock(self) -> bool:
        """See ``Timer``."""
        return True

    def due(self, step: int, now: float) -> bool:
        """See ``Timer``."""
        if self._first is not None and step >= self._first:
            return True
        return now - self._saved >= self.interval_seconds

    def saved(self, step: int, now: float) -> None:  # noqa: ARG002 - every timer is told both
        """See ``Timer``; what the first save costs is awaited before another."""
        self._first, self._saved = None, now

    def failed(self, step: int) -> None:
        """See ``Timer``; until a save has succeeded it is tried again soon."""
        if not self._costs:
            self._first = step + self._policy.first_steps

    def learned(self, added_seconds: float, until_committed: float) -> None:
        """See ``Timer``; an interruption costs what was done since the beginning of the last save that exists."""
        self._costs = [*self._costs[-4:], added_seconds]
        cost = sum(self._costs) / len(self._costs)
        best = daly_interval(cost, self.mean_life_seconds)
        affordable = max(best, cost / self._policy.max_share, until_committed)
        self.interval_seconds = max(
            min(affordable, self._policy.max_loss_seconds - until_committed), until_committed
        )


def timer_of(policy: Policy, step: int, now: float, *, learned_life_seconds: float) -> Timer:
    """Return what times the saves of a policy from ``step`` steps on."""
    if isinstance(policy, Every):
        return EveryTimer(policy, step, now)
    life = policy.mean_life_seconds or learned_life_seconds
    return AutoTimer(policy, step, now, mean_life_seconds=life)
