"""The notes taken while one checkpoint unit is examined."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from samestep.checkpoints.containers import FileFacts, read_file
from samestep.checkpoints.model import ComponentReport, Danger, Presence, Problem, Unit
from samestep.checkpoints.naming import is_sidecar, is_state
from samestep.contract import Component, Intent

if TYPE_CHECKING:
    import re


class Draft:
    """What is known so far about one unit; layouts fill it in.

    Args:
        root: the folder that the unit's paths are relative to.
        unit: the unit to examine.
    """

    def __init__(self, root: Path, unit: Unit) -> None:
        self.root = root
        self.unit = unit
        self.components: dict[Component, ComponentReport] = {}
        self.problems: list[Problem] = []
        self.dangers: list[Danger] = []
        self.caveats: dict[Intent, list[str]] = {intent: [] for intent in Intent}
        self.notes: list[str] = []
        self.weights_files: set[str] = set()

    @cached_property
    def names(self) -> dict[str, str]:
        """Return the unit's files: name inside the unit -> path relative to the root."""
        folder = PurePath(self.unit.path)
        base = folder.parent if self.unit.path in self.unit.files else folder
        return {PurePath(file).relative_to(base).as_posix(): file for file in self.unit.files}

    @cached_property
    def contents(self) -> dict[str, FileFacts]:
        """Return what each file of the unit says, shards of torch.distributed.checkpoint left out."""
        return {
            name: read_file(self.root / file, file) for name, file in self.names.items() if _is_read(name)
        }

    @cached_property
    def size_bytes(self) -> int:
        """Return how long all files are together."""
        paths = (self.root / file for file in self.unit.files)
        return sum(path.stat().st_size for path in paths if path.exists())

    def file(self, name: str) -> FileFacts | None:
        """Return what a file of the unit says, or None if it is not there."""
        return self.contents.get(name)

    def matching(self, pattern: re.Pattern[str]) -> list[str]:
        """Return the names inside the unit that match, in order."""
        return sorted(name for name in self.names if pattern.match(name))

    def report(self, component: Component, presence: Presence, where: str = "", note: str = "") -> None:
        """Write down what there is of one component; a later word replaces an earlier one."""
        self.components[component] = ComponentReport(component, presence, where, note)

    def present(self, component: Component, where: str, note: str = "") -> None:
        """Write down that a component is there, damaged if the file that holds it is."""
        facts = self.file(where.split(":", maxsplit=1)[0])
        presence = Presence.DAMAGED if facts and facts.problem else Presence.PRESENT
        self.report(component, presence, where, note)

    def absent(self, component: Component, note: str = "") -> None:
        """Write down that a component is not there."""
        self.report(component, Presence.ABSENT, note=note)

    def missing(self, name: str, why: str = "") -> None:
        """Write down that a file is missing without which the checkpoint is not whole."""
        folder = "" if self.unit.path == "." else f"{self.unit.path}/"
        self.problems.append(Problem(f"{folder}{name}", f"is missing{f': {why}' if why else ''}"))

    def check_files(self) -> None:
        """Collect what is wrong with single files, and what they would run."""
        for facts in self.contents.values():
            if facts.problem:
                self.problems.append(Problem(facts.name, facts.problem))
            self.note_dangers(facts)

    def note_dangers(self, facts: FileFacts) -> None:
        """Write down what opening a file would run."""
        if facts.dangers:
            self.dangers.append(Danger(facts.name, facts.dangers, severe=True))
        if facts.foreign:
            self.dangers.append(Danger(facts.name, facts.foreign, severe=False))


_INFERENCE_ONLY = ("tokenizer", "vocab", "merges", "special_tokens", "added_tokens", "chat_template")


def _is_read(name: str) -> bool:
    if name.endswith(".distcp") or PurePath(name).name.startswith(_INFERENCE_ONLY):
        return False
    return is_state(name) or name.endswith(".metadata") or is_sidecar(PurePath(name).name)


def missing_numbers(names: list[str], pattern: re.Pattern[str]) -> list[int]:
    """Return the numbers that are left out between 0 and the highest one that ``pattern`` finds."""
    found = {int(match[1]) for name in names if (match := pattern.search(name))}
    return sorted(set(range(max(found, default=-1) + 1)) - found)
