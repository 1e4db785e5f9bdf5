"""What the money says, how sure that is, and what would turn it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from samestep.ledger import Row

from .inputs import Empirical
from .levers import Scene, cost_ratio, levers, life, price
from .predicting import extras
from .records.observed import ENOUGH_INTERRUPTIONS
from .result import Choice, Evidence, Flip
from .risk.lives import life_interval
from .simulation import MOST_LIVES
from .units import count_of, duration, money, ratio, share

if TYPE_CHECKING:
    from collections.abc import Callable

    from .levers import Lever
    from .predicting import Threat
    from .result import Ways

_MOST_NEEDED = 10_000
_NOISE = 2.0
"""Standard errors by which two simulated costs must differ."""

_PRECISION = 2e-3
_HALVINGS = 60


def evidence_of(threat: Threat, *, break_even_seconds: float | None = None) -> Evidence:
    """Return how well the mean life is known.

    Args:
        threat: what interrupts the run.
        break_even_seconds: the mean life at which the verdict turns: near to it, more interruptions are needed.
    """
    count, watched = observed(threat)
    if count is None:
        return Evidence()
    low, high = life_interval(count, watched)
    mean = watched / count if count else None
    needed = ENOUGH_INTERRUPTIONS if mean is None else _needed(mean, break_even_seconds)
    return Evidence(interruptions=count, low_seconds=low, high_seconds=high, needed=needed)


def observed(threat: Threat) -> tuple[int | None, float]:
    """Return how many interruptions were seen, None where the lives are assumed, and in how many seconds."""
    lives = threat.lives
    if threat.traces:
        watched = sum(float((trace.ends - trace.starts).sum()) for trace in threat.traces)
        return sum(trace.interruptions for trace in threat.traces), watched
    if isinstance(lives, Empirical):
        return len(lives.lives_seconds), sum(lives.lives_seconds) + sum(lives.censored_seconds)
    return lives.interruptions, lives.observed_seconds or threat.mean * (lives.interruptions or 0)


def _needed(mean: float, break_even: float | None) -> int:
    """Return how many interruptions at that mean would tell it from the break-even; never less than a few."""
    if break_even is None:
        return ENOUGH_INTERRUPTIONS
    count = ENOUGH_INTERRUPTIONS
    while count < _MOST_NEEDED:
        low, high = life_interval(count, count * mean)
        if break_even < low or (high is not None and break_even > high):
            break
        count = count + max(1, count // 10)
    return count


@dataclass(frozen=True)
class Judge:
    """Compares both ways of one offer.

    Attributes:
        scene: the run on the offer, under its threat.
        spot: what was simulated on interruptible capacity.
        on_demand: what on-demand capacity comes to.
        other: the same as ``spot`` when machines are lost together and not each on its own.
    """

    scene: Scene
    spot: Ways
    on_demand: Ways
    other: Ways | None = None

    @property
    def ratio(self) -> float:
        """Cost of spot divided by that of on-demand; in closed form where simulated runs were given up."""
        return cost_ratio(self.spot.cost.mean, self.on_demand.cost.mean) if self.ends else self.scene.ratio()

    @property
    def ends(self) -> bool:
        """Whether every simulated run on interruptible capacity came to its end."""
        return not self.spot.unfinished

    def break_even_price(self) -> float | None:
        """Return the price ratio above which interruptible capacity no longer pays; None: no ratio decides it."""
        if not self.ends:
            return self._turning(price(self.scene))
        by_hour = self.spot.money.total - extras(self.spot.money) - self.spot.money[Row.FALLBACK]
        left = self.on_demand.money.total - (self.spot.money.total - by_hour)
        now = self.scene.price_ratio
        return max(0.0, left / by_hour * now) if by_hour > 0 and 0 < now < math.inf else None

    def break_even_life(self) -> float | None:
        """Return the mean life below which interruptible capacity no longer pays; None: there is no such life."""
        if self.scene.threat.traces and not self.scene.closed:
            return None
        return self._turning(life(self.scene, Evidence()))

    def tornado(self, evidence: Evidence) -> list[Flip]:
        """Return every input moved over its range, the one that moves the result most first."""
        flips = [self._flip(lever) for lever in levers(self.scene, evidence)]
        return sorted(flips, key=lambda flip: -abs(flip.ratio_high - flip.ratio_low))

    def over(self, evidence: Evidence) -> tuple[float, float]:
        """Return the ratio at the short and at the long end of the interval of the mean life."""
        lever = life(self.scene, evidence)
        return self._at(lever, lever.low), self._at(lever, lever.high)

    def hopeless(self) -> bool:
        """Return whether on-demand is cheaper even if nothing ever interrupts."""
        lever = life(self.scene, Evidence())
        return self._at(lever, lever.most) >= 1

    def judge(self, evidence: Evidence) -> tuple[Choice, str]:
        """Return the choice for this offer and its reason."""
        if not self.ends:
            return self._unfinished()
        if evidence.interruptions is None or self.hopeless():
            return self._by_money()
        if evidence.interruptions < evidence.needed:
            return Choice.UNDECIDED, self._too_few(evidence)
        return self._by_money()

    def _unfinished(self) -> tuple[Choice, str]:
        """Judge by what is certain of runs that were given up: they cost at least what they had cost until then."""
        currency = self.scene.offer.currency
        least, compared = self.spot.cost.mean, self.on_demand.cost.mean
        expected = self.scene.money()
        told = unfinished_text(self.spot)
        if math.isinf(expected):
            return (
                Choice.ON_DEMAND,
                f"{told}: no life is long enough for a save to last, so such a run never ends",
            )
        told += f", so what spot costs is not known: at least {money(least, currency)}"
        if self.other and self.other.cost.mean < compared < least:
            return Choice.UNDECIDED, (
                f"{told} if every machine is lost on its own, {money(self.other.cost.mean, currency)} if all are lost "
                f"together, and on-demand {money(compared, currency)}: how machines are lost together decides it"
            )
        told += (
            f", about {money(expected, currency)} in closed form; on-demand costs {money(compared, currency)}"
        )
        return (Choice.ON_DEMAND if least > compared else Choice.UNDECIDED), told

    def _by_money(self) -> tuple[Choice, str]:
        difference = self.on_demand.cost.mean - self.spot.cost.mean
        if abs(difference) <= _NOISE * self.spot.cost.error < math.inf:
            return Choice.UNDECIDED, (
                "spot and on-demand cost the same as far as the simulation can tell; more --paths tell them apart"
            )
        if self.other and (self.other.cost.mean < self.on_demand.cost.mean) != (difference > 0):
            return Choice.UNDECIDED, self._bounds(self.other)
        return (Choice.SPOT if difference > 0 else Choice.ON_DEMAND), self._costs()

    def _costs(self) -> str:
        currency, offer, against = self.scene.offer.currency, self.scene.offer, self.scene.against
        change = self.ratio - 1
        told = f"{share(abs(change))} {'less' if change < 0 else 'more'}" if math.isfinite(change) else "free"
        where, other = ("", "") if offer == against else (f" at {offer.name}", f" at {against.name}")
        return (
            f"{self.spot.capacity}{where} costs {money(self.spot.cost.mean, currency)} for the whole run, "
            f"on-demand{other} {money(self.on_demand.cost.mean, currency)}: {told}"
        )

    def _bounds(self, other: Ways) -> str:
        currency = self.scene.offer.currency
        return (
            f"spot costs {money(self.spot.cost.mean, currency)} if every machine is lost on its own, "
            f"{money(other.cost.mean, currency)} if all are lost together, and on-demand "
            f"{money(self.on_demand.cost.mean, currency)}: how machines are lost together decides it"
        )

    def _too_few(self, evidence: Evidence) -> str:
        count = evidence.interruptions or 0
        seen = f"{count_of(count, 'interruption')} {'were' if count > 1 else 'was'} observed"
        low, high = evidence.low_seconds, evidence.high_seconds
        bounds = f"above {duration(low)}" if high is None else f"between {duration(low)} and {duration(high)}"
        worst, best = self.over(evidence)
        return (
            f"{seen} and {evidence.needed} are needed: the mean life lies {bounds}, over which {self.spot.capacity} "
            f"costs {ratio(best)} to {ratio(worst)} times what on-demand does"
        )

    def _flip(self, lever: Lever) -> Flip:
        return Flip(
            input=lever.name,
            low=lever.low,
            high=lever.high,
            ratio_low=self._at(lever, lever.low),
            ratio_high=self._at(lever, lever.high),
            flips_at=self._turning(lever),
        )

    def _at(self, lever: Lever, value: float) -> float:
        """Return the ratio at a value of an input, brought to what the simulation says at the present one."""
        return self._scale * lever.move(self.scene, value).ratio()

    @cached_property
    def _scale(self) -> float:
        base = self.scene.ratio()
        return self.ratio / base if self.ends and base and math.isfinite(base) else 1.0

    def _turning(self, lever: Lever) -> float | None:
        """Return the value of an input nearest to the present one at which both ways cost the same."""
        below = self.ratio < 1

        def holds(value: float) -> bool:
            return (self._at(lever, value) < 1) == below

        limit = next((limit for limit in (lever.least, lever.most) if not holds(limit)), None)
        return None if limit is None else _crossing(holds, lever.value, limit)


def _crossing(holds: Callable[[float], bool], inside: float, outside: float) -> float:
    """Return the last value that holds, between one that does and one that does not."""
    for _ in range(_HALVINGS):
        middle = (inside * outside) ** 0.5 if inside > 0 and outside > 0 else (inside + outside) / 2
        if holds(middle):
            inside = middle
        else:
            outside = middle
        if abs(outside - inside) <= _PRECISION * max(abs(inside), abs(outside)):
            break
    return (inside + outside) / 2


def unfinished_text(ways: Ways) -> str:
    """Say how many of the simulated runs were given up."""
    return (
        f"{ways.unfinished:,} of {ways.paths:,} simulated runs on interruptible capacity were not finished after "
        f"{MOST_LIVES:,} machines each"
    )


def without_comparison(spot: Ways | None, on_demand: Ways | None) -> tuple[Choice, str]:
    """Return the choice where an offer has one way only."""
    if spot is None and on_demand is None:
        return Choice.UNDECIDED, "the offer allows neither way to run"
    if spot is None:
        return Choice.ON_DEMAND, "there is no interruptible capacity to compare with"
    return Choice.UNDECIDED, "there is no on-demand price to compare with"
