"""The ways in which a loader is made to go on from a position: by an order, by its own state, by a count of batches."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import msgspec

from samestep.data.content import BATCH_BYTES, digest, rows_in
from samestep.data.errors import ReplayDiffers
from samestep.data.generators import held_generators
from samestep.data.replay import Replay
from samestep.data.samplers import announce_epoch
from samestep.data.streams import Outside, isolated, seed_streams

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from samestep.data.batches import Batches
    from samestep.data.position import Position
    from samestep.data.replay import Replayability

END = object()
"""What a feed gives when the epoch is over."""


class Facts(NamedTuple):
    """What is known of a loader that is followed.

    Attributes:
        replayability: what can be promised.
        key: (seed, rank): what all its random numbers depend on, beside the epoch.
        ranks: how many ranks there are.
        fixed: what must not change between a save and a resume.
        free: what may change.
    """

    replayability: Replayability
    key: tuple[int, int]
    ranks: int
    fixed: dict[str, Any]
    free: dict[str, Any]


class Feed(Protocol):
    """One way of following a loader.

    Attributes:
        way: its name in the saved state.
        per_rank: whether every rank has a state of its own.
        facts: of the loader.
        loader: the one that is really used.
    """

    way: ClassVar[str]
    per_rank: ClassVar[bool]
    facts: Facts
    loader: Any

    def open(self, position: Position) -> None:
        """Begin to give the batches after ``position``."""

    def next(self, position: Position) -> Any:
        """Return the batch that is due at ``position``, or `END`."""

    def after(self, position: Position, batch: Any) -> Position:
        """Return the position after ``batch``."""

    def save(self, position: Position) -> tuple[str | None, Any]:
        """Return the digest of the last batch and the loader's own state, each where it has one."""

    def load(self, last_batch: str | None, nested: Any) -> None:
        """Take a saved state; the next `open` goes on from it."""


class OrderedFeed:
    """A rebuilt loader whose batch sampler starts anywhere.

    Args:
        loader: rebuilt around ``batches``.
        batches: its batch sampler.
        facts: of the loader.
    """

    way: ClassVar[str] = "order"
    per_rank: ClassVar[bool] = False

    def __init__(self, loader: Any, batches: Batches, facts: Facts) -> None:
        self.loader = loader
        self.facts = facts
        self._batches = batches
        self._given: Iterator[Any] = iter(())

    def open(self, position: Position) -> None:
        """Begin at ``position``; nothing before it is fetched."""
        self._batches.seek(position)
        self._given = opened(self.loader, *self.facts.key, position.epoch)

    def next(self, position: Position) -> Any:  # noqa: ARG002 - its samples say what random numbers come
        """Return the next batch."""
        if self.loader.num_workers:
            return next(self._given, END)
        with Outside():  # inside, each batch seeds the streams by its samples
            return next(self._given, END)

    def after(self, position: Position, batch: Any) -> Position:
        """Return the position after ``batch``."""
        return self._batches.after(position, batch)

    def save(self, position: Position) -> tuple[str | None, Any]:  # noqa: ARG002 - the position says it all
        """Return nothing: the position says it all."""
        return None, None

    def load(self, last_batch: str | None, nested: Any) -> None:
        """Take nothing: the position says it all."""


class CountedFeed:
    """A loader that is started again each epoch; the batches that were used are fetched again and passed over.

    The batch used last is recognised by its digest, so a stream that does not come the same way is found out. What
    cannot be replayed is not passed over: it goes on with whatever comes.

    Args:
        loader: anything that can be iterated anew each epoch.
        announced: what is told the epoch, and has its generators seeded.
        facts: of the loader.
    """

    way: ClassVar[str] = "count"
    per_rank: ClassVar[bool] = True

    def __init__(self, loader: Iterable[Any], announced: tuple[Any, ...], facts: Facts) -> None:
        self.loader = loader
        self.facts = facts
        self._announced = announced
        self._replays = facts.replayability.kind is not Replay.NOT_REPLAYABLE
        self._given: Iterator[Any] = iter(())
        self._last: str | None = None

    def open(self, position: Position) -> None:
        """Begin the epoch again and pass over what was used of it.

        Raises:
            ReplayDiffers: what comes then is not what was used last.
        """
        announce_epoch(position.epoch, *self._announced)
        held = held_generators(*self._announced)
        again = () if self._replays else (position.batches,)
        self._given = opened(self.loader, *self.facts.key, position.epoch, *again, held=held)
        if self._replays and position.batches:
            self._pass_over(position)

    def _pass_over(self, position: Position) -> None:
        batch: Any = END
        for number in range(position.batches):
            place = msgspec.structs.replace(position, batches=number)
            batch = fetched(self._given, self.facts.key, place)
        if self._last in {None, digest(batch, most=BATCH_BYTES)}:
            return
        raise ReplayDiffers(
            f"batch {position.batches} of epoch {position.epoch + 1} is not the one that training used there: the data "
            "did not come the same way again",
            hint="make the stream depend on its epoch alone, give it state_dict and load_state_dict, or accept the "
            "difference: replay=Replayability.none(because=...)",
        )

    def next(self, position: Position) -> Any:
        """Return the next batch."""
        batch = fetched(self._given, self.facts.key, position)
        if self._replays and batch is not END:
            self._last = digest(batch, most=BATCH_BYTES)
        return batch

    def after(self, position: Position, batch: Any) -> Position:
        """Return the position after ``batch``, as if all ranks had as many samples in it."""
        return position.further(rows_in(batch) * self.facts.ranks)

    def save(self, position: Position) -> tuple[str | None, Any]:
        """Return the digest of the batch used last."""
        return (self._last if position.batches else None), None

    def load(self, last_batch: str | None, nested: Any) -> None:  # noqa: ARG002 - it has no state of its own
        """Take the digest that the replay will be checked by."""
        self._last = last_batch


class StatefulFeed:
    """A loader, data set or iterator that says by itself where it stands.

    Args:
        loader: gives the batches.
        holder: whose state it is; None for that of the iterator.
        announced: what is told the epoch.
        across: whether the state also carries from one epoch to the next. That of a finished `torchdata` loader or
            Hugging Face stream does not: restored, it would give an empty epoch.
        length: batches of an epoch, where the state of the last one might lead into the next epoch.
        facts: of the loader.
    """

    way: ClassVar[str] = "state"
    per_rank: ClassVar[bool] = True

    def __init__(
        self,
        loader: Any,
        holder: Any,
        announced: tuple[Any, ...],
        facts: Facts,
        *,
        across: bool,
        length: int | None = None,
    ) -> None:
        self.loader = loader
        self.facts = facts
        self._holder = holder
        self._announced = announced
        self._across = across
        self._length = length
        self._given: Iterator[Any] = iter(())
        self._restored: Any = None
        self._first = False
        self._ahead: Any = END

    def open(self, position: Position) -> None:
        """Begin where the state says; within an epoch that of the last pass, unless one was loaded."""
        if self._ahead is not END:
            return
        self._first = self._restored is not None
        state = self._restored if self._restored is not None else self._read() if position.batches else None
        self._restored = None
        announce_epoch(position.epoch, *self._announced)
        if state is not None and self._holder is not None:
            _write_state(self._holder, state)
        self._given = opened(self.loader, *self.facts.key, position.epoch)
        if state is not None and self._holder is None:
            _write_state(self._given, state)

    def next(self, position: Position) -> Any:
        """Return the next batch.

        A state from the last batch of an epoch leads some loaders to an empty rest, others straight into the next
        epoch, whose first batch is then kept until it is due. A state from between two epochs leads some to an empty
        one.
        """
        batch, self._ahead = self._ahead, END
        if batch is not END:
            return batch
        first, self._first = self._first, False
        if first and position.batches == self._length:
            self._ahead = fetched(self._given, self.facts.key, position.next_epoch())
            return END
        batch = fetched(self._given, self.facts.key, position)
        if first and batch is END and not position.batches:
            self.open(position)
            batch = fetched(self._given, self.facts.key, position)
        return batch

    def after(self, position: Position, batch: Any) -> Position:
        """Return the position after ``batch``, as if all ranks had as many samples in it."""
        return position.further(rows_in(batch) * self.facts.ranks)

    def save(self, position: Position) -> tuple[str | None, Any]:
        """Return the state, where it means something: within an epoch, or where it carries across."""
        return None, (self._read() if position.batches or self._across else None)

    def load(self, last_batch: str | None, nested: Any) -> None:  # noqa: ARG002 - its own state is enough
        """Keep the state for the next `open`."""
        self._restored = nested

    def _read(self) -> Any:
        if self._restored is not None:
            return self._restored
        return copy.deepcopy(_read_state(self._given if self._holder is None else self._holder))


def opened(loader: Any, *key: object, held: Mapping[str, Any] | None = None) -> Iterator[Any]:
    """Return an iterator of a loader, made on streams seeded by ``key``, as are the loader's workers."""
    workers = held_generators(getattr(loader, "generator", None))
    with isolated("open", *key, held={**workers, **(held or {})}):
        return iter(loader)


def fetched(given: Iterator[Any], key: tuple[int, int], position: Position) -> Any:
    """Return what an iterator gives next, or `END`, on streams seeded by the place in the data."""
    with Outside():
        seed_streams("batch", *key, position.epoch, position.batches)
        return next(given, END)


def is_stateful(thing: object) -> bool:
    """Say whether something has a state that can be read and written, as torch or as Grain names it."""
    return any(
        callable(getattr(thing, read, None)) and callable(getattr(thing, write, None))
        for read, write in _NAMES
    )


_NAMES = (("state_dict", "load_state_dict"), ("get_state", "set_state"))


def _read_state(holder: Any) -> Any:
    read = getattr(holder, "state_dict", None) or getattr(holder, "get_state", None)
    return None if read is None else read()


def _write_state(holder: Any, state: Any) -> None:
    write = getattr(holder, "load_state_dict", None) or holder.set_state
    write(state)
