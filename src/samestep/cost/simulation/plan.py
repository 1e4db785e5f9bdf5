"""What a simulated run is made from, and what comes out of it. Seconds and one currency throughout."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from samestep.cost.billing import RULES, Rule
from samestep.cost.errors import CostError
from samestep.ledger import Ledger, Row

Floats = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """How a run goes, whatever happens to its machines.

    Saves do not overlap: where the interval is shorter than a save takes to persist, saves are further apart.

    Attributes:
        work_seconds: productive time of the whole run, waiting for data not included.
        interval_seconds: productive time between two saves of one life.
        save_seconds: training stands still for one save.
        persist_seconds: from then until the save would survive the machine.
        persist_share: share by which training is slower meanwhile.
        restart_seconds: from a machine that is there to its first new step.
        stall_share: seconds waited for data, for each productive second.
        usable_notice: share of interruptions that announce themselves early enough for a save.
        notice_seconds: billed time between every notice and the end of the machine, not used for steps.
        first_seconds: productive time before the first save of every life; None: ``interval_seconds``.
        notice_inside: lives are counted to the end of the machine, as recorded ones are; otherwise to the notice.

    Raises:
        CostError: a number makes no sense.
    """

    work_seconds: float
    interval_seconds: float
    save_seconds: float = 0.0
    persist_seconds: float = 0.0
    persist_share: float = 0.0
    restart_seconds: float = 0.0
    stall_share: float = 0.0
    usable_notice: float = 0.0
    notice_seconds: float = 0.0
    first_seconds: float | None = None
    notice_inside: bool = False

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is None:
                continue
            least = 0.0 if field.name not in {"work_seconds", "interval_seconds", "first_seconds"} else 1e-9
            if not math.isfinite(value) or value < least:
                raise CostError(f"{field.name} = {value} makes no sense: it must be {least:g} or more")
        if max(self.persist_share, self.usable_notice) > 1:
            raise CostError(
                "a share is more than 1", hint="persist_share and usable_notice lie between 0 and 1"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prices:
    """What a run pays for.

    Attributes:
        hour: capacity that the run mainly uses, all its machines together, for an hour.
        on_demand_hour: the same for capacity that is used instead of it.
        storage_hour: everything that is kept, for an hour.
        save_transfer: moving one save over a billed boundary.
        restore_transfer: moving what one restart reads.
        save_requests: calls of one save to an object store.
        rule: how lives of the main capacity are billed.
        fallback_rule: how the other capacity is.
    """

    hour: float
    on_demand_hour: float = 0.0
    storage_hour: float = 0.0
    save_transfer: float = 0.0
    restore_transfer: float = 0.0
    save_requests: float = 0.0
    rule: Rule = RULES["per-second"]
    fallback_rule: Rule = RULES["per-second"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Paths:
    """What simulated runs came to: every attribute has one number for each path.

    Attributes:
        time: seconds by row; adds up to ``wall``.
        money: by row; adds up to ``cost``.
        wall: seconds from the start to the end, by the clock.
        cost: what was paid, from billed seconds and prices.
        billed_seconds: of all lives, by the rules.
        interruptions: that the run went through.
        saves: that were begun, those at notices and the last one included.
        executed_seconds: productive time, repeated work included.
        unique_seconds: productive time that counts; the whole work where the run finished.
        finished: False where it was given up.
    """

    time: dict[Row, Floats]
    money: dict[Row, Floats]
    wall: Floats
    cost: Floats
    billed_seconds: Floats
    interruptions: Floats
    saves: Floats
    executed_seconds: Floats
    unique_seconds: Floats
    finished: NDArray[np.bool_]

    @property
    def finish(self) -> Floats:
        """Wall seconds until the run was finished; infinite where it was given up."""
        return np.where(self.finished, self.wall, np.inf)

    def mean_time(self) -> Ledger:
        """The mean ledger in wall seconds."""
        return Ledger.of("s", {row: float(amounts.mean()) for row, amounts in self.time.items()})

    def mean_money(self, currency: str) -> Ledger:
        """The mean ledger in money."""
        return Ledger.of(currency, {row: float(amounts.mean()) for row, amounts in self.money.items()})
