"""What lay under the durable folder at every file event of the process: the weaker way to know a save.

Where no supervisor of system calls is to be had, the training process itself looks at the durable folder whenever
Python is about to open a file there for writing, to rename, to remove or to make something. Between two looks nothing
is known: writers that are not Python's leave no trace of their own.

A folder of looks holds ``looks.jsonl`` (a look or the mark of a completed step a line) and ``looks.bin`` (the content
of every file that a look found new or changed).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import json
import os
import stat
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from ..trace.marks import MARK_FOLDER
from .durable import entries_below, names_of, place_below

if TYPE_CHECKING:
    from collections.abc import Iterator

LINES, CONTENT = "looks.jsonl", "looks.bin"

LIMIT_BYTES = 20 * 2**30
"""Most bytes of content kept."""

CHUNK_BYTES = 1 << 20

RACY_BYTES, RACY_NS = 1 << 20, 2 * 10**9
"""A file that is no larger, and was written no longer ago, is read again: time stamps do not tell all writes apart."""

TRIES = 3
"""How often to look until nothing has changed meanwhile."""

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_PATHS: dict[str, tuple[tuple[int, int | None], ...]] = {
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((0, 2), (1, 3)),
    "os.symlink": ((1, 2),),
    "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),),
    "os.mkdir": ((0, 2),),
    "os.truncate": ((0, None),),
}
"""Audit events that announce a change of names or sizes: which arguments are paths, and the folders they start from."""

Listing = dict[str, list[Any]]


class Looks:
    """Looks at one folder at every file event, from the first completed step of rank 0 on.

    Args:
        folder: where the looks go; created by the process that comes to its first step as rank 0.
        root: the durable folder.
    """

    def __init__(self, folder: str, root: str) -> None:
        self._folder = folder
        self._root = os.path.abspath(root)  # noqa: PTH100 - links stay as named
        self._roots = names_of(root)
        self._keeper: Keeper | None = None
        self._opened = ""
        self._off = False
        self._lock = threading.RLock()
        self._busy = False

    def install(self, torch: Any) -> None:
        """Begin to listen to the interpreter's audit events, and to ``torch.save``, which opens files without it."""
        sys.addaudithook(self._on_audit)
        os.register_at_fork(after_in_child=self._leave_to_parent)
        save = torch.save

        @functools.wraps(save)
        def told(obj: Any, f: Any, *arguments: Any, **keywords: Any) -> Any:
            if isinstance(f, str | os.PathLike):
                self._on_audit("open", (f, "w", _WRITING))
            return save(obj, f, *arguments, **keywords)

        torch.save = torch.serialization.save = told

    def _leave_to_parent(self) -> None:
        """In a forked child: leave the looks to the parent, unless it has none and the child may be what trains."""
        self._off = self._off or self._keeper is not None
        self._lock, self._busy = threading.RLock(), False

    def _on_audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._off or not (event == "open" or event in _PATHS):
            return
        try:
            self._concerned(event, arguments)
        except Exception as error:
            # it would fail the script's own call; what a signal handler of the script raises here is lost with it
            self._give_up(f"{type(error).__name__}: {error}")

    def _concerned(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(path, int) or not flags & _WRITING:
                return
            name = os.fsdecode(path)
            if name.startswith(f"{MARK_FOLDER}/"):
                self._mark(*map(int, name.split("/")[-2:]))
            elif (inside := place_below(self._roots, name)) is not None:
                anew = flags & os.O_TRUNC or not os.path.exists(name)  # noqa: PTH110 - runs in every open()
                self._look(opens=inside if anew else "")
        elif any(self._is_inside(arguments, *places) for places in _PATHS[event]):
            self._look()

    def _is_inside(self, arguments: tuple[Any, ...], path_at: int, folder_at: int | None) -> bool:
        """Say whether an argument is a path below the durable folder, perhaps relative to an open folder."""
        path = arguments[path_at]
        if isinstance(path, int):
            return True  # an open file: any may be
        folder = -1 if folder_at is None else arguments[folder_at]
        start = os.readlink(f"/proc/self/fd/{folder}") if folder >= 0 else ""  # noqa: PTH115
        return place_below(self._roots, os.path.join(start, os.fsdecode(path))) is not None  # noqa: PTH118

    def _mark(self, rank: int, step: int) -> None:
        if rank != 0:
            return
        with self._lock:
            if self._keeper is None:
                os.makedirs(self._folder, exist_ok=True)  # noqa: PTH103 - no event of this process is about a Path
                self._keeper = Keeper(self._folder, self._root)
            self._look()
            self._keeper.write({"mark": step})

    def _look(self, opens: str = "") -> None:
        with self._lock:
            if self._busy or self._keeper is None:
                return  # its own files, or a training that has not come to its first step
            self._busy = True
            try:
                self._keeper.look(self._opened)
                self._opened = opens
            finally:
                self._busy = False

    def _give_up(self, reason: str) -> None:
        self._off = True
        if self._keeper is not None:
            try:
                self._keeper.write({"ended": reason[:300]})
            except OSError:
                return  # the reader finds that the last step is missing


class Keeper:
    """Compares a folder with what it was at the last look and keeps what is new.

    Args:
        folder: existing folder for the looks; one process looks at a time.
        root: the folder that is looked at.

    Raises:
        OSError: somebody looks into ``folder`` already, or nothing can be written there.
    """

    def __init__(self, folder: str, root: str) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._root = root
        self._lines = os.open(f"{folder}/{LINES}", flags)
        self._content = os.open(f"{folder}/{CONTENT}", flags)
        self._known: Listing = {}
        self._held: list[int] = []
        self._kept: dict[int, tuple[int, int, int, int]] = {}
        self._end = 0

    def look(self, opened: str) -> None:
        """Write what changed since the last look; nothing when nothing did.

        Args:
            opened: path of the file that was about to be made or emptied, and written, at the last look.
        """
        for tries_left in reversed(range(TRIES)):
            steady = self._look_once(opened)
            if steady or not tries_left:
                return
            opened = ""

    def _look_once(self, opened: str) -> bool:
        """Write a line, and say whether nothing went on while files were read: else it shows no moment at all."""
        now = dict(listing(self._root))
        changed = {
            path: facts
            for path, facts in now.items()
            if self._known.get(path) != facts or self._differs(path, facts)
        }
        gone = [path for path in self._known if path not in now]
        shown = {path: kept for path, facts in changed.items() if (kept := self._with_content(path, facts))}
        steady = not changed or dict(listing(self._root)) == now
        before, self._held = self._held, self._open_files()
        if not changed and not gone and self._held == before:
            return True
        self.write({"opened": opened, "changed": shown, "gone": gone, "held": self._held, "steady": steady})
        vanished = changed.keys() - shown.keys()  # removed since they were listed: the next look tells
        before_that = {path: facts for path, facts in self._known.items() if path in vanished}
        self._known = {path: facts for path, facts in now.items() if path not in vanished} | before_that
        return steady

    def write(self, line: dict[str, Any]) -> None:
        """Append a line; it outlives the process as soon as this returns."""
        _write_all(self._lines, json.dumps(line).encode() + b"\n")

    def _differs(self, path: str, facts: list[Any]) -> bool:
        """Say whether a file that seems to be the same has been written to within a tick of its time stamp."""
        kind, inode, *rest = facts
        kept = self._kept.get(inode)
        if kind != "file" or kept is None or rest[0] > RACY_BYTES or time.time_ns() - rest[1] > RACY_NS:
            return False
        at, length, *_ = kept
        with contextlib.suppress(FileNotFoundError), open(f"{self._root}/{path}", "rb") as file:  # noqa: PTH123
            if file.read(RACY_BYTES + 1) != os.pread(self._content, length, at):
                del self._kept[inode]
                return True
        return False

    def _with_content(self, path: str, facts: list[Any]) -> list[Any] | None:
        """Return ``["file", inode, position in the content, bytes]`` for a file, and other facts as they are.

        None for a file that was removed since it was listed.
        """
        kind, inode, *rest = facts
        if kind != "file":
            return facts
        size, modified = rest
        kept = self._kept.get(inode)
        if kept is None or kept[2:] != (size, modified):
            try:
                at, length = self._keep(f"{self._root}/{path}")
            except FileNotFoundError:
                return None
            kept = self._kept[inode] = (at, length, size, modified)
        return [kind, inode, *kept[:2]]

    def _open_files(self) -> list[int]:
        """Return the inodes of the files kept here that this process holds open for writing."""
        found, device = set(), os.stat(self._root).st_dev  # noqa: PTH116
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - no event of this process is about a Path
            with contextlib.suppress(OSError):
                facts = os.fstat(int(name))
                writable = fcntl.fcntl(int(name), fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
                found |= {facts.st_ino} if writable and facts.st_dev == device else set()
        return sorted(found & self._kept.keys())

    def _keep(self, path: str) -> tuple[int, int]:
        begun = self._end
        source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while part := os.read(source, CHUNK_BYTES):
                if self._end + len(part) > LIMIT_BYTES:
                    raise OSError(errno.EFBIG, f"the content of the saves exceeds {LIMIT_BYTES >> 30} GiB")
                _write_all(self._content, part)
                self._end += len(part)
        finally:
            os.close(source)
        return begun, self._end - begun


def _write_all(file: int, content: bytes) -> None:
    while content:
        content = content[os.write(file, content) :]


def listing(root: str) -> Iterator[tuple[str, list[Any]]]:
    """Yield everything below a folder with its relative path.

    Yields:
        The path, and ``["folder", inode]``, ``["link", inode, target]`` or ``["file", inode, bytes, modified in ns]``.
    """
    for path, entry in entries_below(root):
        try:
            facts = entry.stat(follow_symlinks=False)
            target = os.readlink(entry.path) if stat.S_ISLNK(facts.st_mode) else ""  # noqa: PTH115
        except FileNotFoundError:
            continue  # removed since it was listed
        if stat.S_ISDIR(facts.st_mode):
            yield path, ["folder", facts.st_ino]
        elif target:
            yield path, ["link", facts.st_ino, target]
        elif stat.S_ISREG(facts.st_mode):
            yield path, ["file", facts.st_ino, facts.st_size, facts.st_mtime_ns]
