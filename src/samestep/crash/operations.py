"""The operations of a recording: what a process tree did to files, in one global order, and where steps ended.

A recording is a folder: ``recording.json`` (the header), ``operations.jsonl`` (one operation a line) and ``bytes.bin``
(the bytes that were written, each distinct run of bytes once).
"""

from __future__ import annotations

import msgspec

from samestep.contract.words import Word

SCHEMA = "samestep.recording/1"

SUPERVISED = "notify"
"""Tier of a recording by seccomp user notification: every operation is known."""

SEEN = "probe"
"""Tier of a recording made of what the training process saw of its own saves: weaker."""


class Kind(Word):
    """What an operation does."""

    CREATE = "create"  # a new file under a new name (without a name, path "", for O_TMPFILE)
    OPEN = "open"  # an existing file, for writing; an O_TRUNC is a `TRUNCATE` of its own after it
    WRITE = "write"  # bytes at an offset, by whatever call (write, writev, copy_file_range, sendfile)
    TRUNCATE = "truncate"  # to `size` bytes
    ALLOCATE = "allocate"  # fallocate that may change size or content; `mode` holds its flags
    RENAME = "rename"  # `path` to `target`, replacing what was there; `mode` holds the flags of renameat2
    LINK = "link"  # a second name, `target`, for the file at `path`
    SYMLINK = "symlink"  # `path` becomes a link that says `target`
    UNLINK = "unlink"
    MKDIR = "mkdir"
    RMDIR = "rmdir"
    SYNC = "sync"  # fsync of a file or folder
    SYNC_DATA = "sync-data"  # fdatasync
    SYNC_RANGE = "sync-range"  # sync_file_range: promises nothing after power loss
    SYNC_ALL = "sync-all"  # sync or syncfs
    CLOSE = (
        "close"  # nobody in the process holds the file open for writing any more (seen at its next operation)
    )
    MAP = "map"  # a shared writable mapping began: later stores are not seen one by one
    STORED = "stored"  # whole content of a mapped or imported file, as found at this point
    MARK = "mark"  # not a file operation: `rank` had completed `step` steps here


class Operation(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One operation, in the global order of the recording.

    Attributes:
        index: its position, from 0.
        kind: what it does.
        path: absolute path as the process sees it, links in its folders resolved; of the file when it has several.
        target: second path, see `Kind`.
        inode: number of the file or folder inside this recording, never used again for another.
        offset: first byte, for writes, allocations and ranges.
        size: bytes concerned, or the new size.
        at: where the bytes of a write begin in ``bytes.bin``; None: no bytes are kept.
        mode: flags or permission bits, see `Kind`.
        call: system call, e.g. ``renameat2``.
        pid: process.
        tid: thread.
        errno: the call failed with this error and changed nothing; 0: it succeeded.
        injected: the error was put in by samestep.
        together: only known to have happened together with the operation after it: nothing is known of the moment
            between them, nor of a write before its end.
        derived: not asked for by a call of its own: found by looking (`CLOSE`, `STORED`), or a further part of the
            call before or after it, e.g. the `TRUNCATE` of an open.
        rank: rank of the process where known.
        step: for a mark: steps complete.
        seconds: since the recording began.
    """

    index: int
    kind: Kind
    path: str = ""
    target: str = ""
    inode: int = 0
    offset: int = 0
    size: int = 0
    at: int | None = None
    mode: int = 0
    call: str = ""
    pid: int = 0
    tid: int = 0
    errno: int = 0
    injected: bool = False
    together: bool = False
    derived: bool = False
    rank: int | None = None
    step: int | None = None
    seconds: float = 0.0

    @property
    def done(self) -> bool:
        """Whether it took effect."""
        return self.errno == 0


class Header(msgspec.Struct, kw_only=True):
    """What was recorded.

    Attributes:
        roots: watched folders, the durable one first.
        command: argv.
        tier: mechanism, `SUPERVISED` or `SEEN`.
        machine: processor architecture.
        opaque: files that were written through shared mappings.
        notes: what could not be followed, one sentence each.
        complete: the recording came to its own end; False: it was cut off, or a limit was reached.
        version: of samestep.
        exit_code: of the command, 128 + n when signal n ended it; None: it has not ended.
    """

    roots: list[str]
    command: list[str]
    tier: str
    machine: str = ""
    opaque: list[str] = []
    notes: list[str] = []
    complete: bool = False
    version: str = ""
    exit_code: int | None = None
    schema: str = SCHEMA
