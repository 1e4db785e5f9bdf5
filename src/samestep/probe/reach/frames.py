"""The frames around a step: whose they are, and which names in them may be looked at."""

from __future__ import annotations

import dis
import os
import sys
import sysconfig
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import CodeType, FrameType

_PASSED_OVER = frozenset({"torch", "samestep", "_samestep", "torchdata", "functorch"})
_SNAPSHOTS = sys.version_info < (3, 13)
_OWN_NAMESPACE = 0x1  # CO_OPTIMIZED: a function, whose locals are no dictionary of its own
_MOST_FRAMES = 200
_MOST_NAMES = 400


@dataclass(eq=False)
class Owner:
    """Whose names these are: a function's by its code, or the script's globals; compared by identity.

    Attributes:
        function: its name.
        is_framework: it belongs to an installed package, of which only ``self`` is looked at.
        is_readable: reading its locals has no effect on the script.
    """

    function: str
    is_framework: bool = False
    is_readable: bool = True


Key = tuple[Owner, str]


class Frames:
    """Reads the names around a step; what a code object is gets decided once."""

    def __init__(self) -> None:
        self._owners: dict[int, tuple[CodeType, Owner | None]] = {}
        self._installed, self._standard = _folders()

    def roots(self, frame: FrameType) -> dict[Key, Any]:
        """Return the things to start from by ``(owner, name)``: the script's globals, then frames outermost first."""
        stack: list[tuple[Owner, FrameType]] = []
        current: FrameType | None = frame
        for _ in range(_MOST_FRAMES):
            if current is None:
                break
            owner = self._owner(current)
            if owner is not None:
                stack.append((owner, current))
            current = current.f_back
        roots = {(_MAIN, name): thing for name, thing in _script_globals(stack).items()}
        for owner, found in reversed(stack):
            for name, thing in _names_of(owner, found).items():
                roots.setdefault((owner, name), thing)
        return roots

    def _owner(self, frame: FrameType) -> Owner | None:
        code = frame.f_code
        known = self._owners.get(id(code))
        if known is None:
            known = self._owners[id(code)] = (code, self._decide(frame))
        return known[1]

    def _decide(self, frame: FrameType) -> Owner | None:
        code = frame.f_code
        if code.co_flags & _OWN_NAMESPACE == 0:
            return None  # a module's frame: its globals are looked at; a class body holds no loop
        module = str(frame.f_globals.get("__name__", ""))
        readable = not (_SNAPSHOTS and _keeps_snapshots(code))
        if module == "__main__":
            return Owner(code.co_name, is_readable=readable)
        filename = os.path.realpath(code.co_filename)
        installed = filename.startswith(self._installed)
        standard = code.co_filename.startswith("<frozen") or (
            filename.startswith(self._standard) and not installed
        )
        if standard or module.partition(".")[0] in _PASSED_OVER:
            return None
        return Owner(code.co_name, is_framework=installed, is_readable=readable)

    def unreadable(self) -> list[str]:
        """Return the functions whose locals are left alone."""
        return [owner.function for _, owner in self._owners.values() if owner and not owner.is_readable]


def readable_names(roots: dict[Key, Any]) -> dict[Key, str]:
    """Give every root a readable name of its own: the bare name for the outermost that bears it."""
    bearers: dict[str, Any] = {}
    names: dict[Key, str] = {}
    for key, thing in roots.items():
        owner, name = key
        choices = [name, *([type(thing).__name__] if name == "self" else []), f"{owner.function}.{name}"]
        free = (choice for choice in choices if choice not in bearers or _is_same(bearers[choice], thing))
        chosen = next(free, choices[-1])
        bearers.setdefault(chosen, thing)
        names[key] = chosen
    return names


def _is_same(one: Any, other: Any) -> bool:
    return one is other and not isinstance(one, (int, float, str, type(None)))


def _keeps_snapshots(code: CodeType) -> bool:
    """Return whether a function may hold what ``locals()`` returned.

    Before Python 3.13 that is one dictionary per frame, and looking at the frame would change it.
    """
    steps = [
        step for step in dis.get_instructions(code) if step.opname not in {"PRECALL", "CACHE", "PUSH_NULL"}
    ]
    for step, following in zip(steps, steps[1:], strict=False):  # noqa: RUF007 - new in Python 3.10
        if step.argval in {"locals", "f_locals"} and step.opname.startswith(
            ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_ATTR")
        ):
            return True
        if step.argval == "vars" and following.opname.startswith("CALL") and following.arg == 0:
            return True
    return False


_MAIN = Owner("main")


def _folders() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return where installed packages lie, and where the standard library lies."""
    paths = sysconfig.get_paths()
    installed = {
        paths["purelib"],
        paths["platlib"],
        *(path for path in sys.path if path.endswith("-packages")),
    }
    standard = {paths["stdlib"], paths["platstdlib"]}
    return tuple(os.path.realpath(p) + os.sep for p in installed), tuple(
        os.path.realpath(p) + os.sep for p in standard
    )


def _script_globals(stack: list[tuple[Owner, FrameType]]) -> dict[str, Any]:
    """Return the globals of ``__main__`` and of the outermost user frame (in a spawned worker they differ)."""
    spaces = [vars(sys.modules["__main__"])] if "__main__" in sys.modules else []
    spaces += [frame.f_globals for owner, frame in reversed(stack) if not owner.is_framework][:1]
    found: dict[str, Any] = {}
    for space in spaces:
        for name, thing in list(space.items())[:_MOST_NAMES]:
            if not name.startswith("__"):
                found.setdefault(name, thing)
    return found


def _names_of(owner: Owner, frame: FrameType) -> dict[str, Any]:
    first = frame.f_code.co_varnames[:1]
    if not owner.is_readable or (owner.is_framework and first != ("self",)):
        return {}
    local = frame.f_locals
    wanted = [name for name in first if name in local] if owner.is_framework else list(local)[:_MOST_NAMES]
    names = {name: local[name] for name in wanted if not name.startswith("__")}
    if _SNAPSHOTS:
        local.clear()  # the snapshot would keep the step's tensors alive until somebody looks again
    return names
