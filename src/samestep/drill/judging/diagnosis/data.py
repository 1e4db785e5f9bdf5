"""Which data the resumed steps used, and which they should have used."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from samestep.drill.judging.compare import micro_stream, same_plain
from samestep.drill.judging.diagnosis.records import finding, listed
from samestep.drill.judging.diagnosis.rng import explains as rng_explains

if TYPE_CHECKING:
    from collections.abc import Sequence

    from samestep.drill.judging.beside import Beside
    from samestep.drill.result import FindingRecord
    from samestep.trace import MicroStep


@dataclass(frozen=True)
class _Divergence:
    """Where the data go another way.

    Attributes:
        place: position in the resumed run's micro-step stream, from the first one that differs.
        due: position in the control's stream that it should have had.
        found: position in the control's stream that it has instead; None: none.
        step: control step.
    """

    place: int
    due: int
    found: int | None
    step: int


class Streams:
    """The micro-steps of control and resumed run, comparable by sample numbers or else by content."""

    def __init__(self, pair: Beside) -> None:
        self.control = micro_stream(pair.control)
        self.resumed = [micro for aligned in pair.steps for micro in aligned.resumed.micro_steps]
        both = [*self.control, *self.resumed]
        self.by_samples = (
            bool(both) and all(micro.samples for micro in both) and not pair.measure.ignores("samples")
        )
        self.content_tells = not pair.measure.ignores("inputs")

    def same(self, one: MicroStep, other: MicroStep) -> bool:
        """Tell whether two micro-steps used the same samples."""
        if self.content_tells and one.inputs and one.inputs == other.inputs:
            return True
        return self.by_samples and same_plain(one.samples, other.samples)

    def known(self, micro: MicroStep) -> bool:
        """Tell whether anything was recorded by which ``micro`` can be judged."""
        return self.by_samples or (self.content_tells and bool(micro.inputs))

    def show(self, micro: MicroStep) -> str:
        """Name the data of a micro-step."""
        return (
            f"samples {listed(micro.samples or [])}"
            if self.by_samples
            else f"batch {micro.inputs.rpartition(':')[2][:8]}"
        )

    def found_at(self, run: Sequence[MicroStep], starts: Sequence[int] = ()) -> list[int]:
        """Return the positions in the control's stream where ``run`` begins, of those that follow it furthest.

        One batch alone may be met by chance in a small data set: it counts where ``run`` holds no more, or where one of
        the epochs, which begin at ``starts``, ends with it.
        """
        lengths = {}
        for position in range(len(self.control)):
            length = self._follows(run, position)
            if length > 1 or (length and (len(run) == 1 or position + 1 in {*starts, len(self.control)})):
                lengths[position] = length
        furthest = max(lengths.values(), default=0)
        return [position for position, length in lengths.items() if length == furthest]

    def _follows(self, run: Sequence[MicroStep], position: int) -> int:
        length = 0
        for one, other in zip(run, self.control[position:], strict=False):
            if not self.same(one, other):
                break
            length += 1
        return length


def data(pair: Beside) -> list[FindingRecord]:
    """Tell whether the steps used the data that the control used.

    Batches are looked up in the control's stream: from an epoch's beginning (restarted), earlier (repeated), later
    (skipped), another epoch's (order changed), inside the step's own accumulation window (gradients lost), nowhere
    (order changed).
    """
    streams = Streams(pair)
    divergence = _divergence(pair, streams)
    if divergence is None:
        return _content(pair, streams)
    slug, why = _kind(pair, divergence)
    by_content = not streams.by_samples
    if slug == "data-order-changed" and by_content and _weights_off_before(pair, divergence.step):
        return []  # what enters the forward may come from the model itself
    evidence, *details = _evidence(streams, divergence, why)
    return [finding(slug, evidence, step=divergence.step, quantity="samples", details=details)]


def _divergence(pair: Beside, streams: Streams) -> _Divergence | None:
    place = 0
    for aligned in pair.steps:
        for micro in aligned.resumed.micro_steps:
            due = pair.position + place
            if due >= len(streams.control):
                return None
            if streams.known(micro) and not streams.same(micro, streams.control[due]):
                return _Divergence(place, due, _found(pair, streams, place, due), aligned.number)
            place += 1
    return None


def _found(pair: Beside, streams: Streams, place: int, due: int) -> int | None:
    """Return the position where the data go on: an epoch's beginning if one matches, or else the nearest."""
    positions = streams.found_at(streams.resumed[place:], pair.starts)
    own = _start(pair.starts, due)

    def likeliness(position: int) -> tuple[bool, bool, bool, int]:
        begins = position in pair.starts and position <= due
        same_place = _start(pair.starts, due) != due and due - own == position - _start(pair.starts, position)
        return position == own, begins, same_place, -abs(position - due)

    return max(positions, key=likeliness, default=None)


def _start(starts: Sequence[int], position: int) -> int:
    return starts[bisect_right(list(starts), position) - 1]


def _kind(pair: Beside, divergence: _Divergence) -> tuple[str, str]:
    """Return the finding for a divergence, and what was seen, in words."""
    due, found = divergence.due, divergence.found
    if found is None:
        return "data-order-changed", "the batches from there on are none of the control's"
    due_start, found_start = _start(pair.starts, due), _start(pair.starts, found)
    if due - due_start == found - found_start:
        return "data-order-changed", "the order is that of another epoch"
    if due < found < _window_end(pair, due):
        return "accumulation-lost", "the window goes on without the micro-steps before the save"
    if found == found_start and found < due:
        where = "its epoch" if found == due_start else "an earlier epoch" if found else "the first epoch"
        return "data-position-restarted", f"the data begin again at the start of {where}"
    if found < due:
        return "data-repeated", f"the data lie {due - found} batches behind"
    return "data-skipped", f"the data lie {found - due} batches ahead"


def _window_end(pair: Beside, position: int) -> int:
    """Return the position after the control's accumulation window that ``position`` lies in."""
    end = 0
    for step in pair.control.steps:
        end += len(step.micro_steps)
        if end > position:
            break
    return end


def _evidence(streams: Streams, divergence: _Divergence, why: str) -> list[str]:
    resumed, control = streams.resumed[divergence.place], streams.control[divergence.due]
    due = streams.show(control).removeprefix("samples ")
    return [f"step {divergence.step} trained on {streams.show(resumed)}, control on {due}", why]


def _weights_off_before(pair: Beside, step: int) -> bool:
    return (
        pair.weights_differ_from is not None
        and pair.weights_differ_from <= step
        and not _only_result(pair, step)
    )


def _only_result(pair: Beside, step: int) -> bool:
    """Tell whether the weights first differ in the result of ``step`` itself: its data came before that."""
    if pair.weights_differ_from != step:
        return False
    before = next(a for a in pair.steps if a.number == step)
    seen = before.control.before.weights
    return pair.measure.same("weights", before.resumed.before.weights, seen)


def _content(pair: Beside, streams: Streams) -> list[FindingRecord]:
    """Tell whether the right samples came with the right content."""
    if not streams.by_samples or not streams.content_tells:
        return []
    for aligned in pair.steps:
        if _weights_off_before(pair, aligned.number) or rng_explains(pair, aligned):
            return []
        for one, other in zip(aligned.resumed.micro_steps, aligned.control_micros, strict=False):
            if one.inputs and other.inputs and one.inputs != other.inputs:
                shown = listed(one.samples or [])
                text = f"step {aligned.number} got samples {shown} as the control, with other content"
                return [finding("worker-rng-not-restored", text, step=aligned.number, quantity="inputs")]
    return []
