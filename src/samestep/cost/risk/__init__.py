"""What threatens a run: how long machines live, by a model or as recorded."""

from .lives import (
    Draw,
    correlated_bounds,
    falling_hazard,
    life_interval,
    mean_seconds,
    sampler,
    scaled,
    survival,
)
from .traces import Trace, any_of, node_lives, read_trace, read_zones

__all__ = [
    "Draw",
    "Trace",
    "any_of",
    "correlated_bounds",
    "falling_hazard",
    "life_interval",
    "mean_seconds",
    "node_lives",
    "read_trace",
    "read_zones",
    "sampler",
    "scaled",
    "survival",
]
