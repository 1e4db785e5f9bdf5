"""The drill as one offline page: tables that need no script, charts that need no network."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from . import view
from .charts import chart_specs
from .crash import groups as crash
from .crash import words
from .files import encode_result
from .offline import (
    PACKED,
    SIZE_LIMIT_BYTES,
    drawn,
    embedded_json,
    environment,
    flattened,
    packed,
    policy,
    script,
)
from .series import side_by_side

if TYPE_CHECKING:
    from samestep.drill.result import DrillResult


def render_html(result: DrillResult) -> str:
    """Render the drill as a single HTML file that loads nothing from anywhere.

    To stay within 1.5 MB the embedded result is compressed, then charts drawn ahead are left out, then the per-step
    numbers of the embedded result.
    """
    specs = chart_specs(result)
    drawings = {name: drawn(name, spec) for name, spec in specs.items()}
    smaller = _without_series(result)
    page = _render(result, specs, embedded_json(encode_result(result).decode()), drawings)
    for kept, shown in ((result, drawings), (result, {}), (smaller, {})):
        if len(page.encode()) <= SIZE_LIMIT_BYTES:
            break
        page = _render(result, specs, packed(encode_result(kept)), shown)
    return page


def _render(result: DrillResult, specs: dict[str, Any], raw: str, drawings: dict[str, str]) -> str:
    return (
        environment()
        .get_template("page.html.j2")
        .render(
            result=result,
            verdict=view.verdict(result),
            view=view,
            crash=crash,
            told=words.told,
            saves=crash.summaries(result),
            side_by_side=side_by_side,
            provenance=flattened(result.provenance),
            started=_moment(result.started_unix),
            specs={name: embedded_json(json.dumps(spec)) for name, spec in specs.items()},
            drawings=drawings,
            raw=raw,
            raw_type="application/json" if raw.startswith("{") else PACKED,
            script=script(),
            policy=policy(),
        )
    )


def _without_series(result: DrillResult) -> DrillResult:
    control = result.control and msgspec.structs.replace(result.control, series=[])
    scenarios = [msgspec.structs.replace(scenario, series=[]) for scenario in result.scenarios]
    return msgspec.structs.replace(result, control=control, scenarios=scenarios)


def _moment(unix: float) -> str:
    return datetime.fromtimestamp(unix, UTC).strftime("%Y-%m-%d %H:%M UTC") if unix else ""
