"""Results of steps that nothing recorded before them explains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samestep.contract import Severity
from samestep.drill.judging.compare import relative_distance
from samestep.drill.judging.diagnosis.records import finding

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from samestep.drill.judging.beside import Aligned, Beside
    from samestep.drill.result import FindingRecord
    from samestep.trace import MicroStep

WITHOUT_EFFECT = frozenset({"ema-lost", "callbacks-reset", "run-length-changed"})
"""Defects that change no loss and no weights, and so explain none that differ."""


def explained_from(found: Sequence[FindingRecord]) -> int | None:
    """Return the first step from which a defect already found explains other losses and weights."""
    steps = [
        record.step or 0
        for record in found
        if record.severity is Severity.DEFECT and record.slug not in WITHOUT_EFFECT
    ]
    return min(steps, default=None)


def first_other_result(pair: Beside) -> Aligned | None:
    """Return the first step with another loss, or other weights before or behind it."""
    return next((a for a in pair.steps if not _same_step(pair, a)), None)


def _same_step(pair: Beside, aligned: Aligned) -> bool:
    return pair.same_start(aligned) and pair.same_losses(aligned) and pair.same_result(aligned)


def unseen(pair: Beside) -> str:
    """Name what the control shows at its steps and the resumed run at none: it was not compared."""
    control = [micro for aligned in pair.steps for micro in aligned.control_micros]
    resumed = [micro for aligned in pair.steps for micro in aligned.resumed.micro_steps]
    kinds: dict[str, Callable[[MicroStep], bool]] = {
        "data": lambda micro: bool(micro.inputs or micro.samples),
        "losses": lambda micro: micro.loss is not None,
    }
    return " and ".join(
        name for name, shows in kinds.items() if any(map(shows, control)) and not any(map(shows, resumed))
    )


def lost_gradients(pair: Beside) -> list[FindingRecord]:
    """Tell whether a run resumed inside an accumulation window lost the gradients gathered before."""
    first = pair.steps[0] if pair.steps else None
    if first is None or not first.offset or pair.same_result(first):
        return []
    text = (
        f"step {first.number} used {len(first.resumed.micro_steps)} of the control's {len(first.control.micro_steps)} "
        "micro-steps, and the weights after it differ: gradients gathered before the save are gone"
    )
    return [finding("accumulation-lost", text, step=first.number, quantity="gradients")]


def unexplained(pair: Beside, other: Aligned) -> FindingRecord:
    """Return the finding for a result that differs while all state that should be saved agreed.

    Buffers that no state_dict holds are looked at only now: most are caches, which a restart rightly makes again.
    """
    first = pair.steps[0]
    if not pair.measure.same("caches", first.resumed.before.caches, first.control.before.caches):
        text = f"buffers registered with persistent=False are not the control's before step {first.number}"
        return finding("buffers-lost", text, step=first.number, quantity="caches")
    shown = (
        _loss_gap(pair, other)
        or ("" if pair.same_result(other) else _weights_gap(other))
        or "the weights before it differ, though those after the last step did not"
    )
    return finding("step-differs", f"step {other.number}: {shown}", step=other.number, quantity="weights")


def _loss_gap(pair: Beside, other: Aligned) -> str:
    for one, due in zip(other.resumed.micro_steps, other.control_micros, strict=False):
        if not pair.measure.same_number("loss", one.loss, due.loss):
            return f"loss {one.loss:.9g}, control {due.loss:.9g}"
    return ""


def _weights_gap(other: Aligned) -> str:
    after, due = other.resumed.weights_after, other.control.weights_after
    if after is None or due is None:
        return "the weights after it differ"
    return f"the weights after it differ (relative distance {relative_distance(after, due):.2g})"
