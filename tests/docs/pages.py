"""Markdown pages of the repository, and the commands that they show."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "tests" / "README.md"])

_MARKED = re.compile(r"<!-- (run|drill: exit (\d)) -->\n```console\n(.*?)```", re.DOTALL)
_SEQUENCE = re.compile(r"<!-- sequence -->\n```console\n(.*?)```", re.DOTALL)


@dataclass(frozen=True)
class Shown:
    """A command that a page promises to work, with the exit code that it promises."""

    page: Path
    words: tuple[str, ...]
    exit_code: int
    drill: bool

    def __str__(self) -> str:
        return f"{self.page.stem}: {shlex.join(self.words)}"


def shown_commands() -> list[Shown]:
    """Return every command after ``$`` in blocks marked with ``<!-- run -->`` or ``<!-- drill: exit N -->``."""
    return [
        Shown(page, tuple(shlex.split(line[2:])), int(code or 0), drill=kind.startswith("drill"))
        for page in PAGES
        for kind, code, block in _MARKED.findall(page.read_text(encoding="utf-8"))
        for line in block.splitlines()
        if line.startswith("$ ")
    ]


def sequences() -> dict[Path, list[list[str]]]:
    """Return for each page the commands of its blocks marked ``<!-- sequence -->``, to be typed one after the other."""
    found = {}
    for page in PAGES:
        blocks = _SEQUENCE.findall(page.read_text(encoding="utf-8"))
        lines = [line for block in blocks for line in block.splitlines() if line.startswith("$ ")]
        if lines:
            found[page] = [shlex.split(line[2:]) for line in lines]
    return found
