"""Which checkpoints are whole in a disk state, bit by bit, which are torn, and which mix two saves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from samestep.checkpoints import is_leftover, is_log

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from samestep.crash.image import Image


@dataclass(frozen=True)
class Generation:
    """What a checkpoint held when the save that made it was complete.

    Attributes:
        path: of the unit, relative to the durable folder.
        step: steps complete in it.
        files: path relative to the durable folder and digest of each of its files.
    """

    path: str
    step: int
    files: Mapping[str, bytes]

    @classmethod
    def of(cls, image: Image, path: str, step: int, files: Iterable[str] = ()) -> Generation:
        """Take what an image holds of a unit.

        Args:
            image: what was there at the end of the save.
            path: of the unit, a file or folder.
            step: steps complete in it.
            files: its files, relative to the durable folder; by default all below the path but logs and leftovers.
        """
        return cls(path, step, _digests(image, path, files))


@dataclass(frozen=True)
class Torn:
    """A unit that equals no save that was made.

    Attributes:
        path: of the unit.
        step: of the save it comes closest to.
        missing: files of that save that are not there.
        damaged: files that are there and equal none that was ever saved.
    """

    path: str
    step: int
    missing: tuple[str, ...]
    damaged: tuple[str, ...]


@dataclass(frozen=True)
class Mixed:
    """A unit with files of several saves.

    Attributes:
        path: of the unit.
        files: for each save's step the files that are from this save and no other.
    """

    path: str
    files: Mapping[int, tuple[str, ...]]


@dataclass(frozen=True)
class Wholeness:
    """What a disk state has of the checkpoints that were saved.

    Attributes:
        whole: path and step of each unit that is there bit by bit, highest step first.
        torn: units that equal no save, those that mix saves included.
        mixed: units with files of several saves.
    """

    whole: tuple[tuple[str, int], ...]
    torn: tuple[Torn, ...]
    mixed: tuple[Mixed, ...]

    @property
    def newest(self) -> int | None:
        """Steps complete in the newest whole unit; None if there is none."""
        return self.whole[0][1] if self.whole else None


def wholeness(image: Image, generations: Sequence[Generation]) -> Wholeness:
    """Compare a disk state with what was saved.

    Args:
        image: the disk state.
        generations: every save of every unit up to and including the window that the state is from; of a unit that is
            overwritten in place, several. A unit of which no file is there is neither whole nor torn.
    """
    by_path: dict[str, list[Generation]] = {}
    for generation in generations:
        by_path.setdefault(generation.path, []).append(generation)
    whole: list[tuple[str, int]] = []
    torn: list[Torn] = []
    mixed: list[Mixed] = []
    for path, saves in by_path.items():
        files = {name for save in saves for name in save.files}
        found = _digests(image, path, files)
        equal = [save.step for save in saves if _is_there(save, found, saves)]
        if equal:
            whole.append((path, max(equal)))
        elif found:
            torn.append(_torn(path, found, saves))
            mixed += _mixed(path, found, saves)
    return Wholeness(tuple(sorted(whole, key=lambda unit: (-unit[1], unit[0]))), tuple(torn), tuple(mixed))


def _digests(image: Image, path: str, files: Iterable[str]) -> dict[str, bytes]:
    wanted = set(files)
    if wanted:
        return {name: content.digest for name in sorted(wanted) if (content := image.file(name)) is not None}
    found = image.files("" if path == "." else path)
    return {
        name: content.digest
        for name, content in found.items()
        if not is_log(name) and not is_leftover(name.rsplit("/", 1)[-1])
    }


def _is_there(save: Generation, found: Mapping[str, bytes], saves: Sequence[Generation]) -> bool:
    """Tell whether a save is there bit by bit, with nothing of another save that it did not have."""
    return all(found.get(name) == digest for name, digest in save.files.items()) and not (
        found.keys()
        - save.files.keys()
        - {name for other in saves if other.step < save.step for name in other.files}
    )


def _torn(path: str, found: Mapping[str, bytes], saves: Sequence[Generation]) -> Torn:
    def common(save: Generation) -> tuple[int, int]:
        return sum(found.get(name) == digest for name, digest in save.files.items()), save.step

    closest = max(saves, key=common)
    known = {name: {save.files.get(name) for save in saves} for name in found}
    return Torn(
        path,
        closest.step,
        tuple(name for name in closest.files if name not in found),
        tuple(name for name, digest in found.items() if digest not in known[name]),
    )


def _mixed(path: str, found: Mapping[str, bytes], saves: Sequence[Generation]) -> list[Mixed]:
    files: dict[int, tuple[str, ...]] = {}
    for name, digest in found.items():
        steps = [save.step for save in saves if save.files.get(name) == digest]
        if len(steps) == 1 and len(saves) > 1:
            files[steps[0]] = (*files.get(steps[0], ()), name)
    return [Mixed(path, files)] if len(files) > 1 else []
