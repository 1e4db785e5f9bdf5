"""Single values of a case: numbers, durations, shares, days; each refused with its place when it cannot be used."""

from __future__ import annotations

import datetime as dt
import math
from typing import TYPE_CHECKING, Any

from samestep.contract.durations import seconds_in
from samestep.cost.errors import CaseError
from samestep.cost.inputs import Quantity

from .places import near

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .places import Place

_BAND = "a published interruption band is a label, no rate: write it as risk.label, and the mean life as a duration"


def number(value: object, place: Place) -> float:
    """Return a number that is not negative.

    Raises:
        CaseError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise CaseError(f"{place} is {value!r}; a number was expected")
    if not math.isfinite(value):
        raise CaseError(f"{place} is {value}, which is no finite number")
    if value < 0:
        raise CaseError(f"{place} is {value}; it cannot be negative")
    return float(value)


def positive(value: object, place: Place) -> float:
    """Return a number above zero.

    Raises:
        CaseError: it is none.
    """
    return _above_zero(number(value, place), place)


def share(value: object, place: Place) -> float:
    """Return a number from 0 to 1.

    Raises:
        CaseError: it is none.
    """
    found = number(value, place)
    if found > 1:
        raise CaseError(
            f"{place} is {found:g}; a share from 0 to 1 was expected", hint=f"{found:g} % is {found / 100:g}"
        )
    return found


def whole(value: object, place: Place) -> int:
    """Return a whole number from 1 on.

    Raises:
        CaseError: it is none.
    """
    found = counted(value, place)
    if found < 1:
        raise CaseError(f"{place} is {found}; at least 1 was expected")
    return found


def counted(value: object, place: Place) -> int:
    """Return a whole number from 0 on.

    Raises:
        CaseError: it is none.
    """
    found = number(value, place)
    if found != int(found):
        raise CaseError(f"{place} is {value}; a whole number was expected")
    return int(found)


def seconds(value: object, place: Place) -> float:
    """Return the seconds of a duration: a text, or a number of seconds.

    Raises:
        CaseError: it is none.
    """
    if not isinstance(value, str):
        return number(value, place)
    found = seconds_in(value)
    if found is None:
        hint = _BAND if "%" in value else 'a text such as "90s", "10 min", "1h 30min", or a number of seconds'
        raise CaseError(f"{place} is {value!r}, which is no duration", hint=hint)
    return found


def positive_seconds(value: object, place: Place) -> float:
    """Return the seconds of a duration above zero.

    Raises:
        CaseError: it is none.
    """
    return _above_zero(seconds(value, place), place)


def advised_or_seconds(value: object, place: Place) -> float | None:
    """Return the seconds of a duration, or None for ``auto``.

    Raises:
        CaseError: it is neither.
    """
    return None if value == "auto" else positive_seconds(value, place)


def text(value: object, place: Place) -> str:
    """Return a text.

    Raises:
        CaseError: it is none.
    """
    if not isinstance(value, str):
        raise CaseError(f"{place} is {value!r}; a text was expected")
    return value


def one_of(value: object, words: Sequence[str], place: Place) -> str:
    """Return one of several words.

    Raises:
        CaseError: it is none of them.
    """
    if value not in words:
        raise CaseError(f"{place} is {value!r}, which is not known", hint=near(str(value), words))
    return str(value)


def currency(value: object, place: Place) -> str:
    """Return the three letters of a currency.

    Raises:
        CaseError: it is none.
    """
    found = text(value, place)
    if not (len(found) == 3 and found.isascii() and found.isupper()):
        raise CaseError(f"{place} is {found!r}; a currency such as USD or EUR was expected")
    return found


def paths(value: object, place: Place) -> list[str]:
    """Return the paths of one or several files.

    Raises:
        CaseError: there is none.
    """
    return [value] if isinstance(value, str) else listed(text)(value, place)


def switch(value: object, place: Place) -> bool:
    """Return true or false.

    Raises:
        CaseError: it is neither.
    """
    if not isinstance(value, bool):
        raise CaseError(f"{place} is {value!r}; true or false was expected")
    return value


def day(value: object, place: Place) -> dt.date:
    """Return a day. A moment counts for its day in UTC, and must say its time zone.

    Raises:
        CaseError: it is no day, or a moment without a time zone.
    """
    found = _parsed_day(value, place) if isinstance(value, str) else value
    if isinstance(found, dt.datetime):
        return moment(found, place).date()
    if not isinstance(found, dt.date):
        raise CaseError(f"{place} is {value!r}; a day such as 2026-11-29 was expected")
    return found


def moment(value: dt.datetime, place: object) -> dt.datetime:
    """Return a moment in UTC.

    Raises:
        CaseError: it does not say its time zone.
    """
    if value.tzinfo is None:
        raise CaseError(
            f"{place} is {value.isoformat()}, and no time zone is said",
            hint="end it with Z for UTC, or with its distance to UTC, such as +02:00",
        )
    return value.astimezone(dt.UTC)


def listed(read: Callable[[object, Place], Any]) -> Callable[[object, Place], list[Any]]:
    """Return what reads a list of such values."""

    def read_all(value: object, place: Place) -> list[Any]:
        if not isinstance(value, list):
            raise CaseError(f"{place} is {value!r}; a list was expected")
        return [read(item, place) for item in value]

    return read_all


def quantity(read: Callable[[object, Place], float]) -> Callable[[object, Place], Quantity]:
    """Return what reads a number with its spread: the number alone, or a table with ``value`` and more."""

    def read_quantity(value: object, place: Place) -> Quantity:
        if not isinstance(value, dict):
            return Quantity(value=read(value, place))
        readers: dict[str, Callable[[object, Place], Any]] = {
            "value": read,
            "low": read,
            "high": read,
            "count": counted,
            "source": text,
        }
        if unknown := sorted(value.keys() - readers.keys()):
            raise CaseError(f"{place} has the unknown key {unknown[0]!r}", hint=near(unknown[0], readers))
        if "value" not in value:
            raise CaseError(f"{place} says no value", hint="{ value = …, low = …, high = …, count = … }")
        found = Quantity(**{name: readers[name](item, place) for name, item in value.items()})
        _check_order(found, place)
        return found

    return read_quantity


def _check_order(found: Quantity, place: Place) -> None:
    low = found.value if found.low is None else found.low
    high = found.value if found.high is None else found.high
    if not low <= found.value <= high:
        raise CaseError(f"{place} is {found.value:g}, which does not lie between its low and its high")


def _parsed_day(value: str, place: Place) -> dt.date:
    for parse in (dt.date.fromisoformat, dt.datetime.fromisoformat):
        try:
            return parse(value)
        except ValueError:
            continue
    raise CaseError(f"{place} is {value!r}; a day such as 2026-11-29 was expected")


def _above_zero(found: float, place: Place) -> float:
    if found <= 0:
        raise CaseError(f"{place} is {found:g}; more than 0 was expected")
    return found
