"""The course of one life: what is done, saved and durable at each age. Exact, and vectorised over lives.

A life after its restart: ``first`` seconds of training, then again and again a save (training stands still for
``save``), during which and after which the state persists (training is slower by ``share`` for ``persist`` seconds),
and ``interval`` seconds of training; at the end of the work a last save, which is waited for. Training seconds are
productive seconds and the wait for their data together.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .plan import Floats, Plan

_ROUNDING = 1e-9
"""Of an interval: work that ends with one but for floating point gets no save just before its last one."""


@dataclasses.dataclass(frozen=True)
class Course:
    """See above; all in seconds of training."""

    first: float
    interval: float
    save: float
    persist: float
    share: float

    @classmethod
    def of(cls, plan: Plan) -> Course:
        """Return the course that the lives of a plan take."""
        least = (1 - plan.persist_share) * plan.persist_seconds
        stretch = 1 + plan.stall_share
        first = plan.interval_seconds if plan.first_seconds is None else plan.first_seconds
        interval = max(plan.interval_seconds * stretch, least)
        return cls(
            first=first * stretch,
            interval=interval,
            save=plan.save_seconds,
            persist=plan.persist_seconds,
            share=plan.persist_share,
        )

    @property
    def cycle(self) -> float:
        """From the beginning of a save to that of the next."""
        return self.interval + self.save + self.share * self.persist

    def between(self, work: Floats) -> Floats:
        """Return how many saves come before the last one, for so much work that is left."""
        return np.maximum(np.ceil((work - self.first) / self.interval - _ROUNDING), 0.0)

    def duration(self, work: Floats) -> Floats:
        """Return the age at which so much work is done and durable."""
        saves = self.between(work)
        rest = work - self.first - (saves - 1) * self.interval
        rest = np.maximum(rest + self.share * self.persist, self.persist)
        before = self.first + (saves - 1) * self.cycle + self.save + rest
        return np.where(saves > 0, before, work) + self.save + self.persist

    def trained(self, age: Floats, work: Floats) -> Floats:
        """Return how much of the work is done at an age."""
        later = np.maximum(age - self.first, 0.0)
        cycles = np.floor(later / self.cycle)
        inside = later - cycles * self.cycle - self.save
        slowly = (1 - self.share) * inside
        moved = np.maximum(np.maximum(slowly, inside - self.share * self.persist), 0.0)
        return np.minimum(np.minimum(age, self.first) + cycles * self.interval + moved, work)

    def durable(self, age: Floats) -> Floats:
        """Return how much of the work would survive the machine at an age before ``duration``."""
        last = np.floor((age - self.first - self.save - self.persist) / self.cycle) + 1
        return np.where(last > 0, self.first + (last - 1) * self.interval, 0.0)

    def begun(self, age: Floats, work: Floats) -> Floats:
        """Return how many saves are begun at an age, the last one not among them."""
        reached = np.floor((age - self.first) / self.cycle) + 1
        return np.asarray(np.clip(reached, 0.0, self.between(work)))
