"""The two ledgers as rows that a table or a chart shows: pure functions from the result."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from samestep.cost.inputs import Progress
from samestep.cost.units import duration, exact_money, money
from samestep.ledger import Ledger, Row
from samestep.ledger.rows import MEANINGS

from .words import main_ways

if TYPE_CHECKING:
    from samestep.cost.result import CostResult, Ways

MONEY, TIME = "money", "time"
ON_TOP = (Row.STORAGE, Row.TRANSFER, Row.REQUESTS)
"""Rows that no machine is paid with."""


@dataclass(frozen=True)
class Column:
    """One ledger of one way to run.

    Attributes:
        title: the way.
        kind: ``money`` or ``time``.
        ledger: its rows.
    """

    title: str
    kind: str
    ledger: Ledger

    def text(self, amount: float) -> str:
        """Return an amount as it stands in the column; nothing for nothing."""
        if not amount:
            return ""
        unit = self.ledger.unit
        return duration(amount) if self.kind == TIME else exact_money(amount, unit, self.ledger.total)


@dataclass(frozen=True)
class Line:
    """One row over all columns.

    Attributes:
        name: of the row.
        meaning: in a sentence.
        amounts: one for every column.
    """

    name: str
    meaning: str
    amounts: tuple[float, ...]


def columns(result: CostResult) -> list[Column]:
    """Return the ledgers that stand beside one another: both ways, money first."""
    ways = [(way_title(one), one) for one in main_ways(result) if one is not None]
    return [Column(title, MONEY, one.money) for title, one in ways] + [
        Column(title, TIME, one.time) for title, one in ways
    ]


def way_title(ways: Ways) -> str:
    """Return what a way to use capacity is called beside others."""
    return f"{ways.capacity} (not finished)" if ways.unfinished else ways.capacity


def lines(shown: list[Column]) -> list[Line]:
    """Return every row that is not zero everywhere, in the order of rows, each with the amounts of all columns."""
    found = [Line(str(row), MEANINGS[row], tuple(one.ledger[row] for one in shown)) for row in Row]
    return [line for line in found if any(line.amounts)]


def sums(shown: list[Column]) -> list[Line]:
    """Return the sums below the rows: of the machines alone, where something comes on top, and of everything."""
    whole = Line("total", "every row, and nothing else", tuple(one.ledger.total for one in shown))
    on_top = any(one.ledger[row] for one in shown for row in ON_TOP)
    machines = tuple(one.ledger.total - math.fsum(one.ledger[row] for row in ON_TOP) for one in shown)
    first = Line("machines", "what the capacity alone comes to", machines)
    return [first, whole] if on_top else [whole]


def per_progress(result: CostResult) -> list[tuple[str, str, list[str]]]:
    """Return what a piece of progress costs on each way: its name, what to make of it, and the amounts."""
    ways = [one for one in main_ways(result) if one is not None]
    work = result.case.work
    found = [
        (
            "per accepted step",
            "each step index once: the number to compare by",
            [one.per_accepted for one in ways],
        ),
        (
            "per executed step",
            "repeated ones included: it hides interruptions",
            [one.per_executed for one in ways],
        ),
    ]
    if work.unit is not Progress.STEPS:
        size, word = (1e6, "million") if work.unit is Progress.TOKENS else (1e3, "thousand")
        each = [size * one.per_accepted / work.per_step for one in ways]
        found.append((f"per {word} {work.unit}", "accepted ones", each))
    return [
        (name, meaning, [money(value, one.money.unit) for value, one in zip(amounts, ways, strict=True)])
        for name, meaning, amounts in found
    ]


def compared_with_actual(result: CostResult) -> list[Column]:
    """Return what was to be expected of the run so far beside what it recorded, money first; empty without a record."""
    return [
        column
        for kind in (MONEY, TIME)
        if kind in result.actual and kind in result.expected
        for column in (
            Column("predicted", kind, result.expected[kind]),
            Column("recorded", kind, result.actual[kind]),
        )
    ]
