"""The strip chart as a Vega-Lite specification."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from samestep.contract import Outcome
from samestep.report.plotting import chart_of

from .groups import NOTHING_LEFT, in_strength
from .strip import GLYPHS, NOTED, UNTRIED, cell_rows, operation_rows

if TYPE_CHECKING:
    import altair as alt

    from .groups import Summary
    from .strip import Row

LABEL_WIDTH_MAX = 230
"""Most pixels for the names of models and files."""

LETTER_WIDTH = 7

CELL_HEIGHT = 11
GLYPH_WIDTH = 7
"""Cells narrower than this many pixels carry no glyph."""

_COLOURS = {
    str(Outcome.DIFFERENT): "var(--chart-bad)",
    str(Outcome.RESTARTED): "var(--chart-restarted)",
    NOTHING_LEFT: "var(--ink)",
    str(Outcome.CRASHED): "var(--chart-crashed)",
    str(Outcome.LOST_WORK): "var(--chart-older)",
    str(Outcome.REFUSED): "var(--chart-refused)",
    str(Outcome.INCONCLUSIVE): "var(--chart-control)",
    NOTED: "var(--chart-neutral)",
    str(Outcome.SAME): "var(--chart-good)",
    UNTRIED: "var(--rule)",
}
_SHAPES = {
    "write": "square",
    "create": "circle",
    "fsync": "triangle-up",
    "rename": "diamond",
    "delete": "cross",
}
_MARK_COLOURS = {
    "write": "var(--chart-control)",
    "create": "var(--chart-control)",
    "fsync": "var(--chart-good)",
    "rename": "var(--ink)",
    "delete": "var(--chart-bad)",
}


def strip_chart(summary: Summary, width: int) -> Any:
    """Return the chart of one save: above the outcomes of the states, below the operations by file.

    Args:
        summary: the save.
        width: of the whole in pixels.
    """
    import altair as alt

    cells, operations = cell_rows(summary), operation_rows(summary)
    if not cells or not operations:
        return None
    count = max(row["column"] for row in operations) + 1
    room = _label_width(cells, operations)
    plot = width - room
    places = list(range(count))
    x = alt.X("column:O", scale=alt.Scale(domain=places, paddingInner=0.12), axis=None)
    points = alt.X("column:O", scale=alt.Scale(domain=places), axis=None)
    return alt.vconcat(
        _outcomes(cells, x, plot, room, glyphs=plot / count >= GLYPH_WIDTH),
        _operations(operations, points, plot, room),
        spacing=6,
    ).resolve_scale(color="independent", shape="independent")


def _label_width(cells: list[Row], operations: list[Row]) -> int:
    names = [*(row["model"] for row in cells), *(row["file"] for row in operations)]
    return min(LABEL_WIDTH_MAX, 16 + LETTER_WIDTH * max(map(len, names)))


def _outcomes(cells: list[Row], x: alt.X, width: int, room: int, *, glyphs: bool) -> Any:
    import altair as alt

    rows, names = _placed(cells)
    present = [kind for kind in _COLOURS if any(row["kind"] == kind for row in cells)]
    y = alt.Y(
        "row:O",
        title=None,
        scale=alt.Scale(domain=list(range(max(row["row"] for row in rows) + 1)), paddingInner=0.12),
        axis=_axis(room, values=list(names), labelExpr=f"{json.dumps(names)}[datum.value]"),
    )
    base = chart_of(rows).encode(x=x, y=y)
    labels = {kind: f"{GLYPHS[kind]} {kind}".strip() for kind in present}
    colour = alt.Color(
        "kind:N",
        title=None,
        scale=alt.Scale(domain=present, range=[_COLOURS[kind] for kind in present]),
        legend=alt.Legend(labelExpr=f"{json.dumps(labels, ensure_ascii=False)}[datum.value]"),
    )
    tooltip = [
        alt.Tooltip("kind:N", title="outcome"),
        alt.Tooltip("what:N", title="what happens"),
        alt.Tooltip("operation:N"),
        alt.Tooltip("name:N", title="state"),
    ]
    chart = base.mark_rect(cornerRadius=1).encode(color=colour, tooltip=tooltip)
    if glyphs:
        chart += base.mark_text(fontSize=9, fontWeight="bold", color="var(--paper)").encode(
            text="glyph:N", tooltip=tooltip
        )
    return chart.properties(width=width, height=alt.Step(CELL_HEIGHT))


def _placed(cells: list[Row]) -> tuple[list[Row], dict[int, str]]:
    """Put the cells of each model into rows of their own, growing upwards; return the name at each model's base."""
    rows, names, top = [], {}, 0
    for model in in_strength({row["model"] for row in cells}):
        own = [row for row in cells if row["model"] == model]
        base = top + max(row["level"] for row in own)
        rows += [{**row, "row": base - row["level"]} for row in own]
        names[base] = model
        top = base + 2
    return rows, names


def _operations(rows: list[Row], x: alt.X, width: int, room: int) -> Any:
    import altair as alt

    files = list(dict.fromkeys(row["file"] for row in rows))
    present = [mark for mark in _SHAPES if any(row["mark"] == mark for row in rows)]
    shape = alt.Shape(
        "mark:N", title=None, scale=alt.Scale(domain=present, range=[_SHAPES[mark] for mark in present])
    )
    colour = alt.Color(
        "mark:N", title=None, scale=alt.Scale(domain=present, range=[_MARK_COLOURS[mark] for mark in present])
    )
    y = alt.Y("file:N", sort=files, title=None, axis=_axis(room, grid=True))
    return (
        chart_of(rows)
        .mark_point(filled=True, size=42, opacity=1)
        .encode(x=x, y=y, shape=shape, color=colour, tooltip=["operation:N", "file:N"])
        .properties(width=width, height=alt.Step(15))
    )


def _axis(room: int, **settings: Any) -> alt.Axis:
    """An axis whose labels take the same room in both parts, so that operations stand under one another."""
    import altair as alt

    settings |= {"minExtent": room, "maxExtent": room, "labelLimit": room - 12}
    return alt.Axis(domain=False, ticks=False, **settings)
