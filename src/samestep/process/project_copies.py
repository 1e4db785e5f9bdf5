"""Copies of a project, one for each machine; one that nobody has touched serves again.

Making thousands of files costs more than a restart does. What a machine leaves of its copy is compared with what it was
given: by inode, mode, owner, size and the times that only the kernel sets, so that any write, rename or change of mode
shows, and not by content.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from typing import TYPE_CHECKING

from samestep.process.copying import remove_tree
from samestep.process.projects import copy_project

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

Mark = tuple[int, ...]


class ProjectCopies:
    """Gives machines their copies of a project.

    Args:
        project: the original.
        shelf: folder for copies that wait for a machine, on the file system of the machines.
        keep: patterns of the files that are copied; see ``project_files``.
        without: files and folders, relative to the project, that do not go along.
    """

    def __init__(
        self, project: Path, shelf: Path, keep: Sequence[str] = (), without: Collection[Path] = ()
    ) -> None:
        self._project, self._shelf, self._keep, self._without = project, shelf, keep, without
        self._given: dict[Path, dict[str, Mark]] = {}
        self._spare: list[tuple[Path, dict[str, Mark]]] = []
        self._lock = threading.Lock()
        self._taken_back = 0

    def give(self, target: Path) -> None:
        """Put a copy at ``target``, which must not exist.

        Raises:
            MachineError: see ``copy_project``.
            OSError: ``target`` cannot be made.
        """
        with self._lock:
            spare, marks = self._spare.pop() if self._spare else (None, {})
        if spare is not None:
            spare.rename(target)
        else:
            target.mkdir()
            copy_project(self._project, target, keep=self._keep, without=self._without)
            marks = marks_of(target)
        self._given[target] = marks

    def take_back(self, target: Path) -> None:
        """Keep the copy at ``target`` for the next machine if it is, or can be made, what it was; else leave it there.

        No process that could write to it may live any more.
        """
        marks = self._given.pop(target, None)
        if marks is None or not _restored(target, marks):
            return
        with self._lock:
            self._taken_back += 1
            place = self._shelf / str(self._taken_back)
            place.parent.mkdir(parents=True, exist_ok=True)
            target.rename(place)
            self._spare.append((place, marks))


def marks_of(folder: Path) -> dict[str, Mark]:
    """Return a mark of everything below ``folder``, by its path; equal marks are of the same, unchanged entry."""
    marks: dict[str, Mark] = {}
    waiting = [str(folder)]
    while waiting:
        for entry in os.scandir(waiting.pop()):
            status = entry.stat(follow_symlinks=False)
            marks[os.path.relpath(entry.path, folder)] = _mark(status)
            if stat.S_ISDIR(status.st_mode):
                waiting.append(entry.path)
    return marks


def _mark(status: os.stat_result) -> Mark:
    """Return what tells an entry; the times and sizes of a folder change with what others leave in it."""
    mark = (status.st_ino, status.st_mode, status.st_uid, status.st_gid)
    if stat.S_ISDIR(status.st_mode):
        return mark
    return (*mark, status.st_nlink, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _restored(folder: Path, marks: dict[str, Mark]) -> bool:
    """Remove what was added below ``folder``; return whether all the rest is unchanged."""
    with contextlib.suppress(OSError):
        now = marks_of(folder)
        if any(now.get(name) != mark for name, mark in marks.items()):
            return False
        added = now.keys() - marks.keys()
        for name in added:
            if os.path.dirname(name) not in added:  # noqa: PTH120 - names, not paths
                remove_tree(folder / name)
        return True
    return False
