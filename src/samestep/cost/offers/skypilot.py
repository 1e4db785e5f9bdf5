"""SkyPilot's catalogues of offers: CSV, versions 7 and 8, row by row, with every odd row reported.

What a row means is described in the catalogue's own repository, github.com/skypilot-org/skypilot-catalog. Prices are US
dollars for an hour of one machine; the version stands in the path, not in the file, and the columns are the same.
"""

from __future__ import annotations

import csv
import difflib
import math
import re
from typing import TYPE_CHECKING, NamedTuple

from samestep.cost.errors import OffersError
from samestep.cost.inputs import Offer

from .gpu_info import gpu_info_quirks
from .quirks import Read, Report, Wanted, price_quirk

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from .quirks import Quirk

COLUMNS = ("InstanceType", "AcceleratorName", "AcceleratorCount", "Region", "Price", "SpotPrice")
_READ = (
    "InstanceType", "AcceleratorName", "Region", "AvailabilityZone", "AcceleratorCount", "Price", "SpotPrice",
    "GpuInfo", "MemoryGiB",
)  # fmt: skip
"""The columns that are read, in the order of the fields of a row."""
_WANTED = {"instance": 0, "accelerator": 1, "region": 2, "zone": 3}
"""Which of them is meant by what is wanted."""
_ZONE_ID = re.compile(r"[a-z]{2,5}[0-9]-az[0-9]+")
_HOST_OF_GPUS = re.compile(r"(a[2-9]x?|g[24])-(high|mega|ultra|edge|max|standard).*")
"""Machine types of Google's that have accelerators, and whose price the catalogue keeps apart from theirs."""


class _Row(NamedTuple):
    line: int
    instance: str
    accelerator: str
    region: str
    zone: str
    accelerators: str
    price: str
    spot: str
    gpu_info: str
    memory: str

    @property
    def name(self) -> str:
        return " ".join(filter(None, (self.instance or self.accelerator, self.zone or self.region)))


def looks_like_catalogue(head: Sequence[str]) -> bool:
    """Whether a table with these columns is one of SkyPilot's catalogues."""
    return len({"InstanceType", "Price", "Region"} & set(head)) > 1


def read_catalogue(
    lines: Iterable[str],
    *,
    file: str,
    provider: str,
    wanted: Wanted | None = None,
    priced: dt.date | None = None,
    most: int = 1000,
    told: Callable[[Quirk], None] | None = None,
) -> Read:
    """Read a catalogue; memory does not grow with its rows, only with the offers that are kept.

    Args:
        lines: of the file.
        file: its name, for messages.
        provider: whose offers they are, which no column says.
        wanted: which offers to look at.
        priced: the day of the prices, which no column says.
        most: offers that are kept.
        told: is called with each quirk; by default the first thousand are kept.

    Raises:
        OffersError: it is no catalogue.
    """
    report = Report(file, told)
    shelf = _Shelf(report, provider, priced, most)
    rows = _Rows(lines, file, wanted or Wanted(), report)
    for row in rows:
        shelf.take(row)
    notes = (
        []
        if priced
        else ["a catalogue does not say of which day its prices are: say it, or they have no date"]
    )
    if shelf.left_out:
        notes.append(
            f"{shelf.left_out:,} more offers are wanted than the {most:,} that are kept: ask for fewer"
        )
    return Read(shelf.offers(), report.quirks, dict(report.counts), rows.count, shelf.left_out, notes)


class _Rows:
    """The rows of a catalogue that are wanted."""

    def __init__(self, lines: Iterable[str], file: str, wanted: Wanted, report: Report) -> None:
        self.count = 0
        self._reader = csv.reader(lines)
        self._file, self._wanted, self._report = file, wanted, report

    def __iter__(self) -> Iterator[_Row]:
        try:
            head = next(self._reader, [])
            missing = [name for name in COLUMNS if name not in head]
            if missing:
                spare = [name for name in head if name not in _READ]
                found = difflib.get_close_matches(missing[0], spare, n=1)
                raise OffersError(
                    f"{self._file} is no catalogue: it has no column {missing[0]}",
                    hint=f"is it {found[0]!r}? A catalogue calls it {missing[0]}" if found else "",
                )
            yield from self._rows(head)
        except csv.Error as error:
            raise OffersError(f"{self._file}:{self._reader.line_num}: {error}") from None

    def _rows(self, head: list[str]) -> Iterator[_Row]:
        places = [head.index(name) if name in head else -1 for name in _READ]
        wanted = self._wanted.tests()
        tests = [(places[_WANTED[name]], test) for name, test in wanted.items()]
        width = len(head)
        for fields in self._reader:
            self.count += 1
            if len(fields) != width:
                if fields:
                    self._report.add(
                        "ragged", self._reader.line_num, f"{len(fields)} fields, the head has {width}"
                    )
                continue
            if all(test(fields[place] if place >= 0 else "") for place, test in tests):
                said = [fields[place].strip() if place >= 0 else "" for place in places]
                yield _Row(self._reader.line_num, *said)


class _Shelf:
    """Keeps the offers of rows, once each."""

    def __init__(self, report: Report, provider: str, priced: dt.date | None, most: int) -> None:
        self.left_out = 0
        self._report, self._provider, self._priced, self._most = report, provider, priced, most
        self._kept: dict[tuple[str, str, str, str], tuple[_Row, Offer | None]] = {}

    def offers(self) -> list[Offer]:
        """Return what was kept, in the order of the file."""
        return [offer for _, offer in self._kept.values() if offer is not None]

    def take(self, row: _Row) -> None:
        """Keep the offer of a row, or report why not."""
        if kind := _unusable(row):
            self._report.add(kind, row.line, f"{row.name}: {QUOTED.format(row.price, row.spot)}")
            return
        try:
            on_demand, spot = _price(row.price), _price(row.spot)
        except ValueError:
            self._report.add("bad-price", row.line, f"{row.name}: {QUOTED.format(row.price, row.spot)}")
            return
        if kind := price_quirk(on_demand, spot):
            self._report.add(kind, row.line, f"{row.name}: {QUOTED.format(row.price, row.spot)}")
        self._report_details(row)
        if on_demand is not None or spot is not None:
            self._keep(row, on_demand, spot)

    def _report_details(self, row: _Row) -> None:
        if _ZONE_ID.fullmatch(row.zone):
            self._report.add("zone-id", row.line, f"{row.name}: {row.zone}")
        for kind, text in gpu_info_quirks(row.gpu_info, row.accelerators, row.memory):
            self._report.add(kind, row.line, f"{row.name}: {text}")

    def _keep(self, row: _Row, on_demand: float | None, spot: float | None) -> None:
        key = (row.instance, row.region, row.zone, row.accelerator)
        if key in self._kept:
            self._compare(key, row, on_demand, spot)
        elif len(self._kept) >= self._most:
            self.left_out += 1
        else:
            self._kept[key] = row, self._offer(row, on_demand, spot)

    def _compare(
        self, key: tuple[str, str, str, str], row: _Row, on_demand: float | None, spot: float | None
    ) -> None:
        before, offer = self._kept[key]
        same = (before.price, before.spot) == (row.price, row.spot)
        if offer is not None and not same:
            same = (offer.on_demand, offer.spot) == (on_demand, spot)
        told = f"{row.name}: {QUOTED.format(row.price, row.spot)}; line {before.line}: " + QUOTED.format(
            before.price, before.spot
        )
        self._report.add("repeated" if same else "contradiction", row.line, told)
        if not same:
            self._kept[key] = before, None

    def _offer(self, row: _Row, on_demand: float | None, spot: float | None) -> Offer:
        try:
            accelerators = float(row.accelerators or 0)
        except ValueError:
            accelerators = 0.0
        return Offer(
            provider=self._provider,
            instance=row.instance,
            region=row.region,
            zone=row.zone,
            accelerator=row.accelerator,
            accelerators=accelerators if math.isfinite(accelerators) and accelerators >= 0 else 0.0,
            on_demand=on_demand,
            spot=spot,
            priced=self._priced,
            source=f"{self._report.file}:{row.line}",
        )


QUOTED = "on-demand {!r}, spot {!r}"


def _unusable(row: _Row) -> str:
    if not row.instance:
        return "accelerator-only"
    if not row.accelerator and _HOST_OF_GPUS.fullmatch(row.instance):
        return "host-only"
    return ""


def _price(text: str) -> float | None:
    """Return a price, or None where there is none.

    Raises:
        ValueError: what stands there is none.
    """
    if not text:
        return None
    found = float(text)
    if not math.isfinite(found) or found < 0:
        raise ValueError(text)
    return found
