"""Recording one command, without a drill around it."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from samestep.crash.recorder.order import (
    ENDED,
    REFUSED,
    REFUSED_EXIT,
    STOPPED,
    UNSTARTED,
    Order,
    supervisor_command,
)
from samestep.crash.recording import DEFAULT_SPILL_BYTES, Recording
from samestep.errors import MachineError, UsageError
from samestep.process import ProcessTree

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from samestep.crash.recorder.order import Fault, StopAt

WHOLE_DAY = 86_400.0
PAUSE_SECONDS = 0.05


def record(
    argv: Sequence[str],
    *,
    roots: Sequence[Path | str],
    folder: Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    log_path: Path | None = None,
    timeout: float = WHOLE_DAY,
    spill_bytes: int = DEFAULT_SPILL_BYTES,
    stop_at: StopAt | None = None,
    faults: Sequence[Fault] = (),
) -> Recording:
    """Run a command to its end and record what it, and everything it starts, does to files.

    Args:
        argv: the command and its arguments.
        roots: watched folders, the durable one first.
        folder: where the recording goes.
        cwd: working directory of the command; by default this one.
        env: its whole environment; by default this one.
        log_path: file for its output; by default it is thrown away.
        timeout: seconds after which it is killed, and the recording is not complete.
        spill_bytes: most bytes kept.
        stop_at: operation to stop the world, and kill it, before.
        faults: errors to put in.

    Raises:
        MachineError: the command cannot be started, or this machine cannot record it.
        UsageError: the command cannot be executed.
    """
    absolute = tuple(os.path.abspath(root) for root in roots)
    order = Order(
        roots=absolute, folder=str(folder), spill_bytes=spill_bytes, stop_at=stop_at, faults=tuple(faults)
    )
    with contextlib.ExitStack() as stack:
        log = log_path or Path(stack.enter_context(tempfile.TemporaryDirectory())) / "log"
        tree = ProcessTree.start(
            argv,
            env=os.environ if env is None else env,
            cwd=cwd or Path.cwd(),
            log_path=log,
            supervisor=supervisor_command(order),
        )
        stack.enter_context(tree)
        wait_for_recorder(tree, folder, timeout)
    return Recording.open(folder)


def wait_for_recorder(tree: ProcessTree, folder: Path, timeout: float) -> bool:
    """Wait until a recorded tree has ended, or has been stopped at the operation that was ordered.

    Args:
        tree: started with a `supervisor_command`.
        folder: of the recording.
        timeout: seconds.

    Returns:
        Whether that happened in time.

    Raises:
        MachineError: this machine cannot record.
        UsageError: the command cannot be executed.
    """
    deadline = time.monotonic() + timeout
    while tree.wait(PAUSE_SECONDS) is None and not (folder / STOPPED).exists():
        if time.monotonic() > deadline:
            return False
    if tree.poll() == REFUSED_EXIT and not (folder / ENDED).exists():
        told = folder / REFUSED
        reason = told.read_text(encoding="utf-8") if told.exists() else f"nothing can be written to {folder}"
        raise MachineError(f"file operations cannot be recorded: {reason}", hint="samestep doctor tells more")
    unstarted = folder / UNSTARTED
    if unstarted.exists():
        raise UsageError(unstarted.read_text(encoding="utf-8"), hint="make the command work by itself first")
    return True
