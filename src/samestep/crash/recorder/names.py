"""Handlers of calls that change names: carried out here for the caller, so that outcome and order are exact."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Self

from samestep.crash.operations import Kind
from samestep.crash.recorder import abi, kernel, paths
from samestep.crash.recorder.imports import bring_in
from samestep.crash.recorder.opens import HERE, Name, umask_of
from samestep.crash.recorder.paths import DELETED, Place, key_of, words

if TYPE_CHECKING:
    from samestep.crash.recorder.listener import Call
    from samestep.crash.recorder.session import Session


def rename(session: Session, call: Call) -> None:
    """Arguments: old, new."""
    _rename(session, call, (HERE, 0), (HERE, 1), 0)


def renameat(session: Session, call: Call) -> None:
    """Arguments: folder, old, folder, new."""
    _rename(session, call, (call.integer(0), 1), (call.integer(2), 3), 0)


def renameat2(session: Session, call: Call) -> None:
    """Arguments: folder, old, folder, new, flags."""
    _rename(session, call, (call.integer(0), 1), (call.integer(2), 3), call.integer(4))


def link(session: Session, call: Call) -> None:
    """Arguments: old, new."""
    _link(session, call, (HERE, 0), (HERE, 1), 0)


def linkat(session: Session, call: Call) -> None:
    """Arguments: folder, old, folder, new, flags."""
    _link(session, call, (call.integer(0), 1), (call.integer(2), 3), call.integer(4))


def symlink(session: Session, call: Call) -> None:
    """Arguments: target, path."""
    _symlink(session, call, (HERE, 1))


def symlinkat(session: Session, call: Call) -> None:
    """Arguments: target, folder, path."""
    _symlink(session, call, (call.integer(1), 2))


def unlink(session: Session, call: Call) -> None:
    """Arguments: path."""
    _remove(session, call, (HERE, 0), Kind.UNLINK)


def unlinkat(session: Session, call: Call) -> None:
    """Arguments: folder, path, flags."""
    kind = Kind.RMDIR if call.integer(2) & abi.AT_REMOVEDIR else Kind.UNLINK
    _remove(session, call, (call.integer(0), 1), kind)


def rmdir(session: Session, call: Call) -> None:
    """Arguments: path."""
    _remove(session, call, (HERE, 0), Kind.RMDIR)


def mkdir(session: Session, call: Call) -> None:
    """Arguments: path, mode."""
    _mkdir(session, call, (HERE, 0), call.integer(1))


def mkdirat(session: Session, call: Call) -> None:
    """Arguments: folder, path, mode."""
    _mkdir(session, call, (call.integer(0), 1), call.integer(2))


def _at(session: Session, call: Call, name: Name) -> Place:
    return session.locate(call, name[0], session.text(call, name[1]))


def _rename(session: Session, call: Call, old: Name, new: Name, flags: int) -> None:
    with _at(session, call, old) as source, _at(session, call, new) as target:
        inside = session.roots.hold(source.path)
        caller = session.attend(call) if inside or session.roots.hold(target.path) else None
        if not caller:
            session.listener.proceed(call)
            return
        status = source.look()
        operation = session.operation(
            call, caller, Kind.RENAME, source.path, target=words(target.path), mode=flags
        )
        if status and inside:
            operation.inode = session.inode(status, source.path)

        def after() -> None:
            if not inside:
                operation.inode = bring_in(session, call, caller, source.path, target)

        session.perform(call, operation, lambda: _rename_here(source, target, flags), after)
        if operation.done and operation.inode:
            session.inodes.moved(operation.inode, operation.target)


def _rename_here(source: Place, target: Place, flags: int) -> None:
    if flags:
        number = abi.here().calls["renameat2"]
        kernel.call(number, source.folder_fd, source.name, target.folder_fd, target.name, flags)
    else:
        os.rename(source.name, target.name, src_dir_fd=source.folder_fd, dst_dir_fd=target.folder_fd)


def _link(session: Session, call: Call, old: Name, new: Name, flags: int) -> None:
    with _at(session, call, new) as target, _link_source(session, call, old, flags) as source:
        path = source.canonical()
        status = source.status()
        nameless_here = not path and status is not None and session.inodes.knows(key_of(status))
        inside = nameless_here or session.roots.hold(path)
        caller = session.attend(call) if session.roots.hold(target.path) else None
        if not caller:
            session.listener.proceed(call)
            return
        operation = session.operation(call, caller, Kind.LINK, path, target=words(target.path))
        if status and inside:
            operation.inode = session.inode(status, path)

        def act() -> None:
            where = (source.place.folder_fd, source.place.name, target.folder_fd, target.name)
            kernel.call(abi.here().calls["linkat"], *where, source.flags)

        def after() -> None:
            if not inside:
                operation.inode = bring_in(session, call, caller, path, target)

        session.perform(call, operation, act, after)
        if operation.done and operation.inode:
            session.inodes.moved(operation.inode, operation.target)


class _LinkSource:
    """The file that gets a second name, which may have none so far."""

    def __init__(self, place: Place, flags: int) -> None:
        self.place = place
        self.flags = flags

    def status(self) -> os.stat_result | None:
        follow = bool(self.flags & abi.AT_SYMLINK_FOLLOW)
        try:
            return os.stat(self.place.name, dir_fd=self.place.folder_fd, follow_symlinks=follow)
        except OSError:
            return None

    def canonical(self) -> bytes:
        """Return the path of the file; empty when it has no name."""
        if not self.flags & abi.AT_SYMLINK_FOLLOW:
            return self.place.path
        try:
            found = os.open(self.place.name, os.O_PATH, dir_fd=self.place.folder_fd)
        except OSError:
            return self.place.path
        try:
            path = os.readlink(b"/proc/self/fd/%d" % found)
            return b"" if path.endswith(DELETED) and not os.fstat(found).st_nlink else path
        finally:
            os.close(found)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.place.close()


def _link_source(session: Session, call: Call, old: Name, flags: int) -> _LinkSource:
    path = session.text(call, old[1])
    if not path and flags & abi.AT_EMPTY_PATH:
        # The descriptor itself is meant; following its magic link does the same without any privilege.
        folder, _, name = paths.base(call.tid, old[0]).rpartition(b"/")
        return _LinkSource(Place(folder, name), abi.AT_SYMLINK_FOLLOW)
    return _LinkSource(session.locate(call, old[0], path), flags & ~abi.AT_EMPTY_PATH)


def _symlink(session: Session, call: Call, name: Name) -> None:
    target = session.text(call, 0)
    with _at(session, call, name) as place:
        caller = session.attend(call) if session.roots.hold(place.path) else None
        if not caller:
            session.listener.proceed(call)
            return
        operation = session.operation(call, caller, Kind.SYMLINK, place.path, target=words(target))

        def after() -> None:
            if status := place.look():
                operation.inode = session.inodes.fresh(key_of(status), operation.path)

        session.perform(
            call, operation, lambda: os.symlink(target, place.name, dir_fd=place.folder_fd), after
        )


def _remove(session: Session, call: Call, name: Name, kind: Kind) -> None:
    with _at(session, call, name) as place:
        caller = session.attend(call) if session.roots.hold(place.path) else None
        if not caller:
            session.listener.proceed(call)
            return
        status = place.look()
        operation = session.operation(call, caller, kind, place.path)
        if status:
            operation.inode = session.inode(status, place.path)
        remove = os.rmdir if kind is Kind.RMDIR else os.unlink
        session.perform(call, operation, lambda: remove(place.name, dir_fd=place.folder_fd))


def _mkdir(session: Session, call: Call, name: Name, mode: int) -> None:
    with _at(session, call, name) as place:
        caller = session.attend(call) if session.roots.hold(place.path) else None
        if not caller:
            session.listener.proceed(call)
            return
        operation = session.operation(call, caller, Kind.MKDIR, place.path)

        def act() -> None:
            with umask_of(call.tid):
                os.mkdir(place.name, mode, dir_fd=place.folder_fd)

        def after() -> None:
            if status := place.look():
                operation.inode = session.inodes.fresh(key_of(status), operation.path)
                operation.mode = stat.S_IMODE(status.st_mode)

        session.perform(call, operation, act, after)


HANDLERS = {
    handler.__name__: handler
    for handler in (
        rename,
        renameat,
        renameat2,
        link,
        linkat,
        symlink,
        symlinkat,
        unlink,
        unlinkat,
        rmdir,
        mkdir,
        mkdirat,
    )
}
