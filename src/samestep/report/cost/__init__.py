"""A cost answer as tables, a page and JSON."""

from .files import COST_NAME, PAGE_NAME, decode_cost, encode_cost, load_cost, write_cost
from .terminal import render_cost

__all__ = [
    "COST_NAME",
    "PAGE_NAME",
    "decode_cost",
    "encode_cost",
    "load_cost",
    "render_cost",
    "write_cost",
]
