"""The charts of a cost page as Vega-Lite specifications, coloured by the page's own CSS variables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from samestep.report.plotting import WIDTH, chart_of, finished

from .accounts import MONEY, TIME
from .series import (
    COUNTS,
    LOST,
    MARKS,
    ON_TOP,
    TOTAL,
    WAITS,
    Row,
    bins,
    interval_rows,
    marks,
    offer_rows,
    time_unit,
    tornado_rows,
    waterfall_rows,
)
from .words import main_ways

if TYPE_CHECKING:
    import altair as alt

    from samestep.cost.result import CostResult

Spec = dict[str, Any]

_HALF = 400
"""Width of each of two charts side by side; the labels of the left one need room."""

_PART_COLOURS = {
    COUNTS: "var(--chart-good)",
    LOST: "var(--chart-bad)",
    WAITS: "var(--chart-unknown)",
    ON_TOP: "var(--chart-neutral)",
    TOTAL: "var(--chart-control)",
}
_MARK_COLOURS = {
    "half are below": "var(--ink)",
    "19 of 20 are below": "var(--muted)",
    "on-demand": "var(--chart-neutral)",
    "deadline": "var(--chart-bad)",
    "budget": "var(--chart-bad)",
}


def chart_specs(result: CostResult) -> dict[str, Spec]:
    """Return a specification for every chart that has data, by name."""
    made = {
        "waterfalls": _waterfalls(result),
        "distributions": _distributions(result),
        "interval": _interval(result),
        "offers": _offers(result),
        "tornado": _tornado(result),
    }
    return {name: finished(chart).to_dict() for name, chart in made.items() if chart is not None}


def _waterfalls(result: CostResult) -> Any:
    import altair as alt

    rows = {kind: waterfall_rows(result, kind) for kind in (MONEY, TIME)}
    if not rows[MONEY]:
        return None
    order = list(dict.fromkeys(row["row"] for row in rows[MONEY]))
    parts = [
        part for part in _PART_COLOURS if any(row["part"] == part for side in rows.values() for row in side)
    ]
    titles = {MONEY: f"money ({rows[MONEY][0]['unit']})", TIME: f"wall time ({rows[TIME][0]['unit']})"}
    sides = [
        _waterfall(rows[kind], order, parts, title, labelled=kind == MONEY) for kind, title in titles.items()
    ]
    return alt.hconcat(*sides, spacing=28).resolve_scale(y="shared")


def _waterfall(rows: list[Row], order: list[str], parts: list[str], title: str, *, labelled: bool) -> Any:
    import altair as alt

    axis = alt.Axis(labels=labelled, ticks=False, domain=False, grid=False, labelLimit=180)
    y = alt.Y("row:N", sort=order, title=None, axis=axis)
    room = 1.22 * max(row["end"] for row in rows) or 1.0
    x = alt.X("begin:Q", title=title, scale=alt.Scale(domain=[0, room]), axis=alt.Axis(tickCount=5))
    colour = alt.Color(
        "part:N",
        title=None,
        scale=alt.Scale(domain=parts, range=[_PART_COLOURS[part] for part in parts]),
    )
    tooltip = [alt.Tooltip("row:N"), alt.Tooltip("text:N", title="amount"), alt.Tooltip("meaning:N")]
    base = chart_of(rows).encode(y=y)
    bars = base.mark_bar(cornerRadius=1.5, height={"band": 0.68}).encode(
        x=x, x2="end:Q", color=colour, tooltip=tooltip
    )
    texts = base.mark_text(align="left", dx=5, fontSize=11, color="var(--muted)").encode(
        x="end:Q", text="text:N"
    )
    return (bars + texts).properties(width=_HALF, height=alt.Step(22))


def _distributions(result: CostResult) -> Any:
    import altair as alt

    ways = main_ways(result)[0]
    if ways is None:
        return None
    titles = {TIME: f"finished after ({time_unit(result)[0]})", MONEY: f"cost ({ways.money.unit})"}
    lines = {kind: marks(result, kind)[0] for kind in titles}
    present = [mark for mark in MARKS if any(row["mark"] == mark for side in lines.values() for row in side)]
    sides = [
        _histogram(shown, lines[kind], present, title)
        for kind, title in titles.items()
        if (shown := bins(result, kind))
    ]
    return alt.hconcat(*sides, spacing=40) if sides else None


def _histogram(rows: list[Row], lines: list[Row], present: list[str], title: str) -> Any:
    import altair as alt

    bars = (
        chart_of(rows)
        .mark_bar(color="var(--chart-good)", opacity=0.75)
        .encode(
            x=alt.X(
                "begin:Q", title=title, scale=alt.Scale(zero=False, nice=False), axis=alt.Axis(grid=False)
            ),
            x2="end:Q",
            y=alt.Y("share:Q", title="share of simulated runs", axis=alt.Axis(format="%", tickCount=4)),
            y2=alt.Y2Datum(0),
            tooltip=["from:N", "to:N", alt.Tooltip("share:Q", format=".2%")],
        )
    )
    scale = alt.Scale(domain=present, range=[_MARK_COLOURS[mark] for mark in present])
    rules = (
        chart_of(lines)
        .mark_rule(strokeWidth=1.8, strokeDash=[5, 3])
        .encode(x="at:Q", color=alt.Color("mark:N", title=None, scale=scale), tooltip=["mark:N", "text:N"])
    )
    return (bars + rules).properties(width=_HALF + 40, height=170)


def _interval(result: CostResult) -> Any:
    import altair as alt

    found = interval_rows(result)
    if not found.curve:
        return None
    x = alt.X(
        "interval:Q",
        title=f"between two saves ({found.unit})",
        scale=alt.Scale(type="log", nice=False),
        axis=alt.Axis(grid=False, tickCount=8, format="~g"),
    )
    y = alt.Y(
        "overhead:Q",
        title="machine time over useful time",
        scale=alt.Scale(zero=False),
        axis=alt.Axis(tickCount=5, format=".1~%"),
    )
    line = chart_of(found.curve).mark_line(strokeWidth=2.5, color="var(--chart-good)", clip=True)
    band = chart_of([found.flat]).mark_rect(color="var(--chart-good)", opacity=0.14)
    points = (
        chart_of(found.points)
        .mark_point(filled=True, size=90, opacity=1, color="var(--ink)")
        .encode(x=x, y=y, shape=alt.Shape("point:N", title=None), tooltip=["point:N", "text:N"])
    )
    lines = line.encode(x=x, y=y, tooltip=["text:N", alt.Tooltip("overhead:Q", format=".1%")])
    flat = band.encode(x=alt.X("low:Q"), x2="high:Q", tooltip=["text:N"])
    return (flat + lines + points).properties(width=WIDTH - 60, height=210)


def _offers(result: CostResult) -> Any:
    import altair as alt

    rows = offer_rows(result)
    if len({row["offer"] for row in rows}) < 2:
        return None
    order = list(dict.fromkeys(row["offer"] for row in rows))
    y = alt.Y("offer:N", sort=order, title=None, axis=alt.Axis(labelLimit=300, domain=False, ticks=False))
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    colours = {"on-demand": "var(--chart-neutral)"}
    scale = alt.Scale(domain=kinds, range=[colours.get(kind, "var(--chart-good)") for kind in kinds])
    base = chart_of(rows).encode(y=y, color=alt.Color("kind:N", title=None, scale=scale))
    cost = alt.X("cost:Q", title=f"cost ({result.offers[0].offer.currency})", scale=alt.Scale(zero=True))
    ranges = base.mark_bar(height=5, cornerRadius=2, opacity=0.45).encode(x="low:Q", x2="high:Q")
    shapes = alt.Scale(domain=kinds, range=["diamond" if kind == "on-demand" else "circle" for kind in kinds])
    points = base.mark_point(filled=True, size=70, opacity=1).encode(
        x=cost, shape=alt.Shape("kind:N", title=None, scale=shapes), tooltip=["offer:N", "kind:N", "text:N"]
    )
    return (ranges + points).properties(width=WIDTH - 320, height=alt.Step(22))


def _tornado(result: CostResult) -> Any:
    import altair as alt

    rows = tornado_rows(result)
    if not rows:
        return None
    order = list(dict.fromkeys(row["input"] for row in rows))
    axis = alt.Axis(labelLimit=260, domain=False, ticks=False)
    y = alt.Y("input:N", sort=order, title=None, axis=axis)
    base = chart_of(rows).encode(y=y)
    scale = alt.Scale(domain=["lower", "higher"], range=["var(--chart-good)", "var(--chart-unknown)"])
    bars = base.mark_bar(cornerRadius=1.5, height={"band": 0.62}).encode(
        x=alt.X(
            "base:Q",
            title="cost of spot / cost of on-demand",
            scale=alt.Scale(zero=False),
            axis=alt.Axis(tickCount=8),
        ),
        x2="ratio:Q",
        color=alt.Color("end:N", title="value of the input", scale=scale),
        tooltip=[
            "input:N",
            "text:N",
            alt.Tooltip("ratio:Q", format=".3f"),
            alt.Tooltip("turns:N", title="turns at"),
        ],
    )
    even = (
        chart_of([{"at": 1.0, "text": "spot and on-demand cost the same"}])
        .mark_rule(color="var(--chart-bad)", strokeDash=[5, 3], strokeWidth=1.8)
        .encode(x="at:Q", tooltip=["text:N"])
    )
    return (bars + even).properties(width=WIDTH - 280, height=_step(24))


def _step(pixels: int) -> alt.Step:
    import altair as alt

    return alt.Step(pixels)
