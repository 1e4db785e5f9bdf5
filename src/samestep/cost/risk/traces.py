"""Recorded capacity: when a machine was there, read from the files of published traces.

Two kinds, never mixed up silently: ``held`` says whether the machine we had was alive, ``available`` whether one could
have been had. The end of a span is an interruption in the first; in the second it is one only on the assumption that
who holds a machine loses it when no new one could be had, and every such trace says so in its notes.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from samestep.cost.errors import CostError

from .trace_files import read_counts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

HELD, AVAILABLE = "held", "available"
_FOLDERS = {"preemption": HELD, "availability": AVAILABLE}
"""Folders of spot-traces, which say in their name what a file holds."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trace:
    """Spans of time in which capacity was there.

    Attributes:
        name: of the file.
        kind: ``held`` or ``available``.
        starts, ends: of the spans, in seconds from the beginning of the trace, ascending.
        period_seconds: length of the trace.
        notes: what was noticed or assumed while reading.
    """

    name: str
    kind: str
    starts: NDArray[np.float64]
    ends: NDArray[np.float64]
    period_seconds: float
    notes: tuple[str, ...] = ()

    @property
    def availability(self) -> float:
        """The share of time in which capacity was there."""
        return float((self.ends - self.starts).sum()) / self.period_seconds

    def lives(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return lives that were seen to end, and those of which only a part was seen (censored), in seconds."""
        spans = self.ends - self.starts
        cut = (self.starts <= 0) | (self.ends >= self.period_seconds)
        return spans[~cut], spans[cut]

    @property
    def interruptions(self) -> int:
        """How many spans were seen to end."""
        return int((self.ends < self.period_seconds).sum())

    @property
    def mean_life_seconds(self) -> float | None:
        """Time of capacity for each interruption; None where none was seen."""
        return float((self.ends - self.starts).sum()) / self.interruptions if self.interruptions else None

    @cached_property
    def circle(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Starts and ends when the trace is followed by itself: a span over the joint is one."""
        ends = self.ends.copy()
        if ends[-1] >= self.period_seconds and self.starts[0] <= 0:
            ends[-1] = np.inf if len(ends) == 1 else self.period_seconds + ends[0]
        return self.starts, ends


def read_trace(path: Path, kind: str, *, nodes: int = 1, unit: str | None = None) -> Trace:
    """Read a trace: JSON of spot-traces; add and remove events, or counts, of Bamboo and Parcae.

    Args:
        path: of the file; what it is, is found out from its content.
        kind: ``held`` or ``available``.
        nodes: machines that must be there at once.
        unit: of times in files of counts: ``ms``, ``s`` or ``h``; None: found out, and said in the notes.

    Raises:
        CostError: the file cannot be read as a trace, holds the other kind, or never had the machines.
    """
    if kind not in (HELD, AVAILABLE):
        raise CostError(f"{kind!r} is no kind of trace", hint=f"there are {HELD!r} and {AVAILABLE!r}")
    for part, told in _FOLDERS.items():
        if part in path.parts and told != kind:
            raise CostError(
                f"{path} was to be read as {kind!r}, and lies in a folder of traces that are {told!r}",
                hint=f"say kind = {told!r}, or copy it elsewhere if that is wrong",
            )
    counts = read_counts(path, unit)
    starts, ends = _spans(counts.times, counts.counts >= nodes, counts.period)
    if not starts.size:
        raise CostError(f"{path}: {nodes} machine(s) were never there: nothing can be replayed")
    notes = counts.notes
    if kind == AVAILABLE:
        notes += ("the end of availability is taken for the loss of a machine that is held",)
    return Trace(
        name=path.name, kind=kind, starts=starts, ends=ends, period_seconds=counts.period, notes=notes
    )


def read_zones(paths: Sequence[Path], kind: str, *, nodes: int = 1) -> list[Trace]:
    """Read the traces of several zones, all of one kind.

    Raises:
        CostError: one cannot be read, or holds the other kind.
    """
    return [read_trace(path, kind, nodes=nodes) for path in paths]


def any_of(traces: Sequence[Trace]) -> float:
    """Return the share of time in which at least one of several zones had capacity, over the shortest trace."""
    period = min(trace.period_seconds for trace in traces)
    starts = np.concatenate([trace.starts for trace in traces]).clip(max=period)
    ends = np.concatenate([trace.ends for trace in traces]).clip(max=period)
    order = np.argsort(starts)
    reached = np.concatenate([[0.0], np.maximum.accumulate(ends[order])])
    return float(np.maximum(ends[order] - np.maximum(starts[order], reached[:-1]), 0).sum()) / period


def node_lives(path: Path) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the lives of single machines from add and remove events: those seen to end, and those that were not.

    Raises:
        CostError: the file does not name machines.
    """
    counts = read_counts(path, None)
    if counts.lives is None:
        raise CostError(f"{path} counts machines and does not name them: the life of one cannot be told")
    return counts.lives


def _spans(
    times: NDArray[np.float64], up: NDArray[np.bool_], period: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return starts and ends of the spans in which ``up`` holds: each entry until the next, the last of each time."""
    last = np.append(np.diff(times) > 0, True)
    times, up = times[last], up[last]
    edges = np.diff(np.concatenate([[0], up.astype(np.int8), [0]]))
    until = np.append(times, period)
    starts, ends = until[np.flatnonzero(edges == 1)], until[np.flatnonzero(edges == -1)]
    seen = ends > starts
    return starts[seen], ends[seen]
