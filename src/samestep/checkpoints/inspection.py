"""Inspecting a checkpoint, or a folder of them."""

from __future__ import annotations

import re
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from samestep.contract import Component, Intent
from samestep.errors import CheckpointError

from .answers import answer_all
from .layouts import examine
from .model import UNKNOWN, FolderInspection, Inspection, Selection, Unit, Verdict
from .naming import number_in
from .selection import select, written
from .units import find_units

if TYPE_CHECKING:
    from collections.abc import Sequence

_CLOCK_SLACK_SECONDS = 1.0


def inspect_path(path: Path) -> FolderInspection:
    """Inspect the checkpoint at ``path``, or all of them below it.

    Raises:
        CheckpointError: there is nothing at ``path``, or nothing that is a checkpoint.
    """
    if not path.exists():
        raise CheckpointError(
            f"{path} does not exist", hint="give a checkpoint, or the folder that a run saves into"
        )
    root = path.parent if path.is_file() else path
    units = find_units(path)
    inspections = [inspect_unit(root, unit) for unit in units]
    if not any(_is_checkpoint(inspection) for inspection in inspections):
        raise CheckpointError(
            f"{path} is not a checkpoint, and none lies below it",
            hint="a checkpoint is a file with tensors (.pt, .ckpt, .safetensors, ...) or a folder of them",
        )
    named = len(units) == 1 and units[0].path in (".", path.name)
    selection = _only(units[0]) if named else select(root, units)
    newest = _newest_whole(root, inspections)
    warnings = _warnings(root, inspections, selection, newest)
    return FolderInspection(str(path), tuple(inspections), selection, newest, tuple(warnings))


def inspect_unit(root: Path, unit: Unit) -> Inspection:
    """Inspect one unit that :func:`~samestep.checkpoints.find_units` found below ``root``."""
    draft = examine(root, unit)
    return Inspection(
        unit=unit,
        size_bytes=draft.size_bytes,
        problems=tuple(draft.problems),
        components=tuple(draft.components[name] for name in Component if name in draft.components),
        answers=answer_all(draft),
        dangers=tuple(draft.dangers),
        notes=tuple(draft.notes),
    )


def _only(unit: Unit) -> Selection:
    return Selection(unit, "it is the one that was named", certain=True)


def _is_checkpoint(inspection: Inspection) -> bool:
    """Tell whether anything shows that the files are a checkpoint, even a damaged one."""
    if inspection.unit.framework != UNKNOWN or inspection.dangers:
        return True
    held = any(report.presence == "present" for report in inspection.components)
    return held or inspection.size_bytes == 0 or any("cut off" in str(item) for item in inspection.problems)


def _newest_whole(root: Path, inspections: Sequence[Inspection]) -> Unit | None:
    whole = [
        item.unit
        for item in inspections
        if item.whole and item.answer(Intent.RESUME).verdict is not Verdict.NO
    ]
    whole = whole or [item.unit for item in inspections if item.whole]
    return max(
        whole,
        key=lambda unit: (unit.step if unit.step is not None else -1, written(root, unit)),
        default=None,
    )


def _warnings(
    root: Path, inspections: Sequence[Inspection], selection: Selection, newest: Unit | None
) -> list[str]:
    warnings = []
    picked = next((item for item in inspections if item.unit == selection.unit), None)
    if picked is not None and not picked.whole and newest is not None:
        warnings.append(f"{picked.unit.path} would be taken although it is not whole; {newest.path} is")
    if picked is None:
        warnings.append("a restart that only asks to resume finds none of them and starts over")
    if picked is not None and (
        older := _written_before_lower(root, picked.unit, [item.unit for item in inspections])
    ):
        warnings.append(
            f"{picked.unit.path} was written before {older.path}: it is left from an older run, "
            "and a restart would take it"
        )
    whole = [item for item in inspections if item.whole]
    if len(inspections) > 1 and len(whole) == 1:
        warnings.append(f"{whole[0].unit.path} is the only whole one: there is none to fall back to")
    return warnings


def _written_before_lower(root: Path, picked: Unit, units: Sequence[Unit]) -> Unit | None:
    """Return the newest unit of the same kind with a lower number that was written after the picked one."""
    number = number_in(PurePath(picked.path).name)
    if number is None:
        return None
    later = [
        unit
        for unit in units
        if _shape(unit) == _shape(picked)
        and (number_in(PurePath(unit.path).name) or 0) < number
        and written(root, unit) > written(root, picked) + _CLOCK_SLACK_SECONDS
    ]
    return max(later, key=lambda unit: written(root, unit), default=None)


def _shape(unit: Unit) -> str:
    return re.sub(r"\d+", "", unit.path)
