"""Making finding records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samestep.contract import FINDINGS
from samestep.drill.result import FindingRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from samestep.contract import Component, Severity


PARTED = (
    "it agreed before and parts while everything else agrees: the restarted run updates it in another way"
)
"""What is said of state that was restored and then goes another way."""


def finding(
    slug: str,
    evidence: str,
    *,
    step: int | None = None,
    rank: int = 0,
    quantity: str = "",
    details: Sequence[str] = (),
    components: Sequence[Component] = (),
    severity: Severity | None = None,
) -> FindingRecord:
    """Return a record of the finding ``slug``; components and severity are the table's unless given."""
    kind = FINDINGS[slug]
    return FindingRecord(
        slug=slug,
        severity=severity or kind.severity,
        components=list(components or kind.components),
        step=step,
        rank=rank,
        evidence=evidence,
        details=list(details),
        quantity=quantity,
    )


def listed(items: Sequence[object], most: int = 8) -> str:
    """Return ``items`` in a row, cut short with an ellipsis."""
    return " ".join(str(item) for item in items[:most]) + (" ..." if len(items) > most else "")
