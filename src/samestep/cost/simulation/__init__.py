"""Runs that never took place: their two ledgers, life by life, from plain numbers and a seeded generator."""

from .deadline import clairvoyant, feasible, with_deadline
from .paths import MOST_LIVES, simulate, uninterrupted
from .plan import Paths, Plan, Prices
from .renewal import best_first, best_interval, charged_share, gain_ratio, machine_seconds
from .replay import replay
from .spans import Spans, spans_drawn, spans_replayed

__all__ = [
    "MOST_LIVES",
    "Paths",
    "Plan",
    "Prices",
    "Spans",
    "best_first",
    "best_interval",
    "charged_share",
    "clairvoyant",
    "feasible",
    "gain_ratio",
    "machine_seconds",
    "replay",
    "simulate",
    "spans_drawn",
    "spans_replayed",
    "uninterrupted",
    "with_deadline",
]
