"""What a recorder is told, and the command line that starts it."""

from __future__ import annotations

import errno
import fnmatch
import sys
from pathlib import Path

import msgspec

from samestep.crash.operations import Kind, Operation
from samestep.crash.recording import DEFAULT_SPILL_BYTES
from samestep.trace.marks import MARK_FOLDER

STOPPED, REFUSED, UNSTARTED, ENDED = "stopped", "refused", "unstarted", "ended"
"""Files in the folder of a recording: it stopped at its operation; it could not begin and why; why the command could
not be executed; the exit code of the command, which may have left processes behind that are still being recorded."""

REFUSED_EXIT = 125


class StopAt(msgspec.Struct, frozen=True):
    """Stop the world just before an operation.

    Attributes:
        operation: how many counted operations (see `counted`) happen before it.
        rank: count only those of this rank; None: of the whole tree.
    """

    operation: int
    rank: int | None = None


class Fault(msgspec.Struct, frozen=True):
    """Answer operations with an error instead of carrying them out.

    Attributes:
        error: name of the error, e.g. ``ENOSPC``.
        kinds: operations that fail; empty: those that write or make something new.
        pattern: of the paths they concern, as in `fnmatch`.
        first: number of counted operations that are left alone.
        count: how many fail; None: all.
    """

    error: str
    kinds: tuple[Kind, ...] = ()
    pattern: str = "*"
    first: int = 0
    count: int | None = None

    @property
    def number(self) -> int:
        """Error number."""
        return int(getattr(errno, self.error))

    def concerns(self, operation: Operation, counted_before: int) -> bool:
        """Whether an operation that is about to happen falls under this fault."""
        return (
            counted_before >= self.first
            and operation.kind in (self.kinds or GROWING)
            and any(fnmatch.fnmatchcase(path, self.pattern) for path in (operation.path, operation.target))
        )


GROWING = (Kind.CREATE, Kind.WRITE, Kind.ALLOCATE, Kind.MKDIR, Kind.SYMLINK, Kind.LINK)


class Order(msgspec.Struct, frozen=True):
    """What to record.

    Attributes:
        roots: absolute folders, the durable one first; they need not exist yet.
        folder: where the recording goes.
        spill_bytes: most bytes kept.
        stop_at: where to stop the world.
        faults: errors to put in.
        marks: folder that marks of completed steps are opened below.
    """

    roots: tuple[str, ...]
    folder: str
    spill_bytes: int = DEFAULT_SPILL_BYTES
    stop_at: StopAt | None = None
    faults: tuple[Fault, ...] = ()
    marks: str = MARK_FOLDER


def counted(operation: Operation) -> bool:
    """Whether an operation counts for `StopAt` and `Fault`: asked for by a process, once for each call."""
    return not operation.derived and operation.kind is not Kind.MARK


def supervisor_command(order: Order) -> list[str]:
    """Return the prefix of a command line that records the command behind it."""
    # -I: what a training run finds through PYTHONPATH, the probe above all, must not start in the recorder.
    main = Path(__file__).with_name("__main__.py")
    return [sys.executable, "-I", str(main), msgspec.json.encode(order).decode()]
