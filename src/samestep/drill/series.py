"""Per-step numbers of an attempt, for the charts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samestep.drill.observe import learning_rate_of, loss_of, samples_of
from samestep.drill.result import Series

if TYPE_CHECKING:
    from samestep.trace import Trace


def series_of(trace: Trace, resume_step: int) -> Series:
    """Return the numbers of ``trace``, whose first step continues from control step ``resume_step``."""
    started = trace.header.started
    return Series(
        attempt=trace.header.attempt,
        rank=trace.header.rank,
        steps=[resume_step + step.index for step in trace.steps],
        loss=[loss_of(step) for step in trace.steps],
        learning_rate=[learning_rate_of(step) for step in trace.steps],
        samples=[samples_of(step) for step in trace.steps],
        began=[round(step.began - started, 4) for step in trace.steps],
        ended=[round(step.ended - started, 4) for step in trace.steps],
    )
