"""The records that describe checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from samestep.contract.words import Word

if TYPE_CHECKING:
    from samestep.contract import Component, Intent

UNKNOWN = "unknown"
"""The framework of a unit whose layout belongs to none that is known."""


@dataclass(frozen=True)
class Unit:
    """A folder or a file, or files that belong together, which a restart can pick.

    Attributes:
        path: relative to the searched root; ``.`` if the root itself is the unit. Files that form one
            checkpoint in a folder of several go by the path of their main file.
        framework: whose layout it is; ``unknown`` for a script's own.
        step: the optimizer steps it claims to hold, if it says so anywhere.
        files: its files, relative to the searched root, in order.
        pointers: files outside it that name it, such as DeepSpeed's ``latest``.
    """

    path: str
    framework: str
    step: int | None
    files: tuple[str, ...]
    pointers: tuple[str, ...] = ()


class Presence(Word):
    """Whether a component would come back in a restart."""

    PRESENT = "present"
    REBUILT = "rebuilt"
    ABSENT = "absent"
    DAMAGED = "damaged"
    NOT_LOADED = "not-loaded"
    NOT_STORABLE = "not-storable"
    SKIPPED = "skipped-silently"
    UNKNOWN = "unknown"


PRESENCE_PHRASES = {
    Presence.PRESENT: "present",
    Presence.REBUILT: "not stored, rebuilt on resume",
    Presence.ABSENT: "absent",
    Presence.DAMAGED: "damaged",
    Presence.NOT_LOADED: "present, but the framework will not load it by default",
    Presence.NOT_STORABLE: "not storable by this framework",
    Presence.SKIPPED: "present, but will be skipped silently",
    Presence.UNKNOWN: "cannot be told from the files",
}
"""How each presence is worded for users."""


class Verdict(Word):
    """Whether a checkpoint serves an intent."""

    YES = "yes"
    YES_BUT = "yes, but"
    NO = "no"


@dataclass(frozen=True)
class ComponentReport:
    """What a checkpoint holds of one component.

    Attributes:
        component: which one.
        presence: whether it would come back.
        where: the file, or the key inside a file, that holds it.
        note: what a user should know about it.
    """

    component: Component
    presence: Presence
    where: str = ""
    note: str = ""


@dataclass(frozen=True)
class Problem:
    """Something that keeps a checkpoint from being whole."""

    file: str
    what: str

    def __str__(self) -> str:
        return f"{self.file} {self.what}"


@dataclass(frozen=True)
class Danger:
    """A file that can run code when it is unpickled.

    Attributes:
        file: relative to the inspected path.
        names: what it would call or look up.
        severe: whether the names can run commands; otherwise they need a package's code.
    """

    file: str
    names: tuple[str, ...]
    severe: bool


@dataclass(frozen=True)
class Answer:
    """Whether the checkpoint serves one intent, and why not entirely."""

    intent: Intent
    verdict: Verdict
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Inspection:
    """What one checkpoint unit holds.

    Attributes:
        unit: which one.
        size_bytes: of all its files.
        problems: what keeps it from being whole.
        components: one row per component that has something to say.
        answers: one for each intent.
        dangers: files that can run code when they are unpickled.
        notes: anything else a user should know.
    """

    unit: Unit
    size_bytes: int
    problems: tuple[Problem, ...]
    components: tuple[ComponentReport, ...]
    answers: tuple[Answer, ...]
    dangers: tuple[Danger, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Tell whether nothing is missing or damaged, as far as headers show."""
        return not self.problems

    def answer(self, intent: Intent) -> Answer:
        """Return the answer for one intent."""
        return next(answer for answer in self.answers if answer.intent is intent)


@dataclass(frozen=True)
class Selection:
    """Which unit a restart would take.

    Attributes:
        unit: the unit, or None if the rule finds none.
        rule: the rule in words.
        certain: whether the rule is the framework's own; otherwise it is what most scripts do.
    """

    unit: Unit | None
    rule: str
    certain: bool


@dataclass(frozen=True)
class FolderInspection:
    """What a folder with one or more checkpoints holds.

    Attributes:
        path: as the user gave it.
        inspections: one per unit, oldest first.
        selection: which one a restart would take.
        newest_whole: the unit with the highest step that is whole, if any.
        warnings: what is wrong with the choice or with the set.
    """

    path: str
    inspections: tuple[Inspection, ...]
    selection: Selection
    newest_whole: Unit | None
    warnings: tuple[str, ...] = ()

    @property
    def picked(self) -> Inspection | None:
        """Return the inspection of the unit that would be taken."""
        chosen = self.selection.unit
        return next((item for item in self.inspections if item.unit == chosen), None)
