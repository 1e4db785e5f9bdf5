"""Which checkpoints a disk state holds, and the steps complete in each."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from samestep.checkpoints import SAMESTEP, Presence, find_units, inspect_unit, saved_steps
from samestep.contract import Component

if TYPE_CHECKING:
    from collections.abc import Sequence
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
        records = unit.pointers if unit.framework == SAMESTEP else ()  # what makes such a checkpoint exist
        steps = [written[name] for name in (*unit.files, *records) if name in written]
        if steps:
            found.append((unit, max(steps)))
    return _parts_together(folder, found)


def whole_steps_told(folder: Path) -> list[int] | None:
    """Return the steps of the whole checkpoints, where they tell them and which of them count; None elsewhere."""
    if not saved_steps(folder):
        return None
    units = [unit for unit in find_units(folder) if unit.framework == SAMESTEP]
    return sorted({unit.step or 0 for unit in units if inspect_unit(folder, unit).whole})


def resume_points(folder: Path, units: Sequence[Unit]) -> list[Unit]:
    """Leave out weights that were put aside (the best so far, the final ones) where whole checkpoints lie beside them.

    Args:
        folder: that the units lie in.
        units: everything in it that looks like a checkpoint.
    """
    held = {unit.path: _components(folder, unit) for unit in units}
    full = {Component.WEIGHTS, Component.OPTIMIZER}
    if not any(full <= components for components in held.values()):
        return list(units)
    return [unit for unit in units if held[unit.path] & full != {Component.WEIGHTS}]


def _parts_together(folder: Path, found: list[tuple[Unit, int]]) -> list[tuple[Unit, int]]:
    """Count what holds no weights of its own among the files of the checkpoint that was saved at the same step."""
    weighty = {unit.path for unit, _ in found if Component.WEIGHTS in _components(folder, unit)}
    carriers = {step: unit for unit, step in found if unit.path in weighty}
    parts = [(unit, step) for unit, step in found if step in carriers and unit.path not in weighty]
    joined = []
    for unit, step in found:
        if (unit, step) in parts:
            continue
        files = [name for part, of in parts if of == step and carriers[step] is unit for name in part.files]
        joined.append((replace(unit, files=(*unit.files, *files)), step))
    return joined


def _components(folder: Path, unit: Unit) -> set[Component]:
    reports = inspect_unit(folder, unit).components
    return {report.component for report in reports if report.presence is Presence.PRESENT}


def _written(folder: Path, unit: Unit) -> float:
    return max(((folder / name).stat().st_mtime for name in unit.files), default=0.0)
