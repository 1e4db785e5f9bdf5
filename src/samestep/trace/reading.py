"""Reading traces back."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import TraceError
from .records import SCHEMA, EndRecord, EventRecord, Header, StepRecord, from_plain

if TYPE_CHECKING:
    from pathlib import Path

TRACE_PATTERN = "trace-*.jsonl"
"""File names of traces inside a trace folder."""

BOOT_PATTERN = "boot-*.json"
"""File names of the marks left by every process in which the probe came up, trained or not."""

MODULES_NAME = "modules-{pid}.json"
"""File name of the list of modules that a process imported, where the orders asked for it."""


@dataclass
class Trace:
    """What one process recorded.

    Attributes:
        header: who wrote it.
        steps: in order.
        events: in order.
        end: how it ended; None when the process was killed.
    """

    header: Header
    steps: list[StepRecord] = field(default_factory=list)
    events: list[EventRecord] = field(default_factory=list)
    end: EndRecord | None = None


def read_trace(path: Path) -> Trace:
    """Read one trace file; a last line cut short by a kill is left out.

    Raises:
        TraceError: the file cannot be read, has no header or another schema.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise TraceError(f"cannot read the trace {path}: {error.strerror}") from error
    trace: Trace | None = None
    for number, line in enumerate(lines, start=1):
        try:
            record = from_plain(json.loads(line))
        except (ValueError, KeyError, TypeError) as error:
            if number == len(lines):
                break
            raise TraceError(f"{path}, line {number}: not a trace record ({error})") from error
        if trace is None:
            trace = Trace(_checked_header(record, path))
        else:
            _add(trace, record)
    if trace is None:
        raise TraceError(f"{path} is empty: expected a trace header")
    return trace


def read_modules(folder: Path, pid: int) -> list[tuple[str, str]]:
    """Return name and file of the modules that process ``pid`` imported; nothing when it left no list."""
    try:
        text = (folder / MODULES_NAME.format(pid=pid)).read_text(encoding="utf-8")
    except OSError:
        return []
    return [(name, origin) for name, origin in json.loads(text)]


def load_traces(folder: Path, *, trained: bool = True) -> list[Trace]:
    """Return the traces in ``folder``, ordered by rank and start.

    Args:
        folder: the trace folder of one attempt.
        trained: leave out processes that took no step.

    Raises:
        TraceError: a trace cannot be read.
    """
    traces = [read_trace(path) for path in sorted(folder.glob(TRACE_PATTERN))]
    wanted = [trace for trace in traces if trace.steps or not trained]
    return sorted(wanted, key=lambda trace: (trace.header.rank, trace.header.started))


def _checked_header(record: object, path: Path) -> Header:
    if not isinstance(record, Header):
        raise TraceError(f"{path}: the first line is no header")
    if record.schema != SCHEMA:
        raise TraceError(
            f"{path}: schema {record.schema!r}, expected {SCHEMA!r}",
            hint="read it with the samestep version that wrote it",
        )
    return record


def _add(trace: Trace, record: object) -> None:
    if isinstance(record, StepRecord):
        trace.steps.append(record)
    elif isinstance(record, EventRecord):
        trace.events.append(record)
    elif isinstance(record, EndRecord):
        trace.end = record
