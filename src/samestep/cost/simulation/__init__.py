"""Runs that never took place: their two ledgers, life by life, from plain numbers and a seeded generator."""

from .deadline import clairvoyant, feasible, with_deadline
from .paths import simulate, uninterrupted
from .plan import Paths, Plan, Prices
from .renewal import best_first, best_interval, gain_ratio
from .replay import replay
from .spans import Spans, spans_drawn, spans_replayed

__all__ = [
    "Paths",
    "Plan",
    "Prices",
    "Spans",
    "best_first",
    "best_interval",
    "clairvoyant",
    "feasible",
    "gain_ratio",
    "replay",
    "simulate",
    "spans_drawn",
    "spans_replayed",
    "uninterrupted",
    "with_deadline",
]
