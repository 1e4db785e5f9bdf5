"""``samestep compare``: two traces side by side, without running anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from samestep.errors import ExitCode, UsageError
from samestep.report.traces import compare_traces, render_comparison
from samestep.trace import load_traces, read_trace

if TYPE_CHECKING:
    from samestep.trace import Trace


@click.command()
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON.")
def compare(first: Path, second: Path, as_json: bool) -> ExitCode:
    """Compare two traces step by step.

    FIRST and SECOND are trace files or folders of them (traces/ATTEMPT in a run's folder). SECOND may be a
    restart: its steps are laid beside those of FIRST that they repeat.
    """
    comparison = compare_traces(_traces(first), _traces(second))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(comparison), indent=1).decode())
    else:
        click.echo(render_comparison(comparison), nl=False)
    return ExitCode.HOLDS if comparison.same else ExitCode.DEFECT


def _traces(path: Path) -> list[Trace]:
    """Read a trace file or all of a folder.

    Raises:
        UsageError: there is nothing to compare.
        TraceError: a trace cannot be read.
    """
    if not path.exists():
        raise UsageError(f"{path} does not exist", hint="traces lie in .samestep/runs/RUN/traces/ATTEMPT")
    traces = load_traces(path) if path.is_dir() else [read_trace(path)]
    if any(trace.steps for trace in traces):
        return traces
    attempts = sorted(child.name for child in path.iterdir() if child.is_dir()) if path.is_dir() else []
    hint = f"it holds the folders {', '.join(attempts[:8])}" if attempts else ""
    raise UsageError(f"{path} holds no trace with a step", hint=hint)
