"""Numbers of files that stay theirs for a whole recording, although the kernel uses its own again."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from samestep.crash.recorder.paths import Key


class Inodes:
    """Recording-wide numbers by device and inode number."""

    def __init__(self) -> None:
        self._numbers: dict[Key, int] = {}
        self._last = 0
        self._paths: dict[int, str] = {}

    def number(self, key: Key, path: str) -> int:
        """Return the number of a file that exists, last seen at ``path``."""
        found = self._numbers.get(key)
        if found is None:
            return self.fresh(key, path)
        self._paths[found] = path
        return found

    def fresh(self, key: Key, path: str) -> int:
        """Return a new number for a file that has just been made."""
        self._last += 1
        self._numbers[key] = self._last
        self._paths[self._last] = path
        return self._last

    def path(self, number: int) -> str:
        """Return where a file was last seen."""
        return self._paths[number]

    def path_of(self, key: Key) -> bytes:
        """Return where a file was last seen; empty when it never was, or has no name."""
        number = self._numbers.get(key)
        return os.fsencode(self._paths[number]) if number else b""

    def knows(self, key: Key) -> bool:
        """Whether a file was numbered before."""
        return key in self._numbers

    def moved(self, number: int, path: str) -> None:
        """Remember the new path of a file, or of a folder with all that is below it."""
        below = self._paths.get(number, "") + "/"
        self._paths[number] = path
        if below != "/":
            for inner, old in self._paths.items():
                if old.startswith(below):
                    self._paths[inner] = path + "/" + old[len(below) :]
