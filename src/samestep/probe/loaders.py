"""Which samples a forward was fed with: follows the iterators of `torch.utils.data` by what they deliver.

The batch sampler is asked long before a batch is delivered (workers prefetch), and a framework may hold
a delivered batch back (accelerate looks one batch ahead). So indices are queued per iterator as they are
fetched, tied to a batch when it is delivered, and tied to a forward by content; where content cannot
match (a cast, an augmentation on the device), by delivery order.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import sys
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

REMEMBERED = 256
"""Deliveries remembered per data set: an evaluation must not crowd out the batch a training loop holds back."""

MOST_FEEDS = 32

HELD = 4
"""Newest deliveries whose tensors are kept alive, so that a batch that was moved to a device can still be matched."""

HELD_BYTES = 1 << 29
"""Most bytes of tensors kept alive on behalf of deliveries."""

MOST_TENSORS = 32
MOST_VISITS = 512
MOST_INDICES = 4096
_LEAVES = (str, bytes, int, float, type(None))
_FETCHED = "_samestep_fetched"
_CO_GENERATOR = 0x20


class Delivery:
    """One batch as a loader handed it out.

    Attributes:
        feed: identity of the data set it came from.
        indices: what the batch sampler gave; None when unknown.
        look_ahead: batches the receiver is known (accelerate) or may be expected (a generator) to hold back.
        number: its place among all deliveries, from 1.
        digests: of its tensors, once they were asked for.
        forced: the look-ahead is certain.
        exhausted: the loader had nothing more to give after it.
        with_grad: gradients were being recorded when it was fetched.
    """

    def __init__(self, feed: int, indices: list[Any] | None, tensors: list[Any], caller: Any) -> None:
        self.feed = feed
        self.indices = indices
        self.number = 0
        self.digests: set[str] | None = None
        self.forced = _is_accelerate(caller)
        self.look_ahead = 1 if self.forced or caller.f_code.co_flags & _CO_GENERATOR else 0
        self.exhausted = False
        self.with_grad = True
        self._held: list[Any] = tensors
        self._weak = [weakref.ref(tensor) for tensor in tensors]

    @property
    def size_bytes(self) -> int:
        """Bytes kept alive by this delivery."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self._held)

    def digest(self, digest: Callable[[Any], str]) -> set[str]:
        """Digest the tensors once; those that are gone are left out."""
        if self.digests is None:
            alive = self._held or [tensor for ref in self._weak if (tensor := ref()) is not None]
            self.digests = {digest(tensor) for tensor in alive}
        return self.digests

    def release(self) -> None:
        """Let the tensors go as far as this record is concerned."""
        self._held = []

    def in_use(self) -> bool:
        """Return whether anybody else still holds one of the tensors."""
        if not self._held:
            return any(ref() is not None for ref in self._weak)
        # Two references are ours: the list and the argument of getrefcount.
        return any(sys.getrefcount(self._held[i]) > 2 for i in range(len(self._held)))


class LoaderWatch:
    """Follows every loader of the process and answers which samples a forward was fed with.

    Attributes:
        digest: content digest of one tensor, independent of the device it lies on; set before the first forward.
        not_followed: what could not be followed, one sentence each.
        shifted: the sabotage ordered by ``shift_next`` has happened.
    """

    def __init__(self) -> None:
        self.digest: Callable[[Any], str] | None = None
        self.not_followed: list[str] = []
        self.shifted = False
        self._feeds: dict[int, deque[Delivery]] = {}
        self._newest: deque[Delivery] = deque()
        self._delivered = 0
        self._given = 0
        self._last: Delivery | None = None
        self._training: set[int] = set()
        self._by_content: set[int] = set()
        self._shift = False
        self._tensor: type = object
        self._iterable_kind: Any = None
        self._torch: Any = None

    def install(self, torch: Any) -> None:
        """Patch the iterators of ``torch.utils.data``; torchdata's derive from the same base and call it."""
        from torch.utils.data import dataloader

        base = dataloader._BaseDataLoaderIter
        self._torch = torch
        self._tensor = torch.Tensor
        self._iterable_kind = dataloader._DatasetKind.Iterable
        self._patch(base, "_next_index", self._around_next_index)
        self._patch(base, "_reset", self._around_reset)
        self._patch(base, "__next__", self._around_next)

    def samples_for(self, tensor_digests: list[str]) -> list[Any] | None:
        """Return the sample indices of the batch that holds these tensors, None where they are unknown.

        Several forwards on one batch get the same answer. Tensors that came from no loader whose batches were
        ever recognised by content fall back to delivery order.
        """
        try:
            found = self._matching(set(tensor_digests)) or self._next_in_order()
            return None if found is None else self._take(found)
        except Exception as error:
            self._note(f"sample indices: {type(error).__name__}: {error}"[:200])
            return None

    def shift_next(self) -> None:
        """Drop the next batch that a training loader delivers and deliver the one after it instead."""
        self._shift = True

    # -- patches ---------------------------------------------------------------------------------------------

    @staticmethod
    def _patch(owner: type, name: str, around: Callable[..., Any]) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def patched(iterator: Any, *args: Any, **keywords: Any) -> Any:
            return around(original, iterator, *args, **keywords)

        setattr(owner, name, patched)

    @staticmethod
    def _around_next_index(original: Callable[..., Any], iterator: Any) -> Any:
        index = original(iterator)
        with contextlib.suppress(Exception):
            _fetched(iterator).append(index)
        return index

    @staticmethod
    def _around_reset(original: Callable[..., Any], iterator: Any, *args: Any, **keywords: Any) -> Any:
        with contextlib.suppress(Exception):
            _fetched(iterator).clear()
        return original(iterator, *args, **keywords)

    def _around_next(self, original: Callable[..., Any], iterator: Any) -> Any:
        try:
            if self._wants_shift(iterator):
                original(iterator)
                _drop_oldest(iterator)
                self._shift, self.shifted = False, True
            data = original(iterator)
        except StopIteration:
            self._mark_exhausted(iterator)
            raise
        except BaseException:
            _drop_oldest(iterator)
            raise
        try:
            self._deliver(iterator, data, _receiver(sys._getframe(2)))
        except Exception as error:
            self._note(f"batches of {type(iterator).__name__}: {type(error).__name__}: {error}"[:200])
        return data

    def _wants_shift(self, iterator: Any) -> bool:
        if not self._shift or (self._training and id(iterator._dataset) not in self._training):
            return False
        return _has_two_more(iterator)

    # -- bookkeeping -----------------------------------------------------------------------------------------

    def _deliver(self, iterator: Any, data: Any, receiver: Any) -> None:
        queue = _fetched(iterator)
        index = queue.popleft() if queue else None
        indices = self._followable(iterator, index, receiver)
        tensors = _tensors(data, self._tensor)
        delivery = Delivery(id(iterator._dataset), indices, tensors, receiver)
        delivery.with_grad = self._torch.is_grad_enabled()
        self._delivered += 1
        delivery.number = self._delivered
        self._feeds.setdefault(delivery.feed, deque(maxlen=REMEMBERED)).append(delivery)
        if len(self._feeds) > MOST_FEEDS:
            del self._feeds[min(self._feeds, key=lambda feed: self._feeds[feed][-1].number)]
        self._newest.append(delivery)
        self._release_old()

    def _followable(self, iterator: Any, index: Any, receiver: Any) -> list[Any] | None:
        if iterator._dataset_kind == self._iterable_kind:
            self._note("an IterableDataset has no sample indices: batches are compared by content only")
            return None
        if getattr(iterator, "_in_order", True) is False and iterator._num_workers > 1:
            self._note(
                "a loader with in_order=False delivers in any order: its sample indices are not followed"
            )
            return None
        if _is_accelerate(receiver) and receiver.f_code.co_name == "_fetch_batches":
            self._note("accelerate dispatches batches from rank 0: sample indices are not followed")
            return None
        return _plain_indices(index, batched=iterator._auto_collation)

    def _release_old(self) -> None:
        while len(self._newest) > HELD or sum(delivery.size_bytes for delivery in self._newest) > HELD_BYTES:
            self._let_go(self._newest.popleft())

    def _let_go(self, delivery: Delivery) -> None:
        """Digest what may still be fed to a forward (an accumulation window fetched at once) before it is released."""
        pending = delivery.number > self._given
        if pending and self.digest is not None and (not self._training or delivery.feed in self._training):
            delivery.digest(self.digest)
        delivery.release()

    def _mark_exhausted(self, iterator: Any) -> None:
        deliveries = self._feeds.get(id(iterator._dataset))
        if deliveries:
            deliveries[-1].exhausted = True

    def _note(self, sentence: str) -> None:
        if sentence not in self.not_followed:
            self.not_followed.append(sentence)

    # -- matching --------------------------------------------------------------------------------------------

    def _matching(self, wanted: set[str]) -> Delivery | None:
        if self.digest is None or not wanted:
            return None
        best: list[Delivery] = []
        best_score = 0
        for delivery in self._candidates():
            score = len(wanted & delivery.digest(self.digest))
            if score > best_score:
                best, best_score = [], score
            if score and score == best_score:
                best.append(delivery)
            if best_score == len(wanted):
                break
        pending = [delivery for delivery in best if delivery.number > self._given]
        if not best or (best_score < len(wanted) and len(pending) > 1):
            return None  # what matches is the same in many batches (a mask of ones): it tells nothing
        self._by_content.add(best[0].feed)
        return best[0]

    def _remembered(self) -> list[Delivery]:
        return sorted(itertools.chain(*self._feeds.values()), key=lambda delivery: delivery.number)

    def _pending(self) -> list[Delivery]:
        return [delivery for delivery in self._remembered() if delivery.number > self._given]

    def _candidates(self) -> Iterator[Delivery]:
        """Yield deliveries worth a look: those not given yet (oldest first), the last given, then older ones."""
        pending = self._pending()
        fed = [delivery for delivery in pending if not self._training or delivery.feed in self._training]
        yield from fed
        if self._last is not None:
            yield self._last
        yield from (delivery for delivery in pending if delivery not in fed)
        older = [delivery for delivery in self._remembered() if delivery.number <= self._given]
        yield from (
            delivery for delivery in reversed(older) if delivery is not self._last and delivery.digests
        )

    def _next_in_order(self) -> Delivery | None:
        # Under no_grad it is an evaluation that fetches.
        pending = [delivery for delivery in self._pending() if delivery.with_grad]
        if not pending:
            return self._last
        fed = [delivery for delivery in pending if self._last and delivery.feed == self._last.feed]
        feed = self._last.feed if fed and self._last else pending[-1].feed
        if feed in self._by_content:
            return None
        queue = [delivery for delivery in pending if delivery.feed == feed]
        newest = queue[-1]
        ahead = 0 if newest.exhausted else newest.look_ahead
        if newest.forced and ahead:
            queue.pop()
            if not queue:
                return self._last
            ahead = 0
        while len(queue) > 1 + ahead and not queue[0].in_use():
            queue.pop(0)
        return queue[0]

    def _take(self, delivery: Delivery) -> list[Any] | None:
        self._training.add(delivery.feed)
        self._last = delivery
        self._given = max(self._given, delivery.number)
        for older in self._newest:
            if older.number < delivery.number:
                older.release()
        return delivery.indices


def _fetched(iterator: Any) -> deque[Any]:
    queue: deque[Any] | None = iterator.__dict__.get(_FETCHED)
    if queue is None:
        queue = iterator.__dict__[_FETCHED] = deque()
    return queue


def _drop_oldest(iterator: Any) -> None:
    queue = iterator.__dict__.get(_FETCHED)
    if queue:
        queue.popleft()


def _has_two_more(iterator: Any) -> bool:
    """Say whether an epoch still holds the batch to drop and the one to deliver instead."""
    try:
        return bool(len(iterator) - iterator._num_yielded > 1)
    except TypeError:  # a data set without a length
        return True


def _receiver(frame: Any) -> Any:
    """Return the frame that asked for the batch: past torch's own and torchdata's ``__next__``."""
    while frame.f_back is not None and frame.f_code.co_name == "__next__" and _is_loader_code(frame):
        frame = frame.f_back
    return frame


def _is_loader_code(frame: Any) -> bool:
    name = frame.f_globals.get("__name__", "")
    return str(name).startswith(("torch.utils.data", "torchdata.", "samestep.", "_samestep."))


def _is_accelerate(frame: Any) -> bool:
    return bool(frame.f_globals.get("__name__", "") == "accelerate.data_loader")


def _tensors(data: Any, tensor: type) -> list[Any]:
    """Return the tensors of a batch: nested dicts and sequences, and plain objects that hold them."""
    found: list[Any] = []
    waiting = deque([data])
    for _ in range(MOST_VISITS):
        if not waiting or len(found) == MOST_TENSORS:
            break
        item = waiting.popleft()
        if isinstance(item, tensor):
            found.append(item)
        elif not isinstance(item, _LEAVES):
            waiting.extend(itertools.islice(_children(item), MOST_VISITS))
    return found


def _children(data: Any) -> Iterable[Any]:
    if isinstance(data, dict):
        return data.values()
    if isinstance(data, (list, tuple)):
        return data
    # transformers' BatchEncoding is a UserDict: its tensors lie in `data`.
    return list(getattr(data, "__dict__", {}).values())


def _plain_indices(index: Any, *, batched: bool) -> list[Any] | None:
    if index is None:
        return None
    # Without automatic batching a tuple is one sample's own index.
    items = list(index) if isinstance(index, list) or (batched and isinstance(index, tuple)) else [index]
    plain = [_plain_index(item) for item in items]
    if len(plain) <= MOST_INDICES:
        return plain
    return [f"digest:{hashlib.sha256(repr(plain).encode()).hexdigest()[:16]}"]


def _plain_index(item: Any) -> Any:
    if isinstance(item, (bool, int, float)) or item is None:
        return item
    if isinstance(item, str):  # a file name or a text may be private
        return f"text:{hashlib.sha256(item.encode()).hexdigest()[:12]}"
    if isinstance(item, (list, tuple)):
        return [_plain_index(part) for part in item]
    if callable(getattr(item, "item", None)) and getattr(item, "shape", None) in ((), None):
        return item.item()
    return f"type:{type(item).__name__}"
