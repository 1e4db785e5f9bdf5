"""Which checkpoint a restart would take: each framework's own rule, and what scripts usually do."""

from __future__ import annotations

from collections import Counter
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from .bundles import SAMESTEP, newest_whole
from .frameworks import FRAMEWORKS
from .model import UNKNOWN, Selection, Unit
from .naming import number_in, stem_of
from .recognise import (
    ACCELERATE,
    DEEPSPEED,
    LIGHTNING,
    TORCH_DCP,
    TRANSFORMERS,
    TRANSFORMERS_FOLDER,
    ULTRALYTICS,
)
from .units import find_units

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_LAST_NAMES = ("last", "latest", "current", "checkpoint", "ckpt")


def would_pick(root: Path) -> Unit | None:
    """Return the unit that a restart would take, by the framework's own rule or else by the usual one."""
    return select(root, find_units(root)).unit


def select(root: Path, units: Sequence[Unit]) -> Selection:
    """Say which of the units below ``root`` a restart would take, and by which rule.

    Args:
        root: the folder that ``units`` were found in.
        units: as :func:`~samestep.checkpoints.units.find_units` returns them.
    """
    if not units:
        return Selection(None, "there is no checkpoint", certain=True)
    known = [unit.framework for unit in units if unit.framework != UNKNOWN] or [UNKNOWN]
    framework = Counter(known).most_common(1)[0][0]
    own = [unit for unit in units if unit.framework == framework]
    rule = _RULES.get(framework)
    if rule is not None:
        return Selection(rule(root, own), FRAMEWORKS[framework].selection, certain=True)
    return _usual(root, units)


def written(root: Path, unit: Unit) -> float:
    """Return when a unit was last written to, in seconds since the epoch; 0 if nothing of it is left."""
    paths = [root / file for file in unit.files] or [root / unit.path]
    return max((path.stat().st_mtime for path in paths if path.exists()), default=0.0)


def _highest_number(root: Path, units: Sequence[Unit]) -> Unit | None:
    numbered = [(number, unit) for unit in units if (number := number_in(_name(root, unit))) is not None]
    return max(numbered, key=lambda pair: (pair[0], written(root, pair[1])), default=(0, None))[1]


def _highest_trainer_folder(root: Path, units: Sequence[Unit]) -> Unit | None:
    named = [unit for unit in units if TRANSFORMERS_FOLDER.match(_name(root, unit))]
    return _highest_number(root, named)


def _lightning_last(root: Path, units: Sequence[Unit]) -> Unit | None:
    last = [unit for unit in units if _name(root, unit).startswith("last")]
    return max(last, key=lambda unit: written(root, unit), default=None)


def _ultralytics_last(root: Path, units: Sequence[Unit]) -> Unit | None:
    last = [unit for unit in units if _name(root, unit).startswith("last")]
    return max(last, key=lambda unit: (root / unit.path).stat().st_ctime, default=None)


def _highest_complete(root: Path, units: Sequence[Unit]) -> Unit | None:
    return _highest_number(root, [unit for unit in units if f"{_prefix(unit)}.metadata" in unit.files])


def _pointed_to(_: Path, units: Sequence[Unit]) -> Unit | None:
    return next(
        (unit for unit in units if any(PurePath(file).name == "latest" for file in unit.pointers)), None
    )


_RULES: dict[str, Callable[[Path, Sequence[Unit]], Unit | None]] = {
    TRANSFORMERS: _highest_trainer_folder,
    ACCELERATE: _highest_number,
    LIGHTNING: _lightning_last,
    TORCH_DCP: _highest_complete,
    DEEPSPEED: _pointed_to,
    ULTRALYTICS: _ultralytics_last,
    SAMESTEP: newest_whole,
}


def _usual(root: Path, units: Sequence[Unit]) -> Selection:
    if len(units) == 1:
        return Selection(units[0], "it is the only one", certain=False)
    pointed = [unit for unit in units if unit.pointers]
    if len(pointed) == 1:
        return Selection(pointed[0], f"{pointed[0].pointers[0]} names it", certain=False)
    last = [unit for unit in units if stem_of(PurePath(unit.path).name).lower() in _LAST_NAMES]
    if last:
        newest = max(last, key=lambda unit: written(root, unit))
        return Selection(newest, "its name says that it is the last one", certain=False)
    if (highest := _highest_number(root, units)) is not None:
        return Selection(highest, "it has the highest number in its name", certain=False)
    newest = max(units, key=lambda unit: written(root, unit))
    return Selection(newest, "it was written last", certain=False)


def _name(root: Path, unit: Unit) -> str:
    return PurePath(unit.path).name or root.resolve().name


def _prefix(unit: Unit) -> str:
    return "" if unit.path == "." else f"{unit.path}/"
