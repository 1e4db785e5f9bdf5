"""How capacity is charged: rules as data, and the billed seconds of lives."""

from __future__ import annotations

import dataclasses
import difflib
from typing import TYPE_CHECKING

import numpy as np

from .errors import CostError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ROUNDING = 1e-9
"""Of a unit: a life that is a whole number of units but for floating point is not charged another one."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rule:
    """How the seconds of one life become billed seconds.

    Attributes:
        name: as cases and offers call it.
        granularity_seconds: every life is rounded up to a multiple of it; 0: billed as it was.
        minimum_seconds: least that a life is billed.
        free_seconds: a life that the provider ends before this age is not billed; one that ends by itself is.
        free_on_request: the free part counts only when asked for, as it flatters capacity that hardly ever lasts.
        source: who says so.
    """

    name: str
    granularity_seconds: float = 0.0
    minimum_seconds: float = 0.0
    free_seconds: float = 0.0
    free_on_request: bool = False
    source: str = ""

    @property
    def plain(self) -> bool:
        """Whether every second of every life is billed, and nothing else."""
        return not (self.granularity_seconds or self.minimum_seconds or self.free_seconds)

    def billed_seconds(self, seconds: NDArray[np.float64], lost: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return the billed seconds of lives; a machine that never was is not billed.

        Args:
            seconds: of each life, from its start to its end.
            lost: which of them the provider ended.
        """
        if self.plain:
            return seconds
        billed = seconds
        if self.granularity_seconds:
            units = np.ceil(seconds / self.granularity_seconds - _ROUNDING)
            billed = units * self.granularity_seconds
        billed = np.maximum(billed, self.minimum_seconds)
        free = (seconds <= 0) | (lost & (seconds < self.free_seconds))
        return np.where(free, 0.0, billed)


RULES: dict[str, Rule] = {
    rule.name: rule
    for rule in (
        Rule(name="per-second", source="every second, and nothing else: the rule of all headlines"),
        Rule(name="per-minute", granularity_seconds=60, source="begun minutes"),
        Rule(name="per-hour", granularity_seconds=3600, source="begun hours"),
        Rule(
            name="aws-linux",
            granularity_seconds=1,
            minimum_seconds=60,
            free_seconds=3600,
            free_on_request=True,
            source="AWS: per second, at least a minute (announcement of 2017-10-02); no charge for a Spot Instance "
            "that EC2 interrupts in its first hour (EC2 user guide, billing for interrupted Spot Instances)",
        ),
        Rule(
            name="gcp",
            granularity_seconds=1,
            minimum_seconds=60,
            free_seconds=60,
            source="Google Cloud: per second, at least a minute; no charge when preempted in the first minute "
            "(stated for TPU; for machines it should be checked)",
        ),
    )
}
"""By name. Providers change their rules: each says where it comes from."""


def rule_named(name: str, *, first_hour: bool = False) -> Rule:
    """Return a rule.

    Args:
        name: one of ``RULES``.
        first_hour: let lives go free that the provider ends early, where that counts only on request.

    Raises:
        CostError: there is no such rule.
    """
    rule = RULES.get(name)
    if rule is None:
        near = difflib.get_close_matches(name, RULES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(RULES)}"
        raise CostError(f"no billing rule is called {name!r}", hint=hint)
    if rule.free_on_request and not first_hour:
        return dataclasses.replace(rule, free_seconds=0.0)
    return rule
