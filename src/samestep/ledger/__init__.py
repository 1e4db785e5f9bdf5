"""The rows that money and time are accounted in, and the interval formulas. Pure: no I/O, no clock."""

from .rows import Ledger, Row

__all__ = ["Ledger", "Row"]
