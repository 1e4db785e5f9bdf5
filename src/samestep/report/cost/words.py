"""What every form of a cost answer says: pure functions from the result to words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from samestep.cost.inputs import Empirical, Exponential, Weibull
from samestep.cost.result import Choice
from samestep.cost.units import NOTHING, duration, money, ratio, share
from samestep.cost.verdict import unfinished_text
from samestep.errors import ExitCode
from samestep.report.view import GOOD, NEUTRAL, UNKNOWN, Verdict, count_of

if TYPE_CHECKING:
    from samestep.cost.inputs import Lives, Quantity, Replay, Risk
    from samestep.cost.result import CostResult, Flip, OfferResult, Ways

TONES = {Choice.SPOT: GOOD, Choice.ON_DEMAND: NEUTRAL, Choice.UNDECIDED: UNKNOWN}
"""Spot and on-demand are both answers; only undecided asks for something."""

_EARLY = 0.9
"""A first save that comes no earlier than that is none that comes early."""

SHOWN_OFFERS = 12
"""Offers that a table shows; the others are counted."""


def exit_code(result: CostResult) -> ExitCode:
    """Return 0 where spot or on-demand was decided, 4 where not."""
    return ExitCode.INCONCLUSIVE if result.choice is Choice.UNDECIDED else ExitCode.HOLDS


def verdict(result: CostResult) -> Verdict:
    """Say what the money says, with the number that says it."""
    text = {
        Choice.SPOT: "Spot pays",
        Choice.ON_DEMAND: "On-demand is cheaper",
        Choice.UNDECIDED: "Undecided",
    }[result.choice]
    if result.choice is Choice.SPOT:
        text = f"{text}: {saving(*main_ways(result))}"
    return Verdict(TONES[result.choice], text, result.reason)


def best_spot(result: CostResult) -> OfferResult | None:
    """Return the offer whose interruptible capacity costs least, if any has some."""
    offered = [one for one in result.offers if one.spot]
    return min(offered, key=lambda one: one.spot.rank if one.spot else (True, 0.0), default=None)


def best_on_demand(result: CostResult) -> OfferResult | None:
    """Return the offer whose on-demand capacity costs least, if any has some."""
    offered = [one for one in result.offers if one.on_demand]
    return min(offered, key=lambda one: one.on_demand.rank if one.on_demand else (True, 0.0), default=None)


def main_ways(result: CostResult) -> tuple[Ways | None, Ways | None]:
    """Return the two ways that are compared with one another: the cheapest interruptible and on-demand ones."""
    spot, on_demand = best_spot(result), best_on_demand(result)
    return spot.spot if spot else None, on_demand.on_demand if on_demand else None


def main_names(result: CostResult) -> str:
    """Return what the two ways are offered as."""
    found = [one for one in (best_spot(result), best_on_demand(result)) if one is not None]
    return " and ".join(dict.fromkeys(offer_name(one) for one in found))


ZONE_HEAD = ("zone", "cost", "ends p50", "p95", "in time")


def zones(result: CostResult) -> list[tuple[str, Ways]]:
    """Return what each zone of a replay comes to alone, and all of them together last."""
    together = main_ways(result)[0]
    found = list(result.zones.items())
    return [*found, ("any of them", together)] if found and together else found


def compared(result: CostResult, one: OfferResult) -> Ways | None:
    """Return the on-demand capacity that an offer is compared with."""
    named = (other.on_demand for other in result.offers if one.against and one.against == other.offer.name)
    return next((ways for ways in named if ways is not None), one.on_demand)


def on_demand_text(result: CostResult, one: OfferResult) -> str:
    """Return what on-demand capacity costs, and where, if the offer itself has none."""
    text = cost_text(compared(result, one), one.offer.currency)
    return f"{text} ({one.against})" if one.against else text


def saving(spot: Ways | None, on_demand: Ways | None) -> str:
    """Return ``30 % less`` or ``12 % more`` than on-demand."""
    if spot is None or on_demand is None or not on_demand.money.total:
        return NOTHING
    change = spot.money.total / on_demand.money.total - 1
    if spot.unfinished:
        return f"at least {share(change)} more" if change > 0 else "not known"
    if abs(change) < 0.0005:
        return "the same"
    return f"{share(abs(change))} {'less' if change < 0 else 'more'}"


def offer_name(offer: OfferResult) -> str:
    """Return the name of an offer, or what stands for one that was given by its prices alone."""
    return offer.offer.name or "the given prices"


def cost_text(ways: Ways | None, currency: str) -> str:
    """Return what a way costs on average, as a lower bound where runs were given up."""
    if ways is None:
        return "none"
    return ("≥ " if ways.unfinished else "") + money(ways.cost.mean, currency)


def simulated_runs(result: CostResult) -> str:
    """Say how many runs were simulated."""
    ways = main_ways(result)[0]
    return f"{ways.paths if ways else result.case.paths:,} simulated runs"


def end_text(ways: Ways | None, seconds: float) -> str:
    """Return when a share of the runs is finished."""
    return "not finished" if ways is not None and math.isinf(seconds) else duration(seconds)


def in_time_text(ways: Ways | None) -> str:
    """Return in how many of the runs the deadline is met, as far as that is known."""
    if ways is None:
        return NOTHING
    return "not known" if ways.unfinished else share(ways.meets_deadline)


def nine_of_ten(ways: Ways | None, currency: str) -> str:
    """Return between which costs nine of ten simulated runs lie; nothing where all come to the same."""
    if ways is None or ways.unfinished or ways.cost.p05 == ways.cost.p95:
        return ""
    return f"{money(ways.cost.p05, currency)} to {money(ways.cost.p95, currency)}"


def spread_text(result: CostResult) -> str:
    """Say how far cost and end of the simulated runs scatter; nothing where they do not."""
    ways = main_ways(result)[0]
    if ways is not None and ways.unfinished:
        return f"{unfinished_text(ways)}: costs and times are what they came to until then, and lower bounds"
    if ways is None or ways.cost.p05 == ways.cost.p95:
        return ""
    low, high = (money(value, ways.money.unit) for value in (ways.cost.p05, ways.cost.p95))
    middle, late = duration(ways.finish_seconds.p50), duration(ways.finish_seconds.p95)
    costs = f"costs {low} to {high} in nine of ten runs; " if low != high else ""
    return f"{ways.capacity} {costs}ends within {middle} in half of the runs, within {late} in 19 of 20"


def risk_text(risk: Risk) -> str:
    """Say what is believed about interruptions, and of what."""
    text = lives_text(risk.lives)
    return f"{text}; of each of {risk.nodes} machines" if risk.nodes > 1 and risk.correlated else text


def lives_text(lives: Lives) -> str:
    """Say what is believed about interruptions."""
    if isinstance(lives, Exponential):
        return f"exponential, one interruption in {duration(lives.mean_seconds)}; {_observed(lives)}"
    if isinstance(lives, Weibull):
        trend = "falls" if lives.shape < 1 else "rises" if lives.shape > 1 else "stays the same"
        told = f"Weibull, shape {lives.shape:g}, scale {duration(lives.scale_seconds)}"
        return f"{told} (the hazard {trend} with age); {_observed(lives)}"
    if isinstance(lives, Empirical):
        held = (
            f", {len(lives.censored_seconds)} still alive when watching ended"
            if lives.censored_seconds
            else ""
        )
        return f"{count_of(len(lives.lives_seconds), 'observed life').replace('lifes', 'lives')}{held}"
    return _replayed(lives)


def _replayed(lives: Replay) -> str:
    return f"replay of {count_of(len(lives.paths), 'trace')} ({lives.kind}): {', '.join(lives.paths)}"


def _observed(lives: Exponential | Weibull) -> str:
    if lives.interruptions is None:
        return "assumed, not observed"
    return f"{count_of(lives.interruptions, 'interruption')} seen in {duration(lives.observed_seconds)}"


def evidence_text(result: CostResult) -> str:
    """Say how well the mean life is known."""
    known = result.evidence
    if known.interruptions is None:
        return "the mean life is assumed: no interruption was observed that it rests on"
    low, high = known.low_seconds, known.high_seconds
    bounds = f"above {duration(low)}" if high is None else f"between {duration(low)} and {duration(high)}"
    return (
        f"{count_of(known.interruptions, 'interruption')} seen, {known.needed} needed for a verdict; "
        f"the mean life lies {bounds} (90 % interval)"
    )


def interval_text(result: CostResult) -> str:
    """Say how often to save, with no more precision than the flat region has."""
    advice = result.interval
    text = (
        f"save about every {count_of(advice.steps, 'step')} ({duration(advice.steps * step_seconds(result))})"
    )
    text += (
        f"; anything from {duration(advice.flat_low)} to {duration(advice.flat_high)} costs at most 1 % more"
    )
    if advice.first_seconds < _EARLY * advice.steps * step_seconds(result):
        first = duration(advice.first_seconds)
        text += f"; the first save of a life after {first}, as fresh machines are the risky ones"
    return text


def step_seconds(result: CostResult) -> float:
    """Return the seconds that one step of the run takes."""
    return result.case.measured.step_seconds.value


def flip_text(flip: Flip) -> str:
    """Say at which value of an input the verdict turns."""
    if flip.flips_at is None:
        return "nowhere"
    return flip_value(flip, flip.flips_at)


def flip_value(flip: Flip, value: float) -> str:
    """Return a value of an input in its unit."""
    return duration(value) if flip.input.endswith("(s)") else f"{value:.2g}"


def flip_name(flip: Flip) -> str:
    """Return the name of an input without its unit, which its values carry."""
    return flip.input.removesuffix(" (s)")


def quantity_text(quantity: Quantity, unit: str) -> str:
    """Return a measured quantity with its spread and where it comes from."""
    shown = _in_unit(quantity.value, unit)
    if quantity.low is not None and quantity.high is not None:
        shown += f" ({_in_unit(quantity.low, unit)} to {_in_unit(quantity.high, unit)})"
    count = f", {count_of(quantity.count, 'observation')}" if quantity.count else ""
    return f"{shown}; {quantity.source}{count}"


def _in_unit(value: float, unit: str) -> str:
    if unit == "s":
        return duration(value)
    if unit == "B":
        return size(value)
    return f"{value:g}"


def size(value: float) -> str:
    """Return bytes in the unit that suits them, in powers of 1000, as prices are."""
    units, power = ("B", "kB", "MB", "GB", "TB"), 0
    while value >= 1000 and power < len(units) - 1:
        value, power = value / 1000, power + 1
    return f"{value:.3g} {units[power]}"


def break_even_text(offer: OfferResult) -> str:
    """Return the price ratio above which, or the mean life below which, spot no longer pays."""
    if offer.break_even_ratio is None:
        return NOTHING
    life = offer.break_even_life_seconds
    text = ratio(offer.break_even_ratio)
    return text if life is None else f"{text} or {duration(life)}"
