"""What a file system holds at one moment: names, and the files, folders and links they lead to."""

from __future__ import annotations

import functools
import os
import stat
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import xxhash

from samestep.checkpoints import is_log
from samestep.crash.contents import BaseFile, Content, Piece
from samestep.process.copying import explained

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

TOP = 0
"""Number of the folder ``/``."""

SYNTHETIC_EPOCH = 1_577_836_800_000_000_000  # 2020-01-01: archives cannot hold times before 1980


@dataclass(frozen=True, slots=True)
class File:
    """A regular file.

    Attributes:
        content: its bytes.
        modified: nanoseconds since the epoch; only the order means something.
        mode: permission bits.
    """

    content: Content = field(default_factory=Content)
    modified: int = SYNTHETIC_EPOCH
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder: names and the numbers of what they lead to. The mapping is never changed, only replaced."""

    entries: Mapping[str, int] = field(default_factory=dict)
    modified: int = SYNTHETIC_EPOCH
    mode: int = 0o755


@dataclass(frozen=True, slots=True)
class Symlink:
    """A symbolic link and what it says."""

    text: str
    modified: int = SYNTHETIC_EPOCH


Node = File | Folder | Symlink
Entry = tuple[int, str]
"""A name in a folder: the folder's number and the name."""


class Image:
    """The tree below ``/`` as far as it is known, and in it the durable folder.

    Files and folders have numbers and exist apart from their names, as inodes do. An image is a value: only a
    `copy` that nobody else has seen yet may be changed, with `put`, `enter` and `leave`. Copies share what is equal.

    Args:
        root: absolute path of the durable folder.
        clock: modification time before the first operation, nanoseconds.
        base: nodes by number that are shared with other images, by default an empty ``/``.
        changed: nodes by number of this image alone.
    """

    __slots__ = ("_base", "_changed", "_origin", "clock", "root")

    def __init__(
        self,
        root: str,
        clock: int = SYNTHETIC_EPOCH,
        base: Mapping[int, Node] | None = None,
        changed: dict[int, Node] | None = None,
    ) -> None:
        self.root = os.path.normpath(root)
        self.clock = clock
        self._base = {TOP: Folder()} if base is None else base
        self._changed = {} if changed is None else changed
        self._origin: tuple[Image, tuple[int, ...]] | None = None

    @classmethod
    def load(cls, folder: Path, root: str = "") -> Image:
        """Read what a folder holds; contents stay where they are, so nobody may change them meanwhile.

        Args:
            folder: on disk; need not exist.
            root: path under which the recorded process saw it, by default its own.

        Raises:
            MachineError: something in it cannot be read.
        """
        with explained(f"{folder} could not be read"):
            image = cls(root or os.path.realpath(folder))
            if folder.is_dir():
                image.graft(image.root, _Loader(image).load(str(folder)))
            return image.settled()

    def copy(self) -> Image:
        """Return a copy that may be changed."""
        return Image(self.root, self.clock, self._base, self._changed.copy())

    def compact(self) -> Image:
        """Return an equal image that is cheap to copy."""
        return Image(self.root, self.clock, {**self._base, **self._changed}, {})

    def settled(self) -> Image:
        """Return an equal image whose clock stands at its newest file: what comes will be newer."""
        nodes = {**self._base, **self._changed}
        return Image(self.root, max(self.clock, *(node.modified for node in nodes.values())), nodes, {})

    def placed(self, root: str) -> Image:
        """Return the durable folder alone, as if it lay at another path."""
        twin = self.copy()
        twin.root = os.path.normpath(root)
        top = self.find(self.root)
        twin.put(TOP, Folder())
        if top is not None:
            twin.graft(twin.root, top)
        return twin

    # what is there

    def node(self, number: int) -> Node | None:
        """Return the file, folder or link with this number."""
        return self._changed.get(number) or self._base.get(number)

    def content(self, number: int) -> Content:
        """Return the bytes of a file; none for anything else."""
        node = self.node(number)
        return node.content if isinstance(node, File) else Content()

    def next_number(self) -> int:
        """Return a number above all that are in use."""
        return max([TOP, *self._base, *self._changed]) + 1

    def find(self, path: str) -> int | None:
        """Return the number of what an absolute path leads to, no links followed."""
        number = TOP
        for name in _parts(path):
            node = self.node(number)
            found = node.entries.get(name) if isinstance(node, Folder) else None
            if found is None:
                return None
            number = found
        return number

    def at(self, entry: Entry) -> int | None:
        """Return the number that a name in a folder leads to."""
        folder = self.node(entry[0])
        return folder.entries.get(entry[1]) if isinstance(folder, Folder) else None

    def below(self, path: str = "") -> Iterator[tuple[str, Node]]:
        """Yield path and node of everything below a path relative to the root, folders before what is in them.

        Paths are relative to the root as well; the start itself comes first.
        """
        for name, number in self.numbers(path):
            node = self.node(number)
            if node is not None:
                yield name, node

    def numbers(self, path: str = "") -> Iterator[tuple[str, int]]:
        """Yield path and number of everything below a path relative to the root, as `below`."""
        path = "" if path == "." else path
        start = self.find(f"{self.root}/{path}")
        waiting = [] if start is None else [(path, start)]
        while waiting:
            name, number = waiting.pop()
            yield name, number
            node = self.node(number)
            if isinstance(node, Folder):
                inner = sorted(node.entries.items(), reverse=True)
                waiting += [(f"{name}/{child}" if name else child, entry) for child, entry in inner]

    def files(self, path: str = "") -> dict[str, Content]:
        """Return the regular files below a path relative to the root: path and bytes."""
        return {name: node.content for name, node in self.below(path) if isinstance(node, File)}

    def file(self, path: str) -> Content | None:
        """Return the bytes of the regular file at a path relative to the root."""
        number = self.find(f"{self.root}/{path}")
        node = None if number is None else self.node(number)
        return node.content if isinstance(node, File) else None

    def entries(self, folder: int = TOP) -> Iterator[tuple[int, Entry]]:
        """Yield what every name below a folder leads to, and the name."""
        node = self.node(folder)
        if isinstance(node, Folder):
            for name, child in sorted(node.entries.items()):
                yield child, (folder, name)
                yield from self.entries(child)

    def digest(self, path: str = "", *, logs: bool = True) -> str:
        """Digest of names, kinds, link texts and contents below a path relative to the root; no times, no modes.

        Args:
            path: where to begin; what is not there has a digest too.
            logs: whether log files count.
        """
        if self._origin and not path:
            base, numbers = self._origin
            tally = _tally(base, logs)
            terms = [
                _term(name, self.node(number)) - _term(name, base.node(number))
                for number in numbers
                for name in tally.names.get(number, ())
            ]
            return f"{(tally.total + sum(terms)) % _MODULUS:032x}"
        if not path:
            return f"{_tally(self, logs).total % _MODULUS:032x}"
        found = [(name[len(path) :], node) for name, node in self.below(path) if logs or not _is_log(name)]
        return f"{sum(_term(name, node) for name, node in found) % _MODULUS:032x}" if found else "absent"

    # changes, for a copy of one's own

    def put(self, number: int, node: Node) -> None:
        """Set what a number stands for."""
        self._changed[number] = node

    def enter(self, entry: Entry, number: int, modified: int) -> None:
        """Let a name in a folder lead to a number."""
        folder = self.node(entry[0])
        if isinstance(folder, Folder):
            self.put(
                entry[0], replace(folder, entries={**folder.entries, entry[1]: number}, modified=modified)
            )

    def leave(self, entry: Entry, modified: int) -> None:
        """Take a name out of a folder."""
        folder = self.node(entry[0])
        if isinstance(folder, Folder) and entry[1] in folder.entries:
            entries = {name: child for name, child in folder.entries.items() if name != entry[1]}
            self.put(entry[0], replace(folder, entries=entries, modified=modified))

    def with_content(self, contents: Mapping[int, Content]) -> Image:
        """Return a copy in which files have other bytes."""
        twin = self.copy()
        twin._origin = self, tuple(contents)  # noqa: SLF001 - its own
        for number, content in contents.items():
            node = self.node(number)
            if isinstance(node, File):
                twin.put(number, replace(node, content=content))
        return twin

    def graft(self, path: str, number: int) -> None:
        """Let an absolute path lead to a number, making the folders on the way."""
        *folders, name = _parts(path)
        parent = TOP
        for folder in folders:
            child = self.at((parent, folder))
            if child is None:
                child = self.next_number()
                self.put(child, Folder())
                self.enter((parent, folder), child, self.clock)
            parent = child
        self.enter((parent, name), number, self.clock)


class _Loader:
    """Reads a folder of the disk into an image; names of one inode stay names of one file."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self._next = image.next_number()
        self._known: dict[tuple[int, int], int] = {}

    def load(self, path: str) -> int:
        status = os.lstat(path)
        known = self._known.get((status.st_dev, status.st_ino))
        if known is not None:
            return known
        number = self._known[status.st_dev, status.st_ino] = self._next
        self._next += 1
        self._image.put(number, self._node(path, status))
        return number

    def _node(self, path: str, status: os.stat_result) -> Node:
        mode, modified = stat.S_IMODE(status.st_mode), status.st_mtime_ns
        if stat.S_ISLNK(status.st_mode):
            return Symlink(os.readlink(path), modified)  # noqa: PTH115 - Path.readlink normalises the text
        if stat.S_ISDIR(status.st_mode):
            with os.scandir(path) as found:
                inner = sorted(entry.name for entry in found if _holds_data(entry))
            return Folder({name: self.load(f"{path}/{name}") for name in inner}, modified, mode)
        piece = Piece(BaseFile(path), 0, status.st_size)
        return File(Content.of([piece]), modified, mode)


def _holds_data(entry: os.DirEntry[str]) -> bool:
    """Tell whether it is a file, folder or link; sockets and pipes hold nothing that could be carried."""
    return entry.is_symlink() or entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in {"", "."}]


_MODULUS = 1 << 128
_is_log = functools.lru_cache(maxsize=1 << 12)(is_log)


class _Tally(NamedTuple):
    """A sum over everything in an image, so that it can be corrected for what changes; and the names in it."""

    total: int
    names: dict[int, list[str]]


@functools.lru_cache(maxsize=8)
def _tally(image: Image, logs: bool) -> _Tally:
    total = 0
    names: dict[int, list[str]] = {}
    for name, number in image.numbers():
        if logs or not _is_log(name):
            total += _term(name, image.node(number))
            names.setdefault(number, []).append(name)
    return _Tally(total, names)


def _term(name: str, node: Node | None) -> int:
    if isinstance(node, File):
        what = b"f" + node.content.digest
    else:
        what = b"l" + os.fsencode(node.text) if isinstance(node, Symlink) else b"d"
    return int(xxhash.xxh3_128_intdigest(b"%b\0%b" % (os.fsencode(name), what)))
