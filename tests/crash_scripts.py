"""Recordings written by hand, and the same operations carried out on a real disk."""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path

from samestep.crash.image import Folder, Image
from samestep.crash.operations import Header, Kind, Operation
from samestep.crash.recording import Recording
from samestep.crash.states import enumerate_states
from samestep.crash.windows import save_windows

ROOT = "/out"
LIBC = ctypes.CDLL(None, use_errno=True)


class Script:
    """Collects operations on paths relative to the output folder; absolute paths lie elsewhere."""

    def __init__(self, root=ROOT):
        self.root = root
        self.operations = []
        self.file = os.memfd_create("bytes")
        self.end = 0
        self.inodes = {}
        self.sizes = {}
        self.newest = 0
        self.rank = None

    def path(self, name):
        return name if name.startswith("/") else f"{self.root}/{name}".rstrip("/")

    def add(self, kind, name="", **fields):
        fields.setdefault("rank", self.rank)
        path = self.path(name) if name is not None else ""
        self.operations.append(Operation(index=len(self.operations), kind=kind, path=path, **fields))
        return self

    def inode(self, name):
        return self.inodes.setdefault(self.path(name), self._new())

    def _new(self):
        self.newest += 1
        return self.newest

    def mark(self, step, rank=None):
        return self.add(Kind.MARK, None, step=step, rank=rank)

    def create(self, name, **fields):
        self.inodes[self.path(name)] = self._new()
        return self.add(Kind.CREATE, name, inode=self.inode(name), **fields)

    def unnamed(self):
        self.inodes["#unnamed"] = self._new()
        self.operations.append(
            Operation(index=len(self.operations), kind=Kind.CREATE, inode=self.inodes["#unnamed"])
        )
        return self

    def open(self, name):
        return self.add(Kind.OPEN, name, inode=self.inode(name))

    def write(self, name, data, offset=None, *, kind=Kind.WRITE):
        inode = self.inodes["#unnamed"] if name is None else self.inode(name)
        at = self.end
        os.pwrite(self.file, data, at)
        self.end += len(data)
        offset = self.sizes.get(inode, 0) if offset is None else offset
        self.sizes[inode] = max(self.sizes.get(inode, 0), offset + len(data))
        return self.add(kind, name, inode=inode, offset=offset, size=len(data), at=at)

    def stored(self, name, data):
        return self.write(name, data, 0, kind=Kind.STORED)

    def truncate(self, name, size=0):
        self.sizes[self.inode(name)] = size
        return self.add(Kind.TRUNCATE, name, inode=self.inode(name), size=size)

    def allocate(self, name, offset, size, mode=0):
        return self.add(Kind.ALLOCATE, name, inode=self.inode(name), offset=offset, size=size, mode=mode)

    def rename(self, name, target, **fields):
        inode = self.inode(name)
        self.inodes[self.path(target)] = self.inodes.pop(self.path(name))
        prefix = self.path(name) + "/"
        for path in [path for path in self.inodes if path.startswith(prefix)]:
            self.inodes[self.path(target) + path[len(prefix) - 1 :]] = self.inodes.pop(path)
        return self.add(Kind.RENAME, name, target=self.path(target), inode=inode, **fields)

    def link(self, name, target):
        inode = self.inodes["#unnamed"] if name is None else self.inode(name)
        self.inodes[self.path(target)] = inode
        return self.add(Kind.LINK, name, target=self.path(target), inode=inode)

    def symlink(self, name, text):
        self.inodes[self.path(name)] = self._new()
        return self.add(Kind.SYMLINK, name, target=text, inode=self.inode(name))

    def unlink(self, name):
        return self.add(Kind.UNLINK, name, inode=self.inodes.pop(self.path(name), 0))

    def mkdir(self, name):
        self.inodes[self.path(name)] = self._new()
        return self.add(Kind.MKDIR, name, inode=self.inode(name))

    def rmdir(self, name):
        return self.add(Kind.RMDIR, name, inode=self.inodes.pop(self.path(name), 0))

    def sync(self, name, kind=Kind.SYNC):
        return self.add(kind, name, inode=self.inode(name))

    def close(self, name):
        return self.add(Kind.CLOSE, name, inode=self.inode(name))

    def file_of(self, name, data, *, sync=False):
        """Create, write, perhaps sync, close."""
        self.create(name).write(name, data)
        if sync:
            self.sync(name)
        return self.close(name)

    def recording(self):
        header = Header(roots=[self.root], command=["script"], tier="notify", complete=True)
        return Recording(header, self.operations, os.dup(self.file))


def empty(root=ROOT):
    """An output folder with nothing in it."""
    image = Image(root).copy()
    image.put(1, Folder())
    image.graft(root, 1)
    return image.settled()


def states_of(script, *models, window=-1, base=None):
    """Enumerate the states of one save of a script, by default the last."""
    recording = script.recording()
    found = save_windows(recording)[window]
    return enumerate_states(recording, found, base or empty(script.root), models)


def holds(state, name):
    """Bytes of a file in a state, None where it is missing."""
    content = state.image.file(name)
    return None if content is None else content.read()


def carry_out(recording, folder, operations, torn=None):
    """Do on a real disk what operations say, below ``folder`` instead of the root; the last write may be torn."""
    files = {}
    root = recording.header.roots[0]

    def real(path):
        return os.path.normpath(f"{folder}/{path[len(root) :]}") if path.startswith(root) else path

    try:
        for operation in operations:
            size = torn if torn is not None and operation is operations[-1] else operation.size
            do(operation, size, files, recording, real)
    finally:
        for file in files.values():
            with contextlib.suppress(OSError):
                os.close(file)


def do(operation, size, files, recording, real):
    """Do one operation on a real disk; ``files`` holds the open ones by inode."""
    kind, inode = operation.kind, operation.inode
    path, target = Path(real(operation.path)), real(operation.target)
    if kind in {Kind.CREATE, Kind.OPEN}:
        flags = os.O_RDWR | (os.O_CREAT | os.O_EXCL if kind is Kind.CREATE else 0)
        if not operation.path:
            path, flags = real(recording.header.roots[0]), os.O_RDWR | os.O_TMPFILE
        files[inode] = os.open(path, flags, 0o644)
    elif kind in {Kind.WRITE, Kind.TRUNCATE, Kind.ALLOCATE, Kind.CLOSE}:
        _do_held(operation, size, files, recording)
    elif kind is Kind.LINK:
        os.link(path if operation.path else f"/proc/self/fd/{files[inode]}", target, follow_symlinks=True)
    elif kind in {Kind.RENAME, Kind.SYMLINK}:
        path.rename(target) if kind is Kind.RENAME else path.symlink_to(operation.target)
    elif kind in _BY_PATH:
        _BY_PATH[kind](path)


_BY_PATH = {Kind.UNLINK: Path.unlink, Kind.MKDIR: Path.mkdir, Kind.RMDIR: Path.rmdir}


def _do_held(operation, size, files, recording):
    file = files[operation.inode]
    if operation.kind is Kind.WRITE:
        os.pwrite(file, recording.read(operation.at, size), operation.offset)
    elif operation.kind is Kind.TRUNCATE:
        os.ftruncate(file, size)
    elif operation.kind is Kind.ALLOCATE:
        _fallocate(file, operation)
    else:
        os.close(files.pop(operation.inode))


def _fallocate(file, operation):
    sizes = ctypes.c_longlong(operation.offset), ctypes.c_longlong(operation.size)
    if LIBC.fallocate(file, operation.mode, *sizes):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
