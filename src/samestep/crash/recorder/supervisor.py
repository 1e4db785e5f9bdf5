"""The loop that answers every reported system call of a process tree until the tree is gone."""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import select
import signal
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from samestep import __version__
from samestep.crash.operations import SUPERVISED, Header
from samestep.crash.recorder import abi, contents, names, opens, syncs, transfers
from samestep.crash.recorder.abi import RefusedError
from samestep.crash.recorder.launch import Launch, launch
from samestep.crash.recorder.listener import Listener
from samestep.crash.recorder.log import Log, WorldStopsError
from samestep.crash.recorder.order import ENDED, REFUSED, REFUSED_EXIT, STOPPED, UNSTARTED, Order
from samestep.crash.recorder.paths import Roots, UnresolvedError, words
from samestep.crash.recorder.session import Session
from samestep.crash.recording import RecordingWriter, SpillLimitError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from samestep.crash.recorder.listener import Call

HANDLERS: dict[str, Callable[[Session, Call], None]] = {
    **opens.HANDLERS,
    **names.HANDLERS,
    **contents.HANDLERS,
    **transfers.HANDLERS,
    **syncs.HANDLERS,
}
CALLERS_FAULT = {errno.ENOENT, errno.ESRCH, errno.EFAULT, errno.EBADF}
"""Errors met while looking at a call that its caller made up, or did not live to see answered: the kernel knows what
to say to a descriptor that is not open or an address that leads nowhere."""

MOST_FAILURES = 1000

NOWHERE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}

FORWARDED = {
    number
    for number in signal.Signals
    if number.name
    in {
        "SIGTERM",
        "SIGINT",
        "SIGHUP",
        "SIGQUIT",
        "SIGUSR1",
        "SIGUSR2",
        "SIGALRM",
        "SIGWINCH",
        "SIGXCPU",
        "SIGPWR",
    }
}


def supervise(order: Order, argv: Sequence[str]) -> int:
    """Run a command, record it, and return its exit code (128 + n when signal n ended it)."""
    roots, folder = Roots(order.roots), Path(order.folder)
    header = Header(
        roots=[words(root) for root in roots.paths],
        command=list(argv),
        tier=SUPERVISED,
        machine=platform.machine(),
        version=__version__,
    )
    try:
        log = Log(RecordingWriter(folder, header, order.spill_bytes), order)
    except OSError as error:
        return _refuse(f"nothing can be written to {folder} ({error.strerror})")
    wake, wake_writer = _signal_pipe()
    try:
        architecture = abi.here()
        started = launch(argv, architecture)
    except RefusedError as refusal:
        (folder / REFUSED).write_text(str(refusal), encoding="utf-8")
        return _refuse(str(refusal))
    os.umask(0)
    if not started.steady:
        log.note("this kernel (before 5.19) lets a signal interrupt an operation that is being carried out")
    numbers = {number: name for name, number in architecture.calls.items()}
    session = Session(Listener(started.listener, numbers), log, roots, order.marks)
    return _Supervisor(session, started, folder, wake, wake_writer).run()


def _refuse(why: str) -> int:
    sys.stderr.write(f"samestep recorder: {why}\n")
    return REFUSED_EXIT


def _signal_pipe() -> tuple[int, int]:
    """Let signals wake a poll: they are counted in a pipe, and none is lost before the loop begins."""
    wake, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    return wake, writer


class _Supervisor:
    """One tree under supervision."""

    def __init__(self, session: Session, started: Launch, folder: Path, wake: int, wake_writer: int) -> None:
        self._session = session
        self._command = started
        self._folder = folder
        self._wake = wake
        self._stopped = False
        self._exit_code: int | None = None
        self._poll = select.poll()
        self._poll.register(started.listener, select.POLLIN)
        self._poll.register(wake, select.POLLIN)
        self._poll.register(started.complaints.fileno(), select.POLLIN)
        for number in FORWARDED:
            signal.signal(number, self._forward)
        os.write(wake_writer, b"\0")  # the command may have ended before anybody listened

    def run(self) -> int:
        """Answer until no process of the tree is left."""
        failures = 0
        while failures < MOST_FAILURES:
            try:
                if not self._turn():
                    break
            except Exception as error:  # noqa: BLE001 - as long as the tree lives, somebody has to answer it
                failures += 1
                with contextlib.suppress(OSError):
                    self._session.log.switch_off(f"{type(error).__name__}: {error}")
        self._reap(block=True)
        self._hear_complaint()  # the tree may be gone before it was heard
        self._finish()
        return self._exit_code or 0

    def _turn(self) -> bool:
        """Wait for what comes next and deal with it; False when the tree is gone."""
        listener = self._session.listener
        for descriptor, event in self._poll.poll():
            if descriptor == listener.descriptor:
                if event & select.POLLIN and not self._stopped:
                    self._answer()
                elif event & (select.POLLHUP | select.POLLERR):
                    return False
            elif descriptor == self._wake:
                os.read(self._wake, 4096)
                self._reap()
            else:
                self._hear_complaint()
        return True

    def _answer(self) -> None:
        """Handle one call. Whatever goes wrong in here, its caller gets an answer."""
        session = self._session
        call = session.listener.receive()
        if call is None:
            return
        try:
            if session.listener.repeated(call):
                return
            if session.log.on:
                HANDLERS[call.name](session, call)
            else:
                session.listener.proceed(call)
        except WorldStopsError:
            self._stop()
        except UnresolvedError as error:
            self._lead_nowhere(call, error.number)
        except Exception as error:  # noqa: BLE001 - the training must not suffer from what the recorder gets wrong
            self._give_up_on(call, error)

    def _lead_nowhere(self, call: Call, number: int) -> None:
        """Answer a call whose path cannot be resolved, unless its caller may see other folders than this process."""
        try:
            same_world = not self._session.callers.find(call.tid).obstacle
        except OSError:
            same_world = False
        if same_world and number in NOWHERE:
            self._session.listener.refuse(call, number)
        else:
            self._session.listener.proceed(call)

    def _give_up_on(self, call: Call, error: Exception) -> None:
        """Answer a call that could not be handled, and stop recording if that is the recorder's own failure."""
        listener = self._session.listener
        untouched = call.waiting and call.outcome is None
        if untouched:
            listener.proceed(call)
        elif call.waiting:
            listener.settle(call)
        if untouched and isinstance(error, OSError) and error.errno in CALLERS_FAULT:
            return
        if untouched and isinstance(error, PermissionError):
            self._session.log.note(
                f"process {call.tid} does not let itself be looked at; what it did is not recorded"
            )
            return
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f" ({call.name}, {Path(place.filename).name}:{place.lineno})"
        where = "" if isinstance(error, SpillLimitError) else where
        with contextlib.suppress(OSError):
            self._session.log.switch_off(f"{error or type(error).__name__}{where}")

    def _stop(self) -> None:
        """Leave every call from now on unanswered, and say so."""
        self._stopped = True
        self._poll.modify(self._session.listener.descriptor, 0)
        self._session.log.writer.close(complete=False)
        (self._folder / STOPPED).touch()

    def _hear_complaint(self) -> None:
        """The command was executed (the socket closes), or cannot be (it says why)."""
        complaints = self._command.complaints
        if complaints.fileno() < 0:
            return
        if message := complaints.recv(4096):
            sys.stderr.write(f"samestep recorder: {message.decode(errors='replace')}\n")
            with contextlib.suppress(OSError):
                (self._folder / UNSTARTED).write_bytes(message)
        self._poll.unregister(complaints.fileno())
        complaints.close()

    def _forward(self, number: int, _: object) -> None:
        if self._exit_code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._command.pid, number)

    def _reap(self, *, block: bool = False) -> None:
        if self._exit_code is not None:
            return
        with contextlib.suppress(ChildProcessError):
            pid, status = os.waitpid(self._command.pid, 0 if block else os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                self._exit_code = code if code >= 0 else 128 - code
                self._session.log.writer.header.exit_code = self._exit_code
                with contextlib.suppress(OSError):
                    (self._folder / ENDED).write_bytes(b"%d" % self._exit_code)

    def _finish(self) -> None:
        """Log what was left open by processes that were killed, and close the recording."""
        session, log = self._session, self._session.log
        if self._stopped:
            return
        try:
            if log.on:
                for caller in session.callers.everyone():
                    syncs.leave(session, caller)
        except (OSError, SpillLimitError) as error:
            log.on = False
            log.writer.header.notes.append(f"the end of the recording is missing: {error}")
        with contextlib.suppress(OSError):
            log.writer.close(complete=log.on)
