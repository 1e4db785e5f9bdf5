"""Reading and writing ``cost.json`` and its page."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec

from samestep.cost.result import SCHEMA, CostResult
from samestep.errors import UsageError
from samestep.report.files import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

COST_NAME = "cost.json"
PAGE_NAME = "cost.html"


def encode_cost(result: CostResult) -> bytes:
    """Return the JSON of a result, indented, ending in a newline."""
    return msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n"


def decode_cost(data: bytes, source: str) -> CostResult:
    """Read a result from its JSON.

    Args:
        data: the JSON.
        source: where it came from, for messages.

    Raises:
        UsageError: it is cut off, no cost result, or of another schema.
    """
    try:
        plain = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise UsageError(f"{source} is no complete JSON ({error})", hint="run samestep cost again") from error
    schema = plain.get("schema") if isinstance(plain, dict) else None
    if schema != SCHEMA:
        raise UsageError(
            f"{source} has the schema {schema!r}, expected {SCHEMA!r}",
            hint="read it with the samestep version that wrote it",
        )
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
    file = path / COST_NAME if path.is_dir() else path
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}", hint="run samestep cost first") from error
    return decode_cost(data, str(file))


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
