"""Restarts with another number of ranks, looked at over all ranks together. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from samestep.contract import Severity
from samestep.drill.judging.diagnosis.records import finding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from samestep.drill.result import FindingRecord
    from samestep.trace import Trace

FOLLOWS = frozenset(
    {
        "data-order-changed",
        "data-position-restarted",
        "data-repeated",
        "data-skipped",
        "step-differs",
        "world-changed",
    }
)
"""What one rank seems to have lost when the samples of a step are dealt out to another number of ranks."""


def transferred(
    controls: Mapping[int, Trace], resumed: Mapping[int, Trace], basis: int
) -> FindingRecord | None:
    """Return the note on a run that goes on with another number of ranks and the very samples that are due.

    Args:
        controls: the control's traces, by rank.
        resumed: those of the restarted run.
        basis: steps of the control that are complete where it went on.

    Returns:
        None where the number is the same, the samples are others, or nothing tells them.
    """
    due, found = _samples(controls, basis), _samples(resumed, 0)
    compared = min(len(due), len(found))
    if controls.keys() == resumed.keys() or not compared or due[:compared] != found[:compared]:
        return None
    text = (
        f"{len(resumed)} rank{'' if len(resumed) == 1 else 's'} instead of {len(controls)}, and the samples of all "
        f"together are the control's, in its order ({compared} compared)"
    )
    return finding("world-changed", text, step=basis + 1, severity=Severity.NOTE)


def _samples(traces: Mapping[int, Trace], first: int) -> list[Any]:
    """Return what all ranks together trained on from a step on, in the data's order; nothing if that is unknown."""
    runs = [traces[rank].steps[first:] for rank in sorted(traces)]
    found: list[Any] = []
    for together in zip(*runs, strict=False):
        for micros in zip(*(step.micro_steps for step in together), strict=False):
            if not all(micro.samples for micro in micros):
                return []
            found += [sample for micro in micros for sample in micro.samples or ()]
    return found
