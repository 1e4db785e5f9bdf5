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
    from samestep.drill.judging.compare import Beside
    from samestep.drill.result import FindingRecord
    from samestep.trace import Trace

CALLBACK_PATH = re.compile(
    r"patience|best|callbacks?\[[^\]]*\]\.\w+$|early_?stop|(no|not|since|without)_improve|wait_count|(?:^|[._])(bad|stale|worse|wait)(_[a-z]+)?$",
    re.IGNORECASE,
)
"""Paths of plain values that belong to callbacks and best-metric tracking."""

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
            wrong = [counter for counter in named if _always_wrong(pair, counter)]
            return [_wrong_counter(pair, wrong[0])] if len(wrong) == len(named) else _consumed(pair)
    return _consumed(pair)


def _values(pair: Beside, place: int) -> dict[str, Any]:
    return pair.steps[place].resumed.values if place < len(pair.steps) else {}


def _always_wrong(pair: Beside, counter: Counter) -> bool:
    seen = [
        (a.number - 1, a.resumed.values[counter.path]) for a in pair.steps if counter.path in a.resumed.values
    ]
    return bool(seen) and all(step not in counter.steps(value) for step, value in seen)


def _wrong_counter(pair: Beside, counter: Counter) -> FindingRecord:
    first = pair.steps[0]
    text = f"{_beside(pair, counter.path)}; the state is that of step {pair.basis}"
    return finding("progress-wrong", text, step=first.number, quantity=counter.path)


def _consumed(pair: Beside) -> list[FindingRecord]:
    for path in _persistently_other(pair, CONSUMED_PATH):
        return [finding("progress-wrong", _beside(pair, path), step=pair.steps[0].number, quantity=path)]
    return []


def _beside(pair: Beside, path: str) -> str:
    first = pair.steps[0]
    value, due = first.resumed.values[path], first.control.values.get(path)
    return f"{path} is {value} before step {first.number}, control {due}"


def callbacks(pair: Beside) -> list[FindingRecord]:
    """Tell whether values of callbacks and best-metric tracking began anew.

    Such a value changes in the control, and in the resumed run it starts from the control's first one and stays wrong.
    """
    begun = pair.control.steps[0].values
    lost = [
        path
        for path in _persistently_other(pair, CALLBACK_PATH)
        if path in begun and same_plain(pair.steps[0].resumed.values[path], begun[path])
    ]
    if not lost:
        return []
    shown = [_beside(pair, path) for path in lost]
    step = pair.steps[0].number
    return [finding("callbacks-reset", shown[0], step=step, quantity=lost[0], details=shown[1:])]


def _persistently_other(pair: Beside, pattern: re.Pattern[str]) -> Iterator[str]:
    """Yield the paths like ``pattern`` whose value differs from the control's before every compared step."""
    if len(pair.steps) < ENOUGH_STEPS:
        return
    for path in sorted(pair.steps[0].control.values):
        if path in pair.noise or not pattern.search(path):
            continue
        if all(_differs(aligned.resumed.values, aligned.control.values, path) for aligned in pair.steps):
            yield path


def _differs(resumed: dict[str, Any], control: dict[str, Any], path: str) -> bool:
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
