"""A cost answer as one offline page: tables that need no script, charts that need no network."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from samestep.cost import units
from samestep.report import view
from samestep.report.offline import (
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

from . import accounts, words
from .charts import chart_specs
from .files import encode_cost
from .inputs import input_rows
from .series import marks

if TYPE_CHECKING:
    from samestep.cost.result import CostResult


def render_cost_page(result: CostResult) -> str:
    """Render a cost answer as a single HTML file that loads nothing from anywhere.

    To stay within 1.5 MB the embedded result is compressed, then charts drawn ahead are left out, then the offers
    that the tables do not show.
    """
    specs = chart_specs(result)
    drawings = {name: drawn(name, spec) for name, spec in specs.items()}
    page = _render(result, specs, embedded_json(encode_cost(result).decode()), drawings)
    for kept, shown in ((result, drawings), (result, {}), (_shown_offers(result), {})):
        if len(page.encode()) <= SIZE_LIMIT_BYTES:
            break
        page = _render(result, specs, packed(encode_cost(kept)), shown)
    return page


def _render(result: CostResult, specs: dict[str, Any], raw: str, drawings: dict[str, str]) -> str:
    return (
        environment()
        .get_template("cost/page.html.j2")
        .render(
            result=result,
            verdict=words.headline(result),
            view=view,
            words=words,
            accounts=accounts,
            units=units,
            inputs=input_rows(result.case),
            far_marks=[mark for kind in (accounts.TIME, accounts.MONEY) for mark in marks(result, kind)[1]],
            provenance=flattened(result.provenance),
            specs={name: embedded_json(json.dumps(spec)) for name, spec in specs.items()},
            drawings=drawings,
            raw=raw,
            raw_type="application/json" if raw.startswith("{") else PACKED,
            script=script(),
            policy=policy(),
        )
    )


def _shown_offers(result: CostResult) -> CostResult:
    case = replace(result.case, offers=[])
    return replace(result, case=case, offers=result.offers[: words.SHOWN_OFFERS])
