"""Starting the command below the filter: the child's side, and how the parent gets hold of the listener."""

from __future__ import annotations

import errno
import os
import signal
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from samestep.crash.recorder import abi, kernel
from samestep.crash.recorder.abi import RefusedError
from samestep.crash.recorder.filter import program

if TYPE_CHECKING:
    from collections.abc import Sequence

    from samestep.crash.recorder.abi import Architecture

LISTENING, STEADY = b"L", b"S"
CANNOT_EXECUTE = 127


REASONS = {
    errno.EBUSY: "another supervisor listens to the system calls of this container already",
    errno.EINVAL: "the kernel, or the sandbox in its place, has no seccomp user notification",
    errno.ENOSYS: "the kernel, or the sandbox in its place, has no seccomp",
    errno.EPERM: "the rules of this container forbid seccomp filters",
    errno.EACCES: "the rules of this container forbid seccomp filters",
}


@dataclass
class Launch:
    """A command that was started below the filter.

    Attributes:
        pid: of the command.
        listener: where its system calls arrive.
        steady: signals leave calls alone that were received.
        complaints: socket that closes when the command runs, or says why it cannot be executed.
    """

    pid: int
    listener: int
    steady: bool
    complaints: socket.socket


def launch(argv: Sequence[str], architecture: Architecture) -> Launch:
    """Fork the command; it is not executed before the filter works.

    Raises:
        RefusedError: the filter could not be installed.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    code = program(architecture)
    pid = os.fork()
    if pid == 0:
        ours.close()
        _become(argv, code, architecture, theirs)
    theirs.close()
    message, descriptors, _, _ = socket.recv_fds(ours, 4096, 1)
    if not descriptors:
        os.waitpid(pid, 0)
        raise RefusedError(message.decode(errors="replace") or "its first process was killed")
    os.set_inheritable(descriptors[0], False)
    return Launch(pid, descriptors[0], message == STEADY, ours)


def _become(argv: Sequence[str], code: bytes, architecture: Architecture, parent: socket.socket) -> NoReturn:
    """In the child: enter the filter and turn into the command. Nothing here writes once the filter works."""
    try:
        os.setsid()  # a signal to the command's own group leaves the recorder alone
        for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        kernel.control_process(abi.PR_SET_PDEATHSIG, signal.SIGKILL)
        listener, steady = kernel.install_filter(code, architecture)
        socket.send_fds(parent, [STEADY if steady else LISTENING], [listener])
        os.close(listener)
    except OSError as error:
        parent.send(REASONS.get(error.errno or 0, f"no filter can be installed ({error.strerror})").encode())
        os._exit(CANNOT_EXECUTE)
    try:
        os.execvp(argv[0], list(argv))  # noqa: S606 - the command is the user's own
    except OSError as error:
        parent.send(f"{argv[0]!r} cannot be executed ({error.strerror or error})".encode())
        os._exit(CANNOT_EXECUTE)
