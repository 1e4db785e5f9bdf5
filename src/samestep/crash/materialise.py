"""Writing an image to a real folder."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from typing import TYPE_CHECKING

from samestep.crash.contents import BaseFile, Content
from samestep.crash.image import File, Folder, Image, Symlink
from samestep.process.copying import explained, reflink

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PART_BYTES = 4 << 20
SHARED_BYTES = 64 << 10  # smaller files are written faster than shared


def materialise(image: Image, folder: Path, cache: Path | None = None) -> None:
    """Write the durable folder of an image, with modification times in the order of the operations.

    Every name becomes a file of its own, also where several led to one file: what a restart does to one state never
    reaches another. Links into the durable folder lead into the new one.

    Args:
        image: what to write.
        folder: where to; must be missing or empty.
        cache: folder of whole files by content. Where the file system can share blocks, files of 64 KiB and more
            are put there once and shared from there. Several processes may use it at once.

    Raises:
        MachineError: the folder is not empty, the disk is full, or something cannot be read or written.
    """
    with explained(f"the disk state could not be written to {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(folder))
        _Writer(image.root, os.path.realpath(folder), _Cache.at(cache, folder)).write(image)


class _Writer:
    """Writes one image."""

    def __init__(self, root: str, folder: str, cache: _Cache | None) -> None:
        self._root = root
        self._folder = folder
        self._cache = cache

    def write(self, image: Image) -> None:
        folders: list[tuple[str, Folder]] = []
        for name, node in image.below():
            path = f"{self._folder}/{name}" if name else self._folder
            if isinstance(node, Folder):
                if name:
                    os.mkdir(path)  # noqa: PTH102 - 10,000 states of many files: no Path objects here
                folders.append((path, node))
            elif isinstance(node, Symlink):
                os.symlink(self._moved(node.text), path)  # noqa: PTH211
                os.utime(path, ns=(node.modified, node.modified), follow_symlinks=False)
            else:
                self._file(path, node)
        for path, node in reversed(
            folders
        ):  # a folder's time changes with what is put in, and it may be read-only
            os.chmod(path, node.mode)  # noqa: PTH101
            os.utime(path, ns=(node.modified, node.modified))

    def _moved(self, text: str) -> str:
        inside = text == self._root or text.startswith(f"{self._root}/")
        return self._folder + text[len(self._root) :] if inside else text

    def _file(self, path: str, node: File) -> None:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            if not (
                self._cache and node.content.size >= SHARED_BYTES and self._cache.share(node.content, file)
            ):
                write_content(node.content, file)
            os.fchmod(file, node.mode)
            os.utime(file, ns=(node.modified, node.modified))
        finally:
            os.close(file)


def write_content(content: Content, file: int) -> None:
    """Write bytes to an empty file; zeros become holes."""
    whole = content.pieces[0].source if len(content.pieces) == 1 else None
    if isinstance(whole, BaseFile) and content.size >= SHARED_BYTES and _shared(whole, content, file):
        return
    position = 0
    for piece in content.pieces:
        for start in range(0, piece.size if piece.source else 0, PART_BYTES):
            part = piece.part(start, min(start + PART_BYTES, piece.size))
            _write_all(file, part.read(), position + start)
        position += piece.size
    if content.pieces and content.pieces[-1].source is None:
        os.ftruncate(file, content.size)


def _shared(base: BaseFile, content: Content, file: int) -> bool:
    """Share the blocks of a base file; False where that cannot be done or it has changed in size."""
    with _opened(base.path) as reader:
        return os.fstat(reader).st_size == content.size and reflink(reader, file)


def _write_all(file: int, data: bytes, position: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, position)
        view, position = view[written:], position + written


class _Cache:
    """Whole files by content, from which blocks can be shared."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    @classmethod
    def at(cls, folder: Path | None, target: Path) -> _Cache | None:
        """Return the cache, or None if the target cannot share blocks with it."""
        if folder is None:
            return None
        folder.mkdir(parents=True, exist_ok=True)
        source, probe = folder / f"probe-{_alone()}", target / ".samestep-probe"
        try:
            source.write_bytes(bytes(SHARED_BYTES))
            with source.open("rb") as reader, probe.open("wb") as writer:
                able = reflink(reader.fileno(), writer.fileno())
        finally:
            source.unlink(missing_ok=True)
            probe.unlink(missing_ok=True)
        return cls(folder) if able else None

    def share(self, content: Content, file: int) -> bool:
        """Let a new file share the blocks of the cached one."""
        path = f"{self._folder}/{content.digest.hex()}"
        if not os.path.exists(path):  # noqa: PTH110
            self._put(content, path)
        with _opened(path) as reader:
            return reflink(reader, file)

    def _put(self, content: Content, path: str) -> None:
        partial = f"{path}.{_alone()}"
        file = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            write_content(content, file)
        finally:
            os.close(file)
        os.replace(partial, path)  # noqa: PTH105


def _alone() -> str:
    """Return the end of a name that no other thread of any process uses at the same time."""
    return f"{os.getpid()}-{threading.get_ident()}"


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield file
    finally:
        os.close(file)
