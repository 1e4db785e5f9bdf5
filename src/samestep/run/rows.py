"""The contract of a bundle: what becomes of every component, as the user and the check of the process have said."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from samestep.bundle.manifest import COMPONENTS, Row
from samestep.contract import Component

from .errors import RunError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

SHOWN_BY = "samestep drill --only cut"
"""The test that shows what a restart makes anew."""

_NONE_ALIVE = {
    Component.OPTIMIZER: "no optimizer is alive in the process",
    Component.SCHEDULE: "no learning-rate schedule is alive in the process",
    Component.SCALER: "no gradient scaler is alive in the process",
    Component.EMA: "no averaged model is alive in the process",
    Component.CALLBACKS: "nothing else was named that keeps a state",
}


@dataclasses.dataclass(frozen=True)
class Rebuilt:
    """What a restart makes anew.

    Attributes:
        by: makes it, at every start.
        check: shows that it is right; raises, or returns False, where it is not.
    """

    by: Callable[[], Any]
    check: Callable[[], Any]

    def run(self, name: str) -> None:
        """Make it and check it.

        Raises:
            RunError: the check does not hold.
        """
        self.by()
        if self.check() is False:
            raise RunError(
                f"{name} was rebuilt by {name_of(self.by)}, and {name_of(self.check)} says that it is not right",
                hint="the training was not started",
            )


def name_of(function: Callable[..., Any]) -> str:
    """Return how a person knows a function."""
    return getattr(function, "__qualname__", type(function).__name__)


def rows_of(
    saved: Collection[str],
    rebuilt: dict[str, Rebuilt],
    irrelevant: dict[str, str],
    *,
    has_data: bool,
) -> dict[str, Row]:
    """Return a row for every component that no part carries.

    Args:
        saved: components that tracked objects belong to.
        rebuilt: by the name of a component or of an object.
        irrelevant: the reason, by the name of a component or of an object.
        has_data: the run follows where it is in its data.
    """
    rows: dict[str, Row] = {}
    for name in COMPONENTS:
        if name in saved:
            continue
        if name in rebuilt:
            how, test = name_of(rebuilt[name].by), name_of(rebuilt[name].check)
            rows[name] = Row(state="rebuilt", how=how, test=test)
        elif name in irrelevant:
            rows[name] = Row(state="irrelevant", because=irrelevant[name])
        else:
            rows[name] = _unsaid(Component(name), has_data=has_data)
    return rows


def _unsaid(component: Component, *, has_data: bool) -> Row:
    if component in (Component.PROGRESS, Component.ENVIRONMENT, Component.WORLD):
        return Row(state="saved")
    if component is Component.DATA_POSITION and has_data:
        return Row(state="saved")
    if component in (Component.DATA_ORDER, Component.DATA_POSITION):
        how = "by the followed order, from its seed" if has_data else "by the script, from the step"
        return Row(state="rebuilt", how=how, test=SHOWN_BY)
    if component is Component.CONFIG:
        return Row(state="rebuilt", how="from the training command's own arguments", test=SHOWN_BY)
    return Row(
        state="irrelevant", because=f"the run has none: {_NONE_ALIVE.get(component, 'nothing shows it')}"
    )
