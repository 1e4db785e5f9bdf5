"""System calls as a durable store needs them: complete, repeated after a signal, never through a link."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")

FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
READING: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Not blocking: a pipe that stands in a file's place must not hang its reader."""
MAKING: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
READ_ONLY: Final = 0o444

_RENAME_NOREPLACE: Final = 1
_CANNOT_RESERVE: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.ENODEV})

_libc = ctypes.CDLL(None, use_errno=True)


def open_file(name: str, flags: int, folder: int | None = None) -> int:
    """Open ``name`` below the descriptor ``folder``; files that come into being are read-only."""
    return again(os.open, name, flags, READ_ONLY, dir_fd=folder)


def close(descriptor: int) -> None:
    """Close ``descriptor``; Linux has closed it even when a signal interrupted the call."""
    with contextlib.suppress(InterruptedError):
        os.close(descriptor)


def make_folder(name: str, folder: int | None = None) -> None:
    """Make a folder, or leave the one that is there."""
    with contextlib.suppress(FileExistsError):
        again(os.mkdir, name, dir_fd=folder)


def write_all(descriptor: int, data: memoryview, offset: int) -> None:
    """Write all of ``data`` at ``offset``, however little the system takes at a time."""
    done = 0
    while done < len(data):
        count = again(os.pwrite, descriptor, data[done:], offset + done)
        if not count:
            raise OSError(errno.EIO, "the place takes no more bytes, and gives no reason")
        done += count


def read_all(descriptor: int, target: memoryview, offset: int) -> int:
    """Fill ``target`` from ``offset`` on; return how many bytes there were."""
    done = 0
    while done < len(target):
        count = again(os.preadv, descriptor, [target[done:]], offset + done)
        if not count:
            break
        done += count
    return done


def sync(descriptor: int) -> None:
    """Return when the file or folder would survive a power cut."""
    again(os.fsync, descriptor)


def cut(descriptor: int, size: int) -> None:
    """Make the file ``size`` bytes long."""
    again(os.ftruncate, descriptor, size)


def reserve(descriptor: int, size: int) -> None:
    """Claim room for ``size`` bytes now, where the file system can; too little of it is an error at once."""

    def claim() -> None:
        if _libc.fallocate(descriptor, 0, ctypes.c_int64(0), ctypes.c_int64(size)):
            raise _last_error()

    try:
        again(claim)
    except OSError as error:
        if error.errno not in _CANNOT_RESERVE:
            raise


def set_direct(descriptor: int, *, direct: bool) -> bool:
    """Write past the page cache from now on, or through it; return whether that is so."""
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL) & ~os.O_DIRECT
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_DIRECT if direct else flags)
    except OSError:
        return False
    return True


def link(old: str, new: str, source: int, target: int) -> None:
    """Give the file ``old`` in the folder ``source`` a second name in ``target``, if that name is free."""
    again(os.link, old, new, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)


def rename_if_free(old: str, new: str, folder: int) -> None:
    """Rename within ``folder``, unless ``new`` is taken.

    Raises:
        FileExistsError: it is.
        OSError: this place cannot do it (EINVAL, ENOSYS), or failed.
    """

    def rename() -> None:
        if not hasattr(_libc, "renameat2"):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        if _libc.renameat2(folder, os.fsencode(old), folder, os.fsencode(new), _RENAME_NOREPLACE):
            raise _last_error()

    again(rename)


def unlink(name: str, folder: int) -> bool:
    """Remove ``name``; return whether it was there."""
    try:
        again(os.unlink, name, dir_fd=folder)
    except FileNotFoundError:
        return False
    return True


def look(name: str, folder: int) -> os.stat_result:
    """Return what ``name`` itself is; a link is not followed."""
    return again(os.stat, name, dir_fd=folder, follow_symlinks=False)


def again(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call until no signal interrupts."""
    while True:
        try:
            return call(*args, **kwargs)
        except InterruptedError:
            continue


def _last_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
