"""A folder on a mounted file system as a place that keeps a store.

A thing appears under its final name complete and durable, or it does not appear: it is written under a
temporary name in the same folder, synced, linked to its name if that is free, and every folder that gained
a name on the way is synced. Nothing is ever written to under a name that exists.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from samestep.bundle.errors import StoreError, UnreadableError
from samestep.bundle.storage import system
from samestep.bundle.storage.base import Absent, AlreadyThere, Entry
from samestep.bundle.storage.beneath import (
    UNFINISHED,
    entered,
    folder_names,
    is_key_name,
    make_root,
    names_of,
    opened,
    way_down,
)
from samestep.bundle.storage.direct import RING, Ring, read_content, write_content
from samestep.bundle.storage.failures import told
from samestep.bundle.storage.room import room_left

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from samestep.bundle.storage.base import Content, Written

T = TypeVar("T")

_NO_LINKS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_NOT_SHARED: Final = _NO_LINKS | {errno.EXDEV}
_NO_RENAMES: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
_NOTHING: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
_TRIES: Final = 16
"""How often a folder may be taken away between being found and being used, by a writer who tidies up."""


class _Found(NamedTuple):
    """A file met below the root."""

    folders: tuple[str, ...]
    name: str
    size: int
    modified: float

    @property
    def key(self) -> str:
        return "/".join((*self.folders, self.name))


class LocalStorage:
    """A ``Storage`` in a folder; see ``storage.base`` for what its methods promise.

    Args:
        root: the folder; made when something is stored first.
        ring: the buffers that parts are written from.
    """

    def __init__(self, root: str | Path, *, ring: Ring = RING) -> None:
        self.root = Path(root).absolute()
        self._ring = ring
        self._made = False

    @property
    def url(self) -> str:
        """The folder's path."""
        return str(self.root)

    def create(self, key: str, data: bytes) -> None:
        """Store ``data`` under ``key`` in one atomic act, only if the name is free; durable on return."""
        *folders, name = names_of(key)
        with self._told("create", key, needed=len(data)):
            free = self._in_folder(folders, lambda folder: _publish(folder, name, data))
            # Also when the name was taken: whoever took it may not have come to this point.
            self._sync_folders({tuple(folders)})
        if not free:
            raise AlreadyThere(key)

    def read(self, key: str, *, limit: int) -> bytes:
        """Return what is stored under ``key``."""
        with self._told("read", key), self._reading(key) as descriptor:
            size = os.fstat(descriptor).st_size
            if size > limit:
                raise StoreError(f"{self._path(key)} has {size:,} bytes; at most {limit:,} are read")
            data = bytearray(size)
            count = system.read_all(descriptor, memoryview(data), 0)
        return bytes(data[:count])

    def size(self, key: str) -> int | None:
        """Return the stored size in bytes, or None when there is nothing."""
        return self.sizes([key])[key]

    def sizes(self, keys: Iterable[str]) -> dict[str, int | None]:
        """Return the sizes of several keys."""
        found: dict[str, int | None] = {}
        for folders, members in _by_folder(keys).items():
            found.update(self._sizes_in(folders, members))
        return found

    def write(self, key: str, content: Content) -> Written:
        """Store a large thing under a name nobody else uses; its bytes are durable on return, its name is not."""
        *folders, name = names_of(key)
        with self._told("write", key, needed=content.size):
            descriptor = self._in_folder(folders, lambda folder: _fresh(folder, name))
            try:
                return write_content(descriptor, content, self._ring)
            except BaseException:
                self._drop(folders, name)
                raise
            finally:
                system.close(descriptor)

    def settle(self, keys: Iterable[str]) -> None:
        """Return when these keys, and the folders that lead to them, would survive a power cut."""
        folders = set(_by_folder(keys))
        with self._told("settle what was written to", ""):
            self._sync_folders(folders)

    def read_into(self, key: str, offset: int, target: memoryview) -> None:
        """Fill ``target`` from ``offset`` on."""
        with self._told("read", key), self._reading(key) as descriptor:
            count = read_content(descriptor, target, offset)
        if count < len(target):
            raise UnreadableError(
                f"{self._path(key)} ends after {offset + count:,} bytes; {offset + len(target):,} were expected"
            )

    def share(self, source: str, target: str) -> bool:
        """Give the file ``source`` the second name ``target``; False where the file system cannot do it."""
        if source == target:
            return True
        *folders, name = names_of(target)
        *source_folders, source_name = names_of(source)
        with self._told("share", source), self._finding(source), entered(self.root, source_folders) as origin:
            if not stat.S_ISREG(system.look(source_name, origin).st_mode):
                raise Absent(source)
            return self._in_folder(folders, lambda folder: _link(origin, source_name, folder, name))

    def remove(self, keys: Iterable[str]) -> None:
        """Remove what is there, and the folders that become empty by it."""
        for folders, members in _by_folder(keys).items():
            with self._told("remove", members[0]), contextlib.suppress(FileNotFoundError, NotADirectoryError):
                with entered(self.root, folders) as folder:
                    for key in members:
                        system.unlink(names_of(key)[-1], folder)
                self._tidy(folders)

    def entries(self, prefix: str) -> Iterator[Entry]:
        """Yield the files below ``prefix``; links, and what no key can name, are passed over."""
        for file in self._walk(folder_names(prefix)):
            if is_key_name(file.name):
                yield Entry(file.key, file.size, file.modified)

    def discard_unfinished(self, prefix: str, older_than: float) -> int:
        """Remove temporary names below ``prefix`` whose file was last written to before ``older_than``."""
        files = self._walk(folder_names(prefix))
        stale = [file for file in files if file.name.startswith(UNFINISHED) and file.modified < older_than]
        for file in stale:
            with self._told("remove", file.key), entered(self.root, file.folders) as folder:
                system.unlink(file.name, folder)
        return len(stale)

    def free_bytes(self) -> int | None:
        """Return the room left for this user, by the file system and by the user's quota."""
        with self._told("ask for the room left in", ""):
            return self._room()

    def _room(self) -> int:
        place = next(place for place in (self.root, *self.root.parents) if system.again(place.exists))
        with opened(place) as folder:
            return room_left(folder)

    def _path(self, key: str) -> str:
        return str(self.root / key)

    def _told(self, doing: str, key: str, *, needed: int = 0) -> contextlib.AbstractContextManager[None]:
        return told(doing, self._path(key), needed=needed, free=self._free_or_unknown)

    def _free_or_unknown(self) -> int | None:
        with contextlib.suppress(OSError):
            return self._room()
        return None

    @contextlib.contextmanager
    def _finding(self, key: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, NotADirectoryError):
            raise Absent(key) from None

    @contextlib.contextmanager
    def _reading(self, key: str) -> Iterator[int]:
        """Lend a descriptor of the file at ``key``."""
        *folders, name = names_of(key)
        with self._finding(key), entered(self.root, folders) as folder:
            descriptor = system.open_file(name, system.READING, folder)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise StoreError(f"{self._path(key)} is not a file")
            yield descriptor
        finally:
            system.close(descriptor)

    def _sizes_in(self, folders: Sequence[str], keys: Sequence[str]) -> dict[str, int | None]:
        with self._told("look at", "/".join(folders)):
            try:
                with entered(self.root, folders) as folder:
                    return {key: self._size(key, folder) for key in keys}
            except OSError as error:
                if error.errno not in _NOTHING:
                    raise
                return dict.fromkeys(keys)

    def _size(self, key: str, folder: int) -> int | None:
        with self._told("look at", key):
            return _size(names_of(key)[-1], folder)

    def _in_folder(self, folders: Sequence[str], act: Callable[[int], T]) -> T:
        """Do something in a folder that is made if it is missing, also when another writer just tidied it away."""
        tries = _TRIES
        while True:
            tries -= 1
            self._make_root()
            try:
                with entered(self.root, folders, make=True) as folder:
                    return act(folder)
            except FileNotFoundError:
                if not tries:
                    raise

    def _make_root(self) -> None:
        if not (self._made and system.again(self.root.is_dir)):
            make_root(self.root)
            self._made = True

    def _sync_folders(self, folders: Iterable[tuple[str, ...]]) -> None:
        """Sync each of the folders and all that lead to them, each once."""
        done: set[tuple[str, ...]] = set()
        for names in folders:
            with contextlib.closing(way_down(self.root, names)) as way:
                for depth, descriptor in enumerate(way):
                    if names[:depth] not in done:
                        system.sync(descriptor)
                        done.add(names[:depth])

    def _drop(self, folders: Sequence[str], name: str) -> None:
        """Take back what was begun, so that it takes no room; it is garbage in any case."""
        with contextlib.suppress(OSError), entered(self.root, folders) as folder:
            system.unlink(name, folder)

    def _tidy(self, folders: Sequence[str]) -> None:
        """Remove the folders that have become empty, from the innermost out."""
        for depth in range(len(folders), 0, -1):
            with entered(self.root, folders[: depth - 1]) as folder:
                try:
                    os.rmdir(folders[depth - 1], dir_fd=folder)
                except OSError:
                    return

    def _walk(self, prefix: Sequence[str]) -> Iterator[_Found]:
        """Yield every file below ``prefix``, never going through a link."""
        waiting = [tuple(prefix)]
        while waiting:
            folders = waiting.pop()
            with (
                self._told("list", "/".join(folders)),
                contextlib.suppress(FileNotFoundError),
                entered(self.root, folders) as folder,
                system.again(os.scandir, folder) as items,
            ):
                for item in items:
                    if item.is_dir(follow_symlinks=False) and is_key_name(item.name):
                        waiting.append((*folders, item.name))
                    elif item.is_file(follow_symlinks=False) and (seen := _seen(item)):
                        yield _Found(folders, item.name, seen.st_size, seen.st_mtime)


def _by_folder(keys: Iterable[str]) -> dict[tuple[str, ...], list[str]]:
    """Return the keys by the folder they are in."""
    grouped: dict[tuple[str, ...], list[str]] = {}
    for key in keys:
        grouped.setdefault(names_of(key)[:-1], []).append(key)
    return grouped


def _publish(folder: int, name: str, data: bytes) -> bool:
    """Give a new, durable file the name ``name``; False when it is taken."""
    temporary = UNFINISHED + secrets.token_hex(8)
    descriptor = system.open_file(temporary, system.MAKING, folder)
    try:
        try:
            system.write_all(descriptor, memoryview(data), 0)
            system.sync(descriptor)
        finally:
            system.close(descriptor)
        return _take(folder, temporary, name)
    finally:
        with contextlib.suppress(OSError):  # what is left of it is found by discard_unfinished
            system.unlink(temporary, folder)


def _take(folder: int, temporary: str, name: str) -> bool:
    try:
        system.link(temporary, name, folder, folder)
    except FileExistsError:
        # A network file system may have done it and lost the reply.
        return os.path.samestat(system.look(temporary, folder), system.look(name, folder))
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return _rename(folder, temporary, name)
    return True


def _rename(folder: int, temporary: str, name: str) -> bool:
    try:
        system.rename_if_free(temporary, name, folder)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_RENAMES:
            raise
        raise StoreError(
            "this file system can neither link a file nor rename it without replacing another, "
            "so two writers could overwrite each other's commits",
            hint="Keep the store on another file system, or in an object store.",
        ) from error
    return True


def _fresh(folder: int, name: str) -> int:
    """Open a new file; one of that name is unlinked, never written to: other bundles may share its bytes."""
    system.unlink(name, folder)
    return system.open_file(name, system.MAKING, folder)


def _link(origin: int, source: str, folder: int, name: str) -> bool:
    system.unlink(name, folder)
    try:
        system.link(source, name, origin, folder)
    except OSError as error:
        if error.errno not in _NOT_SHARED:
            raise
        return False
    return True


def _size(name: str, folder: int) -> int | None:
    try:
        seen = system.look(name, folder)
    except FileNotFoundError:
        return None
    return seen.st_size if stat.S_ISREG(seen.st_mode) else None


def _seen(item: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return item.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
