"""The strip chart of a save: its operations along, the outcome of every state that was tried above them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from samestep.contract import Outcome

from .groups import NOTHING_LEFT, result_of
from .words import QUIET, Steps, told

if TYPE_CHECKING:
    from collections.abc import Iterable

    from samestep.drill.result import CrashWindow, ScenarioResult

    from .groups import Summary

Row = dict[str, Any]

NOTED, UNTRIED = "noted", "not tried"

GLYPHS = {
    str(Outcome.DIFFERENT): "≠",
    str(Outcome.RESTARTED): "↺",
    NOTHING_LEFT: "0",
    str(Outcome.CRASHED): "!",
    str(Outcome.LOST_WORK): "↓",
    str(Outcome.REFUSED): "-",
    str(Outcome.INCONCLUSIVE): "?",
    NOTED: "·",
    str(Outcome.SAME): "",
    UNTRIED: "",
}
"""What stands in a cell, so that nothing is said by colour alone; in the order of the legend."""

MARKS = {
    "sync": "fsync",
    "sync-data": "fsync",
    "sync-all": "fsync",
    "rename": "rename",
    "link": "rename",
    "unlink": "delete",
    "rmdir": "delete",
    "create": "create",
    "mkdir": "create",
    "symlink": "create",
}
"""How kinds of operations are marked; all others write."""

WRITE = "write"
FILE_LIMIT = 40
"""Most files with a line of their own; beyond that those of one folder share one."""

BEFORE = "before the save"


@dataclass(frozen=True)
class Columns:
    """Operations, as far as the chart keeps them apart.

    Attributes:
        labels: what a column stands for, in words.
        files: the file or folder it is about.
        marks: how it is marked.
        places: column by index of the operation.
        count: number of columns; column 0 is the time before the save.
    """

    labels: list[str]
    files: list[str]
    marks: list[str]
    places: dict[int, int]

    @property
    def count(self) -> int:
        """Number of columns."""
        return len(self.labels)


def columns(window: CrashWindow, cuts: Iterable[int] = ()) -> Columns:
    """Give every operation a column; writes to one file in a row share one where no state was cut between them.

    Args:
        window: the save.
        cuts: operations after which a state was cut.
    """
    steps, wanted = Steps.of(window), set(cuts)
    found = Columns([BEFORE], [""], [""], {})
    run: list[str] = []
    for at, operation in enumerate(steps.operations):
        if operation.kind in QUIET:
            found.places[operation.index] = found.count - 1
            continue
        mark = MARKS.get(operation.kind, WRITE)
        joins = (
            bool(run) and mark == WRITE and found.marks[-1] == WRITE and found.files[-1] == steps.names[at]
        )
        if joins and not wanted.intersection(range(steps.operations[at - 1].index, operation.index)):
            run.append(operation.text)
            found.labels[-1] = f"{len(run)} operations: {run[0]} … {run[-1]}"
        else:
            run = [operation.text]
            found.labels.append(operation.text)
            found.files.append(steps.names[at])
            found.marks.append(mark)
        found.places[operation.index] = found.count - 1
    return found


def kind_of(state: ScenarioResult) -> str:
    """Return what colours the cell of a state."""
    noted = state.holds and state.observed.outcome is not Outcome.SAME
    return NOTED if noted else result_of(state)


def cell_rows(summary: Summary) -> list[Row]:
    """Return one row per state: its column, its place above others there, and what to show about it.

    States that were not tried are counted per operation by the result and have no name here.
    """
    laid = columns(summary.window, cuts_of(summary))
    rows = [_cell(state, laid, summary.window) for state in summary.states if state.crash]
    for model, cuts in summary.window.untried.items():
        rows += [
            {"column": _column(laid, cut), "model": model, "kind": UNTRIED, "what": "not tried", "name": ""}
            for cut in cuts
        ]
    order = list(GLYPHS)
    rows.sort(key=lambda row: (row["model"], row["column"], order.index(row["kind"])))
    heights: Counter[tuple[str, int]] = Counter()
    for row in rows:
        place = (row["model"], row["column"])
        row |= {
            "level": heights[place],
            "glyph": GLYPHS[row["kind"]],
            "operation": laid.labels[row["column"]],
        }
        heights[place] += 1
    return rows


def cuts_of(summary: Summary) -> set[int]:
    """Return the operations after which states were cut."""
    untried = {cut for cuts in summary.window.untried.values() for cut in cuts}
    return untried | {state.crash.after for state in summary.states if state.crash}


def _cell(state: ScenarioResult, laid: Columns, window: CrashWindow) -> Row:
    assert state.crash is not None  # noqa: S101 - the caller chose by it
    return {
        "column": _column(laid, state.crash.after, torn=state.crash.way.startswith("torn")),
        "model": state.crash.model,
        "kind": kind_of(state),
        "what": told(state, window),
        "name": state.name,
    }


def _column(laid: Columns, after: int, *, torn: bool = False) -> int:
    """Return the column of the last operation that took effect, or of the one after it, which was torn."""
    done = max((column for index, column in laid.places.items() if index <= after), default=0)
    return min(done + torn, laid.count - 1)


def operation_rows(summary: Summary) -> list[Row]:
    """Return one row per column: the file it is about and how it is marked."""
    laid = columns(summary.window, cuts_of(summary))
    files = file_lines(laid.files[1:])
    return [
        {"column": place, "file": line, "mark": laid.marks[place], "operation": laid.labels[place]}
        for place, line in enumerate(files, start=1)
    ]


def file_lines(files: list[str]) -> list[str]:
    """Return the line of each file: its own, or, when there are too many, that of its folder."""
    if len(set(files)) <= FILE_LIMIT:
        return files
    folders = [f"{name.rpartition('/')[0]}/…" if "/" in name else name for name in files]
    if len(set(folders)) <= FILE_LIMIT:
        return folders
    kept = set(list(dict.fromkeys(folders))[: FILE_LIMIT - 1])
    return [name if name in kept else "other files" for name in folders]
