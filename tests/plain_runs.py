"""Runs that ``samestep.cost.simulation`` computes at once, here one at a time and phase by phase, as anybody would."""

from __future__ import annotations

import dataclasses
from collections import Counter

from samestep.ledger import Row


class Ended(Exception):  # noqa: N818 - it is no error
    """The machine's notice has come."""


@dataclasses.dataclass
class Machine:
    """Seconds until it is there, until its notice, and from then to its end; and whether the notice is of use."""

    wait: float
    life: float
    tail: float = 0.0
    usable: bool = False


class Life:
    """Walks through the phases of one life, and books each second in a row."""

    def __init__(self, plan, work, life, rows):
        self.plan, self.work, self.rows = plan, work, rows
        self.left, self.age, self.saves = life, 0.0, 0
        self.done = self.durable = 0.0
        self.pending = None

    def spend(self, row, seconds, progress=0.0):
        """Pass seconds with a constant rate of progress, or as many of them as the machine has left."""
        passed = min(seconds, self.left)
        self.age, self.left = self.age + passed, self.left - passed
        self.rows[row] += passed * (1 - progress)
        self.done += passed * progress
        if self.pending is not None and self.age >= self.pending[1] - 1e-7:
            self.durable, self.pending = self.pending[0], None
        if seconds > passed:
            raise Ended

    def train_to(self, target):
        """Train until so much is done, slower while a save persists."""
        share = self.plan.persist_share
        while target - self.done > 1e-6:
            missing = target - self.done
            if self.pending is None:
                self.spend(Row.SAVING, missing, progress=1.0)
            else:
                enough = missing / (1 - share) if share < 1 else float("inf")
                self.spend(Row.SAVING, min(self.pending[1] - self.age, enough), progress=1 - share)

    def save(self):
        """Save, and go on while it persists; a save before it is waited for."""
        if self.pending is not None:
            self.spend(Row.SAVING, self.pending[1] - self.age)
        self.saves += 1
        self.spend(Row.SAVING, self.plan.save_seconds)
        self.pending = (self.done, self.age + self.plan.persist_seconds)

    def run(self):
        """Go through the whole life; the machine may end it at any point."""
        plan = self.plan
        stretch = 1 + plan.stall_share
        self.spend(Row.RESTART, plan.restart_seconds)
        interval = max(plan.interval_seconds * stretch, (1 - plan.persist_share) * plan.persist_seconds)
        first = plan.interval_seconds if plan.first_seconds is None else plan.first_seconds
        target = first * stretch
        while target < self.work - 1e-6:
            self.train_to(target)
            self.save()
            target += interval
        self.train_to(self.work)
        self.save()
        self.spend(Row.SAVING, plan.persist_seconds)


def plain_run(plan, prices, machines):
    """Return time and money by row, wall, cost and counts of one run on the machines that come one after another."""
    stretch = 1 + plan.stall_share
    left, wall, paid = plan.work_seconds * stretch, 0.0, 0.0
    time, money, counts = Counter(), Counter(), Counter()
    for machine in machines:
        rows = Counter()
        life = Life(plan, left, machine.life, rows)
        try:
            life.run()
            lost, kept = False, left
        except Ended:
            lost, kept = True, life.done if machine.usable else life.durable
            life.saves += machine.usable
            rows[Row.NOTICE_TAIL] += machine.tail
        rows[Row.UNIQUE], rows[Row.REPEATED] = kept / stretch, (life.done - kept) / stretch
        rows[Row.DATA_STALL] = life.done - life.done / stretch
        seconds = life.age + (machine.tail if lost else 0.0)
        billed = _billed(prices.rule, seconds, lost)
        for row, amount in rows.items():
            time[row] += amount
            money[row] += amount * prices.hour / 3600 if billed else 0.0
        money[Row.IDLE] += (billed - seconds) * prices.hour / 3600 if billed else 0.0
        time[Row.CAPACITY_WAIT] += machine.wait
        wall += machine.wait + seconds
        paid += billed * prices.hour / 3600
        counts.update(interruptions=lost, saves=life.saves, executed=life.done / stretch)
        left -= kept
        if not lost or left <= 1e-6:
            return time, money, wall, paid, counts
    raise AssertionError("the machines do not suffice")


def _billed(rule, seconds, lost):
    if lost and seconds < rule.free_seconds:
        return 0.0
    whole = seconds
    if rule.granularity_seconds:
        units = int(seconds // rule.granularity_seconds)
        whole = rule.granularity_seconds * (units + (seconds - units * rule.granularity_seconds > 1e-6))
    return max(whole, rule.minimum_seconds)
