"""What a run has really cost: its two ledgers from its journals, in the rows that a prediction has."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from samestep.cost.billing import rule_named
from samestep.cost.errors import CostError
from samestep.cost.predicting import GB, MONTH_HOURS
from samestep.cost.units import duration
from samestep.ledger import Ledger, Row

from .attempts import End, history_of
from .keeping import keeping_of, objects_written, restored_bytes, written_bytes
from .timeline import Span

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    from samestep.cost.inputs import Offer

    from .attempts import RunHistory
    from .timeline import Timeline

_HOUR = 3600.0
_OVERLAP_SECONDS = 1.0


class ActualLife(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a run.

    Attributes:
        ordinal: its number, from 1.
        attempt: its id.
        on_demand: it ran on capacity that cannot be taken away.
        end: how it ended.
        resumed: the step that it went on from.
        reached: the last step that it is known to have executed.
        accepted: its steps up to this one count; those after it were executed again, or lost at the end.
        began_unix, ended_unix: seconds since 1970.
        billed_seconds: by the billing rule of the offer; without an offer the seconds that it lived.
        rows: where its time went.
    """

    ordinal: int
    attempt: str
    on_demand: bool = False
    end: End
    resumed: int
    reached: int
    accepted: int
    began_unix: float
    ended_unix: float
    billed_seconds: float
    rows: dict[Row, float]

    @property
    def steps_lost(self) -> int:
        """Steps that it executed and that do not count."""
        return max(0, self.reached - max(self.accepted, self.resumed))


class Actual(msgspec.Struct, frozen=True, kw_only=True):
    """What a run has come to so far.

    Attributes:
        run: its id.
        steps_accepted: in the lineage of the newest bundle, each index once.
        steps_executed: by all attempts together, as far as known.
        steps_lost: executed and not accepted.
        saves: bundles that were made.
        saves_begun: also those of which an interruption left no bundle, as far as known.
        interruptions: attempts whose machine was taken away.
        wall_seconds: from the beginning of the first attempt to the end of the last.
        billed_seconds: of all attempts.
        time: the ledger of the wall time; its rows add up to ``wall_seconds``.
        money: the ledger of money; None without an offer.
        attempts: oldest first.
        notes: what is not known, and what was assumed.
    """

    run: str
    steps_accepted: int
    steps_executed: int
    steps_lost: int
    saves: int
    saves_begun: int = 0
    interruptions: int
    wall_seconds: float
    billed_seconds: float
    time: Ledger
    money: Ledger | None = None
    attempts: list[ActualLife] = []
    notes: list[str] = []

    @property
    def ledgers(self) -> dict[str, Ledger]:
        """The ledgers by name: ``time``, and ``money`` where it is known."""
        return {"time": self.time} if self.money is None else {"time": self.time, "money": self.money}

    @property
    def per_accepted(self) -> float | None:
        """Money per accepted step."""
        return self.money.total / self.steps_accepted if self.money and self.steps_accepted else None

    @property
    def per_executed(self) -> float | None:
        """Money per executed step; stands beside the other one, never instead of it."""
        return self.money.total / self.steps_executed if self.money and self.steps_executed else None


def actual_of(
    root: str | Path,
    *,
    offer: Offer | None = None,
    on_demand_attempts: Collection[int] = (),
    boot_seconds: float = 0.0,
    first_hour: bool = False,
) -> Actual:
    """Account for a run from its journals and the records of its store.

    Args:
        root: folder or URL of the store.
        offer: that the run was paid by; without one there is no ledger of money.
        on_demand_attempts: numbers of attempts, from 1, that ran on on-demand capacity.
        boot_seconds: that a machine is billed for before its process begins, which no journal knows of.
        first_hour: let the attempts go free that the provider ended in their first hour, where its rule says so.

    Raises:
        SamestepError: the store cannot be read, or the offer lacks a price that is needed.
    """
    return account(
        history_of(root),
        offer=offer,
        on_demand_attempts=on_demand_attempts,
        boot_seconds=boot_seconds,
        first_hour=first_hour,
    )


def account(
    history: RunHistory,
    *,
    offer: Offer | None = None,
    on_demand_attempts: Collection[int] = (),
    boot_seconds: float = 0.0,
    first_hour: bool = False,
) -> Actual:
    """Account for a run of which the history is known; see ``actual_of``."""
    if not history.timelines:
        raise CostError(f"{history.place} has no attempt yet, so there is nothing to account")
    _refuse_absent(on_demand_attempts, history)
    accepted = _accepted(history)
    begins = _begins(history.timelines, boot_seconds)
    rule = rule_named(offer.billing, first_hour=first_hour) if offer else None
    lives = []
    for index, timeline in enumerate(history.timelines):
        end = history.end(index)
        seconds = timeline.ended - begins[index]
        lost = np.array([end is End.INTERRUPTED])
        billed = float(rule.billed_seconds(np.array([seconds]), lost)[0]) if rule else seconds
        ordinal = timeline.past.record.attempt_ordinal
        lives.append(
            ActualLife(
                ordinal=ordinal,
                attempt=timeline.past.record.attempt,
                on_demand=ordinal in on_demand_attempts,
                end=end,
                resumed=timeline.past.resumed,
                reached=timeline.reached,
                accepted=accepted[index],
                began_unix=begins[index],
                ended_unix=timeline.ended,
                billed_seconds=billed,
                rows=_rows(timeline, accepted[index], begins[index], timeline.ended),
            )
        )
    return _summed(history, lives, offer)


def _refuse_absent(numbers: Collection[int], history: RunHistory) -> None:
    """Refuse numbers of attempts that the run does not have: its money would be wrong without a word."""
    known = [timeline.past.record.attempt_ordinal for timeline in history.timelines]
    absent = sorted({*numbers} - {*known})
    if absent:
        raise CostError(
            f"{history.place} has no attempt {absent[0]}", hint=f"there are {min(known)} to {max(known)}"
        )


def _accepted(history: RunHistory) -> list[int]:
    """Return for every attempt the step up to which its steps count: nothing later went on from before it."""
    newest = history.commits[-1].bundle.step if history.commits else 0
    resumed = [timeline.past.resumed for timeline in history.timelines[1:]]
    accepted = [newest]
    for step in reversed(resumed):
        accepted.append(min(accepted[-1], step))
    return accepted[::-1]


def _begins(timelines: Sequence[Timeline], boot_seconds: float) -> list[float]:
    """Return when each machine began: before its process, and not before the one before it had ended."""
    begins = []
    for index, timeline in enumerate(timelines):
        free = timelines[index - 1].ended if index else -math.inf
        begins.append(min(timeline.began, max(free, timeline.began - boot_seconds)))
    return begins


def _rows(timeline: Timeline, accepted: int, begin: float, end: float) -> dict[Row, float]:
    """Return where the time of an attempt went between ``begin`` and ``end``; before its process it booted."""
    rows = dict.fromkeys(Row, 0.0)
    booted = Span(min(begin, timeline.began), timeline.began, Row.RESTART)
    for span in (booted, *timeline.spans):
        common = min(span.end, end) - max(span.begin, begin)
        if common > 0:
            for row, seconds in _split(span, accepted):
                rows[row] += seconds * common / span.seconds
    return {row: seconds for row, seconds in rows.items() if seconds}


def _split(span: Span, accepted: int) -> Iterator[tuple[Row, float]]:
    """Yield what the time of a span was: of steps, those that count, those that do not, and waiting for data."""
    if span.row is not Row.UNIQUE:
        yield span.row, span.seconds
        return
    waited = min(span.waited or 0.0, span.seconds)
    counted = max(0, min(span.last, accepted) - span.first + 1) / span.steps
    yield Row.DATA_STALL, waited
    yield Row.UNIQUE, (span.seconds - waited) * counted
    yield Row.REPEATED, (span.seconds - waited) * (1 - counted)


def _summed(history: RunHistory, lives: list[ActualLife], offer: Offer | None) -> Actual:
    fallback = not all(life.on_demand for life in lives)
    executed = sum(life.reached - life.resumed for life in lives)
    return Actual(
        run=history.run,
        steps_accepted=lives[-1].accepted,
        steps_executed=executed,
        steps_lost=sum(life.steps_lost for life in lives),
        saves=len(history.commits),
        saves_begun=sum(len(timeline.saves) for timeline in history.timelines),
        interruptions=sum(life.end is End.INTERRUPTED for life in lives),
        wall_seconds=max(life.ended_unix for life in lives) - min(life.began_unix for life in lives),
        billed_seconds=math.fsum(life.billed_seconds for life in lives),
        time=_time(history, lives, fallback=fallback),
        money=_money(history, lives, offer, fallback=fallback) if offer else None,
        attempts=lives,
        notes=[*history.notes, *_notes(history, lives, offer)],
    )


def _time(history: RunHistory, lives: Sequence[ActualLife], *, fallback: bool) -> Ledger:
    """Return the ledger of the wall time: of every moment what the attempt did in it that had begun last."""
    rows = dict.fromkeys(Row, 0.0)
    moments = sorted({moment for life in lives for moment in (life.began_unix, life.ended_unix)})
    for begin, end in itertools.pairwise(moments):
        there = [
            (life.began_unix, index)
            for index, life in enumerate(lives)
            if life.began_unix <= begin and end <= life.ended_unix
        ]
        if not there:
            rows[Row.CAPACITY_WAIT] += end - begin
            continue
        life, timeline = lives[max(there)[1]], history.timelines[max(there)[1]]
        for row, seconds in _rows(timeline, life.accepted, begin, end).items():
            rows[Row.FALLBACK if fallback and life.on_demand else row] += seconds
    return Ledger.of("s", rows)


def _money(history: RunHistory, lives: Sequence[ActualLife], offer: Offer, *, fallback: bool) -> Ledger:
    """Return the ledger of money; what is billed beyond the seconds that an attempt lived was idle."""
    rows = dict.fromkeys(Row, 0.0)
    for life in lives:
        second = _price(offer, life) * offer.nodes / _HOUR
        lived = life.ended_unix - life.began_unix
        counted = min(1.0, life.billed_seconds / lived) if lived > 0 else 0.0
        spent = {row: seconds * counted * second for row, seconds in life.rows.items()}
        beyond = max(0.0, life.billed_seconds - lived) * second
        if fallback and life.on_demand:
            rows[Row.FALLBACK] += math.fsum([*spent.values(), beyond])
            continue
        for row, money in spent.items():
            rows[row] += money
        rows[Row.IDLE] += beyond
    until = max(life.ended_unix for life in lives)
    hours = keeping_of(history.records, until).byte_seconds / GB / _HOUR
    moved = sum(map(written_bytes, history.commits)) + restored_bytes(history.records)
    rows[Row.STORAGE] = hours / MONTH_HOURS * offer.storage_month
    rows[Row.TRANSFER] = moved / GB * offer.transfer
    if history.on_objects:
        rows[Row.REQUESTS] = sum(map(objects_written, history.commits)) / 1000 * offer.thousand_requests
    return Ledger.of(offer.currency, rows)


def _price(offer: Offer, life: ActualLife) -> float:
    """Return the price of the capacity that an attempt ran on, for one machine and an hour."""
    wanted = offer.on_demand if life.on_demand or offer.spot is None else offer.spot
    if wanted is None:
        raise CostError(
            f"{offer.name} has no on-demand price, and attempt {life.ordinal} ran on demand",
            hint="give the offer one: on_demand",
        )
    return wanted


def _notes(history: RunHistory, lives: Sequence[ActualLife], offer: Offer | None) -> Iterator[str]:
    for index, (timeline, life) in enumerate(zip(history.timelines, lives, strict=True)):
        name = history.name(index)
        if not timeline.past.whole and life.end is End.INTERRUPTED:
            following = lives[index + 1].began_unix - life.ended_unix if index + 1 < len(lives) else 0.0
            known = (
                "is known up to its last save only, its journal was on its machine: it counts as interrupted"
                if timeline.past.events
                else "left no journal"
            )
            yield (
                f"{name} {known}; what it did in the {duration(following)} until the next attempt is not known, and "
                "they stand as capacity wait"
            )
        if life.end is End.UNKNOWN and life.steps_lost:
            yield (
                f"{name} says nothing of its end: if it still goes on, its {life.steps_lost} steps since its last "
                "save are not lost yet"
            )
        if index and lives[index - 1].ended_unix - life.began_unix > _OVERLAP_SECONDS:
            yield f"{name} began before the one before it had ended: the time of both counts once, the money twice"
    if offer is not None and offer.spot is None and not all(life.on_demand for life in lives):
        yield f"{offer.name} has no spot price: every attempt is billed at the on-demand price"
    if offer is not None and not history.on_objects and offer.thousand_requests:
        yield "the store is a folder: its calls cost nothing"
