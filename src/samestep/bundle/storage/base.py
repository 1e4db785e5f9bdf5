"""The one seam between the store's protocol and a place that keeps bytes.

A key is a relative name with ``/`` between its parts. What the protocol rests on stands in the
docstrings; every implementation passes ``tests/contract/test_storage.py``.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class AlreadyThere(Exception):  # noqa: N818 - an answer of the store, not a failure
    """``create`` found the name taken."""


class Absent(Exception):  # noqa: N818 - an answer of the store, not a failure
    """There is nothing of that name."""


class Content(Protocol):
    """Bytes to be stored, readable at any offset and from several threads at once."""

    @property
    def size(self) -> int:
        """Length in bytes, known before anything is read."""

    def read_into(self, offset: int, target: memoryview) -> None:
        """Fill ``target`` with the bytes from ``offset`` on.

        Raises:
            OSError: the source cannot be read, or ends before ``target`` is full.
        """


@runtime_checkable
class Resting(Content, Protocol):
    """A content that may lie in memory in one piece, and stays as it is until it is stored.

    Its ``read_into`` may be asked to fill that very memory: the bytes count as read, and none is moved.
    """

    @property
    def memory(self) -> memoryview | None:
        """The bytes themselves; None: they do not lie in one piece."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """One stored thing as a listing shows it."""

    key: str
    size: int
    modified: float  #: seconds since 1970, by the clock of the place


@dataclasses.dataclass(frozen=True)
class Written:
    """What ``write`` stored: the digest is of exactly the bytes that were handed to the place."""

    size: int
    algorithm: str
    digest: str
    chunks: tuple[str, ...] = ()


class Storage(Protocol):
    """A place that keeps bytes under names."""

    @property
    def url(self) -> str:
        """The place as a user would name it, without secrets."""

    def create(self, key: str, data: bytes) -> None:
        """Store ``data`` under ``key`` in one atomic act, only if the name is free; durable on return.

        Raises:
            AlreadyThere: the name is taken, perhaps by this very call's own lost first try.
            StoreError: the place failed; whether the name now exists is unknown.
        """

    def read(self, key: str, *, limit: int) -> bytes:
        """Return what is stored under ``key``.

        Raises:
            Absent: there is nothing.
            StoreError: the place failed, or holds more than ``limit`` bytes.
        """

    def size(self, key: str) -> int | None:
        """Return the stored size in bytes, or None when there is nothing."""

    def sizes(self, keys: Iterable[str]) -> dict[str, int | None]:
        """Return the sizes of several keys, asked for in parallel."""

    def write(self, key: str, content: Content) -> Written:
        """Store a large thing under a name nobody else uses; not durable before ``settle``.

        Interrupted, it may leave anything under ``key``. Bounded memory whatever the size.
        """

    def settle(self, keys: Iterable[str]) -> None:
        """Return when these keys, and the folders that lead to them, would survive a power cut."""

    def read_into(self, key: str, offset: int, target: memoryview) -> None:
        """Fill ``target`` from ``offset`` on.

        Raises:
            Absent: there is nothing.
            UnreadableError: the thing is shorter, or it cannot be read though the place answers.
            StoreError: the place failed.
        """

    def share(self, source: str, target: str) -> bool:
        """Make ``target`` the same stored bytes as ``source`` without storing them twice, if the place can.

        Settled like a write. False when the place cannot do it.
        """

    def remove(self, keys: Iterable[str]) -> None:
        """Remove what is there; names that are absent are no error."""

    def entries(self, prefix: str) -> Iterator[Entry]:
        """Yield what is stored below ``prefix`` (a folder, ending in ``/``), in no particular order."""

    def discard_unfinished(self, prefix: str, older_than: float) -> int:
        """Remove leftovers of interrupted writes below ``prefix`` that began before the time given.

        Temporary names and abandoned multipart uploads. Returns how many.
        """

    def free_bytes(self) -> int | None:
        """Return the room left for this user, or None where that cannot be known."""
