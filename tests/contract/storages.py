"""Every kind of place the contract of ``Storage`` is checked on.

A kind is a context manager: given pytest's request, it prepares an empty place and lends a function that
opens a new handle on it, as another process would.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import uuid

import pytest

from samestep.bundle.storage import system
from samestep.bundle.storage.local import LocalStorage
from servers import emulators


@contextlib.contextmanager
def local(request):
    """A folder, with everything the disk of this machine can do."""
    root = request.getfixturevalue("tmp_path") / "made on demand" / "store"
    yield lambda: LocalStorage(root)


@contextlib.contextmanager
def local_without_links(request):
    """A file system that cannot link, as some network mounts: names are taken by renaming."""

    def refuse(*_args, **_kwargs):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    with pytest.MonkeyPatch.context() as patch, local(request) as handle:
        patch.setattr(system, "link", refuse)
        yield handle


@contextlib.contextmanager
def local_refusing_direct_writes(request):
    """A file system that accepts O_DIRECT when asked, and refuses every write made with it."""
    write_all = system.write_all

    def refuse(descriptor, data, offset):
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        write_all(descriptor, data, offset)

    with pytest.MonkeyPatch.context() as patch, local(request) as handle:
        patch.setattr(system, "write_all", refuse)
        yield handle


def object_store(name):
    """A fresh prefix of an object store's emulator; in memory a handle is the place itself."""

    @contextlib.contextmanager
    def kind(_request):
        try:
            emulator = emulators.running(name)
        except emulators.Unavailable as missing:
            pytest.skip(str(missing))
        if name == "memory":
            only = emulator.opened()
            yield lambda: only
        else:
            prefix = uuid.uuid4().hex
            yield lambda: emulator.opened(prefix)

    return kind


KINDS = {
    "local": local,
    "local-without-links": local_without_links,
    "local-refusing-direct-writes": local_refusing_direct_writes,
    **{name: object_store(name) for name in emulators.NAMES},
}
"""By the name a test shows."""
