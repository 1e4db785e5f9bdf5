"""From a case to the whole answer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from dataclasses import replace as with_fields
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from .billing import rule_named
from .cases.checking import check_case, refuse
from .inputs import Capacity, Offer, Replay
from .interval import advise
from .levers import Scene
from .predicting import (
    MOST_REPLAYS,
    Threat,
    interruptible,
    plan_of,
    simulated,
    threats,
    undisturbed,
    ways_of,
)
from .result import Choice, CostResult, OfferResult
from .units import count_of, duration, money, share
from .verdict import Judge, evidence_of, unfinished_text, without_comparison

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from samestep.ledger import Ledger

    from .inputs import Case
    from .predicting import Setting
    from .records.actual import Actual
    from .result import Evidence, Ways

MOST_COMPARED = 12
"""Offers that are simulated for each way: those with the cheapest hour, since all of them do the same work."""

_NOT_EXPECTED = (
    "nothing is predicted of the run so far: with these lives it would hardly have come to an end, or the policy has "
    "no interruptible capacity"
)
_UNPRICED = Offer(provider="", instance="", spot=0.0)
"""For ledgers of time alone."""


@dataclass(frozen=True)
class _View:
    """An offer with both of its ways, ``other`` being the way where machines are lost together."""

    offer: Offer
    spot: Ways | None
    on_demand: Ways | None
    other: Ways | None = None


def answer(
    case: Case,
    *,
    actual: Actual | None = None,
    notes: Sequence[str] = (),
    provenance: dict[str, Any] | None = None,
) -> CostResult:
    """Say what a run costs on each offer, which way pays, and how often to save.

    Args:
        case: everything it is made from; the same case gives the same answer.
        actual: what the run has come to so far.
        notes: what has to be known of the inputs besides what the case shows.
        provenance: versions, time, files.

    Raises:
        CostError: nothing can be computed from the case.
    """
    refuse(case)
    whole, case = case, replace(case, offers=_promising(case.offers))
    found = threats(case.risk)
    views = [_view(case, offer, found) for offer in case.offers]
    choice, reason, judge, evidence = _overall(case, views, found[0])
    expected = _expected(case, actual, found[0]) if actual else {}
    others = min(views, key=lambda view: _rank(view.on_demand), default=None)
    return CostResult(
        case=case,
        offers=sorted((_result(case, view, others, found[0]) for view in views), key=_least),
        choice=choice,
        reason=reason,
        conditions=list(_conditions(case, views)),
        interval=advise(plan_of(case, found[0]), found[0].lives, case.measured.step_seconds.value),
        evidence=evidence,
        tornado=judge.tornado(evidence) if judge else [],
        zones=_zones(case, views, found[0]),
        actual=actual.ledgers if actual else {},
        actual_steps=_steps(actual) if actual else {},
        expected=expected,
        notes=[
            *notes,
            *check_case(case),
            *_notes(case, whole, views),
            *_of_traces(found[0]),
            *([_NOT_EXPECTED] if actual and actual.steps_accepted and not expected else []),
        ],
        provenance=provenance or {},
    )


def _promising(offers: list[Offer]) -> list[Offer]:
    """Return the offers with the cheapest hours, of both kinds of capacity, in their order."""
    if len(offers) <= 2 * MOST_COMPARED:
        return offers
    kept = {*_cheapest(offers, "spot"), *_cheapest(offers, "on_demand")}
    return [offers[index] for index in sorted(kept)]


def _cheapest(offers: list[Offer], price: str) -> list[int]:
    hours = {
        index: getattr(offer, price) * offer.nodes
        for index, offer in enumerate(offers)
        if getattr(offer, price) is not None
    }
    return sorted(hours, key=hours.__getitem__)[:MOST_COMPARED]


def _view(case: Case, offer: Offer, found: list[Threat]) -> _View:
    ways = [_ways(case, interruptible(case, offer, threat)) for threat in found]
    return _View(offer, ways[0], _ways(case, undisturbed(case, offer)), ways[1] if len(ways) > 1 else None)


def _ways(case: Case, setting: Setting | None) -> Ways | None:
    return None if setting is None else _ways_of(case, setting)


def _ways_of(case: Case, setting: Setting) -> Ways:
    paths = simulated(setting, paths=case.paths, seed=case.seed)
    return ways_of(setting, paths, budget=case.policy.budget, deadline=case.policy.deadline_seconds)


def _judge(case: Case, view: _View, against: _View, threat: Threat) -> Judge | None:
    if view.spot is None or against.on_demand is None:
        return None
    held = replace(case, policy=replace(case.policy, interval_seconds=view.spot.interval_seconds))
    scene = Scene(held, view.offer, against.offer, threat)
    return Judge(scene, view.spot, against.on_demand, view.other)


def _result(case: Case, view: _View, others: _View | None, threat: Threat) -> OfferResult:
    """Compare both ways of an offer; one without on-demand capacity is compared with the cheapest of the others."""
    against = view if view.on_demand or others is None else others
    judge = _judge(case, view, against, threat)
    if judge is None:
        choice, reason = without_comparison(view.spot, view.on_demand)
        return OfferResult(
            offer=view.offer, spot=view.spot, on_demand=view.on_demand, choice=choice, reason=reason
        )
    life = judge.break_even_life()
    choice, reason = judge.judge(evidence_of(threat, break_even_seconds=life))
    return OfferResult(
        offer=view.offer,
        spot=view.spot,
        on_demand=view.on_demand,
        against="" if against is view else against.offer.name,
        ratio=judge.scene.price_ratio,
        break_even_ratio=judge.break_even_price(),
        break_even_life_seconds=life,
        choice=choice,
        reason=reason,
    )


def _overall(case: Case, views: list[_View], threat: Threat) -> tuple[Choice, str, Judge | None, Evidence]:
    """Compare the cheapest interruptible capacity of all offers with the cheapest on-demand capacity of all."""
    evidence = evidence_of(threat)
    if not views:
        return Choice.UNDECIDED, "no offer was given, so there is no price to compare", None, evidence
    spot = min(views, key=lambda view: _rank(view.spot))
    on_demand = min(views, key=lambda view: _rank(view.on_demand))
    judge = _judge(case, spot, on_demand, threat)
    if judge is None:
        choice, reason = without_comparison(spot.spot, on_demand.on_demand)
        return choice, reason, None, evidence
    evidence = evidence_of(threat, break_even_seconds=judge.break_even_life())
    choice, reason = judge.judge(evidence)
    if evidence.interruptions is None and choice is not Choice.UNDECIDED:
        reason += f"; the mean life of {duration(threat.mean)} is assumed, not observed"
    return choice, reason, judge, evidence


def _rank(ways: Ways | None) -> tuple[bool, bool, float]:
    """Return by what the cheapest way is chosen; one that was given up is no choice while another is there."""
    return (True, True, math.inf) if ways is None else (False, *ways.rank)


def _least(result: OfferResult) -> tuple[bool, bool, float]:
    return min(_rank(result.spot), _rank(result.on_demand))


def _steps(actual: Actual) -> dict[str, int]:
    return {
        "accepted": actual.steps_accepted,
        "executed": actual.steps_executed,
        "lost": actual.steps_lost,
    }


def _zones(case: Case, views: list[_View], threat: Threat) -> dict[str, Ways]:
    """Return what the cheapest interruptible capacity comes to in each of several zones alone."""
    best = min(views, key=lambda view: _rank(view.spot), default=None)
    setting = interruptible(case, best.offer, threat) if best else None
    if setting is None or len(threat.traces) < 2:
        return {}
    alone = {
        trace.name: with_fields(setting, threat=with_fields(threat, traces=(trace,)))
        for trace in threat.traces
    }
    return {name: _ways_of(case, one) for name, one in alone.items()}


def _expected(case: Case, actual: Actual, threat: Threat) -> dict[str, Ledger]:
    """Return the ledgers that are predicted of the steps so far, by the offer that the run was accounted with."""
    if not actual.steps_accepted:
        return {}
    kept = case.measured.step_seconds.value * actual.steps_accepted / max(1, actual.saves)
    work = replace(case.work, steps=actual.steps_accepted)
    policy = replace(case.policy, capacity=Capacity.SPOT, interval_seconds=kept)
    offer = case.offers[0] if actual.money and case.offers else _UNPRICED
    setting = interruptible(replace(case, work=work, policy=policy), offer, threat)
    if setting is None:
        return {}
    paths = simulated(setting, paths=case.paths, seed=case.seed)
    if not paths.finished.all():
        return {}
    ledgers = {"time": paths.mean_time()}
    return {**ledgers, "money": paths.mean_money(setting.currency)} if actual.money else ledgers


def _conditions(case: Case, views: list[_View]) -> Iterator[str]:
    """Say what the money does not decide, and how it stands."""
    policy = case.policy
    quality = f"quality: {policy.quality}" if policy.quality else "quality of the result"
    yield f"{quality}; this prediction says nothing about it"
    spot = min(views, key=lambda view: _rank(view.spot), default=None)
    other = min(views, key=lambda view: _rank(view.on_demand), default=None)
    ways = [one for one in (spot and spot.spot, other and other.on_demand) if one]
    if policy.deadline_seconds is not None and ways:
        told = "; ".join(f"{way.capacity} {_kept(way, way.meets_deadline, 'meets')}" for way in ways)
        yield f"deadline: {duration(policy.deadline_seconds)}; {told}"
    if policy.budget is not None and ways:
        told = "; ".join(f"{way.capacity} {_kept(way, way.within_budget, 'keeps')}" for way in ways)
        yield f"budget: {money(policy.budget, ways[0].money.unit)}; {told}"


def _kept(way: Ways, part: float | None, verb: str) -> str:
    if way.unfinished:
        known = f"is known to {verb.removesuffix('s')} it in {share(part)} of the simulated runs"
        return f"{known}; {way.unfinished:,} of {way.paths:,} were not finished"
    if not part:
        return f"never {verb} it"
    return f"{verb} it" if part >= 1 else f"{verb} it in {share(part)} of the simulated runs"


def _notes(case: Case, whole: Case, views: list[_View]) -> Iterator[str]:
    policy, risk = case.policy, case.risk
    if len(whole.offers) > len(case.offers):
        rest = len(whole.offers) - len(case.offers)
        yield f"{count_of(rest, 'offer')} with dearer hours were left out of the comparison"
    if any(view.on_demand for view in views):
        yield (
            "on-demand capacity is reckoned without a failure and with one save, at its end: it fails too, only less "
            "often, so the comparison leans towards it"
        )
    if len({(offer.accelerator, offer.accelerators) for offer in case.offers}) > 1:
        yield (
            "the offers have different accelerators, and all of them are reckoned with the same measured times, which "
            "hold for one kind of machine"
        )
    if risk.label:
        yield f"{risk.label!r} is what the provider publishes: no rate of interruptions, and nothing follows from it"
    if isinstance(risk.lives, Replay) and case.paths > MOST_REPLAYS:
        yield f"traces are replayed from {count_of(MOST_REPLAYS, 'start')}, not {case.paths:,}"
    if risk.nodes > 1 and risk.correlated and views:
        yield from _bounds(views)
    yield from _unfinished(views)
    yield from _of_billing(case)
    if any(rule_named(offer.billing).free_on_request for offer in case.offers):
        counted = "counted on: compare without it, too" if policy.first_hour else "not counted on"
        yield f"a first hour that is free if the provider takes the machine away in it is {counted}"
    if policy.capacity is Capacity.ON_DEMAND:
        yield "the policy uses on-demand capacity only: interruptible capacity was not simulated"


def _of_billing(case: Case) -> Iterator[str]:
    first_hour = case.policy.first_hour
    applied = {offer.billing: rule_named(offer.billing, first_hour=first_hour) for offer in case.offers}
    odd = sorted(name for name, rule in applied.items() if not rule.plain)
    if odd and case.policy.capacity is Capacity.SPOT:
        yield (
            f"the billing rule {', '.join(odd)} is counted life by life in the simulation, and by its mean in "
            "break-evens and what-ifs; the interval does not depend on it"
        )


def _unfinished(views: list[_View]) -> Iterator[str]:
    found = [(view.offer.name, view.spot) for view in views if view.spot and view.spot.unfinished]
    if found:
        names = ", ".join(name for name, _ in found[:3])
        yield (
            f"{names}: {unfinished_text(found[0][1])}; money and time are what they came to until then, which is less "
            f"than they come to in the end, and per accepted step means the {found[0][1].steps_accepted:,.0f} accepted "
            "by then, on average; break-evens and what-ifs are those of the closed form"
        )


def _of_traces(threat: Threat) -> Iterator[str]:
    for trace in threat.traces:
        yield from (f"{trace.name}: {note}" for note in trace.notes)


def _bounds(views: list[_View]) -> Iterator[str]:
    view = min(views, key=lambda one: _rank(one.spot))
    if view.spot is None or view.other is None:
        return
    currency = view.offer.currency
    yield (
        f"lives are those of one machine: interruptible capacity costs {money(view.spot.cost.mean, currency)} if every "
        "machine is lost on its own, which is what the ledgers show, and "
        f"{money(view.other.cost.mean, currency)} if all are lost together"
    )
