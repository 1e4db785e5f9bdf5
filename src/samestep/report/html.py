"""The drill as one offline page: tables that need no script, charts that need no network."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from . import view
from .charts import chart_specs
from .crash import groups as crash
from .crash import words
from .files import encode_result
from .offline import bounded_page, flattened
from .series import side_by_side

if TYPE_CHECKING:
    from samestep.drill.result import DrillResult


def render_html(result: DrillResult) -> str:
    """Render the drill as a single HTML file that loads nothing from anywhere.

    Where it would be too large, the per-step numbers of the embedded result are what is left out last.
    """
    return bounded_page(
        "page.html.j2",
        chart_specs(result),
        encode_result(result),
        encode_result(_without_series(result)),
        result=result,
        verdict=view.verdict(result),
        view=view,
        crash=crash,
        told=words.told,
        saves=crash.summaries(result),
        side_by_side=side_by_side,
        provenance=flattened(result.provenance),
        started=_moment(result.started_unix),
    )


def _without_series(result: DrillResult) -> DrillResult:
    control = result.control and msgspec.structs.replace(result.control, series=[])
    scenarios = [msgspec.structs.replace(scenario, series=[]) for scenario in result.scenarios]
    return msgspec.structs.replace(result, control=control, scenarios=scenarios)


def _moment(unix: float) -> str:
    return datetime.fromtimestamp(unix, UTC).strftime("%Y-%m-%d %H:%M UTC") if unix else ""
