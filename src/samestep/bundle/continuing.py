"""Going on with a run that may be there already, to add what lies elsewhere: a sealed folder, a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samestep.bundle.decisions import PASSED_OVER
from samestep.bundle.errors import AllDamaged, StepBehind

if TYPE_CHECKING:
    from samestep.bundle.attempts import Attempt
    from samestep.bundle.decisions import Decision
    from samestep.bundle.store import Store


def continue_run(
    store: Store, reason: str, *, step: int | None = None, begin_again: str = ""
) -> tuple[Decision, Attempt]:
    """Register an attempt that goes on from what selection takes, and return it after the decision.

    Args:
        store: of the run, opened for writing.
        reason: why there is a new attempt.
        step: of what is to be added, where that is known.
        begin_again: why nothing that is there is continued, where nothing can be. Need not be said where all that
            keeps the bundles from being resumed from are open rows: their series goes on.

    Raises:
        AllDamaged: bundles are there, none of them can be resumed from, and nobody said to begin again.
        StepBehind: the run is past ``step`` already.
        StoreError: the place failed.
    """
    decision = store.select()
    if decision.step is not None and step is not None and step < decision.step:
        raise StepBehind(
            f"step {step} lies before step {decision.step} of {decision.bundle}, which {store.run.id} continues",
            hint="add steps in their order; what goes back is another run and needs a root of its own",
        )
    if decision.outcome in ("resume", "empty"):
        return decision, store.register(decision, reason)
    if not begin_again.strip() and _only_open(decision):
        begin_again = "goes on with a series of bundles that leave components open"
    if not begin_again.strip():
        raise AllDamaged(
            decision.text(),
            hint="look at each with samestep bundle verify; to go on without them, say --begin-again REASON",
        )
    return decision, store.register(None, reason, begin_again=begin_again)


def _only_open(decision: Decision) -> bool:
    """Whether nothing is damaged, and bundles were only never meant to be resumed from."""
    reasons = {one.reason for one in decision.set_aside} - PASSED_OVER
    return decision.outcome == "damaged" and reasons == {"row-open"}
