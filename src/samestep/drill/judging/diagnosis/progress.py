"""The run's own counters, callback state and length."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from samestep.drill.judging.align import counters
from samestep.drill.judging.compare import same_plain
from samestep.drill.judging.diagnosis.records import finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samestep.drill.judging.align import Counter
    from samestep.drill.judging.beside import Aligned, Beside
    from samestep.drill.result import FindingRecord
    from samestep.trace import Trace

_TRACKING = (
    r"patience|best|early_?stop|(no|not|since|without)_improve|wait_count"
    r"|(?:^|[._])(bad|stale|worse|wait)(_[a-z]+)?$"
)
TRACKING_PATH = re.compile(_TRACKING, re.IGNORECASE)
"""Paths of plain values that track a metric: its best value, and how long it has not improved."""

CALLBACK_PATH = re.compile(rf"{_TRACKING}|callbacks?\[[^\]]*\]\.\w+$", re.IGNORECASE)
"""Paths of plain values that belong to callbacks and to the tracking of a metric."""

CONSUMED_PATH = re.compile(
    r"(samples|tokens|examples|images)_(seen|consumed)$|"
    r"(seen|consumed|total|num)_(train_)?(samples|tokens|examples|images)$",
    re.IGNORECASE,
)
"""Paths of plain values that count the data used by the whole run."""

ENOUGH_STEPS = 2
"""A plain value must differ before this many steps: some are only brought up to date by the first one."""


def progress(pair: Beside) -> list[FindingRecord]:
    """Tell whether the run's own counters agree with its state.

    Only counters whose name says what they count can be wrong: many others rightly count from the start of the process.
    Where several share the most telling kind of name, one that agrees is enough.
    """
    judged = [c for c in counters(pair.control) if c.path in _values(pair, 0) and c.path not in pair.noise]
    for tier in (0, 1):
        named = [counter for counter in judged if counter.tier == tier]
        if named:
            wrong = [(c, aligned) for c in named if (aligned := _wrong_from(pair, c))]
            return [_wrong_counter(*wrong[0])] if len(wrong) == len(named) else _consumed(pair)
    return _consumed(pair)


def _values(pair: Beside, place: int) -> dict[str, Any]:
    return pair.steps[place].resumed.values if place < len(pair.steps) else {}


def _wrong_from(pair: Beside, counter: Counter) -> Aligned | None:
    """Return the step from which a counter disagrees with the state up to the last one; None when it ends right."""
    seen = [a for a in pair.steps if counter.path in a.resumed.values]
    wrong = [a.number - 1 not in counter.steps(a.resumed.values[counter.path]) for a in seen]
    return _from_there_on(seen, wrong)


def _from_there_on(seen: list[Aligned], differs: list[bool]) -> Aligned | None:
    """Return the first step of the last unbroken row of differences; None when the last step shows none."""
    agreeing = [place for place, other in enumerate(differs) if not other]
    first = agreeing[-1] + 1 if agreeing else 0
    return seen[first] if first < len(seen) else None


def _wrong_counter(counter: Counter, aligned: Aligned) -> FindingRecord:
    text = f"{_beside(aligned, counter.path)}; the state is that of step {aligned.number - 1}"
    return finding("progress-wrong", text, step=aligned.number, quantity=counter.path)


def _consumed(pair: Beside) -> list[FindingRecord]:
    for path, aligned in _lastingly_other(pair, CONSUMED_PATH):
        return [
            finding("progress-wrong", _beside(aligned, path), step=aligned.number, quantity=path),
        ]
    return []


def _beside(aligned: Aligned, path: str) -> str:
    value, due = aligned.resumed.values[path], aligned.control.values.get(path)
    return f"{path} is {value} before step {aligned.number}, control {due}"


def callbacks(pair: Beside) -> list[FindingRecord]:
    """Tell whether values of callbacks and best-metric tracking began anew, or part from the control's later.

    Such a value changes in the control. In the resumed run it starts from the control's first one and stays wrong, or
    it was right and goes another way while everything else agrees.
    """
    lost = [
        (path, aligned)
        for path, aligned in _lastingly_other(pair, CALLBACK_PATH)
        if _began_anew(pair, path) or pair.steps[0] is not aligned
    ]
    return _lost_values(lost)


def tracking(pair: Beside) -> list[FindingRecord]:
    """Tell whether what tracks a metric has the control's value.

    Only where nothing else differs: a metric follows from data and generators. Other values of callbacks may rightly
    count from the start of the process.
    """
    return _lost_values(list(_lastingly_other(pair, TRACKING_PATH)))


def _lost_values(lost: list[tuple[str, Aligned]]) -> list[FindingRecord]:
    if not lost:
        return []
    shown = [_beside(aligned, path) for path, aligned in lost]
    path, first = lost[0]
    return [finding("callbacks-reset", shown[0], step=first.number, quantity=path, details=shown[1:])]


def _began_anew(pair: Beside, path: str) -> bool:
    begun = pair.control.steps[0].values
    return path in begun and same_plain(pair.steps[0].resumed.values.get(path), begun[path])


def _lastingly_other(pair: Beside, pattern: re.Pattern[str]) -> Iterator[tuple[str, Aligned]]:
    """Yield the paths like ``pattern`` whose value differs from the control's, and the step from which it does.

    It differs before every compared step, or it agreed before and parts for good while the steps are still repeated
    equally.
    """
    if len(pair.steps) < ENOUGH_STEPS:
        return
    reached = pair.steps[: len(pair.moments)]
    for path in sorted(pair.steps[0].control.values):
        if path in pair.noise or not pattern.search(path) or _is_kept_elsewhere(pair, path):
            continue
        if all(_differs(aligned, path) for aligned in pair.steps):
            yield path, pair.steps[0]
        elif not _differs(reached[0], path):
            since = _from_there_on(reached, [_differs(aligned, path) for aligned in reached])
            if since is not None and path in since.resumed.values:
                yield path, since


def _differs(aligned: Aligned, path: str) -> bool:
    resumed, control = aligned.resumed.values, aligned.control.values
    return path in resumed and path in control and not same_plain(resumed[path], control[path])


def length(pair: Beside) -> list[FindingRecord]:
    """Tell whether a run that was let end by itself ended where the control did."""
    if not (_ended_itself(pair.control) and (_ended_itself(pair.resumed) or _beyond(pair))):
        return []
    last, due = pair.basis + len(pair.resumed.steps), len(pair.control.steps)
    if last == due:
        return []
    ended = "ended" if _ended_itself(pair.resumed) else "was still training"
    text = f"the restarted run {ended} at step {last}, the control ended at {due}"
    return [finding("run-length-changed", text, step=min(last, due) + 1, quantity="steps")]


def _beyond(pair: Beside) -> bool:
    return pair.basis + len(pair.resumed.steps) > len(pair.control.steps)


def _ended_itself(trace: Trace) -> bool:
    return trace.end is not None and trace.end.reason == "exit"


def noisy_paths(control: Trace, follower: Trace | None) -> frozenset[str]:
    """Return the paths of plain values that differ between two controls at one step or another."""
    if follower is None:
        return frozenset()
    return frozenset(
        path
        for one, other in zip(control.steps, follower.steps, strict=False)
        for path in one.values.keys() | other.values.keys()
        if not same_plain(one.values.get(path), other.values.get(path))
    )


def _is_kept_elsewhere(pair: Beside, path: str) -> bool:
    """Tell whether another object has the control's values under the same attribute: it took the place of the first.

    A framework may restore a callback as a new object, while the script's own name still leads to the old one.
    """
    attribute = path.rpartition(".")[2]
    heirs = [
        other
        for other in pair.steps[0].resumed.values
        if other.rpartition(".")[2] == attribute and other not in pair.steps[0].control.values
    ]
    return any(
        all(
            other in aligned.resumed.values
            and same_plain(aligned.resumed.values[other], aligned.control.values.get(path))
            for aligned in pair.steps
        )
        for other in heirs
    )
