"""The saves in a recording: which operations make each, and what its checkpoints hold when it is complete."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from samestep.checkpoints import ROOT_NAMES, SAMESTEP, is_log
from samestep.crash.image import File, Image, Symlink
from samestep.crash.materialise import materialise
from samestep.crash.replay import Replay, replay
from samestep.crash.whole import Generation, wholeness
from samestep.crash.windows import relative, save_windows
from samestep.drill.observe import Burst
from samestep.drill.units import units_with_steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from samestep.checkpoints import Unit
    from samestep.crash.recording import Recording
    from samestep.crash.whole import Wholeness
    from samestep.crash.windows import Window

_SIDECARS = frozenset({".json", ".yaml", ".yml", ".txt", ".toml", ".md", ".csv", ""})


@dataclass(frozen=True)
class Save:
    """One save.

    Attributes:
        window: its operations.
        step: steps complete in what it saves.
        generations: what the checkpoints that it made or changed hold at its end.
        written: digest of every file that it has written, at its end; until all are so the save may not have been
            announced (a pointer, a marker), and the checkpoint before it may be picked too.
    """

    window: Window
    step: int
    generations: list[Generation]
    written: dict[str, bytes] = field(default_factory=dict)

    def is_announced(self, image: Image) -> bool:
        """Say whether everything that the save writes is there."""
        there = _contents(image)
        return all(there.get(path) == digest for path, digest in self.written.items())


def saves_of(recording: Recording, save_steps: Sequence[int], scratch: Path) -> list[Save]:
    """Return the saves that made checkpoints, in order.

    Args:
        recording: of a run.
        save_steps: steps after which the run was seen to save.
        scratch: existing folder for looking at what a save has written.
    """
    steps, position = Replay(Image(recording.header.roots[0]), recording), 0
    found = []
    for window in sorted(save_windows(recording), key=lambda window: window.last):
        before = steps.image.copy()
        while position <= window.last:
            steps.step(recording.operations[position])
            position += 1
        step = save_step(window, recording, save_steps)
        if step is not None:
            save = save_of(window, step, before, steps.image.copy(), scratch)
            found += [save] if save.generations else []
    return found


def save_step(window: Window, recording: Recording, save_steps: Sequence[int]) -> int | None:
    """Return the step that a window's save counts for: one inside a step counts for that step.

    A save that goes on after its step was written in the background, for a loop that saves by itself waits for it. Such
    a save may first be seen a step late, and holds what there was when it began, unless its name says the later step.

    Args:
        window: its operations.
        recording: that they are in.
        save_steps: steps after which the run was seen to save.
    """
    begun, later = window.step, window.step + 1
    if begun in save_steps or later not in save_steps:
        return begun if begun in save_steps else None
    in_background = window.last_step > begun and later not in _numbers(window, recording)
    return begun if in_background else later


def _numbers(window: Window, recording: Recording) -> set[int]:
    """Return the numbers in the names that a save writes under."""
    operations = [recording.operations[index] for index in window.operations]
    names = {path for operation in operations for path in (operation.path, operation.target)}
    inside = [name for path in names if (name := relative(path, recording.header.roots[0]))]
    return {int(digits) for name in inside for digits in _digits(name)}


def save_of(window: Window, step: int, before: Image, end: Image, scratch: Path) -> Save:
    """Return the save of a window.

    Args:
        window: its operations.
        step: steps complete in it.
        before: what was there when it began.
        end: what was there when it was over.
        scratch: existing folder to work in.
    """
    old = _contents(before)
    written = {
        path: digest
        for path, digest in _contents(end).items()
        if not is_log(path) and old.get(path) != digest
    }
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        kept = {*ROOT_NAMES, *(PurePath(path).parts[0] for path in written)}
        materialise(_with_entries(end, kept), Path(folder))
        units = units_with_steps(Path(folder), [Burst(step, tuple(written))])
    generations = [Generation.of(end, unit.path, _told(unit, step), _own_files(unit)) for unit, _ in units]
    if any(unit.framework == SAMESTEP for unit, _ in units):
        own = {name for item in generations for name in item.files}
        written = {path: digest for path, digest in written.items() if path in own}  # its record announces it
    return Save(window, step, [item for item in generations if item.files], written)


def _told(unit: Unit, step: int) -> int:
    """Return the step of a checkpoint that tells it, else the one after which it was saved."""
    return unit.step if unit.framework == SAMESTEP and unit.step is not None else step


def left_after(recording: Recording, save_steps: Sequence[int], scratch: Path) -> Wholeness:
    """Compare what a run on a failing disk has left with its saves that met no error."""
    failed = [operation.index for operation in recording.operations if operation.injected]
    # a save that made no checkpoint ends the one before it all the same
    begins = [*(window.first for window in save_windows(recording)), len(recording.operations)]
    generations: list[Generation] = []
    for save in saves_of(recording, save_steps, scratch):
        end = min(at for at in begins if at > save.window.first)
        if not any(save.window.first <= index < end for index in failed):
            generations += save.generations
    return wholeness(replay(recording, Image(recording.header.roots[0])), generations)


def _contents(image: Image) -> dict[str, bytes]:
    """Return the digest of every file, and what every symbolic link says, by path."""
    found = {}
    for path, node in image.below():
        if isinstance(node, File):
            found[path] = node.content.digest
        elif isinstance(node, Symlink):
            found[path] = node.text.encode()
    return found


def _own_files(unit: Unit) -> list[str]:
    """Leave out texts beside a checkpoint file that carry neither its name nor its number: they change on their own."""
    main = PurePath(unit.path)
    if unit.framework == SAMESTEP:
        return [*unit.files, *unit.pointers]
    if unit.path == "." or any(
        PurePath(name).is_relative_to(main) and name != unit.path for name in unit.files
    ):
        return list(unit.files)
    marks = {main.stem, *(part for part in _digits(main.name) if part)}
    return [
        name
        for name in unit.files
        if PurePath(name).suffix not in _SIDECARS or any(mark in PurePath(name).name for mark in marks)
    ]


def _digits(name: str) -> list[str]:
    return "".join(letter if letter.isdecimal() else " " for letter in name).split()


def _with_entries(image: Image, names: set[str]) -> Image:
    """Return an image whose durable folder holds only these names."""
    kept = image.copy()
    root = image.find(image.root)
    for _, (folder, name) in list(image.entries(root)) if root is not None else []:
        if folder == root and name not in names:
            kept.leave((folder, name), image.clock)
    return kept
