"""Rows for the charts and the side-by-side table: pure functions from the result."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .view import BAD, GOOD, NEUTRAL, UNKNOWN, scenario_tone, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable

    from samestep.drill.result import DrillResult, ScenarioResult, Series

Row = dict[str, Any]

CONTROL = "control"
KINDS = {
    GOOD: "restart, holds",
    BAD: "restart, does not hold",
    UNKNOWN: "restart, inconclusive",
    NEUTRAL: "restart, noted",
}
"""How a restarted run is named in a legend, by tone."""

MISSING = "\N{EN DASH}"
POINT_LIMIT = 3000
"""Most points in one chart: beyond that the control's are thinned."""


@dataclass(frozen=True)
class SideBySide:
    """One step of the control beside the same step of the restarted run, ready to print."""

    step: int
    loss: tuple[str, str]
    rate: tuple[str, str]
    samples: tuple[str, str]
    differs: bool


def control_series(result: DrillResult, rank: int = 0) -> Series | None:
    """Return the control's series of one rank."""
    found = result.control.series if result.control else []
    return next((series for series in found if series.rank == rank), None)


def value_rows(result: DrillResult, field: str) -> list[Row]:
    """Return one row per step and run: ``value`` and, for restarts, its ``difference`` to the control.

    Args:
        result: the drill.
        field: ``loss`` or ``learning_rate``.
    """
    control = control_series(result)
    reference = dict(_values(control, field)) if control else {}
    rows = [{"step": s, "value": v, "run": CONTROL, "kind": CONTROL} for s, v in reference.items()]
    rows = _thinned(rows, POINT_LIMIT // 2)
    for scenario, series in _restarts(result):
        for step, value in _values(series, field):
            row = {"step": step, "value": value, **_labels(scenario)}
            if step in reference:
                row["difference"] = value - reference[step]
            rows.append(row)
    return _thinned(rows, POINT_LIMIT)


def sample_rows(result: DrillResult) -> list[Row]:
    """Return one row per sample and run: ``sample`` is its index, or its place in the order first met."""
    control = control_series(result)
    runs: list[tuple[Row, Series]] = []
    if control:
        runs.append(({"run": CONTROL, "kind": CONTROL}, control))
    runs += [(_labels(scenario), series) for scenario, series in _restarts(result)]
    number = _sample_numbers(series for _, series in runs)
    rows = [
        {"step": step, "sample": number[str(sample)], "name": shortened(str(sample), 20), **labels}
        for labels, series in runs
        for step, batch in zip(series.steps, series.samples, strict=False)
        for sample in batch
    ]
    return _thinned(rows, POINT_LIMIT)


def _sample_numbers(every: Iterable[Series]) -> dict[str, int]:
    names = dict.fromkeys(
        sample for series in every for batch in series.samples for sample in batch if _hashable(sample)
    )
    if all(isinstance(name, int) for name in names):
        return {str(name): name for name in names}
    return {str(name): place for place, name in enumerate(names)}


def _hashable(sample: object) -> bool:
    return isinstance(sample, (int, str, float))


def timeline_rows(result: DrillResult) -> list[Row]:
    """Return the lanes of the timeline: what each attempt of a scenario ran, from step to step."""
    rows: list[Row] = []
    if result.control:
        rows.append(
            {"lane": CONTROL, "phase": "run", "kind": CONTROL, "begin": 0, "end": result.control.steps}
        )
    for scenario in result.scenarios:
        rows += _lane_rows(scenario)
    return rows


def _lane_rows(scenario: ScenarioResult) -> list[Row]:
    seen = scenario.observed
    lane = {"lane": lane_name(scenario), "outcome": str(seen.outcome), "scenario": scenario.name}
    rows: list[Row] = []
    resumed = seen.resume_step
    if scenario.cut_step is not None:
        kept = scenario.cut_step if resumed is None else min(resumed, scenario.cut_step)
        rows.append({**lane, "phase": "1 before", "kind": CONTROL, "begin": 0, "end": kept})
        if kept < scenario.cut_step:
            rows.append(
                {**lane, "phase": "1 before", "kind": "lost steps", "begin": kept, "end": scenario.cut_step}
            )
    if resumed is not None and seen.steps_verified:
        kind = KINDS[scenario_tone(scenario)]
        end = resumed + seen.steps_verified
        rows.append({**lane, "phase": "2 after", "kind": kind, "begin": resumed, "end": end})
    return rows


def mark_rows(result: DrillResult) -> list[Row]:
    """Return the points of the timeline: saves, cuts and first different steps."""
    rows: list[Row] = []
    if result.control:
        rows += [
            {"lane": CONTROL, "phase": "run", "mark": "save", "step": s} for s in result.control.save_steps
        ]
    for scenario in result.scenarios:
        lane, divergent = lane_name(scenario), scenario.observed.first_divergent_step
        if scenario.cut_step is not None:
            rows.append({"lane": lane, "phase": "1 before", "mark": "cut", "step": scenario.cut_step})
        if divergent is not None:
            rows.append({"lane": lane, "phase": "2 after", "mark": "first difference", "step": divergent})
    return rows


def lane_name(scenario: ScenarioResult) -> str:
    """Return the label of a scenario's lane."""
    return f"{scenario.family}: {shortened(scenario.title, 40)}"


def side_by_side(result: DrillResult, scenario: ScenarioResult, limit: int = 6) -> list[SideBySide]:
    """Return the steps around the first difference, the control's values beside the restarted run's."""
    rank = scenario.observed.rank or 0
    control = control_series(result, rank)
    series = next((s for s in reversed(scenario.series) if s.rank == rank), None)
    if control is None or series is None:
        return []
    first = (scenario.observed.first_divergent_step or 0) - 1
    steps = [step for step in series.steps if step >= first and step in set(control.steps)][:limit]
    tolerance = result.criterion.tolerances.get("loss", 0.0) if result.criterion else 0.0
    return [_beside(step, control, series, tolerance) for step in steps]


def _beside(step: int, control: Series, series: Series, tolerance: float) -> SideBySide:
    left, right = control.steps.index(step), series.steps.index(step)
    losses = _at(control.loss, left), _at(series.loss, right)
    rates = _at(control.learning_rate, left), _at(series.learning_rate, right)
    samples = _at(control.samples, left), _at(series.samples, right)
    differs = _apart(losses, tolerance) or rates[0] != rates[1] or samples[0] != samples[1]
    return SideBySide(
        step=step,
        loss=(_number(losses[0]), _number(losses[1])),
        rate=(_number(rates[0]), _number(rates[1])),
        samples=(_batch(samples[0]), _batch(samples[1])),
        differs=differs,
    )


def _apart(pair: tuple[float | None, float | None], tolerance: float) -> bool:
    left, right = pair
    if left is None or right is None:
        return left is not right
    return abs(left - right) > tolerance * max(abs(left), abs(right))


def _at(values: list[Any], place: int) -> Any:
    return values[place] if place < len(values) else None


def _number(value: float | None) -> str:
    return MISSING if value is None else f"{value:.6g}"


def _batch(samples: list[Any] | None) -> str:
    return shortened(" ".join(str(sample)[:8] for sample in samples), 36) if samples else MISSING


def _restarts(result: DrillResult) -> list[tuple[ScenarioResult, Series]]:
    return [(s, series) for s in result.scenarios for series in s.series if series.rank == 0]


def _labels(scenario: ScenarioResult) -> Row:
    return {"run": scenario.name, "kind": KINDS[scenario_tone(scenario)], "title": scenario.title}


def _values(series: Series, field: str) -> list[tuple[int, float]]:
    pairs = zip(series.steps, getattr(series, field), strict=False)
    return [(step, value) for step, value in pairs if value is not None and math.isfinite(value)]


def _thinned(rows: list[Row], limit: int) -> list[Row]:
    """Keep every n-th row, and all of them while they are few."""
    return rows[:: max(1, math.ceil(len(rows) / limit))]
