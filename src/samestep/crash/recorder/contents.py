"""Handlers of calls that put bytes into files or change their size."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

from samestep.crash.operations import Kind
from samestep.crash.recorder import abi, kernel, paths
from samestep.crash.recorder.paths import OpenFile, key_of
from samestep.crash.recorder.session import CHUNK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from samestep.crash.operations import Operation
    from samestep.crash.recorder.callers import Caller
    from samestep.crash.recorder.listener import Call
    from samestep.crash.recorder.session import Session

Piece = tuple[int, int]
"""Address and length of bytes in the caller's memory."""

_SYNCED = {Kind.SYNC: os.O_SYNC, Kind.SYNC_DATA: os.O_DSYNC}
_WISHES = {Kind.SYNC: abi.RWF_SYNC, Kind.SYNC_DATA: abi.RWF_DSYNC}


def write(session: Session, call: Call) -> None:
    """Arguments: descriptor, bytes, count."""
    if file := session.open_file(call, call.integer(0)):
        _write(session, call, file, [(call.args[1], call.args[2])])
    else:
        session.listener.proceed(call)


def pwrite64(session: Session, call: Call) -> None:
    """Arguments: descriptor, bytes, count, offset."""
    if file := session.open_file(call, call.integer(0)):
        _write(session, call, file, [(call.args[1], call.args[2])], call.long(3))
    else:
        session.listener.proceed(call)


def writev(session: Session, call: Call) -> None:
    """Arguments: descriptor, vector, length."""
    if file := session.open_file(call, call.integer(0)):
        _write(session, call, file, _vector(session, call))
    else:
        session.listener.proceed(call)


def pwritev(session: Session, call: Call) -> None:
    """Arguments: descriptor, vector, length, offset."""
    if file := session.open_file(call, call.integer(0)):
        _write(session, call, file, _vector(session, call), call.long(3))
    else:
        session.listener.proceed(call)


def pwritev2(session: Session, call: Call) -> None:
    """Arguments: descriptor, vector, length, offset, unused, flags; offset -1 is the file's own position."""
    if file := session.open_file(call, call.integer(0)):
        offset = call.long(3)
        _write(
            session, call, file, _vector(session, call), None if offset == -1 else offset, how=call.integer(5)
        )
    else:
        session.listener.proceed(call)


def truncate(session: Session, call: Call) -> None:
    """Arguments: path, size."""
    with session.locate(call, abi.AT_FDCWD, session.text(call, 0)) as named, named.followed() as place:
        caller = session.attend(call) if session.roots.hold(place.path) else None
        status = place.look() if caller else None
        if not caller or not status:
            session.listener.proceed(call)
            return
        fields = {"inode": session.inode(status, place.path), "size": call.long(1)}
        operation = session.operation(call, caller, Kind.TRUNCATE, place.path, **fields)
        session.growth.resize(operation.inode)
        session.perform(call, operation, lambda: os.truncate(place.path, call.long(1)))


def ftruncate(session: Session, call: Call) -> None:
    """Arguments: descriptor, size."""
    file, caller = _writable(session, call, call.integer(0))
    if not file or not caller:
        session.listener.proceed(call)
        return
    operation = on_file(session, call, caller, file, Kind.TRUNCATE, size=call.long(1))
    session.growth.resize(operation.inode)
    _change(session, call, file, operation, lambda descriptor: os.ftruncate(descriptor, call.long(1)))


def fallocate(session: Session, call: Call) -> None:
    """Arguments: descriptor, mode, offset, length."""
    file, caller = _writable(session, call, call.integer(0))
    if not file or not caller:
        session.listener.proceed(call)
        return
    mode, offset, length = call.integer(1), call.long(2), call.long(3)
    operation = on_file(session, call, caller, file, Kind.ALLOCATE, mode=mode, offset=offset, size=length)
    session.growth.resize(operation.inode)
    _change(
        session, call, file, operation, lambda descriptor: kernel.fallocate(descriptor, mode, offset, length)
    )


def _writable(session: Session, call: Call, number: int) -> tuple[OpenFile | None, Caller | None]:
    """Return a watched file that the caller has open for writing, and the caller."""
    file = session.open_file(call, number)
    if not file or not file.position()[1] & os.O_ACCMODE:
        return None, None
    return file, session.attend(call)


def _change(
    session: Session, call: Call, file: OpenFile, operation: Operation, act: Callable[[int], None]
) -> None:
    """Change a file through a descriptor of our own, so that the outcome is known."""
    try:
        descriptor = os.open(paths.descriptor(call.tid, file.number), os.O_WRONLY)
    except OSError:  # its permission bits may have changed since the caller opened it
        session.permit(call, operation)
        return
    try:
        session.perform(call, operation, lambda: act(descriptor))
    finally:
        os.close(descriptor)


def on_file(
    session: Session, call: Call, caller: Caller, file: OpenFile, kind: Kind, **fields: int | None
) -> Operation:
    """Describe an operation on an open file, which its process evidently holds open for writing."""
    inode = session.inode(file.status, file.path)
    caller.hold(inode, key_of(file.status), file.number)
    name = paths.descriptor(call.tid, file.number)
    session.check_growth(caller, inode, file.status, name, tid=call.tid)
    return session.operation(call, caller, kind, file.path, inode=inode, **fields)


def _vector(session: Session, call: Call) -> list[Piece]:
    """Read the caller's array of addresses and lengths."""
    count = min(call.integer(2), 1024)
    raw = session.memory.view(call.tid, call.args[1], 16 * count) if count > 0 else b""
    return list(struct.iter_unpack("=QQ", raw))


def _write(
    session: Session,
    call: Call,
    file: OpenFile,
    pieces: list[Piece],
    offset: int | None = None,
    *,
    how: int = 0,
) -> None:
    """Log a write with its bytes; they are taken before the kernel gets to write them."""
    position, flags = file.position()
    size = min(sum(length for _, length in pieces), abi.MAX_TRANSFER)
    caller = session.attend(call) if size and flags & os.O_ACCMODE else None
    if not caller:
        session.listener.proceed(call)
        return
    operation = on_file(
        session, call, caller, file, Kind.WRITE, offset=position if offset is None else offset, size=size
    )
    if flags & os.O_APPEND or how & abi.RWF_APPEND:
        operation.offset = session.growth.end(
            operation.inode, call.tid, paths.descriptor(call.tid, file.number)
        )
    if session.refused(call, operation):
        return
    if put_down(session, call, operation, _parts(session, call, pieces, size)):
        for kind in [kind for kind, flag in _SYNCED.items() if flags & flag == flag or how & _WISHES[kind]][
            :1
        ]:
            session.log.add(_also(operation, kind))


def put_down(session: Session, call: Call, operation: Operation, parts: Iterator[bytes | memoryview]) -> bool:
    """Let a write happen and log it: what is short after the caller goes on, what is long before."""
    if operation.size > CHUNK:
        operation.at = session.log.writer.keep_parts(parts, operation.size)
        happens = session.listener.proceed(call)
    else:
        content = b"".join([bytes(part) for part in parts])  # each part lies where the next one will
        happens = session.listener.proceed(call)
        operation.at = session.log.writer.keep(content) if happens else None
    if happens:
        session.growth.expect(operation.inode, operation.pid, call.tid, operation.offset + operation.size)
        session.log.add(operation)
    return happens


def _parts(session: Session, call: Call, pieces: list[Piece], size: int) -> Iterator[memoryview | bytes]:
    """Read ``size`` bytes from the caller's memory."""
    for address, length in pieces:
        done, wanted = 0, min(length, size)
        while done < wanted:
            view = session.memory.view(call.tid, address + done, wanted - done)
            done += len(view)
            yield view
        size -= wanted


def _also(written: Operation, kind: Kind) -> Operation:
    """Describe what a descriptor that is open for synchronous writing adds to a write."""
    also = type(written)(
        index=0, kind=kind, path=written.path, inode=written.inode, call=written.call, derived=True
    )
    also.pid, also.tid, also.rank, also.seconds = written.pid, written.tid, written.rank, written.seconds
    return also


HANDLERS = {
    handler.__name__: handler
    for handler in (write, pwrite64, writev, pwritev, pwritev2, truncate, ftruncate, fallocate)
}
