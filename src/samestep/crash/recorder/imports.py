"""Files that were made outside the watched folders and arrive in them by one rename or link."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from samestep.crash.operations import Kind
from samestep.crash.recorder.paths import key_of, words

if TYPE_CHECKING:
    from samestep.crash.recorder.callers import Caller
    from samestep.crash.recorder.listener import Call
    from samestep.crash.recorder.paths import Place
    from samestep.crash.recorder.session import Session


def bring_in(session: Session, call: Call, caller: Caller, source: bytes, target: Place) -> int:
    """Log a file or folder, which came from ``source`` and is at ``target`` now, as if it had just been made there.

    Returns:
        Its number in the recording.
    """
    status = target.look()
    if status is None:
        return 0
    arrived = b"/proc/self/fd/%d/%s" % (target.folder_fd, target.name.rstrip(b"/"))
    return _bring(session, call, caller, source, arrived, status=status)


def _bring(
    session: Session, call: Call, caller: Caller, source: bytes, arrived: bytes, *, status: os.stat_result
) -> int:
    number = session.inodes.fresh(key_of(status), words(source))
    kind = _kind(status.st_mode)
    made = session.operation(call, caller, kind, source, inode=number, derived=True)
    if kind is Kind.SYMLINK:
        made.target = words(os.readlink(arrived))
    else:
        made.mode = stat.S_IMODE(status.st_mode)
    session.log.add(made)
    if kind is Kind.CREATE and stat.S_ISREG(status.st_mode):
        _store(session, call, caller, source, arrived, number=number)
    if kind is Kind.MKDIR:
        for name in sorted(os.listdir(arrived)):
            inner = arrived + b"/" + name
            _bring(session, call, caller, source + b"/" + name, inner, status=os.lstat(inner))
    return number


def _kind(mode: int) -> Kind:
    if stat.S_ISDIR(mode):
        return Kind.MKDIR
    return Kind.SYMLINK if stat.S_ISLNK(mode) else Kind.CREATE


def _store(
    session: Session, call: Call, caller: Caller, source: bytes, arrived: bytes, *, number: int
) -> None:
    descriptor = os.open(arrived, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        size = os.fstat(descriptor).st_size
        at = session.log.writer.keep_parts(session.parts(descriptor), size)
    finally:
        os.close(descriptor)
    stored = session.operation(
        call, caller, Kind.STORED, source, inode=number, at=at, size=size, derived=True
    )
    session.log.add(stored)
