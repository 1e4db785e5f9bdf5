"""What the handlers of system calls share: the queue, the log, and the knowledge about files and processes."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any

from samestep.crash.operations import Kind, Operation
from samestep.crash.recorder import paths
from samestep.crash.recorder.callers import Caller, Callers
from samestep.crash.recorder.growth import Growth
from samestep.crash.recorder.inodes import Inodes
from samestep.crash.recorder.kernel import Memory
from samestep.crash.recorder.mappings import Mappings
from samestep.crash.recorder.paths import DELETED, OpenFile, Place, Roots, key_of, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from samestep.crash.recorder.listener import Call, Listener
    from samestep.crash.recorder.log import Log

CHUNK = 4 * 2**20
"""Most bytes of a write that are in memory at a time."""


class Session:
    """One recording under way.

    Attributes:
        listener: where calls are answered.
        log: where operations go.
        roots: watched folders.
        marks: prefix of the paths of step marks.
        memory: reader of the callers' memory.
        callers: processes seen.
        inodes: numbers of files.
        mappings: files stored to through memory.
        growth: writes under way.
    """

    def __init__(self, listener: Listener, log: Log, roots: Roots, marks: str) -> None:
        self.listener = listener
        self.log = log
        self.roots = roots
        self.marks = os.fsencode(marks).rstrip(b"/") + b"/"
        self.memory = Memory(CHUNK)
        self.callers = Callers()
        self.inodes = Inodes()
        self.mappings = Mappings()
        self.growth = Growth()
        self._began = time.monotonic()

    def locate(self, call: Call, folder_fd: int, path: bytes) -> Place:
        """Resolve a path of the caller, see `paths.locate`."""
        pid = call.tid
        if path.startswith((b"/proc/", b"/dev/")):
            pid = self.callers.find(call.tid).pid
        return paths.locate(pid, call.tid, folder_fd, path)

    def text(self, call: Call, index: int) -> bytes:
        """Return the string that an argument points to."""
        return self.memory.text(call.tid, call.args[index])

    def open_file(self, call: Call, number: int) -> OpenFile | None:
        """Return a watched regular file of the caller by its descriptor; None for everything else."""
        found = self.open_anything(call, number)
        return found if found and found.regular else None

    def open_anything(self, call: Call, number: int) -> OpenFile | None:
        """Return a watched file or folder of the caller by its descriptor."""
        path = os.readlink(paths.descriptor(call.tid, number))
        if not self.roots.hold(path):
            return None
        found = OpenFile(call.tid, number, path)
        if path.endswith(DELETED) and not os.path.lexists(path):
            # It was opened by a name that it lost; it may have got another one, or never had one.
            found.path = self.inodes.path_of(key_of(found.status)) if found.status.st_nlink else b""
        return found

    def attend(self, call: Call) -> Caller | None:
        """Return the caller of a watched call, after logging what it has let go of since its last one.

        None: it lives in another world, and the header says so.
        """
        caller = self.callers.find(call.tid)
        if caller.obstacle:
            self.log.note(f"process {caller.pid} is followed in part only: it {caller.obstacle}")
            return None
        self.catch_up(caller)
        return caller

    def catch_up(self, caller: Caller) -> None:
        """Log the mappings and the open files that a process has let go of."""
        for mapping in self.mappings.left_by(caller.pid):
            self.snapshot(mapping.inode, caller)
        for inode, held in caller.let_go():
            path = self.inodes.path(inode)
            with contextlib.suppress(OSError):
                status = os.stat(path)
                if key_of(status) == held.key:
                    self.check_growth(caller, inode, status, os.fsencode(path))
            self.log.add(self.found(Kind.CLOSE, self.inodes.path(inode), caller, inode=inode))

    def check_growth(
        self, caller: Caller, inode: int, status: os.stat_result, file: bytes, *, tid: int | None = None
    ) -> None:
        """Log the real content of a file that a write of this process has not made as long as it should have."""
        if not self.growth.fell_short(inode, caller.pid, status.st_size, tid=tid):
            return
        path = self.inodes.path(inode)
        self.log.note(f"a write to {path} did not take place in full; its content was logged as found")
        descriptor = os.open(file, os.O_RDONLY)
        try:
            at = self.log.writer.keep_parts(self.parts(descriptor), status.st_size)
        finally:
            os.close(descriptor)
        self.log.add(self.found(Kind.STORED, path, caller, inode=inode, at=at, size=status.st_size))

    def snapshot(self, inode: int, caller: Caller | None) -> None:
        """Log the content of a mapped file if it is not what was logged last."""
        mapping = self.mappings.by_inode[inode]
        size = os.fstat(mapping.descriptor).st_size
        at = self.log.writer.keep_parts(self.parts(mapping.descriptor), size)
        if (at, size) != mapping.stored:
            mapping.stored = at, size
            path = self.inodes.path(inode)
            self.log.add(self.found(Kind.STORED, path, caller, inode=inode, at=at, size=size))

    def parts(self, descriptor: int, offset: int = 0, size: int | None = None) -> Iterator[bytes]:
        """Read a file from ``offset`` to its end, or ``size`` bytes of it, in pieces."""
        end = offset + size if size is not None else None
        while piece := os.pread(descriptor, CHUNK if end is None else min(CHUNK, end - offset), offset):
            offset += len(piece)
            yield piece

    def operation(self, call: Call, caller: Caller, kind: Kind, path: bytes, **fields: Any) -> Operation:
        """Describe what a call is about to do."""
        return Operation(
            index=0,
            kind=kind,
            path=words(path),
            call=call.name,
            pid=caller.pid,
            tid=call.tid,
            rank=caller.rank,
            seconds=self._now(),
            **fields,
        )

    def found(self, kind: Kind, path: str, caller: Caller | None, **fields: Any) -> Operation:
        """Describe what was found by looking and not asked for by a call."""
        whose: dict[str, Any] = {}
        if caller:
            whose = {"pid": caller.pid, "tid": caller.pid, "rank": caller.rank}
        return Operation(index=0, kind=kind, path=path, derived=True, seconds=self._now(), **whose, **fields)

    def refused(self, call: Call, operation: Operation) -> bool:
        """Answer, and log, an operation with the fault that was ordered for it; whether there is one."""
        operation.errno = self.log.objection(operation)
        if operation.errno and self.listener.refuse(call, operation.errno):
            self.log.add(operation)
        return operation.errno != 0

    def perform(
        self, call: Call, operation: Operation, act: Callable[[], Any], after: Callable[[], Any] | None = None
    ) -> None:
        """Carry an operation out on behalf of the caller, answer with its real outcome, and log it.

        Args:
            call: the waiting call.
            operation: what it does.
            act: does it; its OSError is the outcome.
            after: called when it succeeded, before the caller goes on; completes the operation.
        """
        if self.refused(call, operation):
            return
        try:
            act()
            call.outcome = 0
        except OSError as error:
            call.outcome = operation.errno = error.errno or 0
        if operation.done and after:
            after()
        self.listener.settle(call)
        self.log.add(operation)

    def permit(self, call: Call, operation: Operation) -> bool:
        """Let the kernel carry an operation out and log it; False when it did not happen."""
        if self.refused(call, operation) or not self.listener.proceed(call):
            return False
        self.log.add(operation)
        return True

    def inode(self, status: os.stat_result, path: bytes) -> int:
        """Return the recording's number of a file that was looked at."""
        return self.inodes.number(key_of(status), words(path))

    def _now(self) -> float:
        return round(time.monotonic() - self._began, 6)
