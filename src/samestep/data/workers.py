"""What the workers of a loader do about signals that mean the training."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class PatientWorker:
    """The first thing that a worker runs: it leaves notices of the end to the process of the training.

    A notice often goes to every process of a training. A worker that ends by it ends the training too, before the
    step is saved. One that its own training wants to end does, and one whose training is gone ends by itself.
    Where workers are spawned or come from a fork server, a library may have started threads before; SIGTERM that the
    kernel hands to one of those ends the worker as ever.

    Args:
        init: what the loader's workers began with before.
    """

    def __init__(self, init: Callable[[int], Any] | None) -> None:
        self._init = init

    def __call__(self, worker: int) -> Any:
        """Begin as the worker of that number."""
        if hasattr(signal, "sigwaitinfo"):
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
            threading.Thread(target=_listen, args=(_training(),), daemon=True).start()
        return None if self._init is None else self._init(worker)


def _training() -> int:
    """Return the process that began the worker, which need not be its parent: a fork server may be."""
    began = multiprocessing.parent_process()
    return os.getppid() if began is None or began.pid is None else began.pid


def _listen(training: int) -> None:
    while True:
        if signal.sigwaitinfo([signal.SIGTERM]).si_pid == training:
            os._exit(0)
