"""What ``samestep cost`` answers: schema ``samestep.cost/1``."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from samestep.contract.words import Word
from samestep.ledger import Ledger

from .inputs import Case, Offer

SCHEMA = "samestep.cost/1"


class Choice(Word):
    """What the money says."""

    SPOT = "spot"
    ON_DEMAND = "on-demand"
    UNDECIDED = "undecided"


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """A simulated quantity: its mean, the standard error of the mean, and quantiles."""

    mean: float
    error: float
    p05: float
    p50: float
    p90: float
    p95: float


class Ways(msgspec.Struct, frozen=True, kw_only=True):
    """What a run comes to with one way of using an offer.

    Attributes:
        capacity: which capacity it uses.
        interval_seconds: productive seconds between saves.
        money: mean ledger in money; adds up to what is billed.
        time: mean ledger in wall seconds; adds up to the wall time.
        cost, finish_seconds: spread over the simulated lives.
        meets_deadline: share of paths known to finish in time; None: no deadline.
        within_budget: share of paths known to finish below the budget; None: no budget.
        interruptions: mean number.
        steps_accepted: mean number, each index once; all of them where every path was finished.
        steps_executed: mean number, repeated ones included.
        finish_histogram, cost_histogram: edges and counts of the finished paths, for the distributions of the report.
        paths: simulated runs.
        unfinished: how many of them were given up; their money and time are those until then, and so lower bounds.
    """

    capacity: str
    interval_seconds: float
    money: Ledger
    time: Ledger
    cost: Spread
    finish_seconds: Spread
    meets_deadline: float | None = None
    within_budget: float | None = None
    interruptions: float = 0.0
    steps_accepted: float
    steps_executed: float
    finish_histogram: tuple[list[float], list[int]] = ([], [])
    cost_histogram: tuple[list[float], list[int]] = ([], [])
    paths: int = 1
    unfinished: int = 0

    @property
    def rank(self) -> tuple[bool, float]:
        """By what ways are compared: those that were finished first, the cheaper ones first."""
        return self.unfinished > 0, self.cost.mean

    @property
    def per_accepted(self) -> float:
        """Money per accepted step, so far where a path was given up."""
        return self.money.total / self.steps_accepted if self.steps_accepted else math.inf

    @property
    def per_executed(self) -> float:
        """Money per executed step; stands beside the other one, never instead of it."""
        return self.money.total / self.steps_executed if self.steps_executed else math.inf


class Flip(msgspec.Struct, frozen=True, kw_only=True):
    """One input, moved over its range with everything else held: a bar of the tornado.

    Attributes:
        input: its name and unit.
        low, high: the range it was moved over.
        ratio_low, ratio_high: cost of spot divided by cost of on-demand at both ends.
        flips_at: the value at which the verdict turns; None: nowhere in a wide range.
    """

    input: str
    low: float
    high: float
    ratio_low: float
    ratio_high: float
    flips_at: float | None = None


class IntervalAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """How often to save.

    Attributes:
        seconds: the interval that costs least.
        flat_low, flat_high: between them the run costs at most one percent more.
        steps: the same in steps, rounded to what the flat region allows.
        first_seconds: when the first save of a life should be made; earlier when fresh machines are the risky ones.
        curve: pairs of interval and expected seconds of machines per useful second.
    """

    seconds: float
    flat_low: float
    flat_high: float
    steps: int
    first_seconds: float
    curve: list[tuple[float, float]] = []


class OfferResult(msgspec.Struct, frozen=True, kw_only=True):
    """One offer, compared.

    Attributes:
        offer: the offer.
        spot: with the policy's capacity; None: not offered.
        on_demand: without interruption; None: not offered.
        against: the other offer whose on-demand capacity it is compared with; empty: its own.
        ratio: price of spot divided by that of on-demand.
        break_even_ratio: the ratio above which spot no longer pays.
        break_even_life_seconds: the mean life below which it no longer pays; None: no mean life decides it.
        choice, reason: for this offer.
    """

    offer: Offer
    spot: Ways | None = None
    on_demand: Ways | None = None
    against: str = ""
    ratio: float | None = None
    break_even_ratio: float | None = None
    break_even_life_seconds: float | None = None
    choice: Choice
    reason: str


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """How well the mean life is known.

    Attributes:
        interruptions: seen; None: it was assumed.
        low_seconds, high_seconds: 90 % interval of the mean life; None: open on that side.
        needed: interruptions that a verdict needs.
    """

    interruptions: int | None = None
    low_seconds: float | None = None
    high_seconds: float | None = None
    needed: int = 10


class CostResult(msgspec.Struct, frozen=True, kw_only=True):
    """The whole answer.

    Attributes:
        case: what it was made from.
        offers: compared, the best first.
        choice, reason: over all offers.
        conditions: what the verdict does not decide: quality, deadline, budget; each with how it stands.
        interval: how often to save.
        evidence: how well the risk is known.
        tornado: inputs, the one that moves the result most first.
        zones: where traces of several zones are replayed: what the cheapest interruptible capacity comes to in each of
            them alone; the offers use any of them.
        actual: the run's own ledgers so far, when journals were given: money and time.
        actual_steps: steps of the run so far: ``accepted``, ``executed``, ``lost``.
        expected: what is predicted of as many accepted steps, saved as often as the run has: money and time.
        notes: quirks of the inputs, limits, what was left out.
        provenance: versions, seed, time, files.
    """

    schema: str = SCHEMA
    case: Case
    offers: list[OfferResult]
    choice: Choice
    reason: str
    conditions: list[str] = []
    interval: IntervalAdvice
    evidence: Evidence
    tornado: list[Flip] = []
    zones: dict[str, Ways] = {}
    actual: dict[str, Ledger] = {}
    actual_steps: dict[str, int] = {}
    expected: dict[str, Ledger] = {}
    notes: list[str] = []
    provenance: dict[str, Any] = {}
