"""The one door to the data: batches from any position on, and the position."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import msgspec

from samestep.data.batches import Share, Tail
from samestep.data.content import length_of
from samestep.data.errors import DataChanged, DataError
from samestep.data.feeds import END, Feed
from samestep.data.loaders import Wish, feed_for
from samestep.data.position import DATA_SCHEMA, Position, SavedData
from samestep.data.version import version_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samestep.data.replay import Replayability


class FollowedData:
    """A loader whose position is known and can be put back.

    Made by `follow`. The random numbers that the data draws are its own: those of the training stay untouched, whether
    batches are fetched in this process or in workers.
    """

    def __init__(self, source: Any, feed: Feed, version: str | None) -> None:
        self._source = source
        self._feed = feed
        self._stated_version = version
        self._position = Position()

    def epoch(self) -> Iterator[Any]:
        """Yield what is left of the present epoch, and then stand at the start of the next.

        A batch counts as used from when it is yielded. After a restart from the last batch of an epoch nothing is
        left, so that whatever a script does after an epoch is done then.

        Raises:
            ReplayDiffers: what is fetched again is not what was used.
            DataError: a whole epoch gave no batch at all.
        """
        fresh = not self._position.batches
        self._feed.open(self._position)
        while (batch := self._feed.next(self._position)) is not END:
            self._position = self._feed.after(self._position, batch)
            yield batch
        if fresh and not self._position.batches:
            raise DataError(
                f"epoch {self._position.epoch + 1} gave no batch at all",
                hint="is the data set empty, or an iterator that was gone through before?",
            )
        self._position = self._position.next_epoch()

    @property
    def source(self) -> Any:
        """The loader that was given to `follow`."""
        return self._source

    @property
    def position(self) -> Position:
        """What training has used."""
        return self._position

    @property
    def replayability(self) -> Replayability:
        """What a resume can promise; belongs into its decision and its report."""
        return self._feed.facts.replayability

    @property
    def per_rank(self) -> bool:
        """Whether every rank must save its own `state_dict`; otherwise that of any one is that of all."""
        return self._feed.per_rank

    @property
    def batches_per_epoch(self) -> int | None:
        """How many batches a whole epoch gives this rank; None where nobody knows."""
        return length_of(self._feed.loader)

    @functools.cached_property
    def version(self) -> str:
        """Which data it is: the user's own word, or a fingerprint of its content; empty when nothing is known."""
        if self._stated_version is not None:
            return self._stated_version
        like = self._source if hasattr(self._source, "worker_init_fn") else None
        return version_of(getattr(self._source, "dataset", self._source), like)

    def check_version(self, saved: str) -> None:
        """Compare the data's version with that of a bundle.

        Raises:
            DataChanged: it is other data.
        """
        if saved and self.version and saved != self.version:
            raise DataChanged(
                f"the data is not what the run was trained on: it was {saved!r} and is {self.version!r}",
                hint="bring the former data back, or start a new run from the weights",
            )

    def seek(self, position: Position) -> None:
        """Let the next `epoch` go on from ``position``.

        Raises:
            DataError: the loader cannot be put anywhere, but only where a state of its own says.
        """
        if self._feed.way == "state" and position != self._position:
            raise DataError(
                "a loader that keeps its own state cannot be put to a position by number",
                hint="load the state that was saved there: load_state_dict(...)",
            )
        self._feed.load(None, None)
        self._position = position

    def state_dict(self) -> dict[str, Any]:
        """Return the position, as plain values; under ``nested`` the loader's own state where it has one."""
        last_batch, nested = self._feed.save(self._position)
        saved = SavedData(
            way=self._feed.way,
            position=self._position,
            fixed=self._feed.facts.fixed,
            free=self._feed.facts.free,
            last_batch=last_batch,
        )
        return {**msgspec.to_builtins(saved), "nested": nested}

    def load_state_dict(self, state: dict[str, Any]) -> tuple[str, ...]:
        """Go on from a saved position with the next `epoch`.

        Returns:
            What is not as it was and does no harm, in words: another number of ranks, another batch size.

        Raises:
            DataChanged: the position means nothing any more: the data, its seed or the way it is read has changed.
            DataError: it is no state of followed data.
        """
        saved = _saved(state)
        facts = self._feed.facts
        if saved.way != self._feed.way:
            raise DataChanged(
                f"the position was kept by {saved.way}, and this loader is followed by {self._feed.way}",
                hint="build the loader as it was built when the bundle was saved",
            )
        changed = _changes(saved.fixed, facts.fixed)
        if changed:
            raise DataChanged(
                f"the saved position does not belong to this data: {', '.join(changed)}",
                hint="a run resumes with the data and the loader it was started with; anything else is a new run",
            )
        nested = state.get("nested")
        if self._feed.way == "state" and saved.position.batches and nested is None:
            raise DataError("the state of the data lacks the loader's own state, which says where it stands")
        self._feed.load(saved.last_batch, nested)
        self._position = saved.position
        return _changes(saved.free, facts.free)


def follow(
    loader: Any,
    *,
    seed: int,
    world: tuple[int, int] = (0, 1),
    tail: Tail | str | None = None,
    version: str | None = None,
    replay: Replayability | None = None,
) -> FollowedData:
    """Follow a loader, so that its position is known and can be put back.

    Args:
        loader: a DataLoader, a torchdata, Grain or MosaicML loader, or anything that can be iterated once an epoch.
        seed: order and random numbers of the data follow from it.
        world: this rank and the number of ranks.
        tail: what becomes of samples that do not fill a batch on every rank; by default ``drop`` where the loader
            has ``drop_last``, else ``pad``.
        version: the data's version in the user's own words.
        replay: what the user knows of a stream; by default it is found out.

    Raises:
        NotFollowed: the loader or its sampler cannot be replayed, and ``replay`` does not accept that.
        DataError: there are too few samples.
    """
    rank, size = world
    if not 0 <= rank < size:
        raise DataError(f"there is no rank {rank} among {size} ranks")
    if tail not in {None, *Tail}:
        raise DataError(f"there is no tail rule {tail!r}", hint=f"it is one of {', '.join(Tail)}")
    wish = Wish(seed, Share(rank, size), None if tail is None else Tail(tail), replay)
    return FollowedData(loader, feed_for(loader, wish), version)


def _saved(state: dict[str, Any]) -> SavedData:
    try:
        saved = msgspec.convert({**state, "nested": None}, SavedData)
    except (msgspec.ValidationError, TypeError) as error:
        raise DataError(f"this is no state of followed data: {error}") from error
    if saved.schema != DATA_SCHEMA:
        raise DataError(
            f"the state of the data has the format {saved.schema!r}; this version reads {DATA_SCHEMA!r}"
        )
    return saved


def _changes(saved: dict[str, Any], found: dict[str, Any]) -> tuple[str, ...]:
    names = sorted(saved.keys() | found.keys())
    return tuple(
        f"{name.replace('_', ' ')} was {saved.get(name)} and is {found.get(name)}"
        for name in names
        if saved.get(name) != found.get(name)
    )
