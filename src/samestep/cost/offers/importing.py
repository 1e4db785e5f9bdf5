"""Reading offers of whatever format: which one it is, is found out from what the file holds."""

from __future__ import annotations

import collections
import csv
import json
from typing import TYPE_CHECKING, Any

from samestep.cost.errors import OffersError
from samestep.cost.units import count_of

from .aws_history import looks_like_history, read_pages
from .quirks import Read, Report, Wanted, price_quirk
from .skypilot import looks_like_catalogue, read_catalogue
from .table import COLUMNS, read_text, table_of_csv, table_of_toml

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from samestep.cost.inputs import Offer

    from .quirks import Quirk

_CLOUDS = frozenset(
    {
        "aws", "azure", "cudo", "do", "fluidstack", "gcp", "hyperbolic", "ibm", "lambda", "nebius", "oci", "paperspace",
        "runpod", "scp", "vast", "verda", "vsphere",
    }
)  # fmt: skip
"""Names that SkyPilot's catalogues are kept under."""


def read_offers(
    path: Path,
    *,
    wanted: Wanted | None = None,
    provider: str = "",
    priced: dt.date | None = None,
    most: int = 1000,
    told: Callable[[Quirk], None] | None = None,
) -> Read:
    """Read offers: an own table, a catalogue of SkyPilot's, or a price history of AWS.

    Args:
        path: of the file.
        wanted: which offers to take.
        provider: of a catalogue, which does not say it; by default as its path says.
        priced: the day of a catalogue's prices, which it does not say.
        most: offers that are kept.
        told: is called with each quirk; by default the first thousand are kept.

    Raises:
        CostError: the file cannot be read, or is of no format that is known.
    """
    if path.suffix == ".json":
        return read_pages(_json(path), file=str(path), wanted=wanted, most=most, told=told)
    if path.suffix == ".toml":
        return _own(table_of_toml(read_text(path), str(path)), path, wanted, most, told)
    head = _head(path)
    if looks_like_catalogue(head):
        cloud = provider or _cloud_of(path)
        try:
            with path.open(encoding="utf-8-sig", newline="") as lines:
                return read_catalogue(
                    lines, file=str(path), provider=cloud, wanted=wanted, priced=priced, most=most, told=told
                )
        except UnicodeDecodeError as error:
            raise OffersError(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from None
    if set(head) & set(COLUMNS):
        return _own(table_of_csv(read_text(path), str(path)), path, wanted, most, told)
    raise OffersError(
        f"{path} is neither a table of offers nor a catalogue: its columns are {', '.join(head)[:100] or 'none'}",
        hint="an own table has the columns provider, instance, on_demand, spot, …; a catalogue of SkyPilot's is "
        "called vms.csv",
    )


def _own(
    offers: list[Offer],
    path: Path,
    wanted: Wanted | None,
    most: int,
    told: Callable[[Quirk], None] | None,
) -> Read:
    report, asked = Report(str(path), told), wanted or Wanted()
    taken = [
        offer
        for offer in offers
        if asked.takes(
            instance=offer.instance, accelerator=offer.accelerator, region=offer.region, zone=offer.zone
        )
    ]
    for offer in taken:
        if kind := price_quirk(offer.on_demand, offer.spot):
            line = offer.source.rpartition(":")[2]
            told_of = f"{offer.name}: on-demand {offer.on_demand}, spot {offer.spot}"
            report.add(kind, int(line) if line.isdigit() else 0, told_of)
    kept, left_out = taken[:most], max(0, len(taken) - most)
    return Read(kept, report.quirks, dict(report.counts), len(offers), left_out, list(_currencies(kept)))


def _currencies(offers: list[Offer]) -> Iterator[str]:
    counts = collections.Counter(offer.currency for offer in offers)
    if len(counts) > 1:
        told = ", ".join(f"{count_of(count, 'offer')} in {name}" for name, count in sorted(counts.items()))
        yield (
            f"the prices are in several currencies, {told}: nothing is converted, as samestep knows no rate of "
            "exchange, and they cannot be compared with one another"
        )


def _head(path: Path) -> list[str]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            return [name.strip() for name in next(csv.reader([lines.readline(1 << 16)]), [])]
    except OSError as error:
        raise OffersError(f"cannot read {path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise OffersError(f"{path} is no CSV: {error}") from None


def _cloud_of(path: Path) -> str:
    """Return the cloud that the path of a catalogue names: ``aws/vms.csv``, ``aws_vms.csv``."""
    for name in (path.name.split("_")[0], *(folder.name for folder in path.absolute().parents)):
        if name in _CLOUDS:
            return name
    raise OffersError(f"{path} does not say whose offers it has", hint="say the provider: --provider aws")


def _json(path: Path) -> Any:
    content = read_text(path)
    try:
        tree = json.loads(content)
    except (ValueError, RecursionError):
        tree = _pages(content, path)
    if not looks_like_history(tree):
        raise OffersError(
            f"{path} is no price history", hint="aws ec2 describe-spot-price-history prints one, as JSON"
        )
    return tree


def _pages(content: str, path: Path) -> list[Any]:
    """Return the pages of a file in which several JSON values follow each other."""
    decoder, pages, place = json.JSONDecoder(), [], 0
    while place < len(content):
        try:
            page, place = decoder.raw_decode(content, place)
        except (ValueError, RecursionError) as error:
            raise OffersError(f"{path} is no JSON: {error}") from None
        pages.append(page)
        place += len(content[place:]) - len(content[place:].lstrip())
    return pages
