"""Which living things the user has excused: by their very names, or by a name that can mean only one of them."""

from __future__ import annotations

import dataclasses
import difflib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from .contract_check import Stray

_STEPS = re.compile(r"[.\[\]'\"]+")
_NOISE = re.compile(r"[^0-9a-z]")
_ALIKE = 0.75
"""From which share of common letters on a name is offered for another."""


@dataclasses.dataclass(frozen=True)
class Excused:
    """What comes of the names that the user has excused.

    Attributes:
        left: what nobody has said anything about.
        taken: which name was taken for what, in words.
        offers: of names that mean nothing, what they may have been meant for, in words.
    """

    left: list[Stray]
    taken: list[str]
    offers: list[str]


def without_excused(found: Iterable[Stray], names: Collection[str]) -> Excused:
    """Leave out what is excused.

    A name that fits nothing as it stands is taken for the one thing whose last part is called like it:
    ``validation`` for ``trainer.validation``. Where there are several, or it is only similar, it is offered.

    Args:
        found: what is alive without a row.
        names: that the user has said to be rebuilt or irrelevant; some may be of components.
    """
    found = list(found)
    exact = {one.name for one in found} & set(names)
    left = [one for one in found if one.name not in exact]
    taken, offers = [], []
    for name in sorted(set(names) - exact):
        meant = [one for one in left if _key(name) in (_key(one.name), _key(tail_of(one.name)))]
        if len(meant) == 1:
            left.remove(meant[0])
            taken.append(f"{name} is taken for {meant[0]}")
        elif near := [one.name for one in meant] or _similar(name, left):
            offers.append(
                f"{name!r} is the name of nothing alive; did you mean {' or '.join(map(repr, near))}?"
            )
    return Excused(left, taken, offers)


def tail_of(name: str) -> str:
    """Return the last part of a name: ``loaders['val']`` and ``trainer.val`` are called ``val``."""
    return next((part for part in reversed(_STEPS.split(name)) if part), name)


def _similar(name: str, left: Iterable[Stray]) -> list[str]:
    by_key = {key: one.name for one in left for key in (_key(one.name), _key(tail_of(one.name)))}
    close = difflib.get_close_matches(_key(name), by_key, n=3, cutoff=_ALIKE)
    return list(dict.fromkeys(by_key[key] for key in close))


def _key(name: str) -> str:
    return _NOISE.sub("", name.lower())
