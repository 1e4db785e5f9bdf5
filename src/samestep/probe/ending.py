"""Ends a process: notices how it ended, or ends it when its last ordered step is complete."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

BACKGROUND_SECONDS = 10.0
"""How long background work of the script (an asynchronous save) may go on once the last step is complete."""

PEERS_SECONDS = 60.0
"""How long a rank waits for the others to complete their last step before it leaves the process group."""

_POLL_SECONDS = 0.005


def reason() -> str:
    """Return why the interpreter is shutting down: ``exit`` or ``exception``."""
    failed = getattr(sys, "last_exc", None) is not None or getattr(sys, "last_type", None) is not None
    return "exception" if failed else "exit"


def leave(folder: Path, rank: int, world_size: int) -> None:
    """End this process with exit code 0 as soon as its background work and the other ranks let it."""
    _finish_background()
    _wait_for_peers(folder, rank, world_size)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(0)


def _finish_background() -> None:
    """Let threads and processes finish as at the end of the interpreter, but not for longer than bearable."""
    deadline = time.monotonic() + BACKGROUND_SECONDS
    finisher = threading.Thread(target=_join_threads, daemon=True)
    finisher.start()
    finisher.join(BACKGROUND_SECONDS)
    processes = sys.modules.get("multiprocessing.process")
    for child in processes.active_children() if processes else ():
        with contextlib.suppress(Exception):
            if child.daemon:
                child.terminate()
            else:
                child.join(max(0.0, deadline - time.monotonic()))


def _join_threads() -> None:
    """Drain executors, then join every thread that would keep the interpreter alive."""
    executors = sys.modules.get("concurrent.futures.thread")
    if executors is not None:
        executors._python_exit()
    own = threading.current_thread()
    for thread in threading.enumerate():
        if not thread.daemon and thread is not own and thread is not threading.main_thread():
            thread.join()


def _wait_for_peers(folder: Path, rank: int, world_size: int) -> None:
    """Stay until every rank has come here: the first one to go may take the rendezvous store with it."""
    if world_size == 1:
        return
    (folder / f"limit.rank{rank}.reached").touch()
    deadline = time.monotonic() + PEERS_SECONDS
    while time.monotonic() < deadline and len(list(folder.glob("limit.rank*.reached"))) < world_size:
        time.sleep(_POLL_SECONDS)
