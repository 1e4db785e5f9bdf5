"""What a run has come to so far: text for people, plain values for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from samestep.cost.units import count_of, duration, money
from samestep.report.tables import Table

from .accounts import MONEY, TIME, Column, lines, sums

if TYPE_CHECKING:
    from samestep.cost.records.actual import Actual


def plain_actual(found: Actual) -> dict[str, Any]:
    """Return the account as plain values, the totals of its ledgers and the money per step among them."""
    plain: dict[str, Any] = msgspec.to_builtins(found)
    plain["totals"] = {name: ledger.total for name, ledger in found.ledgers.items()}
    plain["per_accepted"], plain["per_executed"] = found.per_accepted, found.per_executed
    return plain


def render_actual(found: Actual) -> str:
    """Return the account as text: what counts, the ledgers, every attempt."""
    head = (
        f"{found.run}: {count_of(found.steps_accepted, 'step')} accepted, {found.steps_executed:,} executed, "
        f"{found.steps_lost:,} lost; {count_of(found.saves, 'save')}, "
        f"{count_of(found.interruptions, 'interruption')}; {duration(found.wall_seconds)} by the clock, "
        f"{duration(found.billed_seconds)} billed"
    )
    blocks = [
        head,
        _ledgers(found),
        _per_step(found),
        _attempts(found),
        *(f"note: {note}" for note in found.notes),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _ledgers(found: Actual) -> str:
    shown = [Column("recorded", TIME, found.time)]
    if found.money is not None:
        shown.insert(0, Column("recorded", MONEY, found.money))
    rows = [
        (line.name, *(one.text(value) for one, value in zip(shown, line.amounts, strict=True)))
        for line in [*lines(shown), *sums(shown)]
    ]
    head = ("ledger", *(one.kind for one in shown))
    return Table(head, rows, frozenset(range(1, len(head)))).text().rstrip()


def _per_step(found: Actual) -> str:
    if found.money is None or found.per_accepted is None or found.per_executed is None:
        return ""
    unit = found.money.unit
    return (
        f"{money(found.per_accepted, unit)} per accepted step, "
        f"{money(found.per_executed, unit)} per executed step"
    )


def _attempts(found: Actual) -> str:
    rows = [
        (
            str(life.ordinal),
            str(life.end),
            f"{life.resumed + 1} to {life.reached}" if life.reached > life.resumed else "none",
            str(life.steps_lost or ""),
            duration(life.ended_unix - life.began_unix),
            duration(life.billed_seconds),
        )
        for life in found.attempts
    ]
    head = ("attempt", "ended", "steps", "lost", "lived", "billed")
    return Table(head, rows, frozenset({0, 3, 4, 5})).text().rstrip()
