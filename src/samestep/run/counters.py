"""Counters of the script that nobody has named: a restart sets them back, and nothing puts them on again.

At the first boundaries of an attempt the plain numbers around the loop are looked at. What every step changes, by a
statement that reads it first (``tokens += 512``), is a counter; a loss, a batch or a loop's own index is set anew.
Every bundle tells what the counters began with and what they had come to, so that the next attempt sees which of them
begin again although the run does not.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import itertools
import math
import os
import re
import sys
import sysconfig
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

from samestep.probe.reach.frames import Frames, readable_names
from samestep.probe.reach.kinds import is_private, plain_value

from .excuses import tail_of
from .reachable import attributes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from types import FrameType

    from samestep.bundle.manifest import Manifest

COUNTERS = "counters"
"""Where a manifest's ``progress`` has what ``Counters.told`` returned."""

_LOOKS = 4
"""Boundaries at the beginning of an attempt that are looked at."""

_DEPTH = 2
"""How far objects are looked into: ``trainer.meter.count``."""

_MOST = 50
"""Counters that are told of, and things in a container that is looked into."""

_STEP = re.compile(r"[.\[]")
_ENDS = frozenset({"POP_TOP", "FOR_ITER", "STORE_SUBSCR", "STORE_SLICE", "RETURN_VALUE"})
"""What a statement ends with that sets no name."""

_ACCESS = re.compile(r"(LOAD|STORE)_(?:FAST|NAME|GLOBAL|DEREF|ATTR)")


class _Number(NamedTuple):
    """A plain number that the loop can reach, and the class of the object that holds it, if one does."""

    value: float
    holder: type | None


class Counters:
    """Looks for counters, and says which of them a restart has set back.

    Args:
        frame: of the script, before anything is restored.
        excused: names of which the user has said that they do not matter.
        say: shows a text to the user.
    """

    def __init__(self, frame: FrameType | None, excused: Collection[str], say: Callable[[str], None]) -> None:
        self._frames = Frames()
        self._excused, self._say = excused, say
        self._began: Mapping[str, _Number] = {}
        self._looks: list[Mapping[str, _Number]] = []
        self._known: Mapping[str, Any] = {}
        self._resumed = 0
        self._starts: dict[str, float] = {}
        self._done = frame is None
        with self._foreign():
            self._began = self._read(frame)

    def resumed(self, known: Mapping[str, Any], step: int) -> None:
        """Take what a bundle tells of counters.

        Args:
            known: what ``told`` returned when the bundle was made.
            step: of the bundle.
        """
        self._known, self._resumed = known, step
        self._starts = {name: start for name, (start, _) in known.items()}

    def look(self) -> None:
        """Look, at one of the first boundaries; later ones cost nothing."""
        if self._done:
            return
        with self._foreign():
            frame = sys._getframe(1)  # noqa: SLF001 - what the loop can reach is the question
            self._looks.append(self._read(frame))
            if len(self._looks) == _LOOKS:
                self._done = True
                self._decide(_codes(frame))
                self._looks = []

    def told(self) -> dict[str, list[float | None]]:
        """Return, by name, what a counter began with and what it is now; None where it cannot be seen."""
        if not self._starts:
            return {}
        now: Mapping[str, _Number] = {}
        with self._foreign():
            now = self._read(sys._getframe(1), only=_beginnings(self._starts))  # noqa: SLF001 - as in look
        return {name: [start, _value(now.get(name))] for name, start in self._starts.items()}

    def _decide(self, codes: Iterable[CodeType]) -> None:
        starts = {
            name: self._began.get(name, first).value
            for name, first in self._looks[0].items()
            if self._changes(name) and _may_count(name, first.value)
        }
        holders = {holder for name in starts if (holder := self._looks[0][name].holder) is not None}
        sums = accumulated([*codes, *itertools.chain.from_iterable(map(_methods, holders))])
        counting = [name for name in starts if name.rpartition(".")[2] in sums][:_MOST]
        for name in counting:
            self._warn(name, starts[name])
        self._starts = {name: starts[name] for name in counting} | self._starts

    def _changes(self, name: str) -> bool:
        """Whether every step has changed it, the first one included."""
        seen = [self._began, *self._looks] if name in self._began else self._looks
        values = [look[name].value for look in seen if name in look]
        return len(values) == len(seen) and all(one != other for one, other in itertools.pairwise(values))

    def _warn(self, name: str, start: float) -> None:
        """Say so when a counter began again: it is nearer to its beginning than to what it had come to."""
        began, saved = self._known.get(name, (None, None))
        if {name, tail_of(name)} & set(self._excused) or began != start or saved is None:
            return
        first = self._looks[0][name].value
        if abs(first - saved) > abs(first - start):
            self._say(_warning(name, start, saved, self._resumed))

    def _read(self, frame: FrameType | None, only: Collection[str] | None = None) -> dict[str, _Number]:
        """Return the numbers around a frame by name; only those in variables of the names given, if any are."""
        if frame is None:
            return {}
        roots = self._frames.roots(frame)
        names = readable_names(roots)
        walk = _Walk()
        for key, thing in roots.items():
            if not key[0].is_framework and (only is None or names[key] in only):
                walk.into(names[key], thing)
        return walk.found

    @contextlib.contextmanager
    def _foreign(self) -> Iterator[None]:
        """What is looked at is the script's own: whatever goes wrong there, no training ends by it."""
        try:
            yield
        except Exception:  # noqa: BLE001
            self._done = True


class _Walk:
    """Finds the plain numbers in things and in the script's own objects there; no code of theirs runs."""

    def __init__(self) -> None:
        self.found: dict[str, _Number] = {}
        self._seen: set[int] = set()

    def into(self, name: str, thing: Any, holder: type | None = None, depth: int = _DEPTH) -> None:
        """Look at a thing under its name, and no further than ``depth`` objects into it."""
        cls = type(thing)
        if cls in (int, float):
            self.found.setdefault(name, _Number(thing, holder))
        elif depth and _is_own(cls) and id(thing) not in self._seen:
            self._seen.add(id(thing))
            for attribute, held in attributes(thing).items():
                self.into(f"{name}.{attribute}", held, cls, depth - 1)
        elif depth and cls in (dict, list, tuple) and len(thing) <= _MOST:
            for place, held in thing.items() if cls is dict else enumerate(thing):
                if type(place) in (int, str) and _is_own(type(held)):  # numbers in a list are data
                    self.into(f"{name}[{place!r}]", held, None, depth)


def counters_of(manifest: Manifest) -> dict[str, Any]:
    """Return what a bundle tells of counters; nothing where it tells something else."""
    progress = manifest.progress if isinstance(manifest.progress, dict) else {}
    told = progress.get(COUNTERS, {})
    pairs = told.items() if isinstance(told, dict) else ()
    return {name: pair for name, pair in pairs if isinstance(pair, list) and len(pair) == 2}


def accumulated(codes: Iterable[CodeType]) -> set[str]:
    """Return the names, of variables and attributes, that a statement sets after having read them.

    Args:
        codes: to look through, with the functions inside of them.
    """
    found: set[str] = set()
    for code in codes:
        found |= _accumulated(code)
    return found


@functools.lru_cache(maxsize=1000)
def _accumulated(code: CodeType) -> frozenset[str]:
    found: set[str] = set()
    read: set[str] = set()
    was_set = False
    for step in dis.get_instructions(code):
        for access, name in _accesses(step):
            if access == "STORE":
                found |= {name} & read
                was_set = True
                continue
            if was_set:  # another statement begins
                read, was_set = set(), False
            read.add(name)
        if step.opname in _ENDS:
            read = set()
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return frozenset(found.union(*map(_accumulated, inner)))


def _accesses(step: dis.Instruction) -> list[tuple[str, str]]:
    """Return how an instruction uses which names; newer versions of Python use two in one."""
    names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
    kinds = _ACCESS.findall(step.opname)
    return [(kind, name) for kind, name in zip(kinds, names, strict=False) if isinstance(name, str)]


def _codes(frame: FrameType | None) -> list[CodeType]:
    """Return the code of the script's functions that are being executed."""
    found = []
    while frame is not None:
        if _is_script(frame.f_code.co_filename) and not _is_ours(str(frame.f_globals.get("__name__", ""))):
            found.append(frame.f_code)
        frame = frame.f_back
    return found


def _methods(cls: type) -> list[CodeType]:
    functions = [thing for base in cls.__mro__ if _is_own(base) for thing in vars(base).values()]
    return [function.__code__ for function in functions if isinstance(function, FunctionType)]


def _is_own(cls: type) -> bool:
    """Whether a class is the script's, and not that of a package."""
    return cls.__module__ == "__main__" or _is_own_module(cls.__module__)


@functools.lru_cache(maxsize=5000)
def _is_own_module(name: str) -> bool:
    file = getattr(sys.modules.get(name), "__file__", None)
    return bool(file) and _is_script(str(file)) and not _is_ours(name)


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == "samestep"


@functools.lru_cache(maxsize=5000)
def _is_script(file: str) -> bool:
    path = os.path.realpath(file)
    return not file.startswith("<frozen") and not path.startswith(_packages())


@functools.cache
def _packages() -> tuple[str, ...]:
    """Return where installed packages and the standard library lie."""
    paths = sysconfig.get_paths()
    folders = {paths[name] for name in ("purelib", "platlib", "stdlib", "platstdlib")}
    return tuple(os.path.realpath(folder) + os.sep for folder in sorted(folders))


def _may_count(name: str, value: float) -> bool:
    """Whether a number may be a counter: no clock, no address and nothing private."""
    return plain_value(value) is not None and math.isfinite(value) and not is_private(name)


def _beginnings(names: Iterable[str]) -> set[str]:
    """Return whatever names may begin with: ``parts``, ``parts[0]`` and all of ``parts[0].calls``."""
    return {
        name[:at] for name in names for at in [*(found.start() for found in _STEP.finditer(name)), len(name)]
    }


def _value(number: _Number | None) -> float | None:
    return None if number is None else number.value


def _warning(name: str, start: float, saved: float, step: int) -> str:
    return (
        f"warning: {name} has begun again at {start:g}: it was {saved:g} at step {step}, and every step changes it. "
        "Keep it in what the run tracks, such as a dict or a dataclass of plain values, run.track('counts', counts), "
        f"or take it from run.step; if nothing depends on it, run.irrelevant({name!r}, because=...)"
    )
