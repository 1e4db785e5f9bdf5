"""Handlers of calls that open or make files: the file is opened here and handed to the caller.

That way the outcome is known, whatever it is, and nothing of it happens after the log has it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
from typing import TYPE_CHECKING

from samestep.crash.operations import Kind
from samestep.crash.recorder import abi, kernel, paths
from samestep.crash.recorder.callers import facts
from samestep.crash.recorder.paths import Place, key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from samestep.crash.operations import Operation
    from samestep.crash.recorder.callers import Caller
    from samestep.crash.recorder.listener import Call
    from samestep.crash.recorder.session import Session

_HOW = struct.Struct("=QQQ")  # struct open_how: flags, mode, resolve
WRITING = os.O_WRONLY | os.O_RDWR
HERE = abi.AT_FDCWD
Name = tuple[int, int]
"""A folder's descriptor and the index of the argument that points to the path."""


def open_(session: Session, call: Call) -> None:
    """Arguments: path, flags, mode."""
    _open(session, call, (HERE, 0), call.integer(1), call.integer(2))


def openat(session: Session, call: Call) -> None:
    """Arguments: folder, path, flags, mode."""
    _open(session, call, (call.integer(0), 1), call.integer(2), call.integer(3))


def creat(session: Session, call: Call) -> None:
    """Arguments: path, mode."""
    _open(session, call, (HERE, 0), os.O_CREAT | os.O_WRONLY | os.O_TRUNC, call.integer(1))


def openat2(session: Session, call: Call) -> None:
    """Arguments: folder, path, how, size; the rules of ``how`` are kept by making the same call here."""
    flags, mode, resolve = _HOW.unpack(session.memory.view(call.tid, call.args[2], _HOW.size))
    _open(session, call, (call.integer(0), 1), flags, mode, resolve=resolve)


def mknod(session: Session, call: Call) -> None:
    """Arguments: path, mode, device."""
    _mknod(session, call, (HERE, 0), call.integer(1))


def mknodat(session: Session, call: Call) -> None:
    """Arguments: folder, path, mode, device."""
    _mknod(session, call, (call.integer(0), 1), call.integer(2))


def _open(session: Session, call: Call, name: Name, flags: int, mode: int, *, resolve: int = 0) -> None:
    folder, path = name[0], session.text(call, name[1])
    if path.startswith(session.marks):
        _mark(session, call, path[len(session.marks) :])
        return
    if flags & os.O_PATH or not flags & (WRITING | os.O_CREAT | os.O_TRUNC):
        session.listener.proceed(call)
        return
    with session.locate(call, folder, path) as named:
        place = named if _takes_name_as_it_is(flags) else named.followed()
        with place:
            if not session.roots.hold(place.path):
                session.listener.proceed(call)
                return

            def act() -> int:
                if resolve:
                    return _open_by_rules(call, folder, path, (flags, mode, resolve))
                return os.open(place.name, flags, mode, dir_fd=place.folder_fd)

            _open_here(session, call, place, flags, act)


def _takes_name_as_it_is(flags: int) -> bool:
    exclusive = os.O_CREAT | os.O_EXCL
    return bool(flags & os.O_NOFOLLOW) or flags & exclusive == exclusive


def _open_by_rules(call: Call, folder: int, path: bytes, how: tuple[int, int, int]) -> int:
    start = os.open(paths.base(call.tid, folder), os.O_PATH | os.O_DIRECTORY)
    try:
        flags, mode, resolve = how
        packed = _HOW.pack(flags | os.O_CLOEXEC, mode, resolve)
        return kernel.call(abi.here().calls["openat2"], start, path, packed, _HOW.size)
    finally:
        os.close(start)


def _open_here(session: Session, call: Call, place: Place, flags: int, act: Callable[[], int]) -> None:
    """Open a watched file for the caller."""
    before = place.look()
    nameless = flags & os.O_TMPFILE == os.O_TMPFILE
    reads_only = not flags & (WRITING | os.O_TRUNC)
    if before and not nameless and (reads_only or not stat.S_ISREG(before.st_mode)):
        session.listener.proceed(call)
        return
    if not (caller := session.attend(call)):
        session.listener.proceed(call)
        return
    creates = nameless or before is None
    operation = session.operation(
        call, caller, Kind.CREATE if creates else Kind.OPEN, b"" if nameless else place.path
    )
    if session.refused(call, operation):
        return
    try:
        with umask_of(call.tid, needed=creates):
            descriptor = act()
    except OSError as error:
        operation.errno = error.errno or 0
        session.listener.refuse(call, operation.errno)
        session.log.add(operation)
        return
    _hand_over(session, call, caller, operation, descriptor, flags=flags)


def _hand_over(
    session: Session, call: Call, caller: Caller, operation: Operation, descriptor: int, *, flags: int
) -> None:
    """Inject an open file, and log what opening it did, whether or not the caller has lived to get it."""
    try:
        status = os.fstat(descriptor)
        key = key_of(status)
        if operation.kind is Kind.CREATE:
            operation.inode = session.inodes.fresh(key, operation.path)
            operation.mode = stat.S_IMODE(status.st_mode)
        else:
            operation.inode = session.inodes.number(key, operation.path)
            operation.mode = flags
        try:
            number = session.listener.inject(call, descriptor, close_on_exec=flags & os.O_CLOEXEC)
            if flags & WRITING:
                caller.hold(operation.inode, key, number)
        except OSError as error:
            session.listener.refuse(call, error.errno or 0)
    finally:
        os.close(descriptor)
    session.log.add(operation)
    if operation.kind is Kind.OPEN and flags & os.O_TRUNC:
        session.growth.resize(operation.inode)
        session.log.add(_emptied(operation))


def _emptied(opened: Operation) -> Operation:
    return type(opened)(
        index=0,
        kind=Kind.TRUNCATE,
        path=opened.path,
        inode=opened.inode,
        call=opened.call,
        pid=opened.pid,
        tid=opened.tid,
        rank=opened.rank,
        seconds=opened.seconds,
        derived=True,
    )


@contextlib.contextmanager
def umask_of(tid: int, *, needed: bool = True) -> Iterator[None]:
    """Take on the file mode mask of a caller while something is made for it."""
    before = os.umask(int(facts(tid)["Umask"], 8) if needed else 0)
    try:
        yield
    finally:
        os.umask(before)


def _mknod(session: Session, call: Call, name: Name, mode: int) -> None:
    with session.locate(call, name[0], session.text(call, name[1])) as place:
        regular = stat.S_IFMT(mode) in {0, stat.S_IFREG}
        caller = session.attend(call) if regular and session.roots.hold(place.path) else None
        if not caller:
            session.listener.proceed(call)
            return
        operation = session.operation(call, caller, Kind.CREATE, place.path)

        def act() -> None:
            with umask_of(call.tid):
                os.mknod(place.name, mode, dir_fd=place.folder_fd)

        def after() -> None:
            status = os.stat(place.name, dir_fd=place.folder_fd)
            operation.inode = session.inodes.fresh(key_of(status), operation.path)
            operation.mode = stat.S_IMODE(status.st_mode)

        session.perform(call, operation, act, after)


def _mark(session: Session, call: Call, name: bytes) -> None:
    """Log a completed step; the caller learns that there is no such file."""
    rank, _, step = name.partition(b"/")
    caller = session.callers.find(call.tid)
    if caller.rank is None and rank.isdigit():
        caller.rank = int(rank)
    session.catch_up(caller)
    for mapping in session.mappings.of(caller.pid):
        session.snapshot(mapping.inode, caller)
    mark = session.operation(call, caller, Kind.MARK, b"")
    mark.rank, mark.step = int(rank), int(step)
    if session.listener.refuse(call, errno.ENOENT):
        session.log.add(mark)


HANDLERS = {
    "open": open_,
    "openat": openat,
    "creat": creat,
    "openat2": openat2,
    "mknod": mknod,
    "mknodat": mknodat,
}
