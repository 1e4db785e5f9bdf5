"""The charts of the page as Vega-Lite specifications, coloured by the page's own CSS variables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .crash.chart import strip_chart
from .crash.groups import charted, summaries
from .plotting import WIDTH, chart_of, finished
from .series import CONTROL, KINDS, Row, mark_rows, sample_rows, timeline_rows, value_rows
from .view import BAD, GOOD, NEUTRAL, UNKNOWN

if TYPE_CHECKING:
    import altair as alt

    from samestep.drill.result import DrillResult

Spec = dict[str, Any]

_COLOURS = {
    CONTROL: "var(--chart-control)",
    KINDS[GOOD]: "var(--chart-good)",
    KINDS[BAD]: "var(--chart-bad)",
    KINDS[UNKNOWN]: "var(--chart-unknown)",
    KINDS[NEUTRAL]: "var(--chart-neutral)",
    "lost steps": "var(--chart-lost)",
}
_SHAPES = {
    CONTROL: "circle",
    KINDS[GOOD]: "circle",
    KINDS[BAD]: "cross",
    KINDS[UNKNOWN]: "triangle",
    KINDS[NEUTRAL]: "diamond",
}
_MARK_SHAPES = {"save": "circle", "cut": "cross", "first difference": "diamond"}


def chart_specs(result: DrillResult) -> dict[str, Spec]:
    """Return a specification for every chart that has data, by name; of interrupted saves only telling states."""
    saves = {summary.window.name: strip_chart(summary, WIDTH) for summary in summaries(result)}
    specs: dict[str, Spec] = {
        f"strip-{name}": finished(chart).to_dict() for name, chart in saves.items() if chart is not None
    }
    result = charted(result)
    losses = value_rows(result, "loss")
    if losses:
        specs["loss"] = _loss(losses).to_dict()
    rates = value_rows(result, "learning_rate")
    if rates:
        specs["rate"] = finished(_lines(rates, "learning rate", 150)).to_dict()
    samples = sample_rows(result)
    if samples:
        specs["samples"] = finished(_samples(samples)).to_dict()
    lanes = timeline_rows(result)
    if lanes:
        specs["timeline"] = finished(_timeline(lanes, mark_rows(result))).to_dict()
    return specs


def _loss(rows: list[Row]) -> Any:
    import altair as alt

    overlay = _lines(rows, "loss", 230)
    differences = [row for row in rows if "difference" in row]
    if not differences:
        return finished(overlay)
    strip = (
        chart_of(differences, width=WIDTH, height=80)
        .mark_point(filled=True, size=34, opacity=0.9)
        .encode(
            x=_step_axis(rows),
            y=alt.Y("difference:Q", title="restart minus control", axis=alt.Axis(tickCount=3, format="~g")),
            color=_colour(rows),
            shape=_shape(rows),
            tooltip=["title:N", "step:Q", alt.Tooltip("difference:Q", format=".3g")],
        )
    )
    zero = chart_of([{"zero": 0}]).mark_rule(color="var(--chart-control)").encode(y="zero:Q")
    return finished(alt.vconcat(overlay, zero + strip, spacing=14))


def _lines(rows: list[Row], title: str, height: int) -> Any:
    """The control as a broad calm line, the restarts on top of it."""
    import altair as alt

    value = alt.Y(
        "value:Q", title=title, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=5, format="~g")
    )
    control = [row for row in rows if row["kind"] == CONTROL]
    restarts = [row for row in rows if row["kind"] != CONTROL]
    tooltip: list[Any] = ["run:N", "step:Q", alt.Tooltip("value:Q", format=".6g")]
    layers = [
        chart_of(control)
        .mark_line(strokeWidth=6, opacity=0.35, strokeCap="round")
        .encode(x=_step_axis(rows), y=value, color=_colour(rows), tooltip=tooltip)
    ]
    if restarts:
        base = chart_of(restarts).encode(
            x=_step_axis(rows),
            y=value,
            color=_colour(rows),
            detail="run:N",
            tooltip=["title:N", *tooltip[1:]],
        )
        layers += [
            base.mark_line(strokeWidth=1.5),
            base.mark_point(filled=True, size=30).encode(shape=_shape(rows)),
        ]
    return alt.layer(*layers).properties(width=WIDTH, height=height)


def _samples(rows: list[Row]) -> Any:
    import altair as alt

    tooltip = ["run:N", "step:Q", alt.Tooltip("name:N", title="sample")]
    numbered = all(row["name"] == str(row["sample"]) for row in rows)
    title = "sample" if numbered else "batch, as first met"
    sample = alt.Y("sample:Q", title=title, axis=alt.Axis(tickCount=5))
    control = [row for row in rows if row["kind"] == CONTROL]
    restarts = [row for row in rows if row["kind"] != CONTROL]
    encoding = {"x": _step_axis(rows), "y": sample, "color": _colour(rows), "tooltip": tooltip}
    return alt.layer(
        chart_of(control).mark_point(filled=True, size=70, opacity=0.4).encode(**encoding),
        chart_of(restarts).mark_point(filled=True, size=18).encode(**encoding, shape=_shape(rows)),
    ).properties(width=WIDTH, height=200)


def _timeline(lanes: list[Row], marks: list[Row]) -> Any:
    import altair as alt

    order = list(dict.fromkeys(row["lane"] for row in lanes))
    lane = alt.Y("lane:N", sort=order, title=None, axis=alt.Axis(labelLimit=300, domain=False, ticks=False))
    offset = alt.YOffset("phase:N", sort=["run", "1 before", "2 after"])
    bars = (
        chart_of(lanes)
        .mark_bar(cornerRadius=1.5)
        .encode(
            x=alt.X("begin:Q", title="step", axis=alt.Axis(tickMinStep=1, tickCount=12)),
            x2="end:Q",
            y=lane,
            yOffset=offset,
            color=_colour(lanes),
            tooltip=["lane:N", "kind:N", "begin:Q", "end:Q"],
        )
    )
    points = (
        chart_of(marks)
        .mark_point(filled=True, size=38, color="var(--ink)", opacity=1)
        .encode(
            x="step:Q",
            y=lane,
            yOffset=offset,
            shape=alt.Shape(
                "mark:N",
                title=None,
                scale=alt.Scale(domain=list(_MARK_SHAPES), range=list(_MARK_SHAPES.values())),
            ),
            tooltip=["lane:N", "mark:N", "step:Q"],
        )
    )
    width = WIDTH - 240
    return (bars + points).resolve_scale(shape="independent").properties(width=width, height=alt.Step(9))


def _step_axis(rows: list[Row]) -> alt.X:
    import altair as alt

    steps = [row["step"] for row in rows]
    domain = [min(steps) - 0.5, max(steps) + 0.5]
    return alt.X(
        "step:Q",
        title="step",
        scale=alt.Scale(domain=domain, nice=False),
        axis=alt.Axis(tickMinStep=1, grid=False),
    )


def _colour(rows: list[Row]) -> alt.Color:
    import altair as alt

    present = [kind for kind in _COLOURS if any(row["kind"] == kind for row in rows)]
    scale = alt.Scale(domain=present, range=[_COLOURS[kind] for kind in present])
    return alt.Color("kind:N", title=None, scale=scale)


def _shape(rows: list[Row]) -> alt.Shape:
    import altair as alt

    present = [kind for kind in _SHAPES if any(row["kind"] == kind for row in rows)]
    scale = alt.Scale(domain=present, range=[_SHAPES[kind] for kind in present])
    return alt.Shape("kind:N", title=None, scale=scale)
