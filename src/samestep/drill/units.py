"""Which checkpoints a disk state holds, and the steps complete in each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samestep.checkpoints import find_units

if TYPE_CHECKING:
    from pathlib import Path

    from samestep.checkpoints import Unit
    from samestep.drill.observe import Burst


def newest_unit(folder: Path) -> Unit | None:
    """Return the checkpoint with the highest step below ``folder`` (the latest written where none says its step)."""
    units = find_units(folder)
    if not units:
        return None
    return max(units, key=lambda unit: (-1 if unit.step is None else unit.step, _written(folder, unit)))


def units_with_steps(folder: Path, bursts: list[Burst]) -> list[tuple[Unit, int]]:
    """Return the checkpoints below ``folder`` with the steps complete when each was last written.

    Args:
        folder: a snapshot of the control's durable folder.
        bursts: the control's saves up to that snapshot.
    """
    written: dict[str, int] = {}
    for burst in bursts:
        for path in burst.paths:
            written[path] = burst.step
    found = []
    for unit in find_units(folder):
        steps = [written[name] for name in unit.files if name in written]
        if steps:
            found.append((unit, max(steps)))
    return found


def _written(folder: Path, unit: Unit) -> float:
    return max(((folder / name).stat().st_mtime for name in unit.files), default=0.0)
