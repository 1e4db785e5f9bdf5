"""Stands between a save and the operating system: names the calls of all threads and lets one of them fail."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import gc
import io
import os
import re
import threading
from pathlib import Path

import pytest

from samestep.bundle.storage import system

NAMES = (
    *(
        "open",
        "dup",
        "close",
        "stat",
        "lstat",
        "fstat",
        "fstatvfs",
        "statvfs",
        "readlink",
        "scandir",
        "listdir",
    ),
    *("mkdir", "rmdir", "link", "unlink", "rename", "replace", "chmod", "utime", "ftruncate", "truncate"),
    *("pwrite", "write", "preadv", "pread", "read", "lseek", "fsync", "fdatasync", "posix_fadvise"),
)
LIBRARY = ("fallocate", "renameat2")
MOVES_BYTES = frozenset({"pwrite", "preadv"})
_ID = re.compile(r"[abr]-\d{8}t\d{9}-[0-9a-f]{10}")
_RANDOM = re.compile(r"(?<=\.unfinished-)[0-9a-f]+|(?<=\.restoring-)[0-9a-f]+|\d{10}(?=\.json)")


class Calls:
    """Names calls, and lets one of them fail.

    Args:
        target: the call that fails, and how many of its name go before it; None: none fails.
        fault: an error number, or ``short`` for a call that moves fewer bytes than it was given.

    Attributes:
        made: what every call was and what it concerned, such as ``fsync chain``.
        failed_at: the number of the one that failed; None while none has.
    """

    def __init__(self, target=None, fault=errno.EIO):
        self.made = []
        self.failed_at = None
        self._target, self._fault = target, fault
        self._open = {}
        self._lock = threading.Lock()
        self._library = ctypes.CDLL(None, use_errno=True)

    def targets(self):
        """Every call that was made, as what may fail another time."""
        return [(label, self.made[:number].count(label)) for number, label in enumerate(self.made)]

    @contextlib.contextmanager
    def between(self):
        """Watch what is done inside."""
        with _nothing_collected(), pytest.MonkeyPatch.context() as patch:
            for name in NAMES:
                patch.setattr(os, name, self._watched(name, getattr(os, name)))
            patch.setattr(io, "open", self._watched("io.open", io.open))
            patch.setattr(fcntl, "fcntl", self._watched("fcntl", fcntl.fcntl))
            patch.setattr(system, "_libc", self)
            yield self

    def __getattr__(self, name):
        if name not in LIBRARY:
            raise AttributeError(name)
        return self._watched(name, getattr(self._library, name), raises=False)

    def _watched(self, name, real, *, raises=True):
        def call(*args, **kwargs):
            if name == "close":
                return self._close(real, *args)
            concerns = self._concerns(args)
            if not self._strikes(f"{name} {concerns}"):
                answer = real(*args, **kwargs)
                if name in {"open", "dup"}:
                    self._open[answer] = concerns
                return answer
            if self._fault == "short":
                return real(args[0], *_shortened(args[1]), *args[2:])
            if raises:
                raise OSError(self._fault, os.strerror(self._fault))
            ctypes.set_errno(self._fault)
            return -1

        return call

    def _close(self, real, descriptor):
        # Forgotten before it is closed: from then on its number may be that of what another thread opens.
        concerns = self._open.pop(descriptor, None)
        strikes = concerns is not None and self._strikes(f"close {concerns}")  # else it is a pipe
        real(descriptor)  # as in Linux: it is closed whatever the answer
        if strikes:
            raise OSError(self._fault, os.strerror(self._fault))

    def _concerns(self, args):
        """Return the last name of the file or folder, without what differs between runs."""
        if not args or isinstance(args[0], int):
            return self._open.get(args[0] if args else None, "?")
        name = os.fsdecode(args[0]) if isinstance(args[0], str | bytes) else Path(args[0]).name
        return _RANDOM.sub("", _ID.sub("ID", name.rsplit("/", 1)[-1]))

    def _strikes(self, label):
        with self._lock:
            strikes = self._target == (label, self.made.count(label))
            if strikes:
                self.failed_at = len(self.made)
            self.made.append(label)
            return strikes


@contextlib.contextmanager
def _nothing_collected():
    """Leave lying what was left behind earlier; clearing it away makes calls, too."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _shortened(buffers):
    """Return a third of what is to be moved, at least a byte."""
    if isinstance(buffers, list):
        return [[buffers[0][: max(1, len(buffers[0]) // 3)]]]
    return [buffers[: max(1, len(buffers) // 3)]]
