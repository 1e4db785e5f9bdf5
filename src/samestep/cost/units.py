"""Numbers as people read them: durations, money, shares."""

from __future__ import annotations

import math

NOTHING = "\u2013"
"""Stands where there is no number."""

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86_400.0
_SIGNS = {"USD": "$", "EUR": "€", "GBP": "£"}
_LARGE = 10_000.0


def duration(seconds: float | None) -> str:
    """Return a duration in one or two units with about three digits: ``45 s``, ``9.1 min``, ``1 h 57 min``."""
    if seconds is None or math.isinf(seconds) or math.isnan(seconds):
        return NOTHING if seconds is None or math.isnan(seconds) else "never ends"
    if seconds < _MINUTE:
        return f"{_digits(seconds)} s" if seconds >= 1 or not seconds else _below_a_second(seconds)
    if seconds < _HOUR - 30:
        minutes = seconds / _MINUTE
        return f"{_digits(minutes) if minutes < 10 else round(minutes)} min"
    if seconds < 2 * _DAY:
        return _two(seconds, _HOUR, "h", _MINUTE, "min")
    return _two(seconds, _DAY, "d", _HOUR, "h")


def money(amount: float | None, currency: str) -> str:
    """Return an amount with its currency: ``$7.00``, ``€1,234.50``, ``0.0042 CHF``."""
    if amount is None or math.isnan(amount):
        return NOTHING
    if math.isinf(amount):
        return "without end"
    size = abs(amount)
    if size >= _LARGE:
        text = f"{size:,.0f}"
    elif size >= 0.1 or not size:
        text = f"{size:,.2f}"
    else:
        text = _small(size)
    sign = "\u2212" if amount < 0 else ""
    return f"{sign}{_SIGNS[currency]}{text}" if currency in _SIGNS else f"{sign}{text} {currency}"


def exact_money(amount: float, currency: str, total: float) -> str:
    """Return an amount of a ledger with as many decimals as its total needs, so that a reader can add it up."""
    places = 2 if abs(total) >= 1000 else 4 if abs(total) >= 1 else 6
    sign = _SIGNS.get(currency)
    return f"{sign}{amount:,.{places}f}" if sign else f"{amount:,.{places}f} {currency}"


def share(part: float | None) -> str:
    """Return a share in percent without claiming certainty: ``93 %``, ``> 99.9 %``."""
    if part is None:
        return NOTHING
    if 0.999 < part < 1.0:
        return "> 99.9 %"
    if 0.0 < part < 0.001:
        return "< 0.1 %"
    percent = 100 * part
    whole = 10 <= percent <= 99 or percent in {0.0, 100.0}
    return f"{percent:.0f} %" if whole else f"{percent:.1f} %"


def ratio(value: float | None) -> str:
    """Return a ratio with two digits behind the point, or with one that counts."""
    if value is None or math.isnan(value):
        return NOTHING
    if 0 < value < 0.005:
        return f"{value:.1g}"
    return f"{value:.2f}" if value < 100 else f"{value:,.0f}"


def amount(value: float, unit: str) -> str:
    """Return an amount of a ledger or an input in its own unit: seconds as a duration, a currency as money."""
    if unit == "s":
        return duration(value)
    return ratio(value) if not unit else money(value, unit)


def count_of(count: int, noun: str) -> str:
    """Return ``no step``, ``1 step`` or ``2 steps``."""
    return f"{count or 'no'} {noun}" if count < 2 else f"{count:,} {noun}s"


def _digits(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _below_a_second(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms" if seconds >= 1e-4 else "< 0.1 ms"


def _small(size: float) -> str:
    """Return a small amount with three significant digits and no exponent."""
    places = min(12, 2 - math.floor(math.log10(size)))
    return f"{size:.{places}f}"


def _two(seconds: float, large: float, name: str, small: float, part: str) -> str:
    whole = round(seconds / small)
    count, rest = divmod(whole, round(large / small))
    return f"{count:,} {name} {rest} {part}" if rest else f"{count:,} {name}"
