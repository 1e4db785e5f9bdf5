"""Which files of a project a fresh machine gets, as a clone of it would."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from samestep.errors import MachineError
from samestep.process.copying import copy_file, explained

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

LEFT_OUT = frozenset({".samestep", ".venv", "__pycache__", ".git"})
"""Folders that never go along when git does not tell what belongs to the project."""

COPY_LIMIT_BYTES = 2 << 30
GIT_SECONDS = 60


def project_files(project: Path, keep: Sequence[str] = ()) -> list[Path]:
    """Files of a project, relative to it and sorted.

    Args:
        project: its folder.
        keep: patterns as for ``Path.glob``; a folder stands for all it holds. Empty: what git tracks and what
            is new and not ignored; without git everything but environments and caches.

    Raises:
        MachineError: a pattern matches nothing.
    """
    if keep:
        return sorted({file for pattern in keep for file in _matching(project, pattern)})
    listed = _git(project, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listed is None:
        return sorted(_everything(project, Path()))
    return sorted(set(_present(project, listed)))


def left_behind(project: Path) -> list[str]:
    """What git ignores at and below ``project`` and a fresh machine therefore lacks, e.g. ``data/``."""
    ignored = ("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
    return [name for name in _git(project, *ignored) or [] if not LEFT_OUT & set(Path(name).parts)]


def copy_project(
    project: Path,
    target: Path,
    *,
    keep: Sequence[str] = (),
    without: Collection[Path] = (),
    limit: int = COPY_LIMIT_BYTES,
) -> None:
    """Copy the files of a project into an empty folder.

    Symbolic links that lead out of the project keep leading to the same place.

    Args:
        project: the original.
        target: where the copy goes.
        keep: see :func:`project_files`.
        without: files and folders, relative to the project, that do not go along.
        limit: most bytes to copy.

    Raises:
        MachineError: the copy would be larger than ``limit``, or something cannot be read or written.
    """
    files = project_files(project, keep)
    files = [file for file in files if not any(file.is_relative_to(out) for out in without)]
    with explained(f"the project {project} could not be copied to {target}"):
        _refuse_large(project, files, limit)
        for file in files:
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            _copy_one(project, file, target)


def _copy_one(project: Path, file: Path, target: Path) -> None:
    source = project / file
    if source.is_symlink() and not Path(os.readlink(source)).is_absolute():  # noqa: PTH115
        destination = Path(os.path.normpath(source.parent / os.readlink(source)))  # noqa: PTH115
        if not destination.is_relative_to(project):
            (target / file).symlink_to(destination)
            return
    copy_file(source, target / file)


def _refuse_large(project: Path, files: list[Path], limit: int) -> None:
    sizes: Counter[str] = Counter()
    for file in files:
        sizes["/".join((*file.parts[:-1], "")[:2]) or file.name] += (project / file).lstat().st_size
    if sizes.total() <= limit:
        return
    largest = ", ".join(f"{name} ({size / 2**30:.1f} GiB)" for name, size in sizes.most_common(3))
    total = f"{sizes.total() / 2**30:.1f} GiB"
    raise MachineError(
        f"a fresh machine would get a copy of {total} of {project}; the largest parts are {largest}",
        hint='share large data read-only instead of copying it: inputs = ["data"], or let git ignore it',
    )


def _git(project: Path, *arguments: str) -> list[str] | None:
    """NUL-separated output of git, or None where there is no repository or no git."""
    try:
        # The project may belong to another user, as in containers; listing its files is harmless.
        command = ["git", "-c", f"safe.directory={project}", "-C", str(project), *arguments]
        done = subprocess.run(command, capture_output=True, timeout=GIT_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return [os.fsdecode(name) for name in done.stdout.split(b"\0") if name]


def _present(project: Path, names: list[str]) -> Iterator[Path]:
    """Listed files that exist; submodules and nested repositories are asked in turn."""
    for name in names:
        path = project / name
        if path.is_dir() and not path.is_symlink():
            yield from (Path(name) / file for file in project_files(path))
        elif os.path.lexists(path) and ".samestep" not in Path(name).parts:
            yield Path(name)


def _everything(project: Path, below: Path) -> Iterator[Path]:
    for entry in os.scandir(project / below):
        if entry.is_dir(follow_symlinks=False):
            if entry.name not in LEFT_OUT and not _is_environment(Path(entry.path)):
                yield from _everything(project, below / entry.name)
        else:
            yield below / entry.name


def _is_environment(folder: Path) -> bool:
    return (folder / "pyvenv.cfg").exists() or (folder / "conda-meta").exists()


def _matching(project: Path, pattern: str) -> Iterator[Path]:
    matches = [match.relative_to(project) for match in project.glob(pattern)]
    if not matches:
        raise MachineError(f"nothing in {project} matches {pattern!r}", hint="correct the keep setting")
    for match in matches:
        if (project / match).is_dir():
            yield from _everything(project, match)
        else:
            yield match
