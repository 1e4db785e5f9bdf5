"""The files of published traces, each read into how many machines there were from when on."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from samestep.cost.errors import CostError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

_UNITS = {"ms": 1e-3, "s": 1.0, "h": 3600.0}
_HOLE_SECONDS = 3600.0
"""Between two readings of a count that was polled: longer, and the notes say so."""


@dataclasses.dataclass(frozen=True)
class Counts:
    """How many machines there were.

    Attributes:
        times: in seconds, ascending; each count holds until the next.
        counts: of machines.
        period: seconds from the first to the end.
        notes: what was noticed or assumed.
        lives: of single machines, where the file names them: seen to end, and not.
    """

    times: NDArray[np.float64]
    counts: NDArray[np.float64]
    period: float
    notes: tuple[str, ...] = ()
    lives: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None


class _Meta(msgspec.Struct):
    gap_seconds: float


class _Ticks(msgspec.Struct):
    metadata: _Meta
    data: list[float]


def read_counts(path: Path, unit: str | None) -> Counts:
    """Read a file of a trace, whichever kind it is.

    Args:
        path: of the file.
        unit: of the times in files of two columns; None: found out, and said in the notes.

    Raises:
        CostError: it is none.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CostError(f"{path} cannot be read: {error}") from error
    if text.lstrip().startswith("{"):
        return _ticks(path, text)
    rows = [[field.strip() for field in line.split(",")] for line in text.splitlines() if line.strip()]
    if not rows:
        raise CostError(f"{path} is empty")
    try:
        return _reader(rows[0])(rows, unit)
    except (ValueError, IndexError) as error:
        raise CostError(f"{path} is no trace that is known: {error}", hint=_KNOWN) from error


_KNOWN = (
    "known are JSON of spot-traces, 'ms,add|remove,machine', 'time,count', and 'YYYY-MM-DD, HH:MM:SS, count'"
)


def _reader(row: list[str]) -> Callable[[list[list[str]], str | None], Counts]:
    if len(row) == 2:
        return _steps
    if len(row) == 3 and row[1] in {"add", "remove"}:
        return _events
    if len(row) == 3:
        return _polled
    raise ValueError(f"its first row has {len(row)} fields")


def _ticks(path: Path, text: str) -> Counts:
    try:
        ticks = msgspec.json.decode(text, type=_Ticks)
    except msgspec.DecodeError as error:
        raise CostError(f"{path} is no trace that is known: {error}", hint=_KNOWN) from error
    gap, counts = ticks.metadata.gap_seconds, np.asarray(ticks.data, dtype=float)
    if gap <= 0 or not counts.size:
        raise CostError(f"{path} holds {counts.size} readings, {gap} s apart: nothing can be replayed")
    notes = ("its first reading finds nothing, as while starting up",) if counts[0] == 0 else ()
    return Counts(np.arange(counts.size, dtype=np.float64) * gap, counts, counts.size * gap, notes)


def _events(rows: list[list[str]], unit: str | None) -> Counts:
    """Read ``time,add|remove,machine``, in milliseconds unless said otherwise."""
    scale = _UNITS[unit or "ms"]
    times = np.array([float(row[0]) * scale for row in rows])
    forward, notes = _forward(times)
    changes = np.array([1.0 if row[1] == "add" else -1.0 for row in rows])
    first, last = times.min(), times.max()
    born: dict[str, float] = {}
    ended: list[float] = []
    for time, (_, action, machine) in zip(times, rows, strict=True):
        if action == "add":
            born[machine] = time
        elif machine in born:
            ended.append(time - born.pop(machine))
    lives = np.array(ended), np.array([last - began for began in born.values() if last > began])
    counts = np.cumsum(changes)[forward]
    return Counts(times[forward] - first, counts, float(last - first), notes, lives)


def _steps(rows: list[list[str]], unit: str | None) -> Counts:
    """Read ``time,count``; a row with the time of the one before replaces it."""
    numbers = np.array([[float(field) for field in row] for row in rows])
    told, notes = (unit, ()) if unit else _guessed(numbers[:, 0], rows)
    times = numbers[:, 0] * _UNITS[told]
    forward, backwards = _forward(times)
    times, counts = times[forward], numbers[forward, 1]
    period = float(times[-1] - times[0])
    if period <= 0:
        raise ValueError("it has only one point in time")
    return Counts(times - times[0], counts, period, notes + backwards)


def _guessed(times: NDArray[np.float64], rows: list[list[str]]) -> tuple[str, tuple[str, ...]]:
    if any("." in row[0] for row in rows):
        unit, why = "h", "they have fractions"
    elif times.max() >= 1e6 and not (times % 1000).any():
        unit, why = "ms", "all are multiples of 1000"
    else:
        unit, why = "s", "they are whole numbers"
    return unit, (f"its times are taken as {unit}: {why}",)


def _polled(rows: list[list[str]], unit: str | None) -> Counts:  # noqa: ARG001 - its times say what they are
    """Read ``date, time, count``, a count that was asked for again and again."""
    stamps = [dt.datetime.fromisoformat(f"{row[0]}T{row[1]}").replace(tzinfo=dt.UTC) for row in rows]
    times = np.array([stamp.timestamp() for stamp in stamps])
    forward, notes = _forward(times)
    times, counts = times[forward], np.array([float(row[2]) for row in rows])[forward]
    if times[-1] <= times[0]:
        raise ValueError("it has only one point in time")
    longest = float(np.diff(times).max())
    if longest > _HOLE_SECONDS:
        notes += (f"for {longest / 3600:.1f} h nobody looked: the last count is taken to have held",)
    return Counts(times - times[0], counts, float(times[-1] - times[0]), notes)


def _forward(times: NDArray[np.float64]) -> tuple[NDArray[np.bool_], tuple[str, ...]]:
    """Return which rows do not go back in time, and say how many do."""
    forward = times >= np.maximum.accumulate(times)
    dropped = int((~forward).sum())
    back = int((np.diff(times) < 0).sum())
    return forward, ((f"{back} times it goes back in time: {dropped} rows are left out",) if dropped else ())
