"""Which file a call means: paths resolved as the caller's kernel would, descriptors looked up in /proc."""

from __future__ import annotations

import errno
import os
import re
import stat
from typing import TYPE_CHECKING, Self

from samestep.crash.recorder import abi

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_LINKS = 40
DELETED = b" (deleted)"
_OWN = re.compile(
    rb"/(?:proc/(?P<which>self|thread-self)(?P<rest>/.*)?|dev/(?P<stream>stdin|stdout|stderr|fd/.+))$"
)
_STREAMS = {b"stdin": b"fd/0", b"stdout": b"fd/1", b"stderr": b"fd/2"}

Key = tuple[int, int]
"""Device and inode number."""


def words(path: bytes) -> str:
    """Return a path as text; bytes that are no UTF-8 become escapes."""
    return path.decode("utf-8", "backslashreplace")


def key_of(status: os.stat_result) -> Key:
    """Return what identifies a file as long as it exists."""
    return status.st_dev, status.st_ino


class Roots:
    """The watched folders.

    Args:
        folders: absolute; links in them are resolved.
    """

    def __init__(self, folders: Iterable[str]) -> None:
        self.paths = [os.path.realpath(os.fsencode(folder)) for folder in folders]
        self._exact = frozenset(self.paths)
        self._prefixes = tuple(path.rstrip(b"/") + b"/" for path in self.paths)

    def hold(self, path: bytes) -> bool:
        """Whether a resolved path is one of the folders, or below one."""
        return path.startswith(self._prefixes) or path in self._exact


class UnresolvedError(Exception):
    """A path leads nowhere; `number` is the error that the call itself would meet, 0 when the kernel must say."""

    def __init__(self, number: int) -> None:
        super().__init__(os.strerror(number))
        self.number = number


class Place:
    """A name in a folder that is held open, so that it means the same until `close`.

    Attributes:
        folder_fd: the folder.
        name: last component as the caller wrote it, with trailing slashes.
        path: resolved folder and name.
    """

    __slots__ = ("folder_fd", "name", "path")

    def __init__(self, folder: bytes, name: bytes) -> None:
        try:
            self.folder_fd = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        except OSError as error:
            raise UnresolvedError(error.errno or errno.EIO) from error
        self.name = name
        real = os.readlink(b"/proc/self/fd/%d" % self.folder_fd)
        self.path = (real if real != b"/" else b"") + b"/" + name.rstrip(b"/")

    def look(self) -> os.stat_result | None:
        """Return what is there now, the link itself if it is one; None when nothing is."""
        try:
            return os.stat(self.name, dir_fd=self.folder_fd, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UnresolvedError(error.errno or errno.EIO) from error

    def followed(self) -> Place:
        """Return the place that this name leads to through links, and close this one unless it is that place."""
        place = self
        for _ in range(MAX_LINKS):
            try:
                target = os.readlink(place.name, dir_fd=place.folder_fd)
            except OSError:
                return place
            head, name = _split(target)
            base = b"" if target.startswith(b"/") else b"/proc/self/fd/%d/" % place.folder_fd
            try:
                following = Place(base + head, name)
            finally:
                place.close()
            place = following
        place.close()
        raise UnresolvedError(errno.ELOOP)

    def close(self) -> None:
        """Let go of the folder."""
        if self.folder_fd >= 0:
            os.close(self.folder_fd)
            self.folder_fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def locate(pid: int, tid: int, folder_fd: int, path: bytes) -> Place:
    """Resolve the folder of a path as thread ``tid`` would; the last component is not followed.

    Raises:
        UnresolvedError: its folder does not exist or cannot be entered, or it has no last component.
    """
    path = _not_ours(pid, tid, path)
    head, name = _split(path)
    if not name.strip(b"/"):
        raise UnresolvedError(0)
    return Place(head if path.startswith(b"/") else base(tid, folder_fd) + b"/" + head, name)


def base(tid: int, folder_fd: int) -> bytes:
    """Return a path by which this process reaches a folder of the caller: its working directory or a descriptor."""
    return b"/proc/%d/cwd" % tid if folder_fd == abi.AT_FDCWD else descriptor(tid, folder_fd)


def descriptor(tid: int, number: int) -> bytes:
    """Return the path by which this process reaches an open file of the caller."""
    return b"/proc/%d/fd/%d" % (tid, number)


def _split(path: bytes) -> tuple[bytes, bytes]:
    """Split off the last component, which keeps its trailing slashes."""
    cut = path.rstrip(b"/").rfind(b"/") + 1
    return path[:cut], path[cut:]


def _not_ours(pid: int, tid: int, path: bytes) -> bytes:
    """Name explicitly what means the calling process itself."""
    if not path.startswith((b"/proc/", b"/dev/")):
        return path
    own = _OWN.match(path)
    if own is None:
        return path
    if own["stream"]:
        return b"/proc/%d/%s" % (pid, _STREAMS.get(own["stream"], own["stream"]))
    return b"/proc/%d%s" % (pid if own["which"] == b"self" else tid, own["rest"] or b"")


class OpenFile:
    """An open file of a caller, as found through /proc.

    Attributes:
        path: of the file; empty when it has no name (any more).
        status: of the file.
    """

    __slots__ = ("_tid", "number", "path", "status")

    def __init__(self, tid: int, number: int, path: bytes) -> None:
        self._tid, self.number = tid, number
        self.status = os.stat(descriptor(tid, number))
        self.path = path

    @property
    def regular(self) -> bool:
        """Whether it is a file with content."""
        return stat.S_ISREG(self.status.st_mode)

    def position(self) -> tuple[int, int]:
        """Return its offset and the flags it is open with."""
        info = os.open(b"/proc/%d/fdinfo/%d" % (self._tid, self.number), os.O_RDONLY)
        try:
            fields = os.read(info, 256).split(None, 4)
        finally:
            os.close(info)
        return int(fields[1]), int(fields[3], 8)
