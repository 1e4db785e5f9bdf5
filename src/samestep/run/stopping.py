"""Notices of the end: signals now, other sources through the same seam."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

RESTART_WANTED = 75
"""Exit status of a training that has committed its state and wants to be started again."""

INTERRUPTED = 130
"""Exit status after Ctrl-C."""


@dataclasses.dataclass(frozen=True)
class Notice:
    """A warning that the machine, or the user, wants the training to end.

    Attributes:
        source: who said so, such as ``SIGTERM``.
        exit_code: that the process shall end with when its state is committed.
        seconds_left: until the end, where that is known; never relied on.
    """

    source: str
    exit_code: int = RESTART_WANTED
    seconds_left: float | None = None
    at_once: bool = False  #: nothing is to be waited for any more


class NoticeSource(Protocol):
    """Something that hears of notices."""

    def start(self, arrived: Callable[[Notice], None]) -> None:
        """Call ``arrived`` from now on, from any thread or signal handler, when a notice arrives."""

    def stop(self) -> None:
        """Hear no more, and leave everything as it was."""


class Signals:
    """SIGTERM and SIGUSR1 as notices, and Ctrl-C: once to save and leave, twice to leave at once.

    Handlers belong to the process that set them: a forked loader worker goes on as if there were none, except that
    it leaves Ctrl-C to the training process.
    """

    NOTICES = (signal.SIGTERM, signal.SIGUSR1)

    def __init__(self) -> None:
        self._before: dict[signal.Signals, Any] = {}
        self._owner = os.getpid()
        self._interrupts = 0

    def start(self, arrived: Callable[[Notice], None]) -> None:
        """See ``NoticeSource``; Python sets handlers in the main thread only, elsewhere this hears nothing."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._owner = os.getpid()

        def noticed(number: int, _: Any) -> None:
            if os.getpid() == self._owner:
                arrived(Notice(signal.Signals(number).name))
            else:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)

        def interrupted(*_: Any) -> None:
            if os.getpid() != self._owner:
                return
            self._interrupts += 1
            if self._interrupts > 1:
                arrived(Notice("Ctrl-C twice", exit_code=INTERRUPTED, at_once=True))
                raise KeyboardInterrupt
            arrived(Notice("Ctrl-C", exit_code=INTERRUPTED))

        for number in self.NOTICES:
            self._before[number] = signal.signal(number, noticed)
        self._before[signal.SIGINT] = signal.signal(signal.SIGINT, interrupted)

    def stop(self) -> None:
        """See ``NoticeSource``."""
        if os.getpid() != self._owner or threading.current_thread() is not threading.main_thread():
            return
        for number, handler in self._before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        self._before.clear()


class Stopping:
    """The first notice of any source.

    Attributes:
        notice: that has arrived; None while there is none.
        at_once: the process is to end without waiting for anything.
    """

    def __init__(self, sources: Sequence[NoticeSource]) -> None:
        self.notice: Notice | None = None
        self.at_once = False
        self._sources = tuple(sources)

    def start(self) -> None:
        """Begin to hear."""
        for source in self._sources:
            source.start(self._arrived)

    def stop(self) -> None:
        """Hear no more."""
        for source in self._sources:
            source.stop()

    def _arrived(self, notice: Notice) -> None:
        self.notice = self.notice or notice
        self.at_once = self.at_once or notice.at_once
