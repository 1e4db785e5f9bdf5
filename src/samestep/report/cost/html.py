"""A cost answer as one offline page: tables that need no script, charts that need no network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from samestep.cost import units
from samestep.report import view
from samestep.report.offline import bounded_page, flattened

from . import accounts, words
from .charts import chart_specs
from .files import encode_cost
from .inputs import input_rows
from .series import marks

if TYPE_CHECKING:
    from samestep.cost.result import CostResult


def render_cost_page(result: CostResult) -> str:
    """Render a cost answer as a single HTML file that loads nothing from anywhere.

    Where it would be too large, the offers that the tables do not show are what is left out last.
    """
    return bounded_page(
        "cost/page.html.j2",
        chart_specs(result),
        encode_cost(result),
        encode_cost(_shown_offers(result)),
        result=result,
        verdict=words.verdict(result),
        view=view,
        words=words,
        accounts=accounts,
        units=units,
        inputs=input_rows(result.case),
        far_marks=[mark for kind in (accounts.TIME, accounts.MONEY) for mark in marks(result, kind)[1]],
        provenance=flattened(result.provenance),
    )


def _shown_offers(result: CostResult) -> CostResult:
    case = replace(result.case, offers=[])
    return replace(result, case=case, offers=result.offers[: words.SHOWN_OFFERS])
