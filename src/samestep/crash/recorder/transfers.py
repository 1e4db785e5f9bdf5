"""Handlers of calls that move bytes from file to file inside the kernel."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from samestep.crash.operations import Kind
from samestep.crash.recorder import abi, paths
from samestep.crash.recorder.contents import on_file, put_down
from samestep.crash.recorder.paths import OpenFile

if TYPE_CHECKING:
    from samestep.crash.recorder.listener import Call
    from samestep.crash.recorder.session import Session


def sendfile(session: Session, call: Call) -> None:
    """Arguments: to, from, pointer to offset, count."""
    _transfer(session, call, (call.integer(0), 0), (call.integer(1), call.args[2]), call.args[3])


def copy_file_range(session: Session, call: Call) -> None:
    """Arguments: from, pointer to offset, to, pointer to offset, count, flags."""
    source, target = (call.integer(0), call.args[1]), (call.integer(2), call.args[3])
    _transfer(session, call, target, source, call.args[4])


def splice(session: Session, call: Call) -> None:
    """Arguments: from, offset, to, offset, count, flags; what is in a pipe cannot be seen, so writers must write."""
    if session.open_file(call, call.integer(2)):
        session.listener.refuse(call, errno.EINVAL)
    else:
        session.listener.proceed(call)


def ioctl(session: Session, call: Call) -> None:
    """Arguments: descriptor, FICLONE...; sharing blocks is refused, so that writers copy."""
    if session.open_file(call, call.integer(0)):
        session.listener.refuse(call, errno.EOPNOTSUPP)
    else:
        session.listener.proceed(call)


def _transfer(session: Session, call: Call, to: tuple[int, int], origin: tuple[int, int], count: int) -> None:
    """Log bytes that the kernel copies; source and target are descriptors with pointers to offsets, or 0."""
    target = session.open_file(call, to[0])
    if not target:
        session.listener.proceed(call)
        return
    source = OpenFile(call.tid, origin[0], b"")
    if source.regular and source.status.st_dev != target.status.st_dev and call.name == "copy_file_range":
        session.listener.refuse(call, errno.EXDEV)  # as most kernels do; callers then read and write
        return
    begin = _offset(session, call, source, origin[1])
    size = min(count, max(source.status.st_size - begin, 0), abi.MAX_TRANSFER)
    position, flags = target.position()
    possible = source.regular and flags & os.O_ACCMODE and not flags & os.O_APPEND  # else the kernel refuses
    caller = session.attend(call) if size and possible else None
    if not caller:
        session.listener.proceed(call)
        return
    offset = _offset(session, call, target, to[1]) if to[1] else position
    operation = on_file(session, call, caller, target, Kind.WRITE, offset=offset, size=size)
    if session.refused(call, operation):
        return
    descriptor = os.open(paths.descriptor(call.tid, origin[0]), os.O_RDONLY)
    try:
        put_down(session, call, operation, session.parts(descriptor, begin, size))
    finally:
        os.close(descriptor)


def _offset(session: Session, call: Call, file: OpenFile, pointer: int) -> int:
    """Return where a transfer begins: at an offset in the caller's memory, or at the file's own position."""
    if pointer:
        return int.from_bytes(session.memory.view(call.tid, pointer, 8), "little", signed=True)
    return file.position()[0]


HANDLERS = {
    "sendfile": sendfile,
    "copy_file_range": copy_file_range,
    "splice": splice,
    "ioctl": ioctl,
}
