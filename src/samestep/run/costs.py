"""What saves add to a training: the time that it stands still, and what steps take longer while one is written."""

from __future__ import annotations

import statistics

_KEPT = 200


class StepCosts:
    """Compares the steps while a save is in flight with those before."""

    def __init__(self) -> None:
        self._quiet: list[float] = []
        self._busy: list[float] = []

    def step(self, seconds: float, *, in_flight: bool) -> None:
        """Take note of how long a step took."""
        times = self._busy if in_flight else self._quiet
        times.append(seconds)
        if len(times) > _KEPT:
            del times[: _KEPT // 2]

    def of_save(self, blocked_seconds: float) -> float:
        """Return the seconds that the save which has ended added to the training; counting begins again."""
        busy, self._busy = self._busy, []
        if not self._quiet or not busy:
            return blocked_seconds
        usual = statistics.median(self._quiet)
        return blocked_seconds + max(0.0, sum(busy) - usual * len(busy))
