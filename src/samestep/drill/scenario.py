"""A scenario: a disk state, a way to restart from it, and what must happen. Written down before anything runs."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from samestep.contract.words import Word

if TYPE_CHECKING:
    from pathlib import Path

    from samestep.contract import Family
    from samestep.crash.recorder import Fault
    from samestep.drill.judging.judgement import Case
    from samestep.drill.result import Expectation
    from samestep.trace import ParkPoint

FINAL = "final"
"""Name of the snapshot taken after the control ended."""


class EditKind(Word):
    """How a disk state differs from the snapshot it was made from."""

    REMOVE = "remove"
    TRUNCATE = "truncate"
    FLIP = "flip"
    COPY = "copy"


@dataclass(frozen=True)
class Edit:
    """One change of a copied disk state.

    Attributes:
        kind: what is done.
        path: to which file or folder, relative to the durable folder.
        target: for a copy: its new path.
        older: for a copy: make every modification time older than the original's.
    """

    kind: EditKind
    path: str
    target: str = ""
    older: bool = False

    def apply(self, root: Path) -> None:
        """Carry it out below ``root``."""
        path = root / self.path
        if self.kind is EditKind.REMOVE:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        elif self.kind is EditKind.TRUNCATE:
            os.truncate(path, path.stat().st_size // 2)
        elif self.kind is EditKind.FLIP:
            flip_byte(path)
        else:
            copy_aside(path, root / self.target, older=self.older)


def flip_byte(path: Path) -> None:
    """Invert one byte in the middle of the file."""
    if path.stat().st_size == 0:
        return
    with path.open("r+b") as file:
        middle = path.stat().st_size // 2
        file.seek(middle)
        byte = file.read(1)
        file.seek(middle)
        file.write(bytes([byte[0] ^ 0xFF]))


def copy_aside(source: Path, target: Path, *, older: bool) -> None:
    """Copy a file or folder, with the modification times of the source or an hour before."""
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copy2(source, target)
    if older:
        for path in [target, *target.rglob("*")]:
            changed = path.stat().st_mtime - 3600
            os.utime(path, (changed, changed))


@dataclass(frozen=True)
class DiskState:
    """What a machine finds on durable storage: a snapshot of the control, with edits.

    Attributes:
        snapshot: name of a park point of the control, or ``final``.
        edits: applied in order to a copy.
        crash: name of a state of the family ``crash``, instead of a snapshot.
    """

    snapshot: str
    edits: tuple[Edit, ...] = ()
    crash: str = ""


class Arrangement(Word):
    """How the disk state of a scenario comes about."""

    SNAPSHOT = "snapshot"  # the control's durable folder while it stood still
    KILL = "kill"  # a run of its own, really killed
    NOTICE = "notice"  # a run of its own, told to go and killed after the grace
    TWICE = "twice"  # restarted from a snapshot and cut again
    FAULT = "fault"  # a run of its own, whose disk fails while it saves


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One thing to try.

    Attributes:
        name: stable and unique inside a drill.
        family: its group.
        title: what is done, in words.
        disk: the state to restart from; for other arrangements than ``snapshot`` the state to begin with.
            None: nothing.
        arrangement: how the final disk state comes about.
        point: where the run of its own is parked and cut, in the step numbers of its own process.
        expected: what must happen.
        case: what the judge needs to know.
        verify_steps: steps to compare; 0: to the end.
        extra_args: appended to the restart's command.
        fault: what the disk answers, for a run of its own that is to meet it.
    """

    name: str
    family: Family
    title: str
    expected: Expectation
    case: Case
    disk: DiskState | None = None
    arrangement: Arrangement = Arrangement.SNAPSHOT
    point: ParkPoint | None = None
    verify_steps: int = 4
    extra_args: list[str] = field(default_factory=list)
    fault: Fault | None = None


def followed_to_the_end(scenario: Scenario) -> Scenario:
    """Return the scenario, compared to the end of the control instead of over a few steps."""
    return replace(scenario, verify_steps=0, case=replace(scenario.case, to_end=True))
