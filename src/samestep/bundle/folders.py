"""A framework's checkpoint on disk, as it is looked at before and after it is sealed."""

from __future__ import annotations

import dataclasses
import functools
import os
import stat
import time
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, NamedTuple, ParamSpec, TypeVar

from samestep.bundle.errors import CommitRefused, StoreError
from samestep.checkpoints import UNKNOWN, inspect_path, inspect_unit, is_leftover
from samestep.checkpoints.naming import is_step_folder, step_in
from samestep.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from samestep.checkpoints import Inspection, Unit

P = ParamSpec("P")
T = TypeVar("T")

STILL_SECONDS = 0.05
"""A change within this time of the last one may leave the same time stamp behind."""


def _looking(look: Callable[P, T]) -> Callable[P, T]:
    """Look again after a signal, and say in words what keeps a checkpoint from being looked at."""

    @functools.wraps(look)
    def looked(*args: P.args, **kwargs: P.kwargs) -> T:
        while True:
            try:
                return look(*args, **kwargs)
            except InterruptedError:
                continue
            except OSError as error:
                what = error.filename or (args[0].root if isinstance(args[0], Checkpoint) else args[0])
                raise StoreError(f"{what} cannot be sealed: {error.strerror or error}") from error

    return looked


class FileState(NamedTuple):
    """What tells a file from what it was before."""

    size: int
    device: int
    inode: int
    modified_ns: int
    changed_ns: int


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A finished checkpoint, as it was when it was looked at.

    Attributes:
        root: the folder that the names of its files are relative to.
        name: of the folder, so that it can be put back; empty for files that lie loose beside others.
        files: state of every file, by name.
        inspection: what is in it.
        step: completed optimizer steps.
        says_step: whether its files or its name say that, so that a restart can know it.
    """

    root: Path
    name: str
    files: Mapping[str, FileState]
    inspection: Inspection
    step: int
    says_step: bool

    @property
    def written(self) -> float:
        """Return when it was last written to, in seconds since 1970."""
        return max(state.modified_ns for state in self.files.values()) / 1e9

    @_looking
    def require_unchanged(self) -> None:
        """Look again.

        Raises:
            CommitRefused: a file was changed, added or removed since.
        """
        changed = _first_change(self.files, _states(self.root, self.files, whole=bool(self.name)))
        if changed:
            raise CommitRefused(
                f"{self.root / changed} was changed while the checkpoint was being sealed",
                hint="seal it once nothing writes to it any more",
            )


@_looking
def look_at(path: Path, step: int | None = None) -> Checkpoint:
    """Look at the one checkpoint at ``path``, a folder or a file.

    Args:
        path: of the checkpoint, or of a folder that holds no other.
        step: completed optimizer steps, where the files do not say.

    Raises:
        CheckpointError: there is no checkpoint.
        UsageError: there are several, or nothing says at which step it is.
        CommitRefused: it is not whole, or holds something that cannot be sealed.
    """
    path = path.resolve()
    found = inspect_path(path)
    if len(found.inspections) > 1:
        names = ", ".join(item.unit.path for item in found.inspections[-5:])
        raise UsageError(
            f"{path} holds {len(found.inspections)} checkpoints: {names}",
            hint="name one of them, or let samestep bundle seal --watch take each new one",
        )
    unit = found.inspections[0].unit
    return look_at_unit(path.parent if path.is_file() else path, unit, step)


@_looking
def states_of(root: Path, unit: Unit) -> dict[str, FileState]:
    """Return the state of every file of a checkpoint unit that was found below ``root``.

    Raises:
        CommitRefused: one of them cannot be sealed.
    """
    base, name = _place(root, unit)
    return _states(base, _inside(root, base, unit), whole=bool(name))


@_looking
def look_at_unit(root: Path, unit: Unit, step: int | None = None) -> Checkpoint:
    """Look at a checkpoint unit that was found below ``root``; see `look_at`."""
    base, name = _place(root, unit)
    files = _still(base, _inside(root, base, unit), whole=bool(name))
    inspection = inspect_unit(root, unit)
    if not inspection.whole:
        problems = "; ".join(str(problem) for problem in inspection.problems[:3])
        raise CommitRefused(
            f"{root / unit.path} is not whole: {problems}", hint="seal it once its save has ended"
        )
    if not files:
        raise CommitRefused(f"{root / unit.path} holds no files")
    said = _said_step(unit, name)
    agreed = _agreed_step(root / unit.path, said, step)
    return Checkpoint(base, name, files, inspection, agreed, says_step=said is not None)


def _place(root: Path, unit: Unit) -> tuple[Path, str]:
    """Return the folder that a unit's files are named from, and its name if the folder is the checkpoint."""
    place = (root / unit.path).resolve()
    if not place.is_dir():
        return place.parent, place.parent.name if _alone_in_step_folder(place.parent, unit) else ""
    of_its_own = unit.framework != UNKNOWN or is_step_folder(place.name)
    return place, place.name if of_its_own else ""


def _inside(root: Path, base: Path, unit: Unit) -> list[str]:
    return [PurePath(os.path.relpath(root / file, base)).as_posix() for file in unit.files]


def _alone_in_step_folder(folder: Path, unit: Unit) -> bool:
    names = {PurePath(file).name for file in unit.files}
    return is_step_folder(folder.name) and all(entry.name in names for entry in folder.iterdir())


def _said_step(unit: Unit, name: str) -> int | None:
    if unit.step is None and unit.framework == UNKNOWN and is_step_folder(name):
        return step_in(name)
    return unit.step


def _agreed_step(path: Path, said: int | None, step: int | None) -> int:
    found = said if step is None else step
    if found is None:
        raise UsageError(f"nothing says how many steps {path} holds", hint="say it with --step N")
    if said not in (None, found):
        raise UsageError(f"{path} holds step {said}, and {step} was given", hint="leave --step out")
    return found


def _still(base: Path, inside: list[str], *, whole: bool) -> dict[str, FileState]:
    """Return the states of the files, old enough that any later change leaves another time stamp."""
    states = _states(base, inside, whole=whole)
    newest = max((max(state.modified_ns, state.changed_ns) for state in states.values()), default=0)
    wait = newest / 1e9 + STILL_SECONDS - time.time()
    if 0 < wait <= STILL_SECONDS:
        time.sleep(wait)
        return _states(base, inside, whole=whole)
    return states


def _states(base: Path, inside: Mapping[str, FileState] | list[str], *, whole: bool) -> dict[str, FileState]:
    names = sorted(_below(base, base)) if whole else sorted(inside)
    states = {}
    for name in names:
        state = _state(base / name)
        if state is not None:
            states[name] = state
    return states


def _below(folder: Path, base: Path) -> Iterator[str]:
    """Yield the names of all files below a folder; leftovers of unfinished writes are no part of it.

    Raises:
        CommitRefused: a symbolic link leads elsewhere.
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            if is_leftover(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _below(Path(entry.path), base)
            else:
                yield PurePath(entry.path).relative_to(base).as_posix()


def _state(path: Path) -> FileState | None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(found.st_mode):
        raise CommitRefused(
            f"{path} is a symbolic link: what it leads to is no part of the checkpoint and may change",
            hint="put the file itself there",
        )
    if not stat.S_ISREG(found.st_mode):
        raise CommitRefused(f"{path} is no regular file", hint="leave it out of the checkpoint's folder")
    return FileState(found.st_size, found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns)


def _first_change(before: Mapping[str, FileState], after: Mapping[str, FileState]) -> str:
    """Return the name of a file that is not what it was, or an empty string."""
    return next(
        (name for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name)), ""
    )
