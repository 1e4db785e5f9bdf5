"""From a case and an offer to what the run comes to: simulated life by life, and in closed form."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from samestep.ledger import Ledger, Row

from .billing import rule_named
from .errors import CaseError
from .inputs import Capacity, Empirical, Replay
from .interval import advised_interval
from .result import Spread, Ways
from .risk.lives import correlated_bounds, mean_seconds, sampler
from .risk.traces import read_trace
from .simulation import (
    MOST_LIVES,
    Plan,
    Prices,
    charged_share,
    gain_ratio,
    machine_seconds,
    replay,
    simulate,
    spans_drawn,
    spans_replayed,
    uninterrupted,
    with_deadline,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .inputs import Case, Exponential, Offer, Risk, Weibull
    from .risk.traces import Trace
    from .simulation import Paths

    Drawn = Exponential | Weibull | Empirical

MONTH_HOURS = 730.0
"""Hours of a month, as providers reckon prices of storage."""

GB = 1e9
MOST_REPLAYS = 2_000
"""Starts in a trace; more of them repeat one another, as the traces are a few weeks long."""

_MOST_UNFINISHED = 100
"""Simulated runs where hardly one will be finished: they take long, and are all alike."""

_MOST_EXPONENT = 700.0
"""Beyond it a start never succeeds, as far as a float can tell."""

_BINS = 40
_TAIL = 0.995
"""Share of the runs that a histogram spreads out; the last bin takes the rest."""


@dataclass(frozen=True)
class Threat:
    """Interruptions, as the simulation takes them.

    Attributes:
        lives: of the whole run between two interruptions; of a replay: those that its traces hold.
        traces: replayed instead of drawing lives; empty: lives are drawn.
        recorded: lives reach to the end of a machine, its notice inside of them; otherwise they reach to the notice.
    """

    lives: Drawn
    traces: tuple[Trace, ...] = ()
    recorded: bool = False

    @cached_property
    def mean(self) -> float:
        """Mean life in seconds."""
        return mean_seconds(self.lives)


def threats(risk: Risk) -> list[Threat]:
    """Return the interruptions of a run: one view of them, or two that bracket what machines lost together mean.

    The first one is the careful one: every machine is lost on its own.

    Raises:
        CostError: a trace cannot be read, or has no interruption in it.
    """
    lives = risk.lives
    if isinstance(lives, Replay):
        return [_replayed(lives, risk.nodes)]
    if risk.nodes > 1 and risk.correlated:
        return [Threat(_seen_as(bound, lives)) for bound in correlated_bounds(lives, risk.nodes)]
    return [Threat(lives)]


def _seen_as(job: Drawn, machine: Drawn) -> Drawn:
    """Return the lives of a job with the observations that its machines' amount to: as many, in less running time."""
    if isinstance(job, Empirical):
        return job
    watched = job.observed_seconds * mean_seconds(job) / mean_seconds(machine)
    return replace(job, observed_seconds=watched)


def _replayed(lives: Replay, nodes: int) -> Threat:
    traces = tuple(read_trace(Path(path), lives.kind, nodes=nodes) for path in lives.paths)
    seen = [trace.lives() for trace in traces]
    lived, held = ([float(life) for each in part for life in each] for part in zip(*seen, strict=True))
    if not lived:
        raise CaseError(
            f"no interruption is recorded in {', '.join(lives.paths)}: nothing can be learned from a replay",
            hint='give longer traces, or a model such as [risk] model = "exponential"',
        )
    return Threat(Empirical(lives_seconds=lived, censored_seconds=held), traces, recorded=True)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A run on one kind of capacity, in plain numbers: what is simulated, and what the closed form is asked about.

    Attributes:
        plan: what is done.
        prices: what it costs.
        capacity: which capacity it uses.
        threat: what interrupts it; None: nothing does.
        wait_seconds: until capacity is there again.
        deadline_seconds: what a policy with fallback works towards.
        step_seconds: productive seconds of one step.
        steps: that finish the run.
        currency: of the prices.
    """

    plan: Plan
    prices: Prices
    capacity: Capacity
    threat: Threat | None
    wait_seconds: float
    deadline_seconds: float | None
    step_seconds: float
    steps: int
    currency: str


def interruptible(case: Case, offer: Offer, threat: Threat) -> Setting | None:
    """Return the run on interruptible capacity, as the policy wants it; None where the offer does not allow it."""
    policy = case.policy
    if offer.spot is None or policy.capacity is Capacity.ON_DEMAND:
        return None
    if policy.capacity is not Capacity.SPOT and offer.on_demand is None:
        return None
    return _setting(case, offer, policy.capacity, offer.spot, threat)


def undisturbed(case: Case, offer: Offer) -> Setting | None:
    """Return the run on on-demand capacity, reckoned without a failure; None where it is not offered."""
    if offer.on_demand is None:
        return None
    return _setting(case, offer, Capacity.ON_DEMAND, offer.on_demand, None)


def _setting(case: Case, offer: Offer, capacity: Capacity, price: float, threat: Threat | None) -> Setting:
    needs_deadline = capacity in {Capacity.GREEDY, Capacity.UNIFORM_PROGRESS}
    if needs_deadline and case.policy.deadline_seconds is None:
        raise CaseError(
            f"capacity {capacity} needs a deadline to work towards",
            hint="give one with --deadline, or policy.deadline",
        )
    return Setting(
        plan=plan_of(case, threat),
        prices=_prices(case, offer, price),
        capacity=capacity,
        threat=threat,
        wait_seconds=case.risk.wait_seconds.value,
        deadline_seconds=case.policy.deadline_seconds if needs_deadline else None,
        step_seconds=case.measured.step_seconds.value,
        steps=case.work.steps,
        currency=offer.currency,
    )


def plan_of(case: Case, threat: Threat | None) -> Plan:
    """Return what is done, with saves at the interval of the policy, or the advised one where it leaves that open.

    A run that nothing interrupts saves once, at its end: the comparison leans towards it.
    """
    measured, given = case.measured, case.policy.interval_seconds
    work = case.work.steps * measured.step_seconds.value
    plan = Plan(
        work_seconds=work,
        interval_seconds=work if given is None or threat is None else min(given, work),
        save_seconds=measured.save_seconds.value,
        persist_seconds=measured.persist_seconds.value,
        persist_share=measured.persist_share.value,
        restart_seconds=measured.restart_seconds.value,
        stall_share=measured.stall_seconds.value / measured.step_seconds.value,
        usable_notice=case.risk.usable_notice,
        notice_seconds=case.risk.notice_seconds,
        notice_inside=threat is not None and threat.recorded,
    )
    if given is not None or threat is None:
        return plan
    return dataclasses.replace(
        plan, interval_seconds=advised_interval(plan, threat.lives, measured.step_seconds.value)
    )


def _prices(case: Case, offer: Offer, price: float) -> Prices:
    measured = case.measured
    moved = measured.save_bytes.value / GB * offer.transfer
    return Prices(
        hour=price * offer.nodes,
        on_demand_hour=(offer.on_demand or 0.0) * offer.nodes,
        storage_hour=measured.kept_bytes.value / GB * offer.storage_month / MONTH_HOURS,
        save_transfer=moved,
        restore_transfer=moved,
        save_requests=measured.save_requests.value / 1000 * offer.thousand_requests,
        rule=rule_named(offer.billing, first_hour=case.policy.first_hour),
        fallback_rule=rule_named(offer.billing),
    )


def simulated(setting: Setting, *, paths: int, seed: int) -> Paths:
    """Live through the run ``paths`` times.

    Args:
        setting: the run.
        paths: simulated runs; a run that nothing interrupts is the same every time and is gone through once.
        seed: of every random draw: the same seed gives the same result.
    """
    plan, prices, threat = setting.plan, setting.prices, setting.threat
    if threat is None:
        return uninterrupted(plan, prices)
    rng = np.random.default_rng(seed)
    if setting.deadline_seconds is None and _expected(setting)[1] > MOST_LIVES:
        paths = min(paths, _MOST_UNFINISHED)
    starts = min(paths, MOST_REPLAYS)
    if setting.deadline_seconds is not None:
        horizon = setting.deadline_seconds
        if threat.traces:
            spans = spans_replayed(list(threat.traces), starts=starts, horizon_seconds=horizon, rng=rng)
        else:
            spans = spans_drawn(
                sampler(threat.lives),
                wait_seconds=setting.wait_seconds,
                paths=paths,
                horizon_seconds=horizon,
                rng=rng,
                notice_seconds=plan.notice_seconds,
            )
        uniform = setting.capacity is Capacity.UNIFORM_PROGRESS
        return with_deadline(plan, prices, spans, deadline_seconds=horizon, uniform=uniform, rng=rng)
    if threat.traces:
        return replay(plan, prices, list(threat.traces), starts=starts, rng=rng)
    return simulate(
        plan, prices, sampler(threat.lives), paths=paths, rng=rng, wait_seconds=setting.wait_seconds
    )


def expected_money(setting: Setting) -> float:
    """Return the cost of a run in closed form: for comparing settings, without the noise of a simulation.

    The billed time of a long run is exact for any lives; the first start is that of lives without memory (see
    ``ledger.intervals.extended``). Saves and restores that move bytes are counted by the mean, and so is what a billing
    rule makes of a life, as if the last one were taken away, too. No policy with fallback has a closed form.
    """
    plan, prices, threat = setting.plan, setting.prices, setting.threat
    if threat is None:
        return float(uninterrupted(plan, prices).cost[0])
    there, interruptions = _expected(setting)
    if math.isinf(there):
        return math.inf
    wall = there + interruptions * setting.wait_seconds
    saves = plan.work_seconds / plan.interval_seconds
    billed = there * charged_share(plan, threat.lives, prices.rule)
    return float(
        prices.hour * billed / 3600
        + prices.storage_hour * wall / 3600
        + saves * (prices.save_transfer + prices.save_requests)
        + interruptions * prices.restore_transfer
    )


def _expected(setting: Setting) -> tuple[float, float]:
    """Return the seconds of machines that a run takes, and its interruptions, in closed form."""
    plan, threat = setting.plan, setting.threat
    if threat is None:
        return plan.work_seconds, 0.0
    first = threat.mean * math.expm1(min(plan.restart_seconds / threat.mean, _MOST_EXPONENT))
    there = plan.work_seconds * gain_ratio(plan, threat.lives) + first
    return there, there / machine_seconds(plan, threat.lives)


def ways_of(setting: Setting, paths: Paths, *, budget: float | None, deadline: float | None) -> Ways:
    """Return what the simulated runs come to.

    Args:
        setting: what was simulated.
        paths: the runs.
        budget: money it may cost; None: no limit.
        deadline: wall seconds it must be finished in; None: no deadline.
    """
    finish, finished = paths.finish, paths.finished
    unfinished = int(np.count_nonzero(~finished))
    accepted = float(np.mean(paths.unique_seconds)) / setting.step_seconds
    return Ways(
        capacity=str(setting.capacity),
        interval_seconds=setting.plan.interval_seconds,
        money=paths.mean_money(setting.currency),
        time=paths.mean_time(),
        cost=_spread(paths.cost),
        finish_seconds=_spread(finish),
        meets_deadline=None if deadline is None else float(np.mean(finish <= deadline)),
        within_budget=None if budget is None else float(np.mean(finished & (paths.cost <= budget))),
        interruptions=float(np.mean(paths.interruptions)),
        steps_accepted=accepted if unfinished else setting.steps,
        steps_executed=float(np.mean(paths.executed_seconds)) / setting.step_seconds,
        finish_histogram=_histogram(finish),
        cost_histogram=_histogram(paths.cost[finished]),
        paths=len(finish),
        unfinished=unfinished,
    )


def extras(money: Ledger) -> float:
    """Return the money that no machine was paid with."""
    return money[Row.STORAGE] + money[Row.TRANSFER] + money[Row.REQUESTS]


def _spread(values: NDArray[np.float64]) -> Spread:
    """Return mean, its error, and quantiles that are values which occurred, so that infinity is one of them."""
    quantiles = np.quantile(values, [0.05, 0.5, 0.9, 0.95], method="inverted_cdf")
    mean = float(np.mean(values))
    finite = bool(np.all(np.isfinite(values)))
    with np.errstate(over="ignore"):
        error = float(np.std(values) / np.sqrt(len(values))) if finite else math.inf
    p05, p50, p90, p95 = (float(value) for value in quantiles)
    return Spread(mean=mean, error=error, p05=p05, p50=p50, p90=p90, p95=p95)


def _histogram(values: NDArray[np.float64]) -> tuple[list[float], list[int]]:
    finite = values[np.isfinite(values)]
    if not len(finite):
        return [], []
    low, high = float(finite.min()), float(np.quantile(finite, _TAIL))
    if high - low <= 1e-9 * max(abs(high), 1.0):
        return [low, low], [len(finite)]
    counts, edges = np.histogram(np.minimum(finite, high), bins=_BINS, range=(low, high))
    return [float(edge) for edge in edges], [int(count) for count in counts]
