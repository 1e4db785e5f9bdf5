"""The saves in a recording and their disk states, for who looks at them outside a drill."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from samestep.crash.choose import choose
from samestep.crash.image import Image
from samestep.crash.models import MODELS
from samestep.crash.states import enumerate_states, nearest_names
from samestep.crash.windows import save_windows
from samestep.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from samestep.crash.recording import Recording
    from samestep.crash.states import CrashState, Enumeration
    from samestep.crash.windows import Window

BEFORE = "before"
"""Folder of a recording with what the watched folder held when the recording began."""


@dataclass(frozen=True)
class Listed:
    """A save and those of its disk states that are to be looked at.

    Attributes:
        enumeration: the save with all its states.
        states: all of them or the most telling ones, in the order of the enumeration.
    """

    enumeration: Enumeration
    states: list[CrashState]


def base_of(recording: Recording, folder: Path) -> Image:
    """Return what the watched folder held before the recording in ``folder``."""
    root, before = recording.header.roots[0], folder / BEFORE
    return Image.load(before, root) if before.is_dir() else Image(root)


def list_states(
    recording: Recording, base: Image, models: Sequence[str], *, window: str = "", most: int | None = None
) -> list[Listed]:
    """Return the disk states that interruptions of the saves of a recording can leave, save by save.

    Args:
        recording: it.
        base: what was there before.
        models: persistence models.
        window: one save only; empty: all.
        most: most states per save, the most telling ones; None: all.

    Raises:
        UsageError: there is no such save or model.
    """
    windows = save_windows(recording)
    wanted = [_named(windows, window)] if window else windows
    found = [enumerate_states(recording, one, base, models) for one in wanted]
    return [Listed(one, one.states if most is None else _most_telling(one, most)) for one in found]


def find_state(
    recording: Recording, base: Image, name: str, models: Sequence[str]
) -> tuple[CrashState, Enumeration]:
    """Return the state of a name and all states of its save.

    Args:
        recording: it.
        base: what was there before.
        name: of the state, with or without the family in front.
        models: persistence models to look in, beside the one that the name holds.

    Raises:
        UsageError: there is no such state.
    """
    name = name.removeprefix("crash/")
    save, _, rest = name.partition("/")
    window, model = _named(save_windows(recording), save), rest.partition("/")[0]
    further = [model] if model in MODELS and model not in models else []
    enumeration = enumerate_states(recording, window, base, [*models, *further])
    state = enumeration.state(name)
    if state is None:
        near = nearest_names(name, [enumeration])
        hint = (
            f"did you mean {' or '.join(near)}?"
            if near
            else f"samestep crash states --window {save} lists them"
        )
        raise UsageError(f"{save} has no state {name!r}", hint=hint)
    return state, enumeration


def _most_telling(enumeration: Enumeration, most: int) -> list[CrashState]:
    chosen = {state.name for state in choose(enumeration.states, most)}
    return [state for state in enumeration.states if state.name in chosen]


def _named(windows: Sequence[Window], name: str) -> Window:
    found = next((window for window in windows if window.name == name), None)
    if found is None:
        known = ", ".join(window.name for window in windows)
        nothing = "it holds no save: nothing that looks like a checkpoint was written"
        raise UsageError(f"the recording has no save {name!r}", hint=f"saves: {known}" if known else nothing)
    return found
