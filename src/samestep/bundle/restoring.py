"""Restoring a bundle into a folder: every byte verified while it is read, whole or not at all."""

from __future__ import annotations

import collections
import contextlib
import fcntl
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from samestep.bundle.digests import CHUNK_BYTES
from samestep.bundle.errors import DamageError, RequestError, StoreError
from samestep.bundle.identity import new_nonce
from samestep.bundle.verifying import checked_chunk, chunks_of, in_parallel, size_faults
from samestep.journal.durable import make_folder, sync

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from samestep.bundle.bundles import Bundle
    from samestep.bundle.manifest import Part
    from samestep.bundle.storage.base import Storage

_MARK = ".restoring-"
_OPEN = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


def restore(storage: Storage, bundle: Bundle, to: Path, *, alive: Callable[[], None] = lambda: None) -> Path:
    """Write the parts of ``bundle`` as the folder ``to`` and return it.

    The parts go into a folder beside it first, which takes its name when every byte of every part was verified and
    is durable.

    Args:
        storage: the place.
        bundle: what to restore.
        to: a folder that does not exist, or is empty.
        alive: called for every chunk, to renew a hold.

    Raises:
        DamageError: stored bytes are not what the manifest says; ``to`` is as it was.
        StoreError: ``to`` is in the way or cannot be written, or the place failed.
    """
    faults = size_faults(storage, bundle.manifest)
    with folder_for(to) as (beside, place):
        if faults:
            raise DamageError(
                f"{bundle.id}: {faults[0].text}", hint="select again: an older bundle may be whole"
            )
        _fill(beside, storage, bundle, alive)
    return place


@contextlib.contextmanager
def folder_for(to: Path) -> Iterator[tuple[Path, Path]]:
    """Lend a folder to fill, which takes the name ``to`` at the end, durable, if nothing was raised meanwhile.

    Args:
        to: a folder that does not exist, or is empty.

    Yields:
        The folder to fill, and the absolute path that it takes.

    Raises:
        StoreError: ``to`` is in the way or cannot be written.
    """
    to = Path(os.path.abspath(to))  # noqa: PTH100 - a link at the end is replaced, not followed
    _require_free(to)
    try:
        with _folder_beside(to) as beside:
            yield beside, to
            _make_durable(beside)
            beside.rename(to)
            sync(to.parent)
    except OSError as error:
        raise StoreError(f"{to} could not be written: {error}", hint="nothing was restored") from error


def _require_free(to: Path) -> None:
    if to.is_symlink() or (to.exists() and (not to.is_dir() or any(to.iterdir()))):
        raise RequestError(
            f"{to} is in the way", hint="name a folder that does not exist yet, or move this one"
        )


@contextlib.contextmanager
def _folder_beside(to: Path) -> Iterator[Path]:
    """Make a folder that is removed again unless it was renamed; what dead restores left is removed too."""
    make_folder(to.parent)
    for old in to.parent.glob(f".{_escaped(to.name)}{_MARK}*"):
        _remove_if_dead(old)
    beside = to.parent / f".{to.name}{_MARK}{new_nonce()}"
    beside.mkdir()
    lock = os.open(beside, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # without locks nobody takes it for dead, see _remove_if_dead
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield beside
    finally:
        shutil.rmtree(beside, ignore_errors=True)
        os.close(lock)


def _escaped(name: str) -> str:
    return "".join(f"[{character}]" if character in "*?[" else character for character in name)


def _remove_if_dead(folder: Path) -> None:
    """Remove what a killed restore left; a living one holds a lock on its folder."""
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # held, or this file system has no locks, and whether it is dead is not known
        return
    else:
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def _fill(folder: Path, storage: Storage, bundle: Bundle, alive: Callable[[], None]) -> None:
    parts = bundle.manifest.parts
    for parent in {Path(part.path).parent for part in parts}:
        (folder / parent).mkdir(parents=True, exist_ok=True)

    def fetch(chunk: tuple[Part, int]) -> None:
        part, number = chunk
        with checked_chunk(storage, bundle, part, number) as data:
            _write_chunk(folder / part.path, data, number)

    for _ in in_parallel(fetch, chunks_of(parts)):
        alive()


def _write_chunk(path: Path, data: memoryview, number: int) -> None:
    descriptor = os.open(path, _OPEN, 0o666)
    try:
        done = 0
        while done < len(data):
            done += os.pwrite(descriptor, data[done:], number * CHUNK_BYTES + done)
    finally:
        os.close(descriptor)


def _make_durable(folder: Path) -> None:
    def fail(error: OSError) -> None:
        raise error

    places = os.walk(folder, onerror=fail)
    paths = (Path(place, name) for place, _, names in places for name in (*names, ""))
    collections.deque(in_parallel(sync, paths), maxlen=0)
