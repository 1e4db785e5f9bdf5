"""Folders copied with fidelity, and told apart by what is in them.

A copy shares no inode with its source: blocks are shared where the file system can (reflink), and there are
never hard links between the two.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import xxhash

from samestep.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Iterator

FICLONE = 0x4004_9409
PIECE_BYTES = 4 << 20
SAMPLE_BYTES = 64 << 10


def copy_tree(source: Path, target: Path) -> None:
    """Copy a folder or file: contents, holes, modes, times, symbolic links, hard links among its files.

    Sockets and pipes hold no data that could be carried and are left out.

    Args:
        source: what to copy.
        target: where it goes; a folder that is there already is filled, other files are replaced.

    Raises:
        MachineError: the disk is full, or something cannot be read or written.
    """
    with explained(f"{source} could not be copied to {target}"):
        _copy_entry(source, target, {})


def _copy_entry(source: Path, target: Path, copied: dict[tuple[int, int], Path]) -> None:
    status = source.lstat()
    if stat.S_ISDIR(status.st_mode):
        target.mkdir(exist_ok=True)
        for entry in sorted(source.iterdir()):
            _copy_entry(entry, target / entry.name, copied)
        shutil.copystat(source, target)
        return
    twin = copied.get((status.st_dev, status.st_ino))
    if twin is not None:
        target.unlink(missing_ok=True)
        target.hardlink_to(twin)
        return
    if status.st_nlink > 1 and stat.S_ISREG(status.st_mode):
        copied[status.st_dev, status.st_ino] = target
    copy_file(source, target)


def copy_file(source: Path, target: Path) -> None:
    """Copy one regular file or symbolic link with its metadata; anything else is left out."""
    mode = source.lstat().st_mode
    if stat.S_ISLNK(mode):
        target.unlink(missing_ok=True)
        target.symlink_to(os.readlink(source))  # noqa: PTH115 - Path.readlink normalises the text
    elif stat.S_ISREG(mode):
        with source.open("rb") as reader, target.open("wb") as writer:
            if not reflink(reader.fileno(), writer.fileno()):
                _copy_extents(reader.fileno(), writer.fileno())
    else:
        return
    shutil.copystat(source, target, follow_symlinks=False)


def reflink(reader: int, writer: int) -> bool:
    """Let two files share their blocks until one is written to; False where the file system cannot."""
    try:
        fcntl.ioctl(writer, FICLONE, reader)
    except OSError:
        return False
    return True


def _copy_extents(reader: int, writer: int) -> None:
    """Copy what holds data; holes stay holes."""
    size = os.fstat(reader).st_size
    for start, end in _extents(reader, size):
        position = start
        while position < end:
            piece = os.pread(reader, min(PIECE_BYTES, end - position), position)
            if not piece:
                break
            _write_all(writer, piece, position)
            position += len(piece)
    os.ftruncate(writer, size)


def _write_all(writer: int, piece: bytes, position: int) -> None:
    view = memoryview(piece)
    while view:
        written = os.pwrite(writer, view, position)
        view, position = view[written:], position + written


def _extents(reader: int, size: int) -> Iterator[tuple[int, int]]:
    end = 0
    while end < size:
        try:
            start = os.lseek(reader, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole is left
                return
            yield end, size  # the file system knows nothing of holes
            return
        end = os.lseek(reader, start, os.SEEK_HOLE)
        yield start, end


def remove_tree(path: Path) -> None:
    """Remove a file or folder, also from folders made read-only; nothing happens when it is not there.

    Raises:
        MachineError: it could not be removed.
    """
    with explained(f"{path} could not be removed"):
        if not path.is_dir() or path.is_symlink():
            path.unlink(missing_ok=True)
            return
        try:
            shutil.rmtree(path)
        except PermissionError:
            for folder, _, _ in os.walk(path):
                Path(folder).chmod(stat.S_IRWXU)
            shutil.rmtree(path)


def tree_digest(path: Path) -> str:
    """Digest of a folder or file: names, kinds, permissions, link targets and contents, but no times.

    Returns:
        ``xxh3-128:`` and 32 hexadecimal digits; equal for equal trees, wherever they lie.

    Raises:
        MachineError: something in it cannot be read.
    """
    digest = xxhash.xxh3_128()
    with explained(f"{path} could not be read"):
        for entry in _walk(path):
            status = entry.lstat()
            name = os.fsencode(entry.relative_to(path))
            digest.update(b"%d:%b%o:%d:" % (len(name), name, status.st_mode, _length(status)))
            _feed(digest, entry, status)
    return f"xxh3-128:{digest.hexdigest()}"


def _length(status: os.stat_result) -> int:
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def _feed(digest: xxhash.xxh3_128, entry: Path, status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        digest.update(os.fsencode(os.readlink(entry)) + b"\0")  # noqa: PTH115
    elif stat.S_ISREG(status.st_mode):
        with entry.open("rb") as file:
            while piece := file.read(PIECE_BYTES):
                digest.update(piece)


def fingerprint(path: Path) -> dict[str, str]:
    """What every file under ``path`` looks like without reading all of it.

    Returns:
        Absolute path to size, modification time and a digest of the first and last 64 KiB. A symbolic link
        given as ``path`` is followed, others are not.

    Raises:
        MachineError: ``path`` is missing or cannot be read.
    """
    with explained(f"{path} could not be read"):
        entries = _walk(path.resolve(strict=True))
        return {str(entry): _sketch(entry) for entry in entries if entry.is_symlink() or not entry.is_dir()}


def _sketch(entry: Path) -> str:
    status = entry.lstat()
    sketch = f"{status.st_size}:{status.st_mtime_ns}"
    if not stat.S_ISREG(status.st_mode):
        return sketch
    with entry.open("rb") as file:
        digest = xxhash.xxh3_128(file.read(SAMPLE_BYTES))
        file.seek(max(status.st_size - SAMPLE_BYTES, 0))
        digest.update(file.read(SAMPLE_BYTES))
    return f"{sketch}:xxh3-128:{digest.hexdigest()}"


def _walk(path: Path) -> Iterator[Path]:
    """``path`` and everything below it, in an order that depends on names only."""
    yield path
    if path.is_dir() and not path.is_symlink():
        for entry in sorted(path.iterdir()):
            yield from _walk(entry)


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn an operating system error into a MachineError that says ``what`` failed and what helps."""
    try:
        yield
    except OSError as error:
        place = f" ({error.filename})" if error.filename else ""
        raise MachineError(f"{what}: {error.strerror or error}{place}", hint=_hint(error)) from error


def _hint(error: OSError) -> str:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return "the disk is full: free some space, or set TMPDIR to a folder on a larger disk"
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return "check who may read and write there, or set TMPDIR to a folder that is yours"
    return ""
