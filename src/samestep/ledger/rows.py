"""The rows of a ledger: every second of a run, and every unit of money, stands in exactly one of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from samestep.contract.words import Word

if TYPE_CHECKING:
    from collections.abc import Mapping


class Row(Word):
    """Where time or money went. Both ledgers have the same rows, in this order."""

    UNIQUE = "unique"
    REPEATED = "repeated"
    SAVING = "save-blocking"
    RESTART = "restart"
    NOTICE_TAIL = "notice-tail"
    DATA_STALL = "data-stall"
    IDLE = "idle"
    CAPACITY_WAIT = "capacity-wait"
    FALLBACK = "fallback"
    STORAGE = "storage"
    TRANSFER = "transfer"
    REQUESTS = "requests"


MEANINGS: dict[Row, str] = {
    Row.UNIQUE: "steps that count, each index once",
    Row.REPEATED: "steps that had to be executed again, and those lost at the end",
    Row.SAVING: "training stood still for a save",
    Row.RESTART: "from the machine's start to the first useful step: boot, libraries, restore, data",
    Row.NOTICE_TAIL: "between a notice and the end, not used for steps",
    Row.DATA_STALL: "steps waited for their data",
    Row.IDLE: "the machine was there and nothing of the above happened",
    Row.CAPACITY_WAIT: "no machine was to be had",
    Row.FALLBACK: "capacity that cannot be taken away, used instead: its steps and its restart included",
    Row.STORAGE: "what bundles occupy, for as long as they do",
    Row.TRANSFER: "bytes that leave or cross a billed boundary",
    Row.REQUESTS: "calls to an object store",
}


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """An account whose rows add up to its total.

    Attributes:
        unit: ``s`` for the wall time, ``USD`` or another currency for money.
        rows: amounts by row; a row that is absent is zero.
    """

    unit: str
    rows: dict[Row, float] = {}

    @property
    def total(self) -> float:
        """The sum of all rows."""
        return math.fsum(self.rows.values())

    def __getitem__(self, row: Row) -> float:
        return self.rows.get(row, 0.0)

    def __add__(self, other: Ledger) -> Ledger:
        if other.unit != self.unit:
            raise ValueError(f"a ledger in {other.unit} cannot be added to one in {self.unit}")
        return Ledger(
            unit=self.unit, rows={row: self[row] + other[row] for row in Row if self[row] or other[row]}
        )

    @classmethod
    def of(cls, unit: str, rows: Mapping[Row, float]) -> Ledger:
        """Return a ledger of the rows that are not zero, in the order of rows."""
        return cls(unit=unit, rows={row: float(rows[row]) for row in Row if rows.get(row)})
