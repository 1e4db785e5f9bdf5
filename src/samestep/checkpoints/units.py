"""Finding the checkpoint units below a folder."""

from __future__ import annotations

import errno
import os
import re
from dataclasses import replace
from pathlib import Path, PurePath

from .bundles import is_root, units_of
from .containers import open_regular, read_file
from .grouping import group_loose_files
from .model import UNKNOWN, Unit
from .naming import is_leftover, is_log, is_sidecar, is_state, is_step_folder, number_in
from .recognise import ACCELERATE, TORCH_DCP, TRANSFORMERS, recognise_folder
from .steps import folder_step

MAX_DEPTH = 8
"""Folders deeper than this below the root are not searched."""

_POINTER_NAME = re.compile(r"^(latest|last|current|newest|resume|checkpoint$|best)", re.IGNORECASE)
_NO_FOLDER = (FileNotFoundError, NotADirectoryError, PermissionError)
_STATE_STARTS = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")


def find_units(root: Path, *, exports: bool = False) -> list[Unit]:
    """Return the checkpoint units at or below ``root``, lowest step first.

    Known layouts are recognised by their files; anything else that holds tensors is grouped by folder and by
    the number in its name. Logs, event files and leftovers of unfinished writes are never units.

    Args:
        root: an output folder, a checkpoint folder, or one checkpoint file (paths: relative to its folder).
        exports: also return files that hold nothing but final weights beside real checkpoints, such as the
            model that a trainer leaves in its output folder.
    """
    root = Path(root)
    if root.is_file():
        return group_loose_files(root.parent, PurePath(), [root.name]).units
    search = _Search(root)
    search.visit(PurePath(), 0)
    units = search.units + (search.exports if exports or not search.units else [])
    units = [replace(unit, pointers=unit.pointers or search.pointers_to(unit)) for unit in _adopted(units)]
    return sorted(units, key=lambda unit: (_order(unit), unit.path))


def _order(unit: Unit) -> int:
    number = unit.step if unit.step is not None else number_in(PurePath(unit.path).name)
    return -1 if number is None else number


def _adopted(units: list[Unit]) -> list[Unit]:
    """Give a unit that shows too little of itself the framework of its neighbours."""
    by_parent: dict[PurePath, set[str]] = {}
    for unit in units:
        if unit.framework not in (UNKNOWN, TRANSFORMERS):
            by_parent.setdefault(PurePath(unit.path).parent, set()).add(unit.framework)
    return [_adopt(unit, by_parent.get(PurePath(unit.path).parent, set())) for unit in units]


def _adopt(unit: Unit, neighbours: set[str]) -> Unit:
    shows_itself = any(file.endswith(("trainer_state.json", "training_args.bin")) for file in unit.files)
    if unit.framework == TRANSFORMERS and neighbours == {ACCELERATE} and not shows_itself:
        return replace(unit, framework=ACCELERATE)
    same_ending = len({PurePath(file).suffix for file in unit.files}) == 1
    if unit.framework == UNKNOWN and len(neighbours) == 1 and same_ending and unit.files == (unit.path,):
        return replace(unit, framework=next(iter(neighbours)))
    return unit


def _pass_over(error: OSError) -> None:
    """Pass over a folder that is gone or closed to this user; a disk that fails is no empty folder.

    Raises:
        OSError: it is another error.
    """
    if not isinstance(error, _NO_FOLDER) and error.errno != errno.ELOOP:
        raise error


class _Search:
    """One walk over a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.units: list[Unit] = []
        self.exports: list[Unit] = []
        self._pointers: dict[str, set[str]] = {}

    def visit(self, relative: PurePath, depth: int) -> None:
        """Look into one folder."""
        files, subfolders = self._list(relative)
        if is_root(files, subfolders):
            self.units += units_of(self.root / relative, relative)
            return
        framework = recognise_folder((self.root / relative).resolve().name, files, subfolders)
        if framework is None and depth and self._is_step_unit(relative, subfolders):
            framework = UNKNOWN
        if framework is not None:
            self._add_folder(framework, relative)
            return
        if depth < MAX_DEPTH:
            for subfolder in subfolders:
                if not is_leftover(subfolder):
                    self.visit(relative / subfolder, depth + 1)
        self._add_loose(relative, files)

    def pointers_to(self, unit: Unit) -> tuple[str, ...]:
        """Return the files outside a unit that name it."""
        name = PurePath(unit.path).name
        number = number_in(name)
        wanted = {name, name.rsplit(".", 1)[0]} | ({str(number)} if number is not None else set())
        found = (path for path, words in self._pointers.items() if wanted & words and path not in unit.files)
        return tuple(
            sorted(path for path in found if PurePath(unit.path).is_relative_to(PurePath(path).parent))
        )

    def _list(self, relative: PurePath) -> tuple[list[str], list[str]]:
        files, subfolders = [], []
        try:
            entries = sorted(os.scandir(self.root / relative), key=lambda entry: entry.name)
        except OSError as error:
            _pass_over(error)
            return [], []
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                subfolders.append(entry.name)
            elif entry.is_dir():
                self._pointers[(relative / entry.name).as_posix()] = {Path(entry.path).resolve().name}
            else:
                files.append(entry.name)
        return files, subfolders

    def _is_step_unit(self, relative: PurePath, subfolders: list[str]) -> bool:
        if not is_step_folder(relative.name) or any(is_step_folder(name) for name in subfolders):
            return False
        return any(is_state(file) for file in self._all_files(relative)) or self._beside_saves(relative)

    def _beside_saves(self, relative: PurePath) -> bool:
        """Tell whether an empty step folder lies beside filled ones: the first moment of a save."""
        neighbours = self._list(relative.parent)[1]
        shape = re.sub(r"\d+", "", relative.name)
        same = (relative.parent / name for name in neighbours if re.sub(r"\d+", "", name) == shape)
        return any(is_state(file) for folder in same for file in self._all_files(folder))

    def _all_files(self, relative: PurePath) -> list[str]:
        found = []
        for folder, _, names in os.walk(self.root / relative, onerror=_pass_over):
            inner = PurePath(os.path.relpath(folder, self.root))
            found += [(inner / name).as_posix() for name in names if not is_log(name)]
        return sorted(found)

    def _add_folder(self, framework: str, relative: PurePath) -> None:
        files = tuple(self._all_files(relative))
        folder = self.root / relative
        inner = [PurePath(file).relative_to(relative).as_posix() for file in files]
        if framework == UNKNOWN and any(name.endswith((".metadata", ".distcp")) for name in inner):
            framework = TORCH_DCP
        step = folder_step(framework, folder.resolve(), inner)
        if framework == UNKNOWN:
            loose = group_loose_files(folder, relative, [name for name in inner if is_state(name)])
            step = next((unit.step for unit in loose.units if unit.step is not None), step)
        self.units.append(Unit(relative.as_posix(), framework, step, files))

    def _add_loose(self, relative: PurePath, files: list[str]) -> None:
        kept = [name for name in files if not is_leftover(name) and not is_log(relative / name)]
        states = [
            name
            for name in kept
            if is_state(name) or (not PurePath(name).suffix and self._sniff(relative / name))
        ]
        sidecars = [name for name in kept if name not in states and is_sidecar(name)]
        self._note_pointers(relative, sidecars)
        grouped = group_loose_files(
            self.root / relative,
            relative,
            states,
            [name for name in sidecars if (relative / name).as_posix() not in self._pointers],
            beside_checkpoints=bool(self.units),
        )
        self.units += grouped.units
        self.exports += grouped.exports

    def _note_pointers(self, relative: PurePath, names: list[str]) -> None:
        for name in names:
            if not _POINTER_NAME.match(name):
                continue
            facts = read_file(self.root / relative / name)
            if isinstance(facts.value, str):
                self._pointers[(relative / name).as_posix()] = set(re.split(r"[\s/\\\"']+", facts.value))

    def _sniff(self, relative: PurePath) -> bool:
        try:
            with open_regular(self.root / relative) as raw:
                return raw.read(4).startswith(_STATE_STARTS)
        except OSError:
            return False
