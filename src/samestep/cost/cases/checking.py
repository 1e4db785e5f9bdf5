"""A case looked at as a whole: what contradicts itself is refused, what is odd is said."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from samestep.cost.errors import CaseError
from samestep.cost.inputs import Capacity, Empirical, Replay
from samestep.cost.records.observed import ENOUGH_INTERRUPTIONS, few_interruptions
from samestep.cost.risk.lives import life_interval, mean_seconds
from samestep.cost.units import duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samestep.cost.inputs import Case, Lives, Offer


def check_case(case: Case) -> list[str]:
    """Return what a reader of the prediction has to know of its inputs.

    Raises:
        CaseError: the case contradicts itself; see ``refuse``.
    """
    refuse(case)
    return [*_of_time(case), *_of_lives(case.risk.lives), *_of_offers(case)]


def refuse(case: Case, place: str = "the case") -> None:
    """Refuse a case that nothing can be computed from.

    Raises:
        CaseError: offers are priced in several currencies, one has no price or one that is no number, two have the same
            name, or a number is not finite.
    """
    currencies = {offer.currency: offer for offer in case.offers}
    if len(currencies) > 1:
        told = ", ".join(f"{offer.name} in {currency}" for currency, offer in sorted(currencies.items()))
        raise CaseError(
            f"{place} mixes currencies: {told}",
            hint="samestep knows no rate of exchange: give all prices in one, or choose offers of one by their names",
        )
    for offer in case.offers:
        _refuse_offer(offer, place)
    for number in (case.policy.interval_seconds, case.policy.deadline_seconds, case.policy.budget):
        if number is not None and not (math.isfinite(number) and number > 0):
            raise CaseError(
                f"{place}: interval, deadline and budget must be finite and above 0, not {number}"
            )


def _refuse_offer(offer: Offer, place: str) -> None:
    prices = [price for price in (offer.spot, offer.on_demand) if price is not None]
    if not prices:
        raise CaseError(
            f"{offer.source or place}: {offer.name} has no price", hint="give on_demand, spot, or both"
        )
    prices += [offer.storage_month, offer.transfer, offer.thousand_requests]
    if not all(math.isfinite(price) and price >= 0 for price in prices):
        raise CaseError(
            f"{offer.source or place}: {offer.name} has a price that is negative or no finite number"
        )


def _of_time(case: Case) -> Iterator[str]:
    interval, lives = case.policy.interval_seconds, case.risk.lives
    life = None if isinstance(lives, Replay) else mean_seconds(lives)
    if interval is not None and life is not None and interval > life:
        yield (
            f"the interval between saves, {duration(interval)}, is longer than the mean life, {duration(life)}: most "
            "machines are lost before they have saved"
        )
    persist = case.measured.persist_seconds.value
    if interval is not None and interval < persist:
        yield (
            f"the interval between saves, {duration(interval)}, is shorter than a save takes to be durable, "
            f"{duration(persist)}: saves wait for each other"
        )
    least = case.work.steps * (case.measured.step_seconds.value + case.measured.stall_seconds.value)
    deadline = case.policy.deadline_seconds
    if deadline is not None and deadline < least:
        yield (
            f"the deadline, {duration(deadline)}, is shorter than the steps alone, {duration(least)}: nothing meets it"
        )


def _of_lives(lives: Lives) -> Iterator[str]:
    if isinstance(lives, Replay):
        return
    mean = mean_seconds(lives)
    if isinstance(lives, Empirical):
        seen: int | None = len(lives.lives_seconds)
        running = math.fsum((*lives.lives_seconds, *lives.censored_seconds))
    else:
        seen = lives.interruptions
        running = lives.observed_seconds or mean * (seen or 0)
    if seen is None:
        yield "the mean life is assumed, not observed"
        return
    if seen < ENOUGH_INTERRUPTIONS:
        yield few_interruptions(seen, running, mean)
    low, high = life_interval(seen, running)
    if not low <= mean <= (high or math.inf):
        yield (
            f"the mean life, {duration(mean)}, does not fit what was seen, {seen} in {duration(running)}: with 90 % "
            f"confidence it lies between {duration(low)} and {duration(high) if high else 'no known end'}"
        )


def _of_offers(case: Case) -> Iterator[str]:
    if not case.offers:
        yield "there is no offer: money is not known"
    undated = [offer.name for offer in case.offers if offer.priced is None]
    if undated:
        more = f" and {len(undated) - 3} more" if len(undated) > 3 else ""
        yield f"the prices of {', '.join(undated[:3])}{more} have no date"
    others = any(offer.on_demand is not None for offer in case.offers)
    for offer in case.offers:
        if offer.spot is None and case.policy.capacity != Capacity.ON_DEMAND:
            yield f"{offer.name} is offered on demand only"
        elif offer.on_demand is None:
            rest = (
                "it is compared with the cheapest of the others"
                if others
                else "there is nothing to compare spot with"
            )
            yield f"{offer.name} has no on-demand price: {rest}"
        elif offer.spot is not None and offer.spot > offer.on_demand:
            yield f"spot of {offer.name} is dearer than on-demand: {offer.spot:g} against {offer.on_demand:g}"
        elif offer.spot == offer.on_demand:
            yield f"spot of {offer.name} costs what on-demand costs: {offer.spot:g}"
