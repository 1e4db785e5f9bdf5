"""What all charts share: their width, and the page's typography and colours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import altair as alt

WIDTH = 1040
"""Width of the plotting area in pixels; the page scales the whole."""

_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"


def chart_of(rows: Sequence[dict[str, Any]], **size: Any) -> alt.Chart:
    """Return an empty chart of ``rows``."""
    import altair as alt

    return alt.Chart(alt.Data(values=list(rows)), **size)  # type: ignore[no-untyped-call]


def finished(chart: Any) -> Any:
    """Give a chart the page's typography and colours."""
    return (
        chart.configure(background="transparent", font=_FONT, padding=4)
        .configure_view(stroke=None)
        .configure_axisY(minExtent=44)
        .configure_axis(
            labelColor="var(--muted)",
            titleColor="var(--muted)",
            titleFontWeight="normal",
            titleFontSize=12,
            labelFontSize=12,
            gridColor="var(--rule)",
            domainColor="var(--rule)",
            tickColor="var(--rule)",
        )
        .configure_legend(
            labelColor="var(--ink)",
            labelFontSize=12,
            titleColor="var(--muted)",
            titleFontWeight="normal",
            titleFontSize=12,
            orient="top",
            symbolOpacity=1,
            offset=8,
        )
    )
