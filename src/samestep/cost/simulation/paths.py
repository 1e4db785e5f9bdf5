"""Lives of a run on capacity that can be taken away, one after the other, for all paths at once."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from .accounts import Accounts
from .course import Course
from .supply import Drawn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from samestep.cost.risk import Draw

    from .plan import Floats, Paths, Plan, Prices
    from .supply import Machines, Supply

MOST_LIVES = 10_000
"""Machines after which a path is given up: a run that needs more of them is none that anybody would wait for."""

DONE = 1e-9
"""Of the work: what is left when all is done but for floating point."""


def simulate(
    plan: Plan,
    prices: Prices,
    draw_life: Draw,
    *,
    paths: int,
    rng: np.random.Generator,
    wait_seconds: float = 0.0,
    draw_wait: Draw | None = None,
    max_lives: int = MOST_LIVES,
) -> Paths:
    """Simulate a run whose machines live and come as drawn; the first one is there at once.

    The same plan, sizes and seed give the same numbers.

    Args:
        plan: how the run goes.
        prices: what it pays for.
        draw_life: draws seconds from the start of a machine to its notice.
        paths: how many runs.
        rng: every draw is made from it.
        wait_seconds: mean wait for capacity after an interruption, drawn as exponential.
        draw_wait: draws the wait instead.
        max_lives: after so many a path is given up.
    """
    if draw_wait is None and wait_seconds > 0:

        def draw_wait(rng: np.random.Generator, size: int) -> Floats:
            return rng.exponential(wait_seconds, size)

    supply = Drawn(rng, draw_life, draw_wait, notice_seconds=plan.notice_seconds)
    return follow(plan, prices, supply, paths=paths, rng=rng, max_lives=max_lives)


def uninterrupted(plan: Plan, prices: Prices) -> Paths:
    """Return the one path of a run that nothing happens to; ``prices.hour`` is what its capacity costs."""

    def for_ever(_: np.random.Generator, size: int) -> Floats:
        return np.full(size, np.inf)

    return simulate(plan, prices, for_ever, paths=1, rng=np.random.default_rng(0))


def follow(
    plan: Plan,
    prices: Prices,
    supply: Supply,
    *,
    paths: int,
    rng: np.random.Generator,
    max_lives: int,
) -> Paths:
    """Let every path go from machine to machine until its work is done."""
    course, accounts = Course.of(plan), Accounts(plan, prices, paths)
    work = plan.work_seconds * (1 + plan.stall_share)
    active = np.arange(paths)
    left, now = np.full(paths, work), np.zeros(paths)
    for number in range(max_lives):
        machines = supply.next(active, now, first=number == 0)
        lived = live(course, plan, left, machines, rng)
        now = now + machines.wait + lived.seconds
        accounts.main(active, lived, machines.wait)
        left = left - lived.kept
        finished = lived.done | (left <= DONE * work)
        if finished.any():
            accounts.end(active[finished], now[finished], finished=True)
            going = ~finished
            active, left, now = active[going], left[going], now[going]
        if not active.size:
            break
    accounts.end(active, now, finished=False)
    return accounts.closed()


@dataclasses.dataclass(frozen=True)
class Lived:
    """One life of each path, in seconds.

    Attributes:
        done: whether it finished the work.
        seconds: from the start of the machine to its end.
        restart, trained, saving, tail: what they went to; add up to ``seconds``.
        kept: how much of what was trained outlasts the life.
        saves: that were begun.
    """

    done: NDArray[np.bool_]
    seconds: Floats
    restart: Floats
    trained: Floats
    saving: Floats
    tail: Floats
    kept: Floats
    saves: Floats


def live(course: Course, plan: Plan, left: Floats, machines: Machines, rng: np.random.Generator) -> Lived:
    """Return what becomes of one machine of each path, with so much training left."""
    need = course.duration(left)
    age = np.maximum(machines.life - plan.restart_seconds, 0.0)
    done = age >= need
    age = np.where(done, need, age)
    trained = course.trained(age, left)
    saves = course.begun(age, left) + (age >= need - course.save - course.persist)
    lasting = done
    if plan.usable_notice > 0:
        usable = ~done & (rng.random(left.size) < plan.usable_notice)
        lasting, saves = done | usable, saves + usable
    restart = np.where(done, plan.restart_seconds, np.minimum(machines.life, plan.restart_seconds))
    tail = np.where(done, 0.0, machines.tail)
    return Lived(
        done=done,
        seconds=np.where(done, plan.restart_seconds + need, machines.life + machines.tail),
        restart=restart,
        trained=trained,
        saving=age - trained,
        tail=tail,
        kept=np.where(lasting, trained, course.durable(age)),
        saves=saves,
    )
