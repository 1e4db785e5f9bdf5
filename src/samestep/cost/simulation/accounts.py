"""The two ledgers of every path, filled life by life and added up in the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from samestep.ledger import Row

from .plan import Paths

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .paths import Lived
    from .plan import Floats, Plan, Prices

_HOUR = 3600.0
_KEPT, _LOST, _SAVING, _RESTART, _TAIL = range(5)
_WAIT, _BILLED, _LIVES, _LOSSES, _SAVES, _ELSEWHERE, _ELSEWHERE_BILLED, _ELSEWHERE_KEPT = range(8)


class Accounts:
    """Fills the ledgers of simulated paths.

    Seconds of lives are kept twice: as they were, and as far as they were charged; without a billing rule that treats
    lives differently both are the same, and the second is not kept.

    Args:
        plan: how the run goes.
        prices: what it pays for.
        paths: how many.
    """

    def __init__(self, plan: Plan, prices: Prices, paths: int) -> None:
        self._plan, self._prices = plan, prices
        self._spent = np.zeros((5, paths))
        self._charged = self._spent if prices.rule.plain else np.zeros((5, paths))
        self._counts = np.zeros((8, paths))
        self._wall = np.zeros(paths)
        self._finished = np.zeros(paths, dtype=bool)

    def main(self, paths: NDArray[np.intp], lived: Lived, wait: Floats) -> None:
        """Book one life on the main capacity, and the wait before it."""
        rows = np.stack([lived.kept, lived.trained - lived.kept, lived.saving, lived.restart, lived.tail])
        lost = ~lived.done
        billed = self._prices.rule.billed_seconds(lived.seconds, lost)
        self._spent[:, paths] += rows
        if self._charged is not self._spent:
            self._charged[:, paths] += rows * (billed > 0)
        counts = self._counts
        counts[_WAIT, paths] += wait
        counts[_BILLED, paths] += billed
        counts[_LIVES, paths] += 1
        counts[_LOSSES, paths] += lost
        counts[_SAVES, paths] += lived.saves

    def wait(self, paths: NDArray[np.intp], seconds: Floats) -> None:
        """Book a wait for capacity that no life on the main capacity followed."""
        self._counts[_WAIT, paths] += seconds

    def elsewhere(self, paths: NDArray[np.intp], seconds: Floats, kept: Floats, saves: Floats) -> None:
        """Book a stay on the other capacity, all of whose training counts."""
        never = np.zeros(paths.size, dtype=bool)
        counts = self._counts
        counts[_ELSEWHERE, paths] += seconds
        counts[_ELSEWHERE_BILLED, paths] += self._prices.fallback_rule.billed_seconds(seconds, never)
        counts[_ELSEWHERE_KEPT, paths] += kept
        counts[_LIVES, paths] += 1
        counts[_SAVES, paths] += saves

    def end(self, paths: NDArray[np.intp], now: Floats, *, finished: bool) -> None:
        """Close paths at their wall seconds ``now``."""
        self._wall[paths] = now
        self._finished[paths] = finished

    def closed(self) -> Paths:
        """Return what all paths came to."""
        counts, prices = self._counts, self._prices
        restores = np.maximum(counts[_LIVES] - 1, 0)
        storage = self._wall * (prices.storage_hour / _HOUR)
        transfer = counts[_SAVES] * prices.save_transfer + restores * prices.restore_transfer
        requests = counts[_SAVES] * prices.save_requests
        capacity = counts[_BILLED] * prices.hour + counts[_ELSEWHERE_BILLED] * prices.on_demand_hour
        productive = 1 / (1 + self._plan.stall_share)
        trained = self._spent[_KEPT] + self._spent[_LOST] + counts[_ELSEWHERE_KEPT]
        return Paths(
            time=self._time(),
            money=self._money(storage, transfer, requests),
            wall=self._wall,
            cost=capacity / _HOUR + storage + transfer + requests,
            billed_seconds=counts[_BILLED] + counts[_ELSEWHERE_BILLED],
            interruptions=counts[_LOSSES],
            saves=counts[_SAVES],
            executed_seconds=trained * productive,
            unique_seconds=(self._spent[_KEPT] + counts[_ELSEWHERE_KEPT]) * productive,
            finished=self._finished,
        )

    def _time(self) -> dict[Row, Floats]:
        rows = self._lives(self._spent)
        rows[Row.CAPACITY_WAIT] = self._counts[_WAIT]
        rows[Row.FALLBACK] = self._counts[_ELSEWHERE]
        return rows

    def _money(self, storage: Floats, transfer: Floats, requests: Floats) -> dict[Row, Floats]:
        rate = self._prices.hour / _HOUR
        rows = {row: seconds * rate for row, seconds in self._lives(self._charged).items()}
        rows[Row.IDLE] = (self._counts[_BILLED] - self._charged.sum(axis=0)) * rate
        rows[Row.FALLBACK] = self._counts[_ELSEWHERE_BILLED] * (self._prices.on_demand_hour / _HOUR)
        rows |= {Row.STORAGE: storage, Row.TRANSFER: transfer, Row.REQUESTS: requests}
        if self._prices.rule.plain:
            del rows[Row.IDLE]
        return rows

    def _lives(self, seconds: Floats) -> dict[Row, Floats]:
        """Return the rows that lives fill; training is productive time and waiting for data."""
        productive = 1 / (1 + self._plan.stall_share)
        trained = seconds[_KEPT] + seconds[_LOST]
        return {
            Row.UNIQUE: seconds[_KEPT] * productive,
            Row.REPEATED: seconds[_LOST] * productive,
            Row.SAVING: seconds[_SAVING],
            Row.RESTART: seconds[_RESTART],
            Row.NOTICE_TAIL: seconds[_TAIL],
            Row.DATA_STALL: trained * (1 - productive),
        }
