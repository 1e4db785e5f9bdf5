"""The registry of the zoo's scripts that were moved to ``samestep.Run`` or an adapter; see ``adapted/moved.toml``."""

from __future__ import annotations

import shutil
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zoo_cases import ZOO, drilled

ADAPTED = Path(__file__).parent / "adapted"
TIMEOUT_SECONDS = 1700
FAMILIES = ["cut", "notice", "restart"]
"""Of most cases: what damage does to a bundle does not depend on the script, and one case of each API shows it."""


@dataclass(frozen=True)
class Moved:
    """A moved script, and the defects of the zoo that it answers."""

    script: str
    api: str
    shows: str
    answers: list[str]
    case: str = ""
    args: list[str] = field(default_factory=list)
    families: list[str] = field(default_factory=lambda: list(FAMILIES))
    also: list[str] = field(default_factory=list)
    drill_args: list[str] = field(default_factory=list)
    noisy: bool = False

    @property
    def name(self) -> str:
        """Of the script and the case."""
        return f"{self.script}-{self.case}" if self.case else self.script

    @property
    def shown(self) -> str:
        """As the published table calls it."""
        return f"{self.script}.py" + (f" --case {self.case}" if self.case else "")

    def command(self) -> list[str]:
        """Return the training command, run from the folder above the scripts."""
        case = ["--case", self.case] if self.case else []
        return [sys.executable, f"{ADAPTED.name}/{self.script}.py", "--out", "{out}", *case, *self.args]


@dataclass(frozen=True)
class Refused:
    """A defect that is a mistake of the restart, which a moved script refuses."""

    defect: str
    script: str
    case: str
    says: str
    args: list[str] = field(default_factory=list)


def load_moved() -> tuple[list[Moved], list[Refused]]:
    """Return the moved scripts, and what they refuse."""
    with (ADAPTED / "moved.toml").open("rb") as file:
        found = tomllib.load(file)
    return [Moved(**row) for row in found["moved"]], [Refused(**row) for row in found["refused"]]


def drill_moved(moved: Moved, folder: Path) -> dict[str, Any]:
    """Drill a moved script from a copy, and return ``drill.json``."""
    for source in (ZOO, ADAPTED):
        left_out = shutil.ignore_patterns("test_*", "__pycache__", "*.toml")
        shutil.copytree(source, folder / source.name, ignore=left_out)
    words = ["--only", ",".join(moved.families), *(word for also in moved.also for word in ("--also", also))]
    return drilled([*words, *moved.drill_args, "--", *moved.command()], folder, TIMEOUT_SECONDS)
