"""What a drill shows while it runs: results on stdout, progress on stderr."""

from __future__ import annotations

import shutil
import sys
import threading
from typing import TYPE_CHECKING, Self

import click

from samestep.report import offline
from samestep.report.terminal import DEFAULT_WIDTH, TerminalReport
from samestep.report.view import count_of, shortened

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from samestep.drill.result import Control, CrashRecord, Criterion, DrillResult, ScenarioResult

TITLE_WIDTH = 60
"""Most characters of a title beside the bar."""


class Progress:
    """A listener for drills: a bar on a terminal, plain lines elsewhere.

    Args:
        quiet: print no results, only progress.
        colour: paint results.
    """

    def __init__(self, *, quiet: bool, colour: bool) -> None:
        self._quiet = quiet
        self._colour = colour
        self._page = TerminalReport(colour=colour, width=_width())
        self._record: CrashRecord | None = None
        self._bar: Bar | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._bar = _new_bar()
            self._bar.start()
            self._task = self._bar.add_task("starting", total=None)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def phase(self, text: str) -> None:
        """Show what begins."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=text)
        else:
            click.echo(text, err=True)

    def control(self, control: Control, criterion: Criterion) -> None:
        """Print the controls."""
        self._print(self._page.control(control, criterion) + "\n")

    def recorded(self, record: CrashRecord) -> None:
        """Keep what is known of the saves whose states will come in."""
        self._record = record

    def planned(self, titles: list[str]) -> None:
        """Set the bar to the number of scenarios."""
        self._page = TerminalReport(
            colour=self._colour, width=_width(), titles=titles, record=self._record, live=True
        )
        if self._bar is not None and self._task is not None:
            self._bar.reset(self._task, total=len(titles), description="scenarios")
        else:
            click.echo(count_of(len(titles), "scenario"), err=True)
        threading.Thread(target=offline.prepare, name="charts").start()

    def running(self, title: str) -> None:
        """Show which scenario begins."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=shortened(title, TITLE_WIDTH))

    def scenario(self, result: ScenarioResult) -> None:
        """Print a scenario's line and move the bar; states of interrupted saves are summed up per save."""
        self._print(self._page.scenario(result))
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task)

    def conclude(self, result: DrillResult, report: str) -> None:
        """Print what belongs to no scenario, and the summary."""
        page = self._page
        blocks = [page.saves(), page.recording(result), page.findings(result.findings), result.message]
        for block in blocks:
            self._print(block)
        self._print("\n" + self._page.summary(result, report))

    def _print(self, text: str) -> None:
        if self._quiet or not text:
            return
        if self._bar is not None:
            self._bar.console.file.flush()
            self._bar.stop()
            click.echo(text, color=self._colour)
            self._bar.start()
        else:
            click.echo(text, color=self._colour)


def _width() -> int:
    return shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns if sys.stdout.isatty() else DEFAULT_WIDTH


def _new_bar() -> Bar:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=Console(stderr=True), transient=True)
