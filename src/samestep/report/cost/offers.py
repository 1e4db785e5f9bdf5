"""What was read from a file of offers: text for people, plain values for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from samestep.cost.offers import QUIRKS
from samestep.cost.units import NOTHING, count_of, money, ratio
from samestep.report.tables import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from samestep.cost.inputs import Offer
    from samestep.cost.offers import Read

SHOWN = 20
"""Offers, and odd rows, that are listed; the others are counted."""


def plain_read(read: Read) -> dict[str, Any]:
    """Return offers and odd rows as plain values."""
    return {
        "offers": msgspec.to_builtins(read.offers),
        "quirks": msgspec.to_builtins(read.quirks),
        "counts": dict(read.counts),
        "rows": read.rows,
        "left_out": read.left_out,
        "notes": list(read.notes),
    }


def render_read(read: Read) -> str:
    """Return the offers, then every kind of odd row with what is done about it."""
    left_out = [f"{count_of(read.left_out, 'more offer')} left out"] if read.left_out else []
    blocks = [
        f"{count_of(read.rows, 'row')} read, {count_of(len(read.offers), 'offer')} kept",
        _offers(read.offers),
        _quirks(read),
        *(f"note: {note}" for note in [*read.notes, *left_out]),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _offers(offers: Sequence[Offer]) -> str:
    if not offers:
        return ""
    rows = [
        (
            offer.name,
            f"{offer.accelerators:g} {offer.accelerator}" if offer.accelerator else "",
            money(offer.on_demand, offer.currency),
            money(offer.spot, offer.currency),
            ratio(offer.spot / offer.on_demand) if offer.spot is not None and offer.on_demand else NOTHING,
            str(offer.priced or "no date"),
        )
        for offer in offers[:SHOWN]
    ]
    head = ("offer", "accelerators", "on-demand / h", "spot / h", "ratio", "priced")
    text = Table(head, rows, frozenset({2, 3, 4})).text().rstrip()
    rest = len(offers) - len(rows)
    return f"{text}\n… and {count_of(rest, 'offer')} more" if rest else text


def _quirks(read: Read) -> str:
    if not read.counts:
        return ""
    kinds = [(kind, f"{count:,}", QUIRKS.get(kind, "")) for kind, count in read.counts.items()]
    rows = [(quirk.kind, f"{quirk.file}:{quirk.line}", quirk.text) for quirk in read.quirks[:SHOWN]]
    text = Table(("odd", "rows", "what is done about it"), kinds, frozenset({1})).text()
    text += "\n" + Table(("odd", "row", "what stands there"), rows).text().rstrip()
    rest = sum(read.counts.values()) - len(rows)
    return f"{text}\n… and {count_of(rest, 'odd row')} more; --odd FILE lists all of them" if rest else text
