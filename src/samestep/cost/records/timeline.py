"""One attempt as its journal tells it: every moment from its beginning to its end in exactly one span. Pure."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from samestep.bundle.history import unix
from samestep.journal.events import OPENED, REOPENED
from samestep.ledger import Row

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from samestep.bundle.history import PastAttempt
    from samestep.bundle.records import CommitRecord
    from samestep.journal import Event


@dataclasses.dataclass(frozen=True)
class Span:
    """A stretch of an attempt.

    Attributes:
        begin, end: seconds since 1970.
        row: where its time goes; ``unique`` for steps, of which some may turn out to be repeated ones.
        first, last: steps that were executed in it.
        waited: of its seconds, for their data; None when that was not recorded.
        known: its length was recorded; otherwise it was seen from the step that the odometer showed last.
    """

    begin: float
    end: float
    row: Row
    first: int = 0
    last: int = 0
    waited: float | None = None
    known: bool = True

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.end - self.begin

    @property
    def steps(self) -> int:
        """How many steps were executed in it."""
        return self.last - self.first + 1 if self.row is Row.UNIQUE else 0


@dataclasses.dataclass(frozen=True)
class Notice:
    """A warning of the end.

    Attributes:
        source: who said so.
        usable: the state of its step was saved before the end.
        seconds: from there to the end of the attempt, as far as known.
    """

    source: str
    usable: bool
    seconds: float


@dataclasses.dataclass(frozen=True)
class SaveTimes:
    """One save.

    Attributes:
        asked: when it was asked for; this and the next two are seconds since 1970.
        ready: when its state was captured.
        committed: when the bundle existed; None when it never did, or the journal does not reach so far.
        waits: training stood still until then.
    """

    asked: float
    ready: float | None = None
    committed: float | None = None
    waits: bool = False


@dataclasses.dataclass(frozen=True)
class Timeline:
    """An attempt.

    Attributes:
        past: what is known of it.
        began: of its process, where that is known; otherwise of the attempt.
        ended: when it was last seen.
        spans: in order, without a gap.
        reached: the last step that it is known to have executed.
        outcome: that it said at its end; empty when it said nothing.
        notice: that it heard.
        saves: that it asked for.
    """

    past: PastAttempt
    began: float
    ended: float
    spans: tuple[Span, ...]
    reached: int
    outcome: str = ""
    notice: Notice | None = None
    saves: tuple[SaveTimes, ...] = ()

    @property
    def seconds(self) -> float:
        """How long it lived."""
        return self.ended - self.began

    @property
    def restart_seconds(self) -> float | None:
        """From its beginning to its first step; None when it did not come so far."""
        first = next((span for span in self.spans if span.row is Row.UNIQUE), None)
        return None if first is None else first.begin - self.began


def timeline_of(past: PastAttempt, committed: CommitRecord | None = None) -> Timeline:
    """Return the timeline of an attempt; one whose journal is lost has no length.

    Args:
        past: what is known of it.
        committed: its last commit, which a journal that this commit has carried does not reach to.

    Raises:
        KeyError, TypeError, ValueError: an event does not say what it must, or not as it must.
    """
    timed = list(_timed(past.events))
    began = _began(timed, unix(past.record.written))
    seen = unix(committed.written) if committed else began
    last = max([began, seen, *(at for at, _ in timed[-1:])])
    walk = _Walk(began)
    for at, event in timed:
        walk.meet(at, event)
    tail = _tail(past, walk.since)
    if tail:
        walk.steps(tail)
    ended = max(last, tail.end) if tail else last
    walk.close(ended)
    outcome = next((str(event.values["outcome"]) for _, event in timed if event.event == "ended"), "")
    saved = committed.bundle.step if committed else -1
    return Timeline(
        past,
        began,
        ended,
        tuple(walk.spans),
        max(past.reached, saved),
        outcome,
        _notice(timed, ended, saved),
        tuple(_saves(timed)),
    )


def _timed(events: Sequence[Event]) -> Iterator[tuple[float, Event]]:
    """Yield every event with its time: of the monotonic clock, which never jumps, put where the other one began."""
    offset = 0.0
    for event in events:
        if event.event in (OPENED, REOPENED):
            offset = unix(event.at) - event.monotonic
        yield offset + event.monotonic, event


def _began(timed: Sequence[tuple[float, Event]], registered: float) -> float:
    for at, event in timed:
        if event.event == "attempt-started":
            return at - _seconds(event.values.get("process_seconds", 0.0))
    return min([registered, *(at for at, _ in timed[:1])])


def _tail(past: PastAttempt, since: float) -> Span | None:
    """Return the steps after those that the journal tells of, which an interruption kept it from noting.

    Args:
        past: what is known of the attempt.
        since: when the training last went on.
    """
    noted = max([past.resumed, *(last for _, last, _ in past.ranges)])
    step, at = past.shown
    if step <= noted or at <= 0:
        return None
    return Span(min(since, at), at, Row.UNIQUE, noted + 1, step, known=False)


class _Walk:
    """Goes through the events of an attempt and gives every moment to a row.

    Args:
        began: of the attempt.

    Attributes:
        spans: so far.
        since: when the training last went on.
    """

    def __init__(self, began: float) -> None:
        self.spans: list[Span] = []
        self.since = began
        self._cursor = began
        self._marks: list[tuple[float, Row]] = [(began, Row.RESTART)]
        self._awaited: int | None = None
        self._noticed = False

    def meet(self, at: float, event: Event) -> None:
        values = event.values
        if event.event == "steps":
            waited = _seconds(values["waited"]) if "waited" in values else None
            begin, first, last = at - _seconds(values["seconds"]), int(values["first"]), int(values["last"])
            if first > last:
                raise ValueError(f"steps {first} to {last} are no range")
            self.steps(Span(begin, at, Row.UNIQUE, first, last, waited))
        elif event.event == "save-asked":
            self._awaited = int(values["step"]) if values.get("waits") else None
            self._mark(at, Row.SAVING)
        elif event.event in ("decision", "restore-ended") or (
            event.event == "save-state-ready" and self._awaited is None
        ):
            self.since = at
        elif event.event in ("save-committed", "save-failed") and self._awaited == values["step"]:
            self.since, self._awaited = at, None
            self._mark(at, Row.IDLE)
        elif event.event == "notice":
            self._noticed = True
            self._mark(at, Row.NOTICE_TAIL)

    def steps(self, span: Span) -> None:
        """Give the time before a range of steps to what was going on, and its own to the range."""
        begin = min(max(span.begin, self._cursor), span.end)
        self._fill(begin)
        if span.end > begin:
            self.spans.append(dataclasses.replace(span, begin=begin))
        self._cursor = self.since = max(span.end, self._cursor)
        self._marks = [(self._cursor, Row.NOTICE_TAIL if self._noticed else Row.IDLE)]

    def close(self, end: float) -> None:
        """Give the time up to ``end`` to what was going on; a save after which training went on is over."""
        if self._marks[-1][1] is Row.SAVING and self.since > self._marks[-1][0]:
            self._mark(self.since, Row.IDLE)
        self._fill(end)

    def _fill(self, end: float) -> None:
        until = [at for at, _ in self._marks[1:]] + [end]
        for (begin, row), after in zip(self._marks, until, strict=True):
            self._append(max(begin, self._cursor), min(after, end), row)
        self._cursor = max(self._cursor, end)

    def _mark(self, at: float, row: Row) -> None:
        self._marks.append((max(at, self._marks[-1][0]), Row.NOTICE_TAIL if self._noticed else row))

    def _append(self, begin: float, end: float, row: Row) -> None:
        if end <= begin:
            return
        if self.spans and self.spans[-1].row is row and row is not Row.UNIQUE:
            self.spans[-1] = dataclasses.replace(self.spans[-1], end=end)
        else:
            self.spans.append(Span(begin, end, row))


def _saves(timed: Sequence[tuple[float, Event]]) -> Iterator[SaveTimes]:
    """Yield the saves; one that its attempt took back, or that the end cut off, was not committed."""
    open_: dict[int, SaveTimes] = {}
    for at, event in timed:
        if event.event not in ("save-asked", "save-state-ready", "save-committed"):
            continue
        step = int(event.values["step"])
        if event.event == "save-asked":
            if step in open_:
                yield open_.pop(step)
            open_[step] = SaveTimes(at, waits=bool(event.values.get("waits")))
        elif event.event == "save-state-ready" and step in open_:
            open_[step] = dataclasses.replace(open_[step], ready=at)
        elif event.event == "save-committed" and step in open_:
            yield dataclasses.replace(open_.pop(step), committed=at)
    yield from open_.values()


def _notice(timed: Sequence[tuple[float, Event]], ended: float, saved: int) -> Notice | None:
    for place, (at, event) in enumerate(timed):
        if event.event == "notice":
            step = int(event.values.get("step", 0))
            usable = saved >= step or any(_secures(later, step) for _, later in timed[place + 1 :])
            return Notice(str(event.values["source"]), usable, ended - at)
    return None


def _secures(event: Event, step: int) -> bool:
    """Whether an event says that the state of ``step`` is saved."""
    if event.event == "save-committed":
        return int(event.values["step"]) >= step
    return event.event == "ended" and event.values.get("outcome") == "notice"


def _seconds(value: object) -> float:
    if not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{value!r} are no seconds")
    return float(value)
