"""Reading and writing ``cost.json`` and its page."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec

from samestep.cost.result import SCHEMA, CostResult
from samestep.errors import UsageError
from samestep.report.stored import encoded, plain_values, read_result, write_atomically

if TYPE_CHECKING:
    from pathlib import Path

COST_NAME = "cost.json"
PAGE_NAME = "cost.html"
_RUN_FIRST = "run a prediction first: samestep cost"


def encode_cost(result: CostResult) -> bytes:
    """Return the JSON of a result, indented, ending in a newline."""
    return encoded(result)


def decode_cost(data: bytes, source: str) -> CostResult:
    """Read a result from its JSON.

    Args:
        data: the JSON.
        source: where it came from, for messages.

    Raises:
        UsageError: it is cut off, no cost result, or of another schema.
    """
    plain = plain_values(data, source, SCHEMA, run_first=_RUN_FIRST)
    try:
        return msgspec.convert(_with_infinities(plain), CostResult)
    except (msgspec.ValidationError, AttributeError, KeyError, TypeError) as error:
        raise UsageError(f"{source} is no {SCHEMA} result: {error}") from error


def _with_infinities(plain: dict[str, Any]) -> dict[str, Any]:
    """A spread or ratio written as null was infinite: some simulated runs never end."""
    offers = [way for offer in plain.get("offers", []) for way in (offer.get("spot"), offer.get("on_demand"))]
    for ways in filter(None, [*offers, *plain.get("zones", {}).values()]):
        for name in ("cost", "finish_seconds"):
            ways[name] = {key: math.inf if value is None else value for key, value in ways[name].items()}
    for flip in plain.get("tornado", []):
        flip |= {name: math.inf for name in ("ratio_low", "ratio_high") if flip.get(name) is None}
    return plain


def load_cost(path: Path) -> CostResult:
    """Load the result at ``path``, a ``cost.json`` or the folder that holds it.

    Raises:
        UsageError: it is missing, unreadable, cut off or of another schema.
    """
    return decode_cost(*read_result(path, COST_NAME, run_first=_RUN_FIRST))


def write_cost(result: CostResult, folder: Path) -> dict[str, Path]:
    """Write ``cost.json`` and ``cost.html`` into ``folder``, each at once, the result first.

    Returns:
        The paths by format: ``json``, ``html``.
    """
    from .html import render_cost_page

    folder.mkdir(parents=True, exist_ok=True)
    paths = {"json": folder / COST_NAME, "html": folder / PAGE_NAME}
    write_atomically(paths["json"], encode_cost(result))
    write_atomically(paths["html"], render_cost_page(result).encode())
    return paths
