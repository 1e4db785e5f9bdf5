"""Stops a process at the points that the orders name, until the drill lets it go on."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ..trace import ParkPoint

POLL_SECONDS = 0.005
"""How often a parked process looks whether it may go on."""


class Parking:
    """The park points of one process.

    Args:
        folder: where ``<point>.rank<R>.waiting`` is left and ``<point>.go`` is looked for.
        points: from the orders.
        tell: called with ``parked`` and ``released`` and the point's name.
    """

    def __init__(self, folder: Path, points: list[ParkPoint], tell: Callable[[str, str], None]) -> None:
        self._folder = folder
        self._points = {(point.where, point.step, point.micro): point for point in points}
        self._tell = tell

    def expects(self, where: str, step: int, micro: int = 0) -> bool:
        """Return whether the process is to stop there."""
        return (where, step, micro) in self._points

    def stop_at(self, where: str, step: int, micro: int = 0, *, rank: int) -> bool:
        """Wait here if the orders say so, once per point, and return whether it was so."""
        point = self._points.pop((where, step, micro), None)
        if point is None:
            return False
        self._tell("parked", point.name)
        mark = self._folder / f"{point.name}.rank{rank}.waiting"
        unfinished = mark.with_suffix(f".{os.getpid()}")
        unfinished.write_text(str(os.getpid()), encoding="ascii")
        unfinished.replace(mark)
        while not (self._folder / f"{point.name}.go").exists():
            time.sleep(POLL_SECONDS)
        self._tell("released", point.name)
        return True


def after_closure(
    closure: Callable[[], Any], park: Callable[[], None], arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of an optimizer call that parks once its closure has computed the gradients.

    Args:
        closure: what the script passed.
        park: stops the process, the first time only.
        arguments: positional ones, the optimizer first.
        keywords: the others.
    """

    def closure_then_park() -> Any:
        result = closure()
        park()
        return result

    if "closure" in keywords:
        return arguments, {**keywords, "closure": closure_then_park}
    return (arguments[0], closure_then_park, *arguments[2:]), keywords
