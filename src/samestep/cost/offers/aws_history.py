"""What ``aws ec2 describe-spot-price-history`` prints: the newest price of every machine and zone, and the mean.

A price holds from its moment until the next one. Prices are US dollars for an hour of one machine.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import itertools
import math
from typing import TYPE_CHECKING, Any

from samestep.cost.errors import OffersError
from samestep.cost.inputs import Offer
from samestep.cost.units import count_of

from .quirks import Read, Report, Wanted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .quirks import Quirk

_LINUX = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")
_ZONE_LETTER = "abcdefghijklmnopqrstuvwxyz"


@dataclasses.dataclass(frozen=True)
class SpotHistory:
    """The spot price of a machine in a zone.

    Attributes:
        instance, zone: what and where.
        latest: newest price.
        latest_at: since when it holds.
        mean: of the window, weighted by the time that each price held.
        since, until: the window.
        changes: prices in the window.
        entry: number of the newest entry in the file, from 1.
    """

    instance: str
    zone: str
    latest: float
    latest_at: dt.datetime
    mean: float
    since: dt.datetime
    until: dt.datetime
    changes: int
    entry: int


@dataclasses.dataclass(frozen=True)
class _Change:
    entry: int
    at: dt.datetime
    price: float


def looks_like_history(tree: object) -> bool:
    """Whether a JSON value is a price history, or several pages of one."""
    pages = tree if isinstance(tree, list) else [tree]
    return bool(pages) and all(isinstance(page, dict) and "SpotPriceHistory" in page for page in pages)


def read_history(
    tree: Any,
    *,
    file: str,
    wanted: Wanted | None = None,
    since: dt.datetime | None = None,
    until: dt.datetime | None = None,
    told: Callable[[Quirk], None] | None = None,
) -> tuple[list[SpotHistory], Report, int]:
    """Return the histories in a file, what is odd in it, and how many entries it has.

    Args:
        tree: the parsed file: a page, or a list of pages.
        file: its name, for messages.
        wanted: which machines and zones to look at.
        since: where the window of the mean begins, with a time zone; by default at the first price.
        until: where it ends; by default at the newest price.
        told: is called with each quirk; by default the first thousand are kept.

    Raises:
        OffersError: the window does not say its time zone, or is empty.
    """
    asked = wanted or Wanted()
    if asked.accelerator:
        raise OffersError(
            f"{file} names no accelerators, so none can be asked for", hint="ask for the instance that has it"
        )
    for moment in (since, until):
        if moment is not None and moment.tzinfo is None:
            raise OffersError(
                f"{moment.isoformat()} says no time zone", hint="end it with Z for UTC, or +02:00"
            )
    if since is not None and until is not None and since >= until:
        raise OffersError(f"the window from {since.isoformat()} to {until.isoformat()} is empty")
    report = Report(file, told)
    changes, spoilt, entries = _collected(tree, report, asked)
    histories = [
        history
        for key, found in changes.items()
        if key not in spoilt and (history := _history(key, found, since, until, report)) is not None
    ]
    return histories, report, entries


def history_offers(histories: Sequence[SpotHistory], file: str, *, mean: bool = False) -> list[Offer]:
    """Return the offers of histories: spot only, for there is no on-demand price in them.

    Args:
        histories: of machines and zones.
        file: that they are from.
        mean: offer the mean over the window instead of the newest price.
    """
    return [
        Offer(
            provider="aws",
            instance=one.instance,
            region=one.zone.rstrip(_ZONE_LETTER) if one.zone[-1:].isalpha() else "",
            zone=one.zone,
            spot=one.mean if mean else one.latest,
            priced=(one.until if mean else one.latest_at).date(),
            source=f"{file}: entry {one.entry}",
        )
        for one in histories
    ]


def read_pages(
    tree: Any,
    *,
    file: str,
    wanted: Wanted | None = None,
    most: int = 1000,
    told: Callable[[Quirk], None] | None = None,
) -> Read:
    """Return the offers of a price history at the newest price, with the mean in a note on each."""
    histories, report, entries = read_history(tree, file=file, wanted=wanted, told=told)
    notes = (
        ["a price history has no on-demand prices: give them by hand, or from a catalogue"]
        if histories
        else []
    )
    notes += [
        f"{one.instance} {one.zone}: {one.latest:g} since {one.latest_at:%Y-%m-%d %H:%M} UTC; the mean from "
        f"{one.since:%Y-%m-%d %H:%M} to {one.until:%Y-%m-%d %H:%M} UTC is {one.mean:.4g}, "
        f"over {count_of(one.changes, 'price')}"
        for one in histories[:most]
    ]
    left_out = max(0, len(histories) - most)
    offers = history_offers(histories[:most], file)
    return Read(offers, report.quirks, dict(report.counts), entries, left_out, notes)


def _collected(
    tree: Any, report: Report, wanted: Wanted
) -> tuple[dict[tuple[str, str], list[_Change]], set[tuple[str, str]], int]:
    """Return the prices by machine and zone, those of which one cannot be used, and the number of entries."""
    changes: dict[tuple[str, str], list[_Change]] = collections.defaultdict(list)
    spoilt: set[tuple[str, str]] = set()
    number = 0
    for number, entry in enumerate(_entries(tree, report), start=1):
        instance, zone = str(entry.get("InstanceType", "")), str(entry.get("AvailabilityZone", ""))
        region = zone.rstrip(_ZONE_LETTER)
        if not wanted.takes(instance=instance, zone=zone, region=region):
            continue
        name = f"{instance} {zone}"
        product = str(entry.get("ProductDescription", _LINUX[0]))
        if product not in _LINUX:
            report.add("other-product", number, f"{name}: {product}")
            continue
        at, price = _moment(entry, report, number, name), _price(entry, report, number, name)
        if at is None or price is None:
            spoilt.add((instance, zone))
        else:
            changes[instance, zone].append(_Change(number, at, price))
    return changes, spoilt, number


def _entries(tree: Any, report: Report) -> Iterator[dict[str, Any]]:
    pages = tree if isinstance(tree, list) else [tree]
    number = 0
    for page in pages:
        found = page["SpotPriceHistory"]
        if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
            raise OffersError(f"{report.file}: SpotPriceHistory is no list of entries")
        number += len(found)
        yield from found
    if pages and pages[-1].get("NextToken"):
        report.add("more-pages", number, "NextToken is set")


def _moment(entry: dict[str, Any], report: Report, number: int, name: str) -> dt.datetime | None:
    text = str(entry.get("Timestamp", ""))
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        report.add("bad-time", number, f"{name}: {text!r}")
        return None
    if found.tzinfo is None:
        report.add("no-time-zone", number, f"{name}: {text}")
        return None
    return found.astimezone(dt.UTC)


def _price(entry: dict[str, Any], report: Report, number: int, name: str) -> float | None:
    text = entry.get("SpotPrice", "")
    try:
        found = float(text)
    except (TypeError, ValueError):
        found = math.nan
    if not math.isfinite(found) or found < 0:
        report.add("bad-price", number, f"{name}: {text!r}")
        return None
    return found


def _history(
    key: tuple[str, str],
    changes: list[_Change],
    since: dt.datetime | None,
    until: dt.datetime | None,
    report: Report,
) -> SpotHistory | None:
    instance, zone = key
    ordered = sorted(changes, key=lambda change: (change.at, change.entry))
    for one, other in itertools.pairwise(ordered):
        if one.at == other.at and one.price != other.price:
            told = f"{instance} {zone}: {one.price:g} and {other.price:g} at {one.at.isoformat()}"
            report.add("same-moment", other.entry, told)
            return None
    end = (until or ordered[-1].at).astimezone(dt.UTC)
    before = [change for change in ordered if change.at <= end]
    if not before:
        return None
    begin = max((since or ordered[0].at).astimezone(dt.UTC), before[0].at)
    newest = before[-1]
    mean, count = _mean(before, begin, end)
    return SpotHistory(instance, zone, newest.price, newest.at, mean, begin, end, count, newest.entry)


def _mean(ordered: Sequence[_Change], begin: dt.datetime, end: dt.datetime) -> tuple[float, int]:
    """Return the mean of the prices, each weighted by how long it held between ``begin`` and ``end``."""
    ends = [change.at for change in ordered[1:]] + [end]
    held = [
        (change.price, (min(until, end) - max(change.at, begin)).total_seconds())
        for change, until in zip(ordered, ends, strict=True)
        if until > begin or change is ordered[-1]
    ]
    whole = math.fsum(seconds for _, seconds in held if seconds > 0)
    if whole <= 0:
        return ordered[-1].price, 1
    return math.fsum(price * seconds for price, seconds in held if seconds > 0) / whole, len(held)
