"""System calls that the standard library lacks, or does not offer exactly, through the C library."""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Any

from samestep.crash.recorder import abi

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class _Vector(ctypes.Structure):
    """``struct iovec``."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


_libc.process_vm_readv.restype = ctypes.c_ssize_t
_libc.process_vm_readv.argtypes = (
    ctypes.c_int,
    ctypes.POINTER(_Vector),
    ctypes.c_ulong,
    ctypes.POINTER(_Vector),
    ctypes.c_ulong,
    ctypes.c_ulong,
)


class _Program(ctypes.Structure):
    """``struct sock_fprog``."""

    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def call(number: int, *arguments: int | bytes) -> int:
    """Make a system call by its number.

    Raises:
        OSError: it failed.
    """
    converted: list[Any] = [
        ctypes.c_char_p(argument) if isinstance(argument, bytes) else ctypes.c_long(argument)
        for argument in arguments
    ]
    return _checked(_libc.syscall(ctypes.c_long(number), *converted))


def fallocate(descriptor: int, mode: int, offset: int, length: int) -> None:
    """Change the space that a file takes, or its content.

    Raises:
        OSError: it failed.
    """
    longs = ctypes.c_longlong(offset), ctypes.c_longlong(length)
    _checked(_libc.fallocate64(descriptor, mode, *longs))


def control_process(option: int, value: int) -> None:
    """Set one attribute of this process, as prctl(2) does.

    Raises:
        OSError: it is refused.
    """
    _checked(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0))


def install_filter(code: bytes, architecture: abi.Architecture) -> tuple[int, bool]:
    """Install a filter on this thread and everything it will start.

    Returns:
        The descriptor that notifications arrive at, and whether signals leave a call alone that was received.

    Raises:
        OSError: the kernel refuses filters, or listeners.
    """
    control_process(abi.PR_SET_NO_NEW_PRIVS, 1)
    program = _Program(len(code) // 8, code)
    listener = abi.SECCOMP_FILTER_FLAG_NEW_LISTENER
    for steady, flags in ((True, listener | abi.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV), (False, listener)):
        try:
            place = ctypes.addressof(program)
            return call(architecture.seccomp, abi.SECCOMP_SET_MODE_FILTER, flags, place), steady
        except OSError as error:
            if error.errno != errno.EINVAL or not steady:
                raise
    raise AssertionError


class Memory:
    """Reads the memory of other processes.

    Args:
        room: most bytes that one read returns.
    """

    def __init__(self, room: int) -> None:
        self._buffer = ctypes.create_string_buffer(room)
        self._view = memoryview(self._buffer).cast("B")
        self._local = _Vector(ctypes.addressof(self._buffer), 0)
        self._remote = _Vector(0, 0)
        self.room = room

    def view(self, tid: int, address: int, size: int) -> memoryview:
        """Return up to ``room`` bytes; valid until the next read.

        Raises:
            OSError: they cannot be read.
        """
        size = min(size, self.room)
        self._local.length = self._remote.length = size
        self._remote.base = address
        count = _libc.process_vm_readv(tid, self._local, 1, self._remote, 1, 0)
        if count < 0:
            count = self._view_of_file(tid, address, size)
        return self._view[:count]

    def _view_of_file(self, tid: int, address: int, size: int) -> int:
        """Read through /proc where the direct way is closed (old container rules)."""
        number = ctypes.get_errno()
        if number not in {errno.ENOSYS, errno.EPERM}:
            raise OSError(number, os.strerror(number))
        descriptor = os.open(f"/proc/{tid}/mem", os.O_RDONLY)
        try:
            return os.preadv(descriptor, [self._view[:size]], address)
        finally:
            os.close(descriptor)

    def text(self, tid: int, address: int) -> bytes:
        """Return a string that ends with a zero byte, without that byte; at most PATH_MAX bytes.

        Raises:
            OSError: it cannot be read.
        """
        found = b""
        while len(found) < 4096:
            piece = bytes(self.view(tid, address, min(256, 4096 - address % 4096)))
            head, end, _ = piece.partition(b"\0")
            found += head
            if end or not piece:
                break
            address += len(piece)
        return found
