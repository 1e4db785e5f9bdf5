"""What becomes of one file when a write is cut short, or its unsynced data does not all reach the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samestep.crash.contents import PAGE_BYTES
from samestep.crash.operations import Kind
from samestep.crash.replay import changed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samestep.crash.contents import Content
    from samestep.crash.durability import Loss, Rules
    from samestep.crash.replay import Effect


def damages(content: Content, loss: Loss, rules: Rules) -> Iterator[tuple[str, Content]]:
    """Yield each way the file may be damaged, a key of `samestep.crash.wording.WAYS`, and its bytes then."""
    lost, half, last = fates_of(content, loss)
    nothing = "zeros" if lost.size else "empty"
    if any(piece.source for piece in lost.pieces):
        nothing = "old"
    yield from ((nothing, lost), ("half", half), ("last-page-missing", last))
    if rules.size_first and nothing != "zeros" and content.size > lost.size:
        yield "zeros", in_zeros(content, loss)


def fates_of(content: Content, loss: Loss) -> tuple[Content, Content, Content]:
    """Return the file without its unsynced data, with the first half of its pages, and without the last page."""
    half = (loss.low + (loss.high - loss.low) // 2) // PAGE_BYTES * PAGE_BYTES
    last = max(loss.high - 1, 0) // PAGE_BYTES * PAGE_BYTES
    return (
        loss.lost,
        content.until(max(half, loss.low), loss.lost),
        content.until(max(last, loss.low), loss.lost),
    )


def in_zeros(content: Content, loss: Loss) -> Content:
    """Return the file without its unsynced data, but as long as with it."""
    return loss.lost.truncated(max(content.size, loss.lost.size))


def kept_bytes(effect: Effect, way: str) -> int:
    """Return how many bytes of a write took effect that was torn in a certain way."""
    offset, size = effect.operation.offset, effect.operation.size
    if way == "torn-first-byte":
        return 1
    if way == "torn-half":
        return size // 2
    return (offset + size - 1) // PAGE_BYTES * PAGE_BYTES - offset


def cut_short(effect: Effect, before: Content, kept: int) -> Content:
    """Return the file after a write of which only the first ``kept`` bytes took effect."""
    if effect.piece is None:
        return before
    if effect.kind is Kind.STORED:
        return changed(before, effect).until(kept, before)
    return before.written(effect.operation.offset, effect.piece.part(0, kept))
