"""The inputs that a verdict hangs on, each of which can be moved with everything else held."""

from __future__ import annotations

import math
from dataclasses import dataclass
from dataclasses import replace as with_fields
from typing import TYPE_CHECKING

from msgspec.structs import replace

from .inputs import Capacity, Quantity
from .predicting import Threat, expected_money, interruptible, simulated, undisturbed
from .risk.lives import scaled

if TYPE_CHECKING:
    from collections.abc import Callable

    from .inputs import Case, Offer
    from .result import Evidence

    Move = Callable[["Scene", float], "Scene"]

_QUICK_PATHS = 500
"""Simulated runs for each value of an input where no closed form holds."""

_WIDE = 1000.0
"""How far an input is followed in search of the value at which the verdict turns."""

_SECONDS = {"restart_seconds": 600.0, "save_seconds": 30.0}
"""Measured inputs, and how far one is moved that is zero."""

_WAIT_SECONDS = 3600.0
_NOTICE = 0.9


@dataclass(frozen=True)
class Scene:
    """A run on interruptible capacity beside one on on-demand capacity; one input at a time is moved.

    Attributes:
        case: the run; its interval is given, so that it is held while something else moves.
        offer: of the interruptible capacity.
        against: of the on-demand capacity; often the same.
        threat: what interrupts it.
    """

    case: Case
    offer: Offer
    against: Offer
    threat: Threat

    @property
    def closed(self) -> bool:
        """Whether the closed form holds: there is no fallback to other capacity."""
        return self.case.policy.capacity is Capacity.SPOT

    @property
    def price_ratio(self) -> float:
        """Return what an hour of interruptible capacity costs, in hours of the other."""
        hour = (self.offer.spot or 0.0) * self.offer.nodes
        compared = (self.against.on_demand or 0.0) * self.against.nodes
        return hour / compared if compared else math.inf

    def money(self) -> float:
        """Return the cost on interruptible capacity, not yet brought to what the whole simulation says."""
        setting = interruptible(self.case, self.offer, self.threat)
        if setting is None:
            return math.inf
        if self.closed:
            return expected_money(setting)
        return float(simulated(setting, paths=_QUICK_PATHS, seed=self.case.seed).cost.mean())

    def compared(self) -> float:
        """Return the cost on on-demand capacity."""
        setting = undisturbed(self.case, self.against)
        return math.inf if setting is None else expected_money(setting)

    def ratio(self) -> float:
        """Return the cost of interruptible capacity divided by that of on-demand."""
        return cost_ratio(self.money(), self.compared())


def cost_ratio(spot: float, on_demand: float) -> float:
    """Return the one divided by the other; 1 where both cost nothing."""
    if not on_demand:
        return math.inf if spot else 1.0
    return spot / on_demand


@dataclass(frozen=True)
class Lever:
    """One input: what it is called, where it stands, between which values it may lie, and how it is moved.

    Attributes:
        name: with its unit.
        value: where it stands.
        low, high: between which it probably lies.
        least, most: between which a value is looked for at which the verdict turns.
        move: returns the scene with another value.
    """

    name: str
    value: float
    low: float
    high: float
    least: float
    most: float
    move: Move


def levers(scene: Scene, evidence: Evidence) -> list[Lever]:
    """Return every input that can be moved; lives and waits stand in the traces where those are replayed."""
    found = [price(scene), _notice(scene)]
    found += [_measured(scene, "restart_seconds", "start to first step (s)")]
    found += [_measured(scene, "save_seconds", "save (s)")]
    if scene.closed or not scene.threat.traces:
        found.append(life(scene, evidence))
    if not scene.threat.traces:
        found.append(_wait(scene))
    return found


def life(scene: Scene, evidence: Evidence) -> Lever:
    """Return the mean life: over its interval where interruptions were seen, from half to double where not."""
    mean = scene.threat.mean
    low = mean / 2 if evidence.low_seconds is None else min(evidence.low_seconds, mean)
    high = mean * 2 if evidence.high_seconds is None else max(evidence.high_seconds, mean)

    def move(at: Scene, value: float) -> Scene:
        lives = scaled(at.threat.lives, value / at.threat.mean)
        return with_fields(at, threat=Threat(lives, recorded=at.threat.recorded))

    return Lever("mean life (s)", mean, low, high, mean / _WIDE, mean * _WIDE, move)


def price(scene: Scene) -> Lever:
    """Return the price of interruptible capacity, as a part of the other one."""
    now, spot = scene.price_ratio, scene.offer.spot or 0.0

    def move(at: Scene, value: float) -> Scene:
        return with_fields(at, offer=replace(at.offer, spot=value / now * spot if now else 0.0))

    high = min(2 * now, 1.0) if now < 1 else 2 * now
    return Lever("price ratio", now, now / 2, high, 0.0, max(10.0, 2 * now), move)


def _notice(scene: Scene) -> Lever:
    now = scene.case.risk.usable_notice

    def move(at: Scene, value: float) -> Scene:
        risk = replace(at.case.risk, usable_notice=value)
        return with_fields(at, case=replace(at.case, risk=risk))

    return Lever("usable notice", now, 0.0, max(now, _NOTICE), 0.0, 1.0, move)


def _wait(scene: Scene) -> Lever:
    quantity = scene.case.risk.wait_seconds

    def move(at: Scene, value: float) -> Scene:
        risk = replace(at.case.risk, wait_seconds=Quantity(value=value))
        return with_fields(at, case=replace(at.case, risk=risk))

    return _of_seconds("wait for capacity (s)", quantity, _WAIT_SECONDS, move)


def _measured(scene: Scene, field: str, name: str) -> Lever:
    quantity: Quantity = getattr(scene.case.measured, field)

    def move(at: Scene, value: float) -> Scene:
        measured = replace(at.case.measured, **{field: Quantity(value=value)})
        return with_fields(at, case=replace(at.case, measured=measured))

    return _of_seconds(name, quantity, _SECONDS[field], move)


def _of_seconds(name: str, quantity: Quantity, reach: float, move: Move) -> Lever:
    """Return the lever of a duration: over its measured spread, else from half to double, and from 0 where it is 0."""
    now = quantity.value
    low = now / 2 if quantity.low is None else quantity.low
    high = (2 * now or reach) if quantity.high is None else quantity.high
    return Lever(name, now, low, high, 0.0, _WIDE * max(now, reach), move)
