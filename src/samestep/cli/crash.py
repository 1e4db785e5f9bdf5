"""``samestep crash``: record the file operations of a save, and look at the disk states it can leave."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from samestep.cli.commands import (
    new_run_id,
    prepare_run_folder,
    project_root,
    require_program,
    split_words,
)
from samestep.errors import ExitCode, SamestepError, UsageError

if TYPE_CHECKING:
    from samestep.crash.recorder import StopAt
    from samestep.crash.recording import Recording

PLACEHOLDER = "{out}"

_FOLDER = click.argument("folder", type=click.Path(path_type=Path))
_MODELS = click.option(
    "--models",
    multiple=True,
    metavar="MODEL",
    help="Persistence models: kill, power-ext4, ... (by default these two).",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@click.group()
def crash() -> None:
    """Record what a command does to files, and see every disk state that an interruption of a save can leave.

    A drill does all of this by itself (samestep drill --only crash); these are its pieces.
    """


@crash.command()
@click.option(
    "--root",
    "roots",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Watched folder, the checkpoints' first.",
)
@click.option("--to", "folder", type=click.Path(path_type=Path), help="Where the recording goes.")
@click.option(
    "--spill-gib", type=click.FloatRange(min=0), default=20.0, show_default=True, help="Most bytes kept."
)
@click.option(
    "--timeout", type=click.FloatRange(min=0), default=86_400.0, metavar="SECONDS", help="Longest run."
)
@click.option("--stop-at", default="", metavar="[RANK:]K", help="Kill everything just before operation K.")
@_JSON
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def record(
    command: tuple[str, ...],
    *,
    roots: tuple[Path, ...],
    folder: Path | None,
    spill_gib: float,
    timeout: float,
    stop_at: str,
    as_json: bool,
) -> ExitCode:
    """Run COMMAND and record what it does to files, with their bytes.

    COMMAND says where it writes with {out}, which becomes a fresh folder inside the recording; or name the folders
    with --root. What it prints goes to output.log beside the recording. Steps of a PyTorch training are marked.

    With --stop-at, all processes stop when K operations were carried out (by rank RANK, where one is named), are
    killed, and leave the disk as it was then. Closings and marks of steps do not count.

    Exit code: 0 when the command ended with 0, or was stopped where it was to be; 4 when it failed (the recording is
    kept all the same), ended before it could be stopped, or the recording is not complete; 2 when the command
    cannot be run, and no recording is left.
    """
    from samestep.report.recordings import render_recording, show_recording

    require_program(command[0])
    stop = _stop_at(stop_at)
    place = _prepared(folder)
    try:
        recording = _recorded(
            command,
            _watched(command, roots, place),
            place,
            timeout=timeout,
            spill_bytes=int(spill_gib * 2**30),
            stop_at=stop,
        )
    except SamestepError:
        shutil.rmtree(place, ignore_errors=True)
        raise
    with recording:
        shown = show_recording(recording, place)
    click.echo(_as_json(shown) if as_json else render_recording(shown), nl=False)
    if shown.exit_code:
        output = place / "output.log"
        click.echo(f"the command ended with exit code {shown.exit_code}; its output: {output}", err=True)
    if stop is not None and not shown.stopped:
        click.echo(f"it was not stopped: operation {stop_at} never came", err=True)
    done = shown.stopped if stop is not None else shown.complete and shown.exit_code == 0
    return ExitCode.HOLDS if done else ExitCode.INCONCLUSIVE


@crash.command()
@_FOLDER
@click.option("--window", default="", metavar="SAVE", help="One save only, such as save-18.")
@_MODELS
@click.option(
    "--max-states", type=click.IntRange(min=1), metavar="N", help="The N most telling ones of each save."
)
@_JSON
def states(
    folder: Path, window: str, models: tuple[str, ...], max_states: int | None, *, as_json: bool
) -> None:
    """List the saves in the recording at FOLDER, and the disk states that interruptions of them can leave."""
    from samestep.crash.catalogue import base_of, list_states
    from samestep.report.recordings import render_states, show_states

    with _opened(folder) as recording:
        base = base_of(recording, folder)
        saves = list_states(recording, base, _models(models), window=window, most=max_states)
        shown = show_states(recording, folder, saves)
    click.echo(_as_json(shown) if as_json else render_states(shown), nl=False)


@crash.command()
@_FOLDER
@click.argument("state")
@click.option("--to", "target", type=click.Path(path_type=Path), help="Write the disk state to this folder.")
@_MODELS
@_JSON
def show(folder: Path, state: str, target: Path | None, models: tuple[str, ...], *, as_json: bool) -> None:
    """Say what STATE of the recording at FOLDER is: in words, and file by file beside the end of the save."""
    from samestep.crash.catalogue import base_of, find_state
    from samestep.crash.materialise import materialise
    from samestep.report.recordings import render_state, show_state

    _require_empty(target)
    with _opened(folder) as recording:
        found, enumeration = find_state(recording, base_of(recording, folder), state, _models(models))
        shown = show_state(recording, found, enumeration)
        if target is not None:
            materialise(found.image, target)
            shown.written_to = str(target)
    click.echo(_as_json(shown) if as_json else render_state(shown), nl=False)


def _recorded(command: tuple[str, ...], watched: list[Path], place: Path, **options: Any) -> Recording:
    """Run the command below the recorder, with its marks and its output in ``place``; see `running.record`."""
    from samestep.crash.recorder.running import record as run

    return run(
        [word.replace(PLACEHOLDER, str(watched[0])) for word in command],
        roots=watched,
        folder=place,
        env=_environment(place),
        log_path=place / "output.log",
        **options,
    )


def _stop_at(text: str) -> StopAt | None:
    """Return the operation that ``RANK:K``, or ``K`` for all ranks together, stands for; None for nothing.

    Raises:
        UsageError: it is neither.
    """
    from samestep.crash.recorder import StopAt

    rank, _, operation = text.rpartition(":")
    if not text:
        return None
    if not operation.isdecimal() or (":" in text and not rank.isdecimal()):
        raise UsageError(
            f"--stop-at {text}: expected a number of operations, or RANK:NUMBER",
            hint="--stop-at 12 stops before the 13th operation of all, --stop-at 1:12 before that of rank 1",
        )
    return StopAt(int(operation), int(rank) if rank else None)


def _prepared(folder: Path | None) -> Path:
    """Return an empty folder for a recording.

    Raises:
        UsageError: it holds something already.
        MachineError: it cannot be written.
    """
    if folder is None:
        place = project_root(Path.cwd()) / ".samestep" / "recordings" / new_run_id()
        prepare_run_folder(place)
        return place
    _require_empty(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


def _watched(command: tuple[str, ...], roots: tuple[Path, ...], place: Path) -> list[Path]:
    """Return the watched folders, the one with the checkpoints first, and keep what it holds now.

    Raises:
        UsageError: there is none, or the recording would lie inside.
    """
    from samestep.crash.catalogue import BEFORE
    from samestep.process.copying import copy_tree

    watched = [root.resolve() for root in roots]
    if any(PLACEHOLDER in word for word in command):
        watched.insert(0, place / "out")
        watched[0].mkdir()
        return watched
    if not watched:
        raise UsageError(
            "nothing says which folder to watch",
            hint=f"put {PLACEHOLDER} where the command's output folder goes, or name one with --root PATH",
        )
    if place.is_relative_to(watched[0]):
        raise UsageError(
            f"the recording would lie inside the watched folder {watched[0]}",
            hint="name another place for it with --to PATH",
        )
    if watched[0].is_dir():
        copy_tree(watched[0], place / BEFORE)
    return watched


def _environment(place: Path) -> dict[str, str]:
    """Return the environment in which completed steps are marked in the recording."""
    from samestep import probe
    from samestep.trace import Orders

    traces = place / "traces"
    traces.mkdir()
    Orders(attempt="record", trace_folder=str(traces), watch=False, marks=True).write(traces / "orders.json")
    return probe.environment(traces / "orders.json", os.environ)


def _opened(folder: Path) -> Recording:
    from samestep.crash.recording import Recording

    return Recording.open(folder)


def _require_empty(folder: Path | None) -> None:
    if folder is None or not folder.exists():
        return
    if not folder.is_dir():
        raise UsageError(f"{folder} is a file, expected a folder that is missing or empty")
    if any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty", hint="name a folder that is missing or empty")


def _models(words: tuple[str, ...]) -> list[str]:
    from samestep.drill.options import DEFAULT_MODELS

    return list(split_words(words)) or list(DEFAULT_MODELS)


def _as_json(shown: msgspec.Struct) -> str:
    return msgspec.json.format(msgspec.json.encode(shown), indent=1).decode() + "\n"
