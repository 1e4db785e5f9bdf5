"""What a recording of file operations holds, outside a drill: operations, saves, disk states. Records and text."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from samestep.crash.operations import Kind
from samestep.crash.recorder.order import STOPPED
from samestep.crash.windows import save_windows
from samestep.drill.crashing import operation_records, point_of
from samestep.drill.result import CrashWindow

from .crash.words import moment
from .view import count_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from samestep.crash.catalogue import Listed
    from samestep.crash.contents import Content
    from samestep.crash.recording import Recording
    from samestep.crash.states import CrashState, Enumeration
    from samestep.crash.windows import Window

_SHOWN_NOTES = 5


class SaveFound(msgspec.Struct, kw_only=True):
    """A save: its name, the steps complete when it began, and its operations (indices of first and last, count)."""

    name: str
    step: int
    first: int
    last: int
    operations: int


class RecordingShown(msgspec.Struct, kw_only=True):
    """A recording in numbers.

    Attributes:
        folder: where it lies.
        tier: how it was made.
        root: the watched folder.
        complete: it came to its own end.
        stopped: everything was killed just before the operation that was asked for.
        exit_code: of the command; None when it did not end by itself.
        counts: operations per kind.
        saves: what changed checkpoints, save by save.
        notes: what could not be followed.
    """

    schema: str = "samestep.crash-record/1"
    folder: str
    tier: str
    root: str
    complete: bool
    stopped: bool
    exit_code: int | None
    counts: dict[str, int]
    saves: list[SaveFound]
    notes: list[str]


class StateFound(msgspec.Struct, kw_only=True):
    """A disk state: its name, the model that allows it, what it is in words, and others with the same bytes."""

    name: str
    model: str
    what: str
    also: list[str]


class StatesOfSave(msgspec.Struct, kw_only=True):
    """The disk states of a save; `most` of all there are, chosen by how much they tell."""

    save: SaveFound
    counts: list[str]
    total: int
    states: list[StateFound]


class StatesShown(msgspec.Struct, kw_only=True):
    """The disk states of a recording."""

    schema: str = "samestep.crash-states/1"
    folder: str
    saves: list[StatesOfSave]


class FileShown(msgspec.Struct, kw_only=True):
    """A file of a state beside the same file at the end of the save.

    ``state`` is ``whole``, ``torn``, ``missing`` or ``extra`` (it is not there at the end of the save); sizes in
    bytes, None where the file is not there.
    """

    path: str
    state: str
    size_bytes: int | None
    end_size_bytes: int | None


class StateShown(msgspec.Struct, kw_only=True):
    """One disk state.

    Attributes:
        name: of the state.
        model: the weakest that allows it.
        what: in words.
        lasting: it may also be found after the save has returned.
        files: all of them, compared with the end of the save.
        also: names of states with the same bytes.
        written_to: where it was laid out; empty: nowhere.
    """

    schema: str = "samestep.crash-state/1"
    name: str
    model: str
    what: str
    lasting: bool
    files: list[FileShown]
    also: list[str]
    written_to: str = ""


def show_recording(recording: Recording, folder: Path) -> RecordingShown:
    """Return a recording in numbers."""
    kinds = Counter(
        str(operation.kind) for operation in recording.operations if operation.kind is not Kind.MARK
    )
    return RecordingShown(
        folder=str(folder),
        tier=recording.header.tier,
        root=recording.header.roots[0],
        complete=recording.header.complete,
        stopped=(folder / STOPPED).exists(),
        exit_code=recording.header.exit_code,
        counts=dict(kinds.most_common()),
        saves=[_save(window) for window in save_windows(recording)],
        notes=recording.header.notes,
    )


def show_states(recording: Recording, folder: Path, saves: Sequence[Listed]) -> StatesShown:
    """Return the disk states that interruptions of the saves of a recording can leave.

    Args:
        recording: it.
        folder: where it lies.
        saves: what of it is shown.
    """
    return StatesShown(folder=str(folder), saves=[_states_of(recording, save) for save in saves])


def show_state(recording: Recording, state: CrashState, enumeration: Enumeration) -> StateShown:
    """Return one disk state beside the end of its save."""
    there, end = state.image.files(), enumeration.end.files()
    return StateShown(
        name=state.name,
        model=state.model,
        what=_what(recording, enumeration.window, state),
        lasting=bool(state.lasting),
        files=[_file(path, there.get(path), end.get(path)) for path in sorted(there.keys() | end.keys())],
        also=list(state.also),
    )


def render_recording(shown: RecordingShown) -> str:
    """Render a recording in numbers as text."""
    total = sum(shown.counts.values())
    kinds = ", ".join(f"{count} {kind}" for kind, count in shown.counts.items())
    lines = [f"{count_of(total, 'operation')} recorded{f': {kinds}' if kinds else ''}"]
    lines += [f"{save.name:<14}{_span(save)}" for save in shown.saves] or ["no save found"]
    if shown.stopped:
        lines.append(f"stopped and killed before the next operation; the disk as it was then: {shown.root}")
    elif not shown.complete:
        lines.append("incomplete: the recording did not come to its own end")
    lines += [f"not followed: {note}" for note in shown.notes[:_SHOWN_NOTES]]
    return "\n".join([*lines, f"in {shown.folder}"]) + "\n"


def render_states(shown: StatesShown) -> str:
    """Render the disk states of a recording as text."""
    lines = [line for save in shown.saves for line in _save_lines(save)]
    return "\n".join(lines or ["no save found"]) + "\n"


def render_state(shown: StateShown) -> str:
    """Render one disk state as text."""
    width = max((len(file.path) for file in shown.files), default=0) + 2
    lines = [shown.name, f"  {shown.what}"]
    if shown.lasting:
        lines.append("  it may also be found after the save has returned")
    lines += [f"  {file.path:<{width}}{_file_text(file)}" for file in shown.files] or ["  no file is there"]
    lines += [f"  the same bytes as {', '.join(shown.also)}"] if shown.also else []
    return "\n".join([*lines, *([f"written to {shown.written_to}"] if shown.written_to else [])]) + "\n"


def _save(window: Window) -> SaveFound:
    return SaveFound(
        name=window.name,
        step=window.step,
        first=window.first,
        last=window.last,
        operations=len(window.operations),
    )


def _span(save: SaveFound) -> str:
    return f"{count_of(save.operations, 'operation')}, number {save.first} to {save.last}"


def _states_of(recording: Recording, save: Listed) -> StatesOfSave:
    enumeration = save.enumeration
    found = [
        StateFound(
            name=state.name,
            model=state.model,
            what=_what(recording, enumeration.window, state),
            also=list(state.also),
        )
        for state in save.states
    ]
    counts = [str(count) for count in enumeration.counts]
    return StatesOfSave(
        save=_save(enumeration.window), counts=counts, total=len(enumeration.states), states=found
    )


def _what(recording: Recording, window: Window, state: CrashState) -> str:
    return moment(point_of(state, window=state.window), _as_shown(recording, window))


def _as_shown(recording: Recording, window: Window) -> CrashWindow:
    operations = [recording.operations[index] for index in window.operations]
    records = operation_records(operations, recording.header.roots[0])
    return CrashWindow(name=window.name, step=window.step, operations=records)


def _file(path: str, there: Content | None, end: Content | None) -> FileShown:
    if there is None:
        word = "missing"
    elif end is None:
        word = "extra"
    else:
        word = "whole" if there.digest == end.digest else "torn"
    return FileShown(path=path, state=word, size_bytes=_size(there), end_size_bytes=_size(end))


def _size(content: Content | None) -> int | None:
    return None if content is None else content.size


def _file_text(file: FileShown) -> str:
    if file.state == "whole":
        return f"whole, {file.size_bytes} bytes"
    if file.state == "missing":
        return f"missing, {file.end_size_bytes} bytes at the end of the save"
    if file.state == "extra":
        return f"{file.size_bytes} bytes, not there at the end of the save"
    if file.size_bytes == file.end_size_bytes:
        return f"torn, other content in its {file.size_bytes} bytes"
    return f"torn, {file.size_bytes} of {file.end_size_bytes} bytes"


def _save_lines(save: StatesOfSave) -> list[str]:
    shown = f", {len(save.states)} shown" if len(save.states) < save.total else ""
    head = f"{save.save.name}: {_span(save.save)}; {count_of(save.total, 'state')}{shown}"
    width = max((len(state.name) for state in save.states), default=0) + 2
    rows = [f"  {state.name:<{width}}{state.what}" for state in save.states]
    return [head, *(f"  {count}" for count in save.counts), *rows]
