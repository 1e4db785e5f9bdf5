"""What is alive in the process that a training may have to keep, and what a person calls it."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import FrameType

_MOST_NAMES = 2000
_MOST_INSIDE = 400
_DEPTH = 3
_CONTAINERS = (dict, list, tuple, set)
NAMELESS = " without a name"
"""How the name of something ends that nothing in the script refers to by a name."""


def alive(is_wanted: Callable[[type], bool]) -> list[Any]:
    """Return every living object whose type is wanted; what only waits to be collected is collected first."""
    gc.collect()
    decided: dict[type, bool] = {}
    found = []
    for thing in gc.get_objects():
        cls = type(thing)
        if cls not in decided:
            decided[cls] = is_wanted(cls)
        if decided[cls]:
            found.append(thing)
    return found


def attributes(thing: Any) -> dict[str, Any]:
    """Return the instance attributes of ``thing``; no property and no ``__getattr__`` runs."""
    try:
        found = object.__getattribute__(thing, "__dict__")
    except (AttributeError, TypeError):
        return {}
    return dict(found) if isinstance(found, dict) else {}


def inside(thing: Any, depth: int = _DEPTH) -> Iterator[Any]:
    """Yield what ``thing`` holds in its attributes and in containers there, to some depth."""
    if depth == 0:
        return
    if isinstance(thing, dict):
        held: Iterable[Any] = thing.values()
    elif isinstance(thing, _CONTAINERS):
        held = thing
    else:
        held = attributes(thing).values()
    for item in list(held)[:_MOST_INSIDE]:
        yield item
        if isinstance(item, _CONTAINERS) or attributes(item):
            yield from inside(item, depth - 1)


class Names:
    """What things are called where the script can see them.

    Args:
        frame: of the script; its callers count, too.
    """

    def __init__(self, frame: FrameType | None) -> None:
        self._named: dict[int, tuple[str, Any]] = {}
        roots = list(_roots(frame))
        for name, thing in roots:
            self._named.setdefault(id(thing), (name, thing))
        for name, thing in roots:
            for attribute, held in list(_parts(thing))[:_MOST_INSIDE]:
                self._named.setdefault(id(held), (f"{name}{attribute}", held))

    def of(self, thing: Any) -> str:
        """Return the name of ``thing``, or that of its type where it has none."""
        name, _ = self._named.get(id(thing), ("", None))
        return name or f"a {type(thing).__name__}{NAMELESS}"

    def things(self) -> list[Any]:
        """Return everything that has a name."""
        return [thing for _, thing in self._named.values()]


def _parts(thing: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(thing, dict):
        yield from ((f"[{key!r}]", held) for key, held in list(thing.items()) if isinstance(key, str | int))
    elif isinstance(thing, list | tuple):
        yield from ((f"[{at}]", held) for at, held in enumerate(thing))
    else:
        yield from ((f".{name}", held) for name, held in attributes(thing).items())


def _roots(frame: FrameType | None) -> Iterator[tuple[str, Any]]:
    """Yield the names of the frames, innermost first, and the globals of their modules and of the script."""
    spaces: list[dict[str, Any]] = []
    while frame is not None:
        if not str(frame.f_globals.get("__name__", "")).startswith(("samestep.", "importlib")):
            spaces += [frame.f_locals, frame.f_globals]
        frame = frame.f_back
    if "__main__" in sys.modules:
        spaces.append(vars(sys.modules["__main__"]))
    for space in spaces:
        for name, thing in list(space.items())[:_MOST_NAMES]:
            if not name.startswith("__"):
                yield name, thing
