"""Storing the parts of one bundle, each either anew or as the same bytes that its predecessor has."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING

import msgspec

from samestep.bundle.digests import chunk_range, digest_content, read_and_digest, room_for
from samestep.bundle.errors import CommitRefused, DamageError, NoRoom, StoreError
from samestep.bundle.manifest import Part
from samestep.bundle.paths import check_part_path, part_key
from samestep.bundle.storage.base import Absent
from samestep.bundle.storage.direct import RING
from samestep.bundle.storage.failures import out_of_room
from samestep.bundle.verifying import check_stored

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from samestep.bundle.manifest import Manifest
    from samestep.bundle.storage.base import Content, Storage

FULL_COPY_AFTER = 8
"""How many bundles in a row may hold the same stored bytes of a part before they are written again."""

SHARED_BYTES = 1 << 20
"""Smaller parts had better be stored in every bundle: it costs nothing, and damage to one harms no other bundle."""

ROOM_MARGIN_BYTES = 16 << 20
"""What has to stay free besides the parts, for records and for the file system itself."""

_DIGEST_THREADS = min(4, os.cpu_count() or 1)


class PartWriter:
    """Stores parts of one bundle. Every rank may have one of its own for the same bundle; threads may share one.

    Args:
        storage: the place.
        bundle: id of the bundle under construction.
        base: the manifest of the bundle whose unchanged parts need not be stored twice.
        sound: keys whose stored bytes the attempt has written or verified itself; grows. Nothing else is shared
            before it is verified, so that what rotted in an older bundle does not get into a new one.
    """

    def __init__(
        self, storage: Storage, bundle: str, base: Manifest | None, sound: set[str] | None = None
    ) -> None:
        self._storage, self._bundle = storage, bundle
        self._sound = set() if sound is None else sound
        self._base_id = base.id if base else ""
        self._base = {part.path: part for part in base.parts} if base else {}
        self._parts: dict[str, Part | None] = {}
        self._contents: dict[str, Content] = {}
        self._unsettled: set[str] = set()
        self._lock = threading.Lock()
        self._room = _Room(storage)

    @property
    def parts(self) -> list[Part]:
        """The parts that are stored, in the order in which they were begun."""
        with self._lock:
            return [part for part in self._parts.values() if part is not None]

    def add(
        self,
        path: str,
        content: Content,
        *,
        components: Sequence[str] = (),
        expected_digest: str = "",
        rank: int | None = None,
        share: bool = True,
    ) -> Part:
        """Store ``content`` as the part ``path``, or share what the base holds when it is the same.

        Args:
            path: relative to the bundle, as the framework names it.
            content: must not change before the bundle is committed.
            components: of the training state that the part carries.
            expected_digest: hex, by the scheme of the format; the bytes that are stored must have it.
            rank: of the writer, where parts differ by rank.
            share: whether it may be shared at all. What harms a shared part harms every bundle that has it.

        Raises:
            FormatError: the path is not one that a part may have.
            NoRoom: there is no room.
            CommitRefused: a part of that path exists.
            DamageError: the bytes do not have the expected digest.
            StoreError: the content cannot be read, or the place failed.
        """
        self._claim(path)
        try:
            part = (self._share(path, content) if share else None) or self._store(path, content)
            _check_digest(part, expected_digest)
        except BaseException:
            self._drop(path)
            raise
        part = msgspec.structs.replace(part, components=tuple(components), rank=rank)
        with self._lock:
            self._parts[path] = part
            if part.share_depth:
                self._contents[path] = content
        return part

    def take(self, part: Part) -> None:
        """Take in a part that another writer has stored and settled for the same bundle."""
        self._claim(part.path)
        with self._lock:
            self._parts[part.path] = part

    def settle(self) -> None:
        """Return when everything stored by this writer would survive a power cut."""
        with self._lock:
            keys = sorted(self._unsettled)
        if keys:
            self._storage.settle(keys)
            with self._lock:
                self._unsettled.difference_update(keys)

    def store_anew(self, shared: Iterable[Part]) -> None:
        """Store parts in the bundle's own folder whose bytes it so far shares with another bundle.

        Raises:
            CommitRefused: another writer has added such a part, and only it has the bytes.
        """
        for part in shared:
            content = self._contents.get(part.path)
            if content is None:
                raise CommitRefused(
                    f"{part.path} of {self._bundle} was shared with {part.stored_in or 'an older bundle'}, "
                    "which was given up or damaged meanwhile",
                    hint="save again",
                )
            self._sound.discard(part_key(part.stored_in or self._bundle, part.path))
            stored = self._store(part.path, content)
            _check_digest(stored, part.digest)
            own = msgspec.structs.replace(stored, components=part.components, rank=part.rank)
            with self._lock:
                self._parts[part.path] = own

    def _claim(self, path: str) -> None:
        check_part_path(path)
        with self._lock:
            if path in self._parts:
                raise CommitRefused(f"{self._bundle} already has a part {path}")
            self._parts[path] = None

    def _drop(self, path: str) -> None:
        key = part_key(self._bundle, path)
        self._sound.discard(key)
        with contextlib.suppress(StoreError):
            self._storage.remove([key])
        with self._lock:
            del self._parts[path]
            self._unsettled.discard(key)

    def _share(self, path: str, content: Content) -> Part | None:
        old = self._base.get(path)
        if old is None or old.size != content.size or old.share_depth >= FULL_COPY_AFTER:
            return None
        if not _is_content_of(old, content, path):
            return None
        holder = old.stored_in or self._base_id
        source, target = part_key(holder, path), part_key(self._bundle, path)
        if not self._is_sound(source, old):
            return None
        if self._links(source, target):
            self._sound.add(target)
            holder = ""
        return msgspec.structs.replace(old, stored_in=holder, share_depth=old.share_depth + 1)

    def _is_sound(self, key: str, part: Part) -> bool:
        """Say whether the stored bytes are those of the manifest.

        They are read once in an attempt; their size is asked for every time, for what was trusted may be gone since.
        """
        if self._storage.size(key) != part.size:
            self._sound.discard(key)
        elif key not in self._sound:
            with contextlib.suppress(StoreError):  # what cannot be read is stored anew
                check_stored(self._storage, key, part, what=f"{part.path} under {key}")
                self._sound.add(key)
        return key in self._sound

    def _links(self, source: str, target: str) -> bool:
        try:
            shared = self._storage.share(source, target)
        except Absent:
            return False
        if shared:
            with self._lock:
                self._unsettled.add(target)
        return shared

    def _store(self, path: str, content: Content) -> Part:
        key = part_key(self._bundle, path)
        with self._room.reserved(content.size):
            with self._lock:
                self._unsettled.add(key)
            try:
                written = self._storage.write(key, content)
            except OSError as error:
                raise StoreError(f"{path} could not be read while it was being stored: {error}") from error
            except StoreError as error:
                if out_of_room(error):
                    raise NoRoom(error.message, hint=error.hint) from error
                raise
        self._sound.add(key)
        return Part(
            path=path,
            size=written.size,
            algorithm=written.algorithm,
            digest=written.digest,
            chunks=written.chunks,
        )


class _Room:
    """The room that the threads of one writer share: what one of them is about to fill is not there for the others.

    How much of what is begun already counts as used differs by file system, so room is measured only while nothing is
    on its way; whoever may not fit beside the others waits for them and measures again.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._changed = threading.Condition()
        self._flying = self._promised = 0
        self._free: int | None = None

    @contextlib.contextmanager
    def reserved(self, size_bytes: int) -> Iterator[None]:
        """Reserve room while a part is being stored.

        Raises:
            NoRoom: there is too little, also with nothing else on its way.
        """
        self._enter(size_bytes)
        try:
            yield
        finally:
            with self._changed:
                self._flying -= 1
                self._changed.notify_all()

    def _enter(self, size_bytes: int) -> None:
        with self._changed:
            if self._flying:
                self._changed.wait_for(lambda: not self._flying or self._fits(size_bytes))
            if not self._flying:
                self._free = check_room(self._storage, size_bytes)
                self._promised = 0
            self._flying += 1
            self._promised += size_bytes

    def _fits(self, size_bytes: int) -> bool:
        return self._free is None or self._promised + size_bytes + ROOM_MARGIN_BYTES <= self._free


def check_room(storage: Storage, size_bytes: int) -> int | None:
    """Refuse to begin with what cannot be finished; return the bytes that are free, None when that is not known.

    Raises:
        NoRoom: the place says how much is free, and it is less than ``size_bytes`` and a margin.
    """
    free = storage.free_bytes()
    needed = size_bytes + ROOM_MARGIN_BYTES
    if free is not None and free < needed:
        raise NoRoom(
            f"{storage.url} has {free:,} bytes left and {needed:,} are needed; nothing was written",
            hint="make room, for instance with samestep bundle prune; the bundles that are there stay as they are",
        )
    return free


def _is_content_of(part: Part, content: Content, path: str) -> bool:
    """Compare by content; most changed parts differ in their first chunk already, and some know their digest."""
    known = getattr(content, "digest", "")
    if known:
        return bool(known == part.digest)
    length = chunk_range(0, part.size)[1]
    try:
        with room_for(content, 0, length, RING.borrow) as buffer:
            if read_and_digest(content, 0, buffer[:length]) != (part.chunks or (part.digest,))[0]:
                return False
        return not part.chunks or _digest_of(content) == part.digest
    except OSError as error:
        raise StoreError(f"{path} could not be read while it was being stored: {error}") from error


def _digest_of(content: Content) -> str:
    return digest_content(content, _DIGEST_THREADS, buffer=RING.borrow).digest


def _check_digest(part: Part, expected: str) -> None:
    if expected and part.digest != expected:
        raise DamageError(
            f"{part.path} has the digest {part.digest[:16]}… and not {expected[:16]}…, as was expected",
            hint="it changed between the moment it was digested and the moment it was stored",
        )
