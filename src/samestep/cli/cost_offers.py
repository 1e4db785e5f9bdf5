"""Options that say prices: flags of one offer, files of offers, and which of those are meant."""

from __future__ import annotations

import csv
import dataclasses
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from samestep.errors import UsageError

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Sequence

    from samestep.cost.inputs import Offer
    from samestep.cost.offers import Quirk, Read

SWITCH = object()
"""Kind of a flag that has no value."""

OFFER_FLAGS: dict[str, tuple[str, Any, str, str]] = {
    "spot": ("spot", float, "PRICE", "Price of one interruptible machine for an hour."),
    "on_demand": ("on_demand", float, "PRICE", "Price of one on-demand machine for an hour."),
    "machines": ("nodes", int, "N", "Machines that the run needs."),
    "currency": ("currency", str, "CODE", "Of both prices (USD)."),
    "billing": ("billing", str, "RULE", "Billing rule: per-second, per-hour, aws-linux, gcp, ..."),
    "storage_month": ("storage_month", float, "PRICE", "Price of one GB kept for a month."),
    "transfer": ("transfer", float, "PRICE", "Price of one GB moved."),
}

BY_HAND: dict[str, Any] = {"provider": "your", "instance": "offer"}
"""What an offer is called that flags describe."""

_WANTED = ("instance", "accelerator", "region", "zone")
_NAMED = 5
"""Offers that a message names."""

offers_option = click.option(
    "--offers",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Offers, catalogue or price history.",
)


def offer_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb the flags that say the prices of one offer."""
    for name, (_, kind, metavar, text) in reversed(OFFER_FLAGS.items()):
        command = option(name, kind, metavar, text)(command)
    return command


def wanted_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb the flags that choose offers of a file; it gets them as ``choosing``."""

    @functools.wraps(command)
    def with_choice(*arguments: Any, provider: str, **options: Any) -> Any:
        wanted = {name: options.pop(name) for name in _WANTED}
        return command(*arguments, choosing=Choosing(wanted, provider), **options)

    wrapped: Callable[..., Any] = with_choice
    wrapped = click.option(
        "--provider",
        default="",
        metavar="NAME",
        help="Whose catalogue it is, where the file does not say it.",
    )(wrapped)
    for name in reversed(_WANTED):
        text = f"Offers of this {name} only; * stands for anything."
        wrapped = click.option(f"--{name}", default="", metavar="NAME", help=text)(wrapped)
    return wrapped


def option(name: str, kind: Any, metavar: str, text: str) -> Callable[..., Any]:
    """Return what gives a verb one flag."""
    flag = f"--{name.replace('_', '-')}"
    if kind is SWITCH:
        return click.option(flag, name, is_flag=True, default=None, help=text)
    return click.option(flag, name, type=kind, metavar=metavar or None, help=text)


@dataclasses.dataclass(frozen=True)
class Choosing:
    """Which offers of a file count.

    Attributes:
        wanted: pattern by field.
        provider: whose catalogue it is, where the file does not say it.
        priced: day of the prices, where the file does not say it.
        most: offers that are kept at most.
    """

    wanted: dict[str, str]
    provider: str = ""
    priced: dt.date | None = None
    most: int = 1000

    def read(self, path: Path) -> Read:
        """Read a file of offers, of whatever kind.

        Raises:
            CostError: it is none.
        """
        return self._read(path, None)

    def read_noting(self, path: Path, odd: Path) -> Read:
        """Read a file of offers, and write every odd row of it to another as it is met: none is kept in memory.

        Raises:
            CostError: it is none, or the other cannot be written.
        """
        from samestep.cost.errors import OffersError
        from samestep.cost.offers import LISTED

        if odd.exists() and path.exists() and odd.samefile(path):
            raise OffersError(f"{odd} holds the offers", hint="give --odd another file: it is written anew")
        first: list[Quirk] = []
        try:
            with odd.open("w", encoding="utf-8", newline="") as lines:
                writer = csv.writer(lines, lineterminator="\n")
                writer.writerow(("kind", "used", "file", "row", "text"))

                def note(quirk: Quirk) -> None:
                    writer.writerow(
                        (quirk.kind, "yes" if quirk.used else "no", quirk.file, quirk.line, quirk.text)
                    )
                    if len(first) < LISTED:
                        first.append(quirk)

                return dataclasses.replace(self._read(path, note), quirks=first)
        except OSError as error:
            raise OffersError(f"cannot write {odd}: {error.strerror}") from error

    def _read(self, path: Path, told: Callable[[Quirk], None] | None) -> Read:
        from samestep.cost.offers import Wanted, read_offers

        return read_offers(
            path,
            wanted=Wanted(**self.wanted),
            provider=self.provider,
            priced=self.priced,
            most=self.most,
            told=told,
        )


def no_choice() -> Choosing:
    """Return what takes every offer."""
    return Choosing(dict.fromkeys(_WANTED, ""))


def offer_of(flags: dict[str, Any]) -> Offer | None:
    """Return the offer that flags describe; None where they say no price.

    Raises:
        CostError: it cannot be used.
    """
    from samestep.cost.cases.places import Places
    from samestep.cost.offers.table import offer_of as checked

    found = {OFFER_FLAGS[name][0]: flags[name] for name in said(flags) if name in OFFER_FLAGS}
    if not found:
        return None
    if found.get("spot") is None and found.get("on_demand") is None:
        raise UsageError("there is no price", hint="give --spot, --on-demand or both")
    return checked({**BY_HAND, **found}, "offer", Places("command line"))


def one_offer(flags: dict[str, Any], reads: Sequence[Read]) -> Offer | None:
    """Return the offer that a run was paid by: that of the flags, or the only one of the files.

    Raises:
        CostError: it cannot be used.
        UsageError: there are several, or none in the files.
    """
    by_hand = offer_of(flags)
    offers = [*(offer for read in reads for offer in read.offers), *([by_hand] if by_hand else [])]
    if reads and not offers:
        raise UsageError("no offer of the files is meant", hint="see samestep cost import for what they hold")
    if len(offers) > 1:
        named = ", ".join(offer.name for offer in offers[:_NAMED])
        more = ", …" if len(offers) > _NAMED else ""
        raise UsageError(
            f"a run is paid by one offer, and {len(offers):,} are meant: {named}{more}",
            hint="choose with --instance, --region, --zone or --accelerator",
        )
    return offers[0] if offers else None


def table_notes(read: Read) -> list[str]:
    """Return what has to be known of the offers of a file."""
    notes = [f"{kind} {count:,}" for kind, count in read.counts.items()]
    left_out = [f"{read.left_out:,} more offers of the file were left out"] if read.left_out else []
    return [*read.notes, *(["quirks of the offers: " + ", ".join(notes)] if notes else []), *left_out]


def said(flags: dict[str, Any]) -> list[str]:
    """Return the names of the flags that were given."""
    return [name for name, value in flags.items() if value is not None]
