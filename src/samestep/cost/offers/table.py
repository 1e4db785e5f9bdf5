"""The own table of offers: TOML with ``[[offers]]``, or CSV with the same names as columns."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import tomllib
from typing import TYPE_CHECKING, Any

from samestep.cost.cases.keys import CASE, OFFER, TABLES, read_keys, require_known
from samestep.cost.cases.places import Place, Places, near
from samestep.cost.errors import CaseError, OffersError
from samestep.cost.inputs import Offer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

COLUMNS = tuple(OFFER)
_TEXTS = frozenset(name for name, key in OFFER.items() if key.kind in ("text", "three letters", "day"))


def offer_of(table: Mapping[str, Any], key: str, places: Places) -> Offer:
    """Return the offer that a table of a case, or of a file of offers, stands for.

    Args:
        table: its values by name.
        key: of the table, for messages.
        places: of the file.

    Raises:
        CaseError: something in it cannot be meant, or it has no price.
    """
    found = read_keys(key, table, OFFER, places)
    place = places.of(key)
    for name in ("provider", "instance"):
        if not found.get(name):
            raise CaseError(f"{place} lacks {name}")
    if "on_demand" not in found and "spot" not in found:
        raise CaseError(f"{place} has no price", hint="on_demand, spot, or both, for one machine and an hour")
    source = f"{place.source}:{place.line}" if place.line else place.source
    return Offer(**({"source": source} | found))


def read_table(path: Path) -> list[Offer]:
    """Read a table of offers.

    Raises:
        CostError: it cannot be read, or an offer in it cannot be meant.
    """
    content = read_text(path)
    return table_of_csv(content, str(path)) if path.suffix == ".csv" else table_of_toml(content, str(path))


def table_of_toml(content: str, source: str) -> list[Offer]:
    """Return the offers of a TOML table.

    Raises:
        CostError: it is none, or an offer in it cannot be meant.
    """
    try:
        tree = tomllib.loads(content)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise OffersError(f"{source} is no TOML: {error}") from None
    places = Places(source, content)
    require_known("", tree, [*CASE, *TABLES], places)
    tables = tree.get("offers")
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise OffersError(f"{source} has no offers", hint="[[offers]] begins each")
    return [offer_of(table, f"offers[{number}]", places) for number, table in enumerate(tables, start=1)]


def table_of_csv(content: str, source: str) -> list[Offer]:
    """Return the offers of a CSV table; an empty field leaves its value out.

    Raises:
        CostError: it is none, or an offer in it cannot be meant.
    """
    rows = csv.reader(io.StringIO(content, newline=""))
    try:
        head = next(rows, [])
        _refuse_head(head, source)
        offers = []
        for fields in rows:
            if fields:
                places = _RowPlaces(source, rows.line_num)
                offers.append(offer_of(_values(head, fields, places), "", places))
    except csv.Error as error:
        raise OffersError(f"{source}:{rows.line_num}: {error}") from None
    return offers


def _refuse_head(head: Sequence[str], source: str) -> None:
    """Refuse columns that are not known before a row is read, or the lack of the one that every table has."""
    unknown = [name for name in head if name not in COLUMNS]
    if unknown and len(unknown) < len(head):
        raise OffersError(f"{source} has the unknown column {unknown[0]!r}", hint=near(unknown[0], COLUMNS))
    if "provider" not in head:
        raise OffersError(
            f"{source} is no table of offers: it has no column provider",
            hint="make one of a catalogue or a price history: samestep cost import",
        )


def write_offers(offers: Sequence[Offer], path: Path) -> None:
    """Write an own table: CSV or TOML, by the end of its name.

    Raises:
        OffersError: it cannot be written.
    """
    write = _as_csv if path.suffix == ".csv" else _as_toml
    try:
        path.write_text(write(offers), encoding="utf-8")
    except OSError as error:
        raise OffersError(f"cannot write {path}: {error.strerror}") from error


def read_text(path: Path) -> str:
    """Return the text of a file.

    Raises:
        OffersError: it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise OffersError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise OffersError(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from None


class _RowPlaces(Places):
    """Places of a table's row."""

    def __init__(self, source: str, line: int) -> None:
        super().__init__(source)
        self._line = line

    def of(self, key: str) -> Place:
        return Place(self.source, key or "the offer", self._line)


def _values(head: Sequence[str], fields: Sequence[str], places: Places) -> dict[str, Any]:
    if len(fields) != len(head):
        raise CaseError(f"{places.of('')} has {len(fields)} fields, and the head has {len(head)}")
    said = {name: text.strip() for name, text in zip(head, fields, strict=True) if text.strip()}
    return {
        name: text if name in _TEXTS or name not in OFFER else _number(text) for name, text in said.items()
    }


def _number(text: str) -> int | float | str:
    """Return the number that ``text`` stands for; what is none stays as it is, and is refused by its name."""
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def _as_csv(offers: Iterable[Offer]) -> str:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for offer in offers:
        said = _said(offer)
        writer.writerow([_plain(said.get(name, "")) for name in COLUMNS])
    return text.getvalue()


def _as_toml(offers: Iterable[Offer]) -> str:
    tables = []
    for offer in offers:
        lines = [f"{name} = {_toml(value)}" for name, value in _said(offer).items()]
        tables.append("\n".join(["[[offers]]", *lines]))
    return "\n\n".join(tables) + "\n"


def _said(offer: Offer) -> dict[str, Any]:
    """Return what an offer says; the defaults are left out, except for the currency and the billing rule."""
    defaults = {name: getattr(_NOTHING, name) for name in COLUMNS}
    kept = ("provider", "instance", "currency", "billing")
    return {
        name: value for name in COLUMNS if (value := getattr(offer, name)) != defaults[name] or name in kept
    }


_NOTHING = Offer(provider="", instance="")


def _plain(value: object) -> str:
    return value.isoformat() if isinstance(value, dt.date) else str(value)


def _toml(value: object) -> str:
    """Return a value as TOML: its strings are written as those of JSON."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else _plain(value)
