"""Runs with a deadline, which may fall back to capacity that cannot be taken away.

Two policies after Wu et al., "Can't Be Late: Optimizing Spot Instance Savings under Deadlines" (NSDI 2024). Both use
interruptible capacity whenever it is there and stay on it until it is taken away, and both go to on-demand capacity
for good as soon as another try could cost the deadline. In between, *greedy* waits; *uniform progress* goes to
on-demand capacity whenever it is behind the straight line from start to deadline, and leaves it again when
interruptible capacity is there, or when it is two changeovers ahead.

The paper's changeover delay is a restart here; what a loss can take back, saves, and the tail of a notice are added to
the safety margin, so that a deadline is met whenever on-demand capacity alone can meet it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from samestep.cost.errors import CostError

from .accounts import Accounts
from .course import Course
from .paths import DONE, live
from .supply import Machines

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .plan import Floats, Paths, Plan, Prices
    from .spans import Spans

_IDLE, _ELSEWHERE, _OVER = 0, 1, 2


def feasible(plan: Plan, deadline_seconds: float) -> bool:
    """Say whether capacity that is never taken away meets a deadline: then both policies do."""
    need = Course.of(plan).duration(np.array([plan.work_seconds * (1 + plan.stall_share)]))
    return bool(plan.restart_seconds + need[0] <= deadline_seconds)


def with_deadline(
    plan: Plan,
    prices: Prices,
    spans: Spans,
    *,
    deadline_seconds: float,
    uniform: bool,
    rng: np.random.Generator,
    tick_seconds: float = 300.0,
) -> Paths:
    """Simulate runs that use interruptible capacity as far as a deadline allows.

    Args:
        plan: how the run goes, on either capacity.
        prices: ``hour`` for interruptible capacity, ``on_demand_hour`` for the other.
        spans: when interruptible capacity is there.
        deadline_seconds: wall time after which the run must be finished.
        uniform: uniform progress instead of greedy.
        rng: which notices are usable is drawn from it.
        tick_seconds: how often a run on on-demand capacity looks whether it may leave.

    Raises:
        CostError: there is no time until the deadline, or none between two looks.
    """
    if not (deadline_seconds > 0 and tick_seconds > 0):
        raise CostError(
            f"a deadline of {deadline_seconds} s, looked at every {tick_seconds} s, cannot be kept"
        )
    race = _Race(plan, prices, spans, deadline_seconds, uniform=uniform, tick=tick_seconds, rng=rng)
    while (idle := np.flatnonzero(race.where == _IDLE)).size or (race.where == _ELSEWHERE).any():
        if idle.size:
            race.choose(idle)
        elsewhere = np.flatnonzero(race.where == _ELSEWHERE)
        if elsewhere.size:
            race.look(elsewhere)
    return race.accounts.closed()


class _Race:
    """All paths of one simulation; times are wall seconds, work is seconds of training.

    Attributes:
        where: what each path is doing.
        now: for an idle path, the time it has come to; for one elsewhere, when somebody looks next.
        left: work that is left, as of the last durable point.
        since: when the stay elsewhere began.
        accounts: the ledgers.
    """

    def __init__(
        self,
        plan: Plan,
        prices: Prices,
        spans: Spans,
        deadline: float,
        *,
        uniform: bool,
        tick: float,
        rng: np.random.Generator,
    ) -> None:
        paths = spans.starts.shape[0]
        self._plan, self._spans, self._deadline = plan, spans, deadline
        self._uniform, self._tick, self._rng = uniform, tick, rng
        self._course = Course.of(plan)
        self._work = plan.work_seconds * (1 + plan.stall_share)
        self._restart = plan.restart_seconds
        self._margin = self._restart + _most_lost(self._course, plan) + plan.notice_seconds
        self.where = np.full(paths, _IDLE)
        self.now, self.since = np.zeros(paths), np.zeros(paths)
        self.left = np.full(paths, self._work)
        self.accounts = Accounts(plan, prices, paths)

    def choose(self, paths: NDArray[np.intp]) -> None:
        """Let idle paths take interruptible capacity when it comes, or the other when it must be."""
        now, left = self.now[paths], self.left[paths]
        comes, until = self._next_span(paths, now)
        must = np.maximum(self._latest(left), now)
        behind = np.maximum((self._work - left) * (self._deadline / self._work), now)
        away = np.minimum(must, behind) if self._uniform else must
        taken = (comes <= away) & (comes < self._latest(left))
        self._stay(paths[taken], comes[taken], until[taken])
        rest = paths[~taken]
        self.accounts.wait(rest, away[~taken] - now[~taken])
        self.since[rest] = away[~taken]
        self.now[rest] = away[~taken] + self._restart + self._tick
        self.where[rest] = _ELSEWHERE

    def look(self, paths: NDArray[np.intp]) -> None:
        """Let paths elsewhere finish, leave, or go on until somebody looks again."""
        since, left, now = self.since[paths], self.left[paths], self.now[paths]
        ends = since + self._restart + self._course.duration(left)
        trained = self._course.trained(np.maximum(now - since - self._restart, 0.0), left)
        leaves = now + self._course.save + self._course.persist
        ahead = now + 2 * self._restart
        may = self._work - left + trained >= self._work * ahead / self._deadline
        may |= self._next_span(paths, leaves)[0] <= leaves
        may &= self._uniform & (leaves < self._latest(left - trained)) & (leaves < ends)
        # who can never leave again need not look
        over = ~may & ((now >= ends) | (not self._uniform) | (since >= self._latest(left)))
        self._finish_elsewhere(paths[over], ends[over])
        gone = paths[may]
        saves = self._course.begun(now[may] - since[may] - self._restart, left[may]) + 1
        self.accounts.elsewhere(gone, leaves[may] - since[may], trained[may], saves)
        self.left[gone], self.now[gone], self.where[gone] = (left - trained)[may], leaves[may], _IDLE
        self.now[paths[~may & ~over]] += self._tick

    def _stay(self, paths: NDArray[np.intp], comes: Floats, until: Floats) -> None:
        """Let paths live on interruptible capacity from when it comes until it goes."""
        left, seconds = self.left[paths], until - comes
        tail = np.minimum(self._plan.notice_seconds, seconds)
        machines = Machines(comes - self.now[paths], seconds - tail, tail)
        lived = live(self._course, self._plan, left, machines, self._rng)
        self.accounts.main(paths, lived, machines.wait)
        now, left = comes + lived.seconds, left - lived.kept
        self.now[paths], self.left[paths] = now, left
        finished = lived.done | (left <= DONE * self._work)
        self.where[paths[finished]] = _OVER
        self.accounts.end(paths[finished], now[finished], finished=True)

    def _finish_elsewhere(self, paths: NDArray[np.intp], ends: Floats) -> None:
        left = self.left[paths]
        saves = self._course.between(left) + 1
        self.accounts.elsewhere(paths, ends - self.since[paths], left, saves)
        self.accounts.end(paths, ends, finished=True)
        self.where[paths], self.left[paths] = _OVER, 0.0

    def _latest(self, left: Floats) -> Floats:
        """Return until when a path may be idle: later, a machine that is lost at once would cost the deadline."""
        return self._deadline - self._restart - self._course.duration(left) - self._margin

    def _next_span(self, paths: NDArray[np.intp], now: Floats) -> tuple[Floats, Floats]:
        """Return from when on, and until when, each path has capacity next; never, where no span is left."""
        span = (self._spans.ends[paths] <= now[:, None]).sum(axis=1)
        span = np.minimum(span, self._spans.ends.shape[1] - 1)
        until = self._spans.ends[paths, span]
        return np.where(until > now, np.maximum(self._spans.starts[paths, span], now), np.inf), until


def _most_lost(course: Course, plan: Plan) -> float:
    """Return by how much one loss can put off the end, restarts left out: work since a save, and saves made again."""
    each = course.save + course.share * course.persist
    again = 2 * each + course.save + 2 * course.persist
    return again if plan.usable_notice >= 1 else max(course.first, course.interval) + again


def clairvoyant(plan: Plan, prices: Prices, spans: Spans, *, deadline_seconds: float) -> Floats:
    """Return for each path what capacity costs at the very least, by anybody who knows all spans beforehand.

    Every span yields at most its length less a restart; spans are used from the longest on, the last one in part, and
    what they do not yield is bought on demand without a restart. Saves, losses and the order of things are left out,
    which makes it a lower bound. It holds where every second is billed (no life goes free).
    """
    within = np.minimum(spans.ends, deadline_seconds) - np.minimum(spans.starts, deadline_seconds)
    lengths = np.sort(within, axis=1)[:, ::-1]
    yields = np.maximum(lengths - plan.restart_seconds, 0.0)
    spot, other = prices.hour / 3600, prices.on_demand_hour / 3600
    yields[lengths * spot > yields * other] = 0.0
    work = plan.work_seconds * (1 + plan.stall_share)
    before = np.cumsum(yields, axis=1) - yields
    used = np.clip(work - before, 0.0, yields)
    share = np.divide(used, yields, out=np.zeros_like(used), where=yields > 0)
    return np.asarray((share * lengths).sum(axis=1) * spot + (work - used.sum(axis=1)) * other)
