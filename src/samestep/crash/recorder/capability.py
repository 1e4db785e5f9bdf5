"""What this machine lets a recorder do, found by recording a small command."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from samestep.crash.operations import Kind
from samestep.crash.recorder.running import record
from samestep.errors import MachineError
from samestep.process import Capability

NAME = "file operations"
TRIAL_SECONDS = 30.0
EXPECTED = [Kind.MKDIR, Kind.CREATE, Kind.WRITE, Kind.RENAME]
WEAKER = (
    "a drill knows saves from Python's file events alone: kills between them, no loss of power, no bad disk"
)


def capability() -> Capability:
    """Tell whether every file operation of a process tree can be recorded here, and if not why."""
    with tempfile.TemporaryDirectory(prefix="samestep-trial-") as name:
        base = Path(name)
        script = "import os; os.mkdir('out'); open('out/a', 'w').write('x'); os.rename('out/a', 'out/b')"
        argv = [sys.executable, "-I", "-S", "-c", script]
        try:
            recording = record(
                argv, roots=[base / "out"], folder=base / "recording", cwd=base, timeout=TRIAL_SECONDS
            )
        except MachineError as error:
            return Capability(NAME, available=False, reason=f"{error.message}; {WEAKER}")
        with recording:
            seen = [operation.kind for operation in recording.operations if not operation.derived]
            if seen == EXPECTED and recording.header.complete:
                return Capability(
                    NAME, available=True, reason="recorded by seccomp user notification, all processes"
                )
            why = "; ".join(recording.header.notes) or f"saw {len(seen)} of {len(EXPECTED)}"
            return Capability(NAME, available=False, reason=f"a trial recording failed: {why}; {WEAKER}")
