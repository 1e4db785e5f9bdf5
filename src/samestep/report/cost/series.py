"""The numbers behind the charts of a cost page: pure functions from the result to rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from samestep.cost.units import amount, duration, money
from samestep.ledger import Row as Account
from samestep.ledger.rows import MEANINGS

from .accounts import MONEY, columns, lines
from .words import SHOWN_OFFERS, flip_name, flip_text, flip_value, main_ways, offer_name, step_seconds

if TYPE_CHECKING:
    from samestep.cost.result import CostResult, OfferResult, Ways

Row = dict[str, Any]

COUNTS, LOST, WAITS, ON_TOP, TOTAL = "steps that count", "lost", "waiting", "on top", "total"
MARKS = ("half are below", "19 of 20 are below", "on-demand", "deadline", "budget")

_PART_OF = {
    Account.UNIQUE: COUNTS,
    Account.FALLBACK: COUNTS,
    Account.CAPACITY_WAIT: WAITS,
    Account.DATA_STALL: WAITS,
    Account.STORAGE: ON_TOP,
    Account.TRANSFER: ON_TOP,
    Account.REQUESTS: ON_TOP,
}
_NEAR = 0.01
"""Of an interval: points that are nearer to one another cannot be told apart."""

_TIME_UNITS = (("days", 86_400.0), ("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))


@dataclass(frozen=True)
class IntervalRows:
    """The curve of what an interval costs, the region where it hardly matters, and the chosen point."""

    unit: str
    curve: list[Row]
    flat: Row
    points: list[Row]


def unit_for(seconds: float) -> tuple[str, float]:
    """Return the unit in which a time of that size is drawn, and its seconds."""
    return next((unit for unit in _TIME_UNITS if seconds >= 2 * unit[1]), _TIME_UNITS[-1])


def time_unit(result: CostResult) -> tuple[str, float]:
    """Return the unit of every axis of wall time."""
    ways = [one for one in main_ways(result) if one is not None]
    return unit_for(max((one.time.total for one in ways), default=1.0))


def waterfall_rows(result: CostResult, kind: str) -> list[Row]:
    """Return one bar for every row that either ledger has, each beginning where the one before ended, and the total."""
    ways = next((one for one in main_ways(result) if one is not None), None)
    if ways is None:
        return []
    ledger = ways.money if kind == MONEY else ways.time
    unit, size = (ledger.unit, 1.0) if kind == MONEY else time_unit(result)
    rows: list[Row] = []
    reached = 0.0
    for line in lines(columns(result)):
        account = Account(line.name)
        value = ledger[account] / size
        rows.append(_bar(line.name, _PART_OF.get(account, LOST), reached, reached + value, unit))
        rows[-1] |= {"text": _shown(ledger[account], ledger.unit), "meaning": MEANINGS[account]}
        reached += value
    rows.append(_bar("total", TOTAL, 0.0, reached, unit))
    rows[-1] |= {"text": _shown(ledger.total, ledger.unit), "meaning": "the sum of all rows"}
    return rows


def bins(result: CostResult, kind: str) -> list[Row]:
    """Return the histogram of finishing time or cost; empty when every simulated run comes to the same."""
    ways = main_ways(result)[0]
    if ways is None:
        return []
    edges, counts = ways.cost_histogram if kind == MONEY else ways.finish_histogram
    if len(edges) < 2 or edges[0] == edges[-1]:
        return []
    size = 1.0 if kind == MONEY else time_unit(result)[1]
    unit = ways.money.unit if kind == MONEY else "s"
    whole = sum(counts) or 1
    return [
        {
            "begin": low / size,
            "end": high / size,
            "share": count / whole,
            "from": amount(low, unit),
            "to": amount(high, unit),
        }
        for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
    ]


def marks(result: CostResult, kind: str) -> tuple[list[Row], list[Row]]:
    """Return the values that a distribution is read against: those near to it, and those too far away to be drawn."""
    shown = bins(result, kind)
    if not shown:
        return [], []
    low, high = shown[0]["begin"], shown[-1]["end"]
    reach = 0.6 * (high - low)
    found = _all_marks(result, kind)
    near = [mark for mark in found if low - reach <= mark["at"] <= high + reach]
    return near, [mark for mark in found if mark not in near]


def _all_marks(result: CostResult, kind: str) -> list[Row]:
    ways, other = main_ways(result)
    if ways is None:
        return []
    policy, is_money = result.case.policy, kind == MONEY
    spread = ways.cost if is_money else ways.finish_seconds
    wanted = {
        MARKS[0]: spread.p50,
        MARKS[1]: spread.p95,
        "on-demand": None if other is None else other.cost.mean if is_money else other.finish_seconds.mean,
        "deadline": None if is_money else policy.deadline_seconds,
        "budget": policy.budget if is_money else None,
    }
    size, unit = (1.0, ways.money.unit) if is_money else (time_unit(result)[1], "s")
    return [
        {"mark": mark, "at": value / size, "text": amount(value, unit)}
        for mark, value in wanted.items()
        if value is not None and math.isfinite(value)
    ]


def interval_rows(result: CostResult) -> IntervalRows:
    """Return what the interval chart draws: the best interval, and beside it the advised, round one, and one in use."""
    advice = result.interval
    unit, size = unit_for(advice.seconds)
    curve = [_at(interval, overhead, size) for interval, overhead in advice.curve]
    flat = {
        "low": advice.flat_low / size,
        "high": advice.flat_high / size,
        "text": f"at most 1 % more: {duration(advice.flat_low)} to {duration(advice.flat_high)}",
    }
    points = [_point("costs least", advice.seconds, advice.curve, size)] if curve else []
    advised = advice.steps * step_seconds(result)
    if curve and abs(advised - advice.seconds) > _NEAR * advice.seconds:
        points.append(_point("advised", advised, advice.curve, size))
    used = result.case.policy.interval_seconds
    if curve and used is not None and used != advice.seconds:
        points.append(_point("as given", used, advice.curve, size))
    return IntervalRows(unit, curve, flat, points)


def offer_rows(result: CostResult) -> list[Row]:
    """Return the costs of both ways of each offer that is shown."""
    return [row for one in result.offers[:SHOWN_OFFERS] for row in _costs(one)]


def tornado_rows(result: CostResult) -> list[Row]:
    """Return two bars for every input: to the ratio at its low end and at its high one."""
    ways, other = main_ways(result)
    if ways is None or other is None or not other.money.total or ways.unfinished:
        return []
    base = ways.money.total / other.money.total
    return [
        {
            "input": flip_name(flip),
            "end": end,
            "base": base,
            "ratio": ratio,
            "text": flip_value(flip, value),
            "turns": flip_text(flip),
        }
        for flip in result.tornado
        for end, value, ratio in (("lower", flip.low, flip.ratio_low), ("higher", flip.high, flip.ratio_high))
    ]


def _costs(one: OfferResult) -> list[Row]:
    ways: list[Ways] = [way for way in (one.spot, one.on_demand) if way is not None and not way.unfinished]
    return [
        {
            "offer": offer_name(one),
            "kind": way.capacity,
            "cost": way.cost.mean,
            "low": way.cost.p05,
            "high": way.cost.p95,
            "text": money(way.cost.mean, one.offer.currency),
        }
        for way in ways
    ]


def _at(interval: float, overhead: float, size: float) -> Row:
    return {"interval": interval / size, "overhead": overhead, "text": duration(interval)}


def _point(name: str, seconds: float, curve: list[tuple[float, float]], size: float) -> Row:
    """Place a point on the curve: at the nearest interval that was computed."""
    overhead = min(curve, key=lambda at: abs(at[0] - seconds))[1]
    return {"point": name, **_at(seconds, overhead, size)}


def _bar(row: str, part: str, begin: float, end: float, unit: str) -> Row:
    return {"row": row, "part": part, "begin": begin, "end": end, "unit": unit}


def _shown(value: float, unit: str) -> str:
    return amount(value, unit) if value else ""
