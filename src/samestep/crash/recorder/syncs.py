"""Handlers of calls that promise durability, of memory mappings, and of the ends of processes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from samestep.crash.operations import Kind
from samestep.crash.recorder import abi, paths
from samestep.crash.recorder.mappings import areas
from samestep.crash.recorder.paths import key_of

if TYPE_CHECKING:
    from samestep.crash.recorder.callers import Caller
    from samestep.crash.recorder.listener import Call
    from samestep.crash.recorder.mappings import Mapping
    from samestep.crash.recorder.session import Session


def fsync(session: Session, call: Call) -> None:
    """Arguments: descriptor; of a file or a folder."""
    _sync(session, call, Kind.SYNC)


def fdatasync(session: Session, call: Call) -> None:
    """Arguments: descriptor."""
    _sync(session, call, Kind.SYNC_DATA)


def sync_file_range(session: Session, call: Call) -> None:
    """Arguments: descriptor, offset, length, flags."""
    _sync(session, call, Kind.SYNC_RANGE, offset=call.long(1), size=call.long(2))


def sync(session: Session, call: Call) -> None:
    """Arguments: none; of everything."""
    _sync_all(session, call)


def syncfs(session: Session, call: Call) -> None:
    """Arguments: descriptor; of one file system, if it is one that a watched folder is on."""
    device = os.stat(paths.descriptor(call.tid, call.integer(0))).st_dev
    if device in {os.stat(root).st_dev for root in session.roots.paths if os.path.exists(root)}:
        _sync_all(session, call)
    else:
        session.listener.proceed(call)


def msync(session: Session, call: Call) -> None:
    """Arguments: address, length, flags; MS_SYNC makes what was stored durable."""
    caller = session.attend(call) if session.mappings.by_inode else None
    mapping = _mapping_at(session, caller, call.args[0]) if caller else None
    if not caller or not mapping:
        session.listener.proceed(call)
        return
    session.snapshot(mapping.inode, caller)
    path = os.fsencode(session.inodes.path(mapping.inode))
    kind = Kind.SYNC_DATA if call.integer(2) & abi.MS_SYNC else Kind.SYNC_RANGE
    session.permit(call, session.operation(call, caller, kind, path, inode=mapping.inode))


def mmap(session: Session, call: Call) -> None:
    """Arguments: address, length, protection, flags, descriptor, offset; shared and writable."""
    number = call.integer(4)
    file = session.open_file(call, number)
    caller = session.attend(call) if file else None
    if not file or not caller:
        session.listener.proceed(call)
        return
    inode = session.inode(file.status, file.path)
    fields = {"inode": inode, "offset": call.long(5), "size": call.long(1)}
    operation = session.operation(call, caller, Kind.MAP, file.path, **fields)
    session.mappings.begin(inode, key_of(file.status), caller.pid, paths.descriptor(call.tid, number))
    session.log.opaque(operation.path)
    session.permit(call, operation)


def exit_group(session: Session, call: Call) -> None:
    """Arguments: code; everything is closed and unmapped."""
    caller = session.callers.known(call.tid)
    if caller:
        leave(session, caller)
        session.callers.forget(caller)
    session.listener.proceed(call)


def execve(session: Session, call: Call) -> None:
    """Do not trust what is known about the process any more; the same for execveat."""
    caller = session.callers.known(call.tid)
    if caller:
        caller.stale = True
    session.listener.proceed(call)


def io_submit(session: Session, call: Call) -> None:
    """Say that libaio is not followed."""
    session.log.note(f"process {call.tid} writes through libaio (io_submit), which is not followed")
    session.listener.proceed(call)


def leave(session: Session, caller: Caller) -> None:
    """Log what the end of a process closes and unmaps."""
    session.catch_up(caller)
    for mapping in session.mappings.of(caller.pid):
        session.snapshot(mapping.inode, caller)
    session.mappings.end(caller.pid)
    for inode in caller.held:
        session.log.add(session.found(Kind.CLOSE, session.inodes.path(inode), caller, inode=inode))
    caller.held.clear()


def _sync(session: Session, call: Call, kind: Kind, **fields: int) -> None:
    file = session.open_anything(call, call.integer(0))
    caller = session.attend(call) if file else None
    if not file or not caller:
        session.listener.proceed(call)
        return
    inode = session.inode(file.status, file.path)
    if inode in session.mappings.by_inode:
        session.snapshot(inode, caller)
    session.permit(call, session.operation(call, caller, kind, file.path, inode=inode, **fields))


def _sync_all(session: Session, call: Call) -> None:
    if caller := session.attend(call):
        for inode in session.mappings.by_inode:
            session.snapshot(inode, caller)
        session.permit(call, session.operation(call, caller, Kind.SYNC_ALL, b""))
    else:
        session.listener.proceed(call)


def _mapping_at(session: Session, caller: Caller, address: int) -> Mapping | None:
    """Return the mapping that an address of a process lies in."""
    numbers = [area.number for area in areas(caller.pid) if area.start <= address < area.end]
    mine = session.mappings.of(caller.pid)
    return next((mapping for mapping in mine if mapping.key[1] in numbers), None)


HANDLERS = {
    "fsync": fsync,
    "fdatasync": fdatasync,
    "sync_file_range": sync_file_range,
    "sync": sync,
    "syncfs": syncfs,
    "msync": msync,
    "mmap": mmap,
    "exit_group": exit_group,
    "execve": execve,
    "execveat": execve,
    "io_submit": io_submit,
}
