"""What is odd in a catalogue: each kind with what is done about it, and the collection of what was found."""

from __future__ import annotations

import collections
import dataclasses
import fnmatch
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from samestep.cost.inputs import Offer

QUIRKS: dict[str, str] = {
    "no-spot": "no spot price: taken as offered on demand only",
    "no-on-demand": "a spot price and no on-demand price: taken as offered on spot only; no price is made up",
    "no-price": "no price at all: not used",
    "bad-price": "a price that is no number, negative or not finite: not used",
    "free": "a price of zero: used, and to be doubted",
    "spot-is-on-demand": "spot costs what on-demand costs: used; some providers list it so for all that they have",
    "spot-is-dearer": "spot is dearer than on-demand: used as it stands",
    "repeated": "the same offer stands there twice with the same prices: used once",
    "contradiction": "the same offer stands there with different prices: none of them is used",
    "host-only": "a machine with accelerators whose row has the price of the host alone: not used",
    "accelerator-only": "the price of an accelerator without a machine: not used",
    "zone-id": "the zone is an id, not a name: its name differs from account to account",
    "memory-unit": "the accelerator's memory is in another unit than the column says: not used for anything",
    "memory-of-host": "the accelerator's memory is that of the host: not used for anything",
    "memory-total": "the accelerators' memory does not add up to its total: not used for anything",
    "count-differs": "the description counts other accelerators than the column: the column is used",
    "gpu-info": "the description of the accelerator cannot be read: not used for anything",
    "gpu-info-json": "the description of the accelerator is JSON, where most catalogues have Python's notation: read",
    "ragged": "the row has more or fewer fields than the head: not used",
    "other-product": "prices of another product than Linux: not used",
    "same-moment": "two prices from the same moment on: the history of that machine and zone is not used",
    "no-time-zone": "a time without a time zone: the history of that machine and zone is not used",
    "bad-time": "a time that is none: the history of that machine and zone is not used",
    "more-pages": "the history goes on in a page that is not in the file",
}
"""What may be odd, and what is done about it."""

_UNUSED = frozenset(
    {
        "no-price", "bad-price", "contradiction", "host-only", "accelerator-only", "ragged", "other-product",
        "same-moment", "no-time-zone", "bad-time",
    }
)  # fmt: skip
LISTED = 1000
"""Odd rows that are kept in memory; the others are counted, and told to who asks for all."""


@dataclasses.dataclass(frozen=True)
class Quirk:
    """Something odd in one row.

    Attributes:
        kind: a key of ``QUIRKS``.
        file: that has it.
        line: from 1; of JSON the number of the entry.
        text: what stands there.
    """

    kind: str
    file: str
    line: int
    text: str

    @property
    def used(self) -> bool:
        """Whether there is an offer of what stands there all the same."""
        return self.kind not in _UNUSED

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.kind}: {self.text}"


@dataclasses.dataclass(frozen=True)
class Wanted:
    """Which offers of a catalogue are wanted. Empty: all; ``*`` stands for anything, capitals do not matter."""

    instance: str = ""
    accelerator: str = ""
    region: str = ""
    zone: str = ""

    def tests(self) -> dict[str, Callable[[str], object]]:
        """Return by field what says whether a text is what is wanted of it."""
        wanted = {name: pattern for name, pattern in dataclasses.asdict(self).items() if pattern}
        return {
            name: re.compile(fnmatch.translate(pattern), re.IGNORECASE).match
            for name, pattern in wanted.items()
        }

    def takes(self, **fields: str) -> bool:
        """Whether an offer with these fields is wanted."""
        return all(test(fields[name]) for name, test in self.tests().items())


@dataclasses.dataclass(frozen=True)
class Read:
    """What a file of offers says.

    Attributes:
        offers: that are wanted, in the order of the file.
        quirks: what is odd in the wanted rows, at most a thousand of them.
        counts: of all of them, by kind.
        rows: of the file.
        left_out: wanted offers beyond the number that is kept.
        notes: about the file as a whole.
    """

    offers: list[Offer]
    quirks: list[Quirk]
    counts: dict[str, int]
    rows: int
    left_out: int = 0
    notes: list[str] = dataclasses.field(default_factory=list)


class Report:
    """Collects quirks.

    Args:
        file: that is read.
        told: is called with each quirk, and then none is kept.
    """

    def __init__(self, file: str, told: Callable[[Quirk], None] | None = None) -> None:
        self.quirks: list[Quirk] = []
        self.counts: collections.Counter[str] = collections.Counter()
        self.file = file
        self._told = told

    def add(self, kind: str, line: int, text: str) -> None:
        """Take note of something odd."""
        self.counts[kind] += 1
        quirk = Quirk(kind, self.file, line, text)
        if self._told is not None:
            self._told(quirk)
        elif len(self.quirks) < LISTED:
            self.quirks.append(quirk)


def price_quirk(on_demand: float | None, spot: float | None) -> str:
    """Return the kind of what is odd about a pair of prices; empty when nothing is."""
    if on_demand is None:
        return "no-price" if spot is None else "no-on-demand"
    if spot is None:
        return "no-spot"
    if 0.0 in (on_demand, spot):
        return "free"
    if spot > on_demand:
        return "spot-is-dearer"
    return "spot-is-on-demand" if spot == on_demand else ""
