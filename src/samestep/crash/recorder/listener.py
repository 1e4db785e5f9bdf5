"""The queue of system calls that wait for an answer."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
from dataclasses import dataclass

from samestep.crash.recorder import abi

_NOTIFICATION = struct.Struct("=QII iIQ 6Q")
_RESPONSE = struct.Struct("=QqiI")
_INJECTION = struct.Struct("=QIIII")
_EMPTY = bytes(_NOTIFICATION.size)
_GONE = {errno.ENOENT, errno.EINPROGRESS}


class Call:
    """A system call whose caller waits in the kernel.

    Attributes:
        id: of the notification.
        tid: thread that made it.
        number: of the system call.
        name: of the system call.
        args: its six arguments, unsigned.
        waiting: it has not been answered.
        outcome: error number of what was done on behalf of the caller, None: nothing was done yet.
    """

    __slots__ = ("args", "id", "name", "number", "outcome", "tid", "waiting")

    def __init__(self) -> None:
        self.id = self.tid = self.number = 0
        self.name = ""
        self.args: tuple[int, ...] = ()
        self.waiting = False
        self.outcome: int | None = None

    def integer(self, index: int) -> int:
        """Return an argument that is a C ``int``."""
        value = self.args[index] & 0xFFFF_FFFF
        return value - (1 << 32) if value >> 31 else value

    def long(self, index: int) -> int:
        """Return an argument that is a C ``long``."""
        value = self.args[index]
        return value - (1 << 64) if value >> 63 else value


@dataclass(frozen=True, slots=True)
class _Unheard:
    """A call that was carried out while its caller was called away."""

    number: int
    args: tuple[int, ...]
    outcome: int
    descriptor: int = -1
    close_on_exec: int = 0


class Listener:
    """Receives and answers calls; the same `Call` is used for all of them, one at a time.

    Args:
        descriptor: of the listener, as seccomp(2) returned it.
        names: system calls by number.
    """

    def __init__(self, descriptor: int, names: dict[int, str]) -> None:
        self.descriptor = descriptor
        self.call = Call()
        self._names = names
        self._unheard: dict[int, _Unheard] = {}
        with contextlib.suppress(OSError):
            fcntl.ioctl(descriptor, abi.NOTIF_SET_FLAGS, abi.NOTIF_SYNC_WAKE_UP)

    def receive(self) -> Call | None:
        """Return the next call, None when its caller was killed before it could be looked at."""
        try:
            raw = fcntl.ioctl(self.descriptor, abi.NOTIF_RECV, _EMPTY)
        except OSError as error:
            if error.errno in {errno.ENOENT, errno.EINTR}:
                return None
            raise
        call = self.call
        call.id, call.tid, _, call.number, _, _, *arguments = _NOTIFICATION.unpack(raw)
        call.args = tuple(arguments)
        call.name = self._names[call.number]
        call.waiting, call.outcome = True, None
        return call

    def proceed(self, call: Call) -> bool:
        """Let the kernel carry the call out; False when its caller is gone."""
        return self._send(call, 0, 0, abi.NOTIF_CONTINUE)

    def settle(self, call: Call) -> bool:
        """Answer with the outcome of what was done on behalf of the caller."""
        heard = self._send(call, 0, -(call.outcome or 0), 0)
        if not heard:
            self._unheard[call.tid] = _Unheard(call.number, call.args, call.outcome or 0)
        return heard

    def refuse(self, call: Call, number: int) -> bool:
        """Answer with an error."""
        return self._send(call, 0, -number, 0)

    def inject(self, call: Call, descriptor: int, *, close_on_exec: int) -> int:
        """Give the caller a copy of a descriptor and answer with its number, which is returned.

        Raises:
            OSError: the caller is gone, or has no room for another descriptor.
        """
        request = bytearray(_INJECTION.pack(call.id, abi.ADDFD_SEND, descriptor, 0, close_on_exec))
        try:
            number = int(fcntl.ioctl(self.descriptor, abi.NOTIF_ADDFD, request))
        except OSError as error:
            if error.errno in _GONE:
                self._unheard[call.tid] = _Unheard(
                    call.number, call.args, 0, os.dup(descriptor), close_on_exec
                )
            raise
        call.waiting = False
        return number

    def repeated(self, call: Call) -> bool:
        """Answer a call that was carried out before, but that a signal took away from its caller.

        Kernels before 5.19 let a signal interrupt a call that is being worked on; the caller then makes it again.
        """
        if not self._unheard or not (unheard := self._unheard.pop(call.tid, None)):
            return False
        again = (unheard.number, unheard.args) == (call.number, call.args)
        if unheard.descriptor >= 0:
            try:
                if again:
                    self.inject(call, unheard.descriptor, close_on_exec=unheard.close_on_exec)
            finally:
                os.close(unheard.descriptor)
        elif again:
            call.outcome = unheard.outcome
            self.settle(call)
        return again

    def _send(self, call: Call, value: int, error: int, flags: int) -> bool:
        call.waiting = False
        try:
            fcntl.ioctl(self.descriptor, abi.NOTIF_SEND, _RESPONSE.pack(call.id, value, error, flags))
        except OSError as problem:
            if problem.errno in _GONE:
                return False
            raise
        return True
