"""The root of a run in samestep's own format, as its files tell: which bundles were committed, and which still count.

What is read here is the format of ``samestep.bundle``, for which a bundle exists exactly when a record of the chain
commits it; a folder of parts without a record is nothing. Digests are not looked at: ``samestep bundle verify`` does.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from .model import Unit

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

SAMESTEP = "samestep"
RUN_FILE, CHAIN, BUNDLES = "run.json", "chain", "bundles"
ROOT_NAMES = (RUN_FILE, CHAIN, BUNDLES)
"""What makes a folder the root of a run."""

_RECORD = re.compile(r"\d{10}\.json")
_MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class Commit:
    """A record that commits a bundle.

    Attributes:
        path: of the record, relative to the root.
        bundle: id.
        step: completed optimizer updates.
        manifest: what the record says of the bundle.
        retired: the bundle was given up since.
    """

    path: str
    bundle: str
    step: int
    manifest: dict[str, Any]
    retired: bool = False

    @property
    def folder(self) -> str:
        """Folder of its parts, relative to the root."""
        return f"{BUNDLES}/{self.bundle}"


def is_root(files: Collection[str], subfolders: Collection[str]) -> bool:
    """Tell whether a folder is the root of a run."""
    return RUN_FILE in files and CHAIN in subfolders


def commits_of(root: Path) -> list[Commit]:
    """Return what was ever committed in a root, in order; records that cannot be read are passed over."""
    commits: dict[str, Commit] = {}
    retired: set[str] = set()
    for path, record in _records(root):
        kind = record.get("kind")
        if kind == "commit" and isinstance(record.get("bundle"), dict):
            manifest = record["bundle"]
            name, step = manifest.get("id"), manifest.get("step")
            if isinstance(name, str) and isinstance(step, int):
                commits[name] = Commit(path, name, step, manifest)
        named = {str(one.get("id")) for one in record.get("bundles", ()) if isinstance(one, dict)}
        retired = retired | named if kind == "retire" else retired - named if kind == "reinstate" else retired
    return [
        Commit(one.path, one.bundle, one.step, one.manifest, retired=one.bundle in retired)
        for one in commits.values()
    ]


def units_of(root: Path, relative: PurePath) -> Iterator[Unit]:
    """Yield the bundles of a root that still count.

    Args:
        root: of the run.
        relative: the same folder, relative to the searched one.
    """
    for commit in commits_of(root):
        if not commit.retired:
            files = tuple((relative / file).as_posix() for file in sorted(_files(root, commit.folder)))
            path, record = (relative / commit.folder).as_posix(), (relative / commit.path).as_posix()
            yield Unit(path, SAMESTEP, commit.step, files, pointers=(record,))


def faults_of(root: Path, commit: Commit) -> list[tuple[str, str]]:
    """Return the stored files of a bundle that are not as long as its manifest says, each with what is wrong."""
    found = []
    for part in commit.manifest.get("parts", ()):
        if not isinstance(part, dict):
            continue
        path = f"{BUNDLES}/{part.get('stored_in') or commit.bundle}/{part.get('path')}"
        try:
            size = (root / path).stat().st_size
        except OSError:
            found.append((path, "is missing: the manifest names it"))
            continue
        if size != part.get("size"):
            found.append((path, f"has {size} of the {part.get('size')} bytes that the manifest names"))
    return found


def newest_whole(folder: Path, units: Sequence[Unit]) -> Unit | None:
    """Return the unit that was committed last among those whose parts are as long as they should be."""
    by_folder = {unit.path: unit for unit in units}
    for root in sorted({PurePath(unit.path).parent.parent for unit in units}):
        for commit in reversed(commits_of(folder / root)):
            unit = by_folder.get((root / commit.folder).as_posix())
            if unit is not None and not faults_of(folder / root, commit):
                return unit
    return None


def saved_steps(folder: Path) -> dict[str, int]:
    """Return the step of every bundle that was ever committed below ``folder``, by its folder and by its record.

    What belongs to a root and to none of its bundles is there with the step -1.
    """
    steps: dict[str, int] = {}
    for place, subfolders, files in os.walk(folder):
        if not is_root(files, subfolders):
            continue
        relative = PurePath(os.path.relpath(place, folder))
        steps[relative.as_posix()] = -1
        for commit in commits_of(Path(place)):
            steps[(relative / commit.folder).as_posix()] = commit.step
            steps[(relative / commit.path).as_posix()] = commit.step
        subfolders.clear()
    return steps


def _records(root: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        names = sorted(name for name in os.listdir(root / CHAIN) if _RECORD.fullmatch(name))  # noqa: PTH208
    except OSError:
        return
    for name in names:
        path = root / CHAIN / name
        try:
            if path.stat().st_size > _MOST_BYTES:
                continue
            record = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            yield f"{CHAIN}/{name}", record


def _files(root: Path, folder: str) -> list[str]:
    found = []
    for place, _, names in os.walk(root / folder):
        inner = PurePath(os.path.relpath(place, root))
        found += [(inner / name).as_posix() for name in names if not name.startswith(".")]
    return found
