"""Everything in which a stored state does not fit the live objects, collected and said in one error."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

from samestep.state.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SHOWN = 40


class Mismatches:
    """What does not fit; ``check`` raises one error that names all of it.

    Args:
        strict: nothing may be missing or left over but what the patterns allow; otherwise anything may.
        allow_missing: patterns (``*``, ``?``) of entries that the bundle need not have; they stay as they are.
        allow_extra: patterns of entries of the bundle that are left out.
    """

    def __init__(
        self, *, strict: bool = True, allow_missing: Iterable[str] = (), allow_extra: Iterable[str] = ()
    ) -> None:
        self.problems: list[str] = []
        self.left_out: list[str] = []
        self.kept: list[str] = []
        self._missing = tuple(allow_missing) if strict else ("*",)
        self._extra = tuple(allow_extra) if strict else ("*",)

    def missing(self, place: str, *, because: str = "") -> None:
        """Take down that the bundle has nothing for ``place``."""
        if _matches(place, self._missing):
            self.kept.append(place)
        else:
            self.problems.append(f"missing in the bundle: {place}{because}")

    def surplus(self, place: str, *, because: str = "") -> None:
        """Take down that the bundle has something for ``place``, and the program has no such place."""
        if _matches(place, self._extra):
            self.left_out.append(place)
        else:
            self.problems.append(f"only in the bundle: {place}{because}")

    def differs(self, place: str, stored: object, present: object) -> None:
        """Take down that ``place`` is one thing in the bundle and another here."""
        self.problems.append(f"{place}: in the bundle {stored}, here {present}")

    def check(self) -> None:
        """Raise the error, if anything does not fit.

        Raises:
            StateError: with the slug ``state-mismatch``.
        """
        if not self.problems:
            return
        shown = [f"  {problem}" for problem in self.problems[:_SHOWN]]
        if len(self.problems) > _SHOWN:
            shown.append(f"  and {len(self.problems) - _SHOWN} more")
        count = f"{len(self.problems)} entries do" if len(self.problems) > 1 else "one entry does"
        raise StateError(
            "\n".join([f"the bundle does not fit this program; {count} not agree:", *shown]),
            slug="state-mismatch",
            hint="Build the objects as the saved run did. What is meant to be new or gone can be allowed by name: "
            "allow_missing=['model.head.*'], allow_extra=[…].",
        )


def _matches(place: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(place, pattern) for pattern in patterns)
