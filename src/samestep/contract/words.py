"""The fixed vocabulary, as enums whose values are the words users read."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Word(str, enum.Enum):
    """An enum of words that prints and serialises as the word itself."""

    def __str__(self) -> str:
        return str(self.value)


class Component(Word):
    """A named part of the training state, or of the store that keeps it."""

    WEIGHTS = "weights"
    OPTIMIZER = "optimizer"
    SCHEDULE = "schedule"
    SCALER = "scaler"
    RNG = "rng"
    DATA_ORDER = "data-order"
    DATA_POSITION = "data-position"
    ACCUMULATION = "accumulation"
    PROGRESS = "progress"
    EMA = "ema"
    CALLBACKS = "callbacks"
    CONFIG = "config"
    ENVIRONMENT = "environment"
    WORLD = "world"
    SELECTION = "selection"
    COMPLETENESS = "completeness"
    ROTATION = "rotation"
    ACCESS = "access"


class Intent(Word):
    """What a user wants a checkpoint for."""

    WEIGHTS = "weights"
    NEW_RUN = "new-run"
    RESUME = "resume"


class Family(Word):
    """A group of scenarios."""

    CUT = "cut"
    NOTICE = "notice"
    DAMAGE = "damage"
    TRANSFER = "transfer"
    RESTART = "restart"
    CRASH = "crash"


class Outcome(Word):
    """What became of a scenario; declared worst first."""

    DIFFERENT = "different"
    RESTARTED = "restarted"
    CRASHED = "crashed"
    LOST_WORK = "lost-work"
    REFUSED = "refused"
    INCONCLUSIVE = "inconclusive"
    SAME = "same"


class Severity(Word):
    """How much a finding counts.

    A defect fails the drill, a measurement finding says that the drill cannot tell, a note
    changes nothing unless the drill is strict.
    """

    DEFECT = "defect"
    MEASUREMENT = "measurement"
    NOTE = "note"


def worst_outcome(outcomes: Iterable[Outcome]) -> Outcome:
    """Return the worst of ``outcomes``; with none at all nothing is known: inconclusive."""
    order = list(Outcome)
    return min(outcomes, key=order.index, default=Outcome.INCONCLUSIVE)
