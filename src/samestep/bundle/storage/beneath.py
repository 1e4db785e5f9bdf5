"""Finds its way below a root folder by descriptors, one name at a time, so that no key and no link leads out."""

from __future__ import annotations

import collections
import contextlib
import errno
import itertools
import os
import re
import stat
from typing import TYPE_CHECKING, Final

from samestep.bundle.errors import StoreError
from samestep.bundle.storage import system

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from pathlib import Path

UNFINISHED: Final = ".unfinished-"
"""Names that begin so are on their way to becoming another."""
_KEY_BYTES: Final = 2048
_NAME_BYTES: Final = 255
_SHOWN: Final = 80
_CONTROL: Final = re.compile("[/\\x00-\\x1f\\x7f\\ud800-\\udfff]")


def names_of(key: str) -> tuple[str, ...]:
    """Return the names between the slashes of ``key``.

    Raises:
        StoreError: it is not a key: absolute, with ``.`` or ``..`` in it, or with names no file may have.
    """
    names = tuple(key.split("/"))
    if not all(map(is_key_name, names)) or len(key) > _KEY_BYTES:
        raise StoreError(
            f"{key[:_SHOWN]!a} cannot be the name of something in a store",
            hint="A key is relative, without . and .. and control characters, and at most 2048 bytes long.",
        )
    return names


def folder_names(prefix: str) -> tuple[str, ...]:
    """Return the names of a folder given as ``a/b/``; the empty prefix is the root.

    Raises:
        StoreError: it is not the prefix of a key.
    """
    return names_of(prefix.removesuffix("/")) if prefix else ()


def make_root(root: Path) -> None:
    """Make the root and the folders above it, each durable in the one above.

    Those that are there are synced as well, up to where their file system begins: whoever made them may not have
    come to that yet.

    Raises:
        OSError: a folder cannot be made or synced.
    """
    made = [place for place in (root, *root.parents) if not system.again(place.exists)] or [root]
    for place in reversed(made):
        system.make_folder(str(place))
        _sync_above(place)
    place = made[-1].parent
    while place != place.parent and system.again(place.stat).st_dev == system.again(place.parent.stat).st_dev:
        _sync_above(place)
        place = place.parent


def _sync_above(place: Path) -> None:
    with contextlib.suppress(PermissionError), opened(place.parent) as above:
        system.sync(above)


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[int]:
    """Lend a descriptor of ``folder``."""
    descriptor = system.open_file(str(folder), system.FOLDER)
    try:
        yield descriptor
    finally:
        system.close(descriptor)


@contextlib.contextmanager
def entered(root: Path, names: Sequence[str], *, make: bool = False) -> Iterator[int]:
    """Lend a descriptor of the folder that ``names`` lead to from ``root``.

    Args:
        root: an existing folder; links that lead to it are its owner's business.
        names: of the folders below it.
        make: make those that are missing.

    Raises:
        OSError: there is none (ENOENT, ENOTDIR), or a symbolic link stands on the way (ELOOP).
    """
    with contextlib.closing(way_down(root, names, make=make)) as way:
        yield collections.deque(itertools.islice(way, len(names) + 1), maxlen=1)[0]


def way_down(root: Path, names: Sequence[str], *, make: bool = False) -> Generator[int, None, None]:
    """Yield a descriptor of the root and of each folder on the way; only the last one yielded is open."""
    here = system.open_file(str(root), system.FOLDER)
    try:
        yield here
        for name in names:
            above, here = here, _step(here, name, make=make)
            system.close(above)
            yield here
    finally:
        system.close(here)


def _step(folder: int, name: str, *, make: bool) -> int:
    try:
        return system.open_file(name, system.FOLDER | os.O_NOFOLLOW, folder)
    except FileNotFoundError:
        if not make:
            raise
        system.make_folder(name, folder)
        return _step(folder, name, make=False)
    except NotADirectoryError:
        if stat.S_ISLNK(system.look(name, folder).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
        raise


def is_key_name(name: str) -> bool:
    """Tell whether ``name`` can stand between the slashes of a key."""
    ordinary = name not in {"", ".", ".."} and not name.startswith(UNFINISHED)
    return ordinary and not _CONTROL.search(name) and len(os.fsencode(name)) <= _NAME_BYTES
