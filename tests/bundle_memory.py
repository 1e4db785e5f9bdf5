"""A place in memory that keeps apart what is stored and what would survive a power cut, and fails on demand."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

from samestep.bundle.digests import digest_content
from samestep.bundle.errors import StoreError, UnreadableError
from samestep.bundle.storage.base import Absent, AlreadyThere, Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from samestep.bundle.storage.base import Content, Written

CHANGING = ("create", "write", "settle", "share", "remove")


class Crash(BaseException):
    """The process is dead: nothing after this request happens, and nothing catches it."""


@dataclasses.dataclass
class Faults:
    """What goes wrong, by the number of the changing request since ``arm``."""

    crash_before: int = 0
    crash_after: int = 0
    lose_reply: int = 0  #: the request is applied; the client tries again by itself, as obstore does
    fail_before: int = 0  #: the place failed and nothing was done
    fail_after: int = 0  #: the place failed and it was done


class MemoryStorage:
    """A dict of bytes with the promises of the seam, and none beyond them."""

    def __init__(self, *, links: bool = True, free: int | None = None) -> None:
        self.seen: dict[str, bytes] = {}
        self.durable: dict[str, bytes] = {}
        self.modified: dict[str, float] = {}
        self.links = links
        self.free = free
        self.calls: Counter[str] = Counter()
        self.log: list[tuple[str, str]] = []
        self.before: Callable[[str, str], None] = lambda _operation, _key: None
        self.after: Callable[[str, str], None] = lambda _operation, _key: None
        self.faults = Faults()
        self.changes = 0
        self.dead = False
        self._lock = threading.RLock()

    url = "memory://"

    def arm(self, **faults: int) -> None:
        self.faults, self.changes = Faults(**faults), 0

    def revived(self) -> MemoryStorage:
        """What another process finds after this one was killed."""
        return self._copied(self.seen)

    def after_power_cut(self) -> MemoryStorage:
        """What another machine finds: what was not settled is empty, or full of zeros at its length."""
        torn = {
            key: b"" if index % 2 else bytes(len(data)) for index, (key, data) in enumerate(self.seen.items())
        }
        return self._copied(torn | self.durable)

    def create(self, key: str, data: bytes) -> None:
        def apply() -> None:
            if key in self.seen:
                raise AlreadyThere(key)
            self._put(key, bytes(data))
            self.durable[key] = bytes(data)

        self._change("create", key, apply)

    def read(self, key: str, *, limit: int) -> bytes:
        self._look("read", key)
        data = self._data(key)
        if len(data) > limit:
            raise StoreError(f"{key} has more than {limit} bytes")
        return data

    def size(self, key: str) -> int | None:
        self._look("size", key)
        return len(self.seen[key]) if key in self.seen else None

    def sizes(self, keys: Iterable[str]) -> dict[str, int | None]:
        self._look("sizes", "")
        return {key: self.size(key) for key in keys}

    def write(self, key: str, content: Content) -> Written:
        data = bytearray(content.size)
        content.read_into(0, memoryview(data))
        self._change("write", key, lambda: self._put(key, bytes(data)))
        return digest_content(content)

    def settle(self, keys: Iterable[str]) -> None:
        keys = list(keys)

        def apply() -> None:
            self.durable.update({key: self.seen[key] for key in keys if key in self.seen})

        self._change("settle", ",".join(keys), apply)

    def read_into(self, key: str, offset: int, target: memoryview) -> None:
        self._look("read_into", key)
        data = self._data(key)[offset : offset + len(target)]
        if len(data) < len(target):
            raise UnreadableError(f"{key} ends too early")
        target[:] = data

    def share(self, source: str, target: str) -> bool:
        if not self.links:
            return False
        self._change("share", target, lambda: self._put(target, self._data(source)))
        return True

    def remove(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._change("remove", key, lambda key=key: self._drop(key))

    def entries(self, prefix: str) -> Iterator[Entry]:
        self._look("entries", prefix)
        with self._lock:
            found = [key for key in self.seen if key.startswith(prefix)]
        for key in sorted(found, reverse=True):
            if key in self.seen:
                yield Entry(key, len(self.seen[key]), self.modified[key])

    def discard_unfinished(self, prefix: str, older_than: float) -> int:
        self._look("discard_unfinished", prefix)
        return 0

    def free_bytes(self) -> int | None:
        return self.free

    def damage(self, key: str, how: Callable[[bytes], bytes | None]) -> None:
        """Change stored bytes behind everybody's back; None takes them away."""
        data = how(self.seen[key])
        for place in (self.seen, self.durable):
            if data is None:
                place.pop(key, None)
            elif key in place:
                place[key] = data

    def _change(self, operation: str, key: str, apply: Callable[[], None]) -> None:
        self.before(operation, key)
        with self._lock:
            self._require_alive()
            self.calls[operation] += 1
            self.changes += 1
            self.log.append((operation, key))
            at = self.changes
            if self.faults.crash_before == at:
                self._die()
            if self.faults.fail_before == at:
                raise StoreError("the place failed")
            apply()
            if self.faults.lose_reply == at and operation == "create":
                apply()
            if self.faults.crash_after == at:
                self._die()
            if self.faults.fail_after == at:
                raise StoreError("the place failed")
        self.after(operation, key)

    def _look(self, operation: str, key: str) -> None:
        self.before(operation, key)
        with self._lock:
            self._require_alive()
            self.calls[operation] += 1

    def _require_alive(self) -> None:
        if self.dead:
            raise Crash

    def _die(self) -> None:
        self.dead = True
        raise Crash

    def _data(self, key: str) -> bytes:
        try:
            return self.seen[key]
        except KeyError:
            raise Absent(key) from None

    def _put(self, key: str, data: bytes) -> None:
        self.seen[key] = data
        self.modified[key] = time.time()

    def _drop(self, key: str) -> None:
        self.seen.pop(key, None)  # a removal need not survive a power cut

    def _copied(self, seen: dict[str, bytes]) -> MemoryStorage:
        copy = MemoryStorage(links=self.links, free=self.free)
        copy.seen, copy.durable = dict(seen), dict(seen)
        copy.modified = dict.fromkeys(seen, 0.0) | self.modified
        return copy
