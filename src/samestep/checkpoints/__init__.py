"""Reading what training frameworks leave on disk: which checkpoints, what is in them, are they whole.

Files are read by their headers and never unpickled.
"""

from .bundles import ROOT_NAMES, SAMESTEP, saved_steps
from .frameworks import FRAMEWORKS, Framework, framework_hint
from .inspection import inspect_path, inspect_unit
from .model import (
    UNKNOWN,
    Answer,
    ComponentReport,
    Danger,
    FolderInspection,
    Inspection,
    Presence,
    Problem,
    Selection,
    Unit,
    Verdict,
)
from .naming import holds_only_random_state, is_leftover, is_log
from .selection import select, would_pick
from .units import find_units

__all__ = [
    "FRAMEWORKS",
    "ROOT_NAMES",
    "SAMESTEP",
    "UNKNOWN",
    "Answer",
    "ComponentReport",
    "Danger",
    "FolderInspection",
    "Framework",
    "Inspection",
    "Presence",
    "Problem",
    "Selection",
    "Unit",
    "Verdict",
    "find_units",
    "framework_hint",
    "holds_only_random_state",
    "inspect_path",
    "inspect_unit",
    "is_leftover",
    "is_log",
    "saved_steps",
    "select",
    "would_pick",
]
