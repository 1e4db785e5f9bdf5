"""What drills, bundles and journals have measured of a run; what they have not is said, and never made up."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from samestep.bundle.history import unix
from samestep.cost.errors import MeasuringError
from samestep.cost.inputs import Quantity

from .attempts import End, history_of
from .keeping import keeping_of, objects_written, written_bytes
from .observed import QUANTITIES, Observed, Seen, quantity_of, read_json, read_measured, write_measured

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from .attempts import RunHistory
    from .timeline import SaveTimes, Timeline

__all__ = ["Observed", "Seen", "observe_drill", "observe_run", "read_measured", "write_measured"]

_DRILL_SCHEMA = "samestep.drill/1"
_ENOUGH_WINDOWS = 3


def observe_run(root: str | Path) -> Observed:
    """Measure a run by its journals and the manifests of its bundles.

    Args:
        root: folder or URL of the store.

    Raises:
        SamestepError: it cannot be read.
    """
    return observed_in(history_of(root))


def observed_in(history: RunHistory) -> Observed:
    """Measure a run of which the history is known; see ``observe_run``."""
    found: dict[str, Quantity | str] = {
        **_steps(history.timelines),
        **_saves(history),
        "restart_seconds": _restart(history),
        **_stored(history),
    }
    quantities = {name: what for name, what in found.items() if isinstance(what, Quantity)}
    missing = {name: what for name, what in found.items() if isinstance(what, str)}
    seen = _seen(history)
    notes = [*history.notes, "the boot of a machine is not in its journals: restarts begin with the process"]
    return Observed(quantities, missing, [*notes, *seen.notes], seen)


def _steps(timelines: Sequence[Timeline]) -> dict[str, Quantity | str]:
    """Return how long steps took; each number is the mean over a range that a journal noted."""
    spans = [span for timeline in timelines for span in timeline.spans if span.steps and span.known]
    if not spans:
        why = "no journal tells of steps"
        return {"step_seconds": why, "stall_seconds": why}
    source = f"journals of {_many(len(timelines), 'attempt')}, {_many(len(spans), 'range')} of steps"
    working = [(span.seconds - (span.waited or 0.0), span.steps) for span in spans]
    found: dict[str, Quantity | str] = {"step_seconds": _per_step(working, source)}
    recorded = [(span.waited, span.steps) for span in spans if span.waited is not None]
    found["stall_seconds"] = (
        _per_step(recorded, source)
        if recorded
        else "the loop takes its batches by itself, so waiting for them is part of the steps"
    )
    return found


def _per_step(ranges: Sequence[tuple[float, int]], source: str) -> Quantity:
    """Return the mean of all steps, with percentiles over ranges that are weighted by their steps."""
    seconds, steps = np.array([pair[0] for pair in ranges]), np.array([pair[1] for pair in ranges])
    rates = seconds / steps
    mean = float(seconds.sum() / steps.sum())
    if len(ranges) == 1:
        return Quantity(value=mean, count=int(steps.sum()), source=source)
    order = np.argsort(rates)
    share = np.cumsum(steps[order]) / steps.sum()
    low, high = (float(rates[order][np.searchsorted(share, part)]) for part in (0.05, 0.95))
    return Quantity(
        value=mean, low=min(low, mean), high=max(high, mean), count=int(steps.sum()), source=source
    )


def _saves(history: RunHistory) -> dict[str, Quantity | str]:
    """Return how long saves kept the training, and how long they took to be durable."""
    saves = [save for timeline in history.timelines for save in timeline.saves if save.ready is not None]
    background = [save for save in saves if not save.waits]
    blocking = [_blocked(save) for save in background or saves]
    known = [seconds for seconds in blocking if seconds is not None]
    source = f"journals of {_many(len(history.timelines), 'attempt')}"
    if background and len(background) < len(saves):
        source += f"; {_many(len(saves) - len(background), 'save')} that the training waited for left out"
    lasting = list(_persisting(history, background)) if background or not saves else [0.0]
    share = _slowed(history.timelines)
    return {
        "save_seconds": quantity_of(known, source) if known else "no journal tells of a whole save",
        "persist_seconds": quantity_of(lasting, source) if lasting else "no save became a bundle",
        "persist_share": share
        if share is not None
        else "no ranges of steps lie wholly inside and wholly outside of saves, so they cannot be compared",
    }


def _blocked(save: SaveTimes) -> float | None:
    until = save.committed if save.waits else save.ready
    return None if until is None else until - save.asked


def _persisting(history: RunHistory, saves: Sequence[SaveTimes]) -> Iterator[float]:
    """Yield from capture to commit of each save: by journals, and by manifests where these do not reach so far."""
    for save in saves:
        if save.committed is not None and save.ready is not None:
            yield save.committed - save.ready
    if not any(save.committed for save in saves):
        for record in history.commits:
            ready = record.bundle.timings.state_ready
            if ready is not None:
                yield max(0.0, unix(record.written) - ready)


def _slowed(timelines: Sequence[Timeline]) -> Quantity | None:
    """Return the share of the time in which a save is written that steps lose to it."""
    busy: list[float] = []
    quiet: list[float] = []
    for timeline in timelines:
        periods = [(save.ready, save.committed) for save in timeline.saves if save.ready and save.committed]
        for span in timeline.spans:
            if span.steps and span.known:
                covered = sum(max(0.0, min(span.end, end) - max(span.begin, begin)) for begin, end in periods)
                per_step = (span.seconds - (span.waited or 0.0)) / span.steps
                if covered >= 0.99 * span.seconds:
                    busy.append(per_step)
                elif not covered:
                    quiet.append(per_step)
    if min(len(busy), len(quiet)) < _ENOUGH_WINDOWS:
        return None
    usual = float(np.median(quiet))
    slower = [max(0.0, 1 - usual / one) for one in busy]
    return quantity_of(slower, f"{_many(len(busy), 'range')} of steps during saves, {len(quiet)} beside them")


def _restart(history: RunHistory) -> Quantity | str:
    """Return how long starts took: those that restored something, or the first one where there are no others."""
    starts = [(timeline.past.resumed, timeline.restart_seconds) for timeline in history.timelines]
    known = [(resumed, seconds) for resumed, seconds in starts if seconds is not None]
    restarts = [seconds for resumed, seconds in known if resumed]
    if restarts:
        return quantity_of(
            restarts, f"journals of {_many(len(restarts), 'restart')}, without the machine's boot"
        )
    if known:
        return quantity_of(
            [seconds for _, seconds in known], "journal of the first start: nothing was restored in it"
        )
    return "no journal tells of a start that came to its first step"


def _stored(history: RunHistory) -> dict[str, Quantity | str]:
    commits = history.commits
    if not commits:
        why = "there is no bundle"
        return dict.fromkeys(("save_bytes", "kept_bytes", "save_requests"), why)
    source = f"manifests of {_many(len(commits), 'bundle')}"
    now = max([unix(commits[-1].written), *(timeline.ended for timeline in history.timelines)])
    keeping = keeping_of(history.records, now)
    requests: Quantity | str = "the store is a folder: its calls are not paid"
    if history.on_objects:
        requests = quantity_of(
            [objects_written(record) for record in commits], f"{source}: objects, not parts of them"
        )
    return {
        "save_bytes": quantity_of([written_bytes(record) for record in commits], source),
        "kept_bytes": Quantity(value=keeping.mean_bytes, count=len(commits), source=source),
        "save_requests": requests,
    }


def _seen(history: RunHistory) -> Seen:
    ends = [history.end(index) for index in range(len(history.timelines))]
    lives, others, waits, notices = [], [], [], []
    for index, (timeline, end) in enumerate(zip(history.timelines, ends, strict=True)):
        if end is not End.INTERRUPTED:
            others.append(timeline.seconds)
            continue
        lives.append(timeline.seconds)
        if timeline.notice is not None:
            notices.append(timeline.notice)
        if index + 1 < len(history.timelines):
            waits.append(max(0.0, history.timelines[index + 1].began - timeline.ended))
    return Seen(
        lives_seconds=tuple(seconds for seconds in lives),
        censored_seconds=tuple(seconds for seconds in others if seconds > 0),
        wait=quantity_of(waits, f"until the next attempt, after {_many(len(waits), 'interruption')}")
        if waits
        else None,
        notices=len(notices),
        usable_notices=sum(notice.usable for notice in notices),
        notice_seconds=quantity_of([notice.seconds for notice in notices], _many(len(notices), "notice"))
        if notices
        else None,
    )


class _Series(msgspec.Struct):
    steps: list[int] = []
    began: list[float] = []
    ended: list[float] = []


class _Control(msgspec.Struct):
    series: list[_Series] = []


class _Scenario(msgspec.Struct):
    series: list[_Series] = []
    forked: bool = False


class _Drill(msgspec.Struct):
    run_id: str
    control: _Control | None = None
    scenarios: list[_Scenario] = []


def observe_drill(path: Path) -> Observed:
    """Measure by what a drill has written: how long steps and restarts took while it watched.

    Args:
        path: of ``drill.json``, or of the folder that holds it.

    Raises:
        MeasuringError: it cannot be read, or is of another format.
    """
    file = path / "drill.json" if path.is_dir() else path
    tree = read_json(file)
    schema = tree.get("schema") if isinstance(tree, dict) else None
    if schema != _DRILL_SCHEMA:
        raise MeasuringError(f"{file} is of format {schema!r}; this version reads {_DRILL_SCHEMA}")
    try:
        drill = msgspec.convert(tree, _Drill)
    except msgspec.ValidationError as error:
        raise MeasuringError(f"{file}: {error}") from None
    source = f"drill {drill.run_id}, watched"
    steps = list(_watched_steps(drill.control.series if drill.control else []))
    restarts = [
        series.began[0]
        for scenario in drill.scenarios
        for series in scenario.series
        if not scenario.forked and series.began and series.steps and series.steps[0] > 1
    ]
    quantities, missing = {}, dict.fromkeys(QUANTITIES, "a drill does not measure it")
    for name, numbers, what in (("step_seconds", steps, "steps"), ("restart_seconds", restarts, "restarts")):
        if numbers:
            quantities[name] = quantity_of(numbers, source)
            del missing[name]
        else:
            missing[name] = f"the drill shows no {what}"
    notes = ["steps of a drill are slower than those of the run: the drill looks at every one"]
    return Observed(quantities, missing, notes if steps else [])


def _watched_steps(series: Sequence[_Series]) -> Iterator[float]:
    """Yield how long the steps of the controls took; the first of each, which warms up, is left out."""
    for one in series:
        seconds = [
            end - begin
            for begin, end in zip(one.began, one.ended, strict=False)
            if math.isfinite(end - begin) and end > begin
        ]
        yield from seconds[1:] if len(seconds) > 1 else seconds


def _many(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"
