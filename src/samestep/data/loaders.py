"""From a loader to the way in which it is followed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, IterDataPipe, MapDataPipe

from samestep.data.batches import OrderBatches, Share, Tail
from samestep.data.content import digest, length_of
from samestep.data.errors import DataError, NotFollowed
from samestep.data.feeds import (
    CountedFeed,
    Facts,
    Feed,
    OrderedFeed,
    StatefulFeed,
    is_stateful,
    opened,
)
from samestep.data.order import SeekableOrder
from samestep.data.replay import Replay, Replayability
from samestep.data.samplers import OwnBatches, SamplerBatches, Single, check_replayable
from samestep.data.seeded import SeededItems, SeededStatefulStream, SeededStream
from samestep.data.workers import PatientWorker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samestep.data.batches import Batches

_TORCH, _TORCHDATA = "torch.utils.data.sampler", "torchdata.stateful_dataloader.sampler"
_DISTRIBUTED = {"torch.utils.data.distributed.DistributedSampler", f"{_TORCHDATA}.StatefulDistributedSampler"}
_SEQUENTIAL = {f"{_TORCH}.SequentialSampler"}
_RANDOM = {
    f"{_TORCH}.RandomSampler",
    f"{_TORCHDATA}.RandomSampler",
    "accelerate.data_loader.SeedableRandomSampler",
}
_SUBSET = {f"{_TORCH}.SubsetRandomSampler"}
_GLOBAL = {f"{_TORCH}.WeightedRandomSampler", *_RANDOM}
"""Samplers of torch that give the indices of all ranks when their order cannot be replaced."""

_OF_TORCH = ("torch.utils.data.dataloader", "torchdata.stateful_dataloader.")


class Wish(NamedTuple):
    """How a loader is to be followed.

    Attributes:
        seed: what order and random numbers of the data follow from.
        share: this rank among all.
        tail: the tail rule; None: ``drop`` where the loader has ``drop_last``, else ``pad``.
        replay: what the user says of the stream; None to find out.
    """

    seed: int
    share: Share
    tail: Tail | None
    replay: Replayability | None

    @property
    def key(self) -> tuple[int, int]:
        """What the random numbers of this rank's data depend on."""
        return self.seed, self.share.rank


def feed_for(loader: Any, wish: Wish) -> Feed:
    """Return the way in which a loader can be followed.

    Raises:
        NotFollowed: it cannot be replayed, and the user has not accepted that.
        DataError: it has too few samples, or the user's rule does not fit it.
    """
    if wish.replay is not None and wish.replay.kind is Replay.NOT_REPLAYABLE:
        return CountedFeed(loader, _announced(loader), _facts(wish, wish.replay))
    feed = _loader_feed(loader, wish) if _is_plain(loader) else _foreign_feed(loader, wish)
    if wish.replay is None:
        return feed
    if wish.replay.kind is Replay.FROM_OFFSET and not isinstance(feed, StatefulFeed):
        raise NotFollowed(
            "a stream that goes on from an offset must say which: it has no state_dict and load_state_dict",
            hint="give the data set or the loader both methods",
        )
    feed.facts = feed.facts._replace(replayability=wish.replay)
    return feed


def _is_plain(loader: Any) -> bool:
    """Say whether a loader goes through its data as those of torch and torchdata do, so that it may be rebuilt."""
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterDataPipe | MapDataPipe):
        return False
    definers = (
        next(kind for kind in type(loader).__mro__ if name in vars(kind))
        for name in ("__iter__", "_get_iterator")
    )
    return all(kind.__module__.startswith(_OF_TORCH) for kind in definers)


def _foreign_feed(loader: Any, wish: Wish) -> Feed:
    """Follow something that only promises to be iterable, perhaps with a state."""
    announced = _announced(loader)
    by_state = Replayability.exact("the loader's own state", *_worker_limits(loader))
    if is_stateful(loader) and not _is_of_accelerate(loader):
        facts = _facts(wish, by_state)
        return StatefulFeed(loader, loader, announced, facts, across=True, length=length_of(loader))
    if isinstance(loader, DataLoader):
        return CountedFeed(loader, announced, _facts(wish, _BY_COUNT))
    given = opened(loader, *wish.key)
    if given is loader:
        why = f"{type(loader).__name__} can be gone through only once and has no state"
        return CountedFeed(loader, announced, _facts(wish, Replayability.none(why)))
    if is_stateful(given):
        return StatefulFeed(loader, None, announced, _facts(wish, by_state), across=False)
    return CountedFeed(loader, announced, _facts(wish, _BY_COUNT))


def _loader_feed(loader: DataLoader[Any], wish: Wish) -> Feed:
    """Follow a DataLoader of torch or torchdata."""
    if isinstance(loader.dataset, IterableDataset):
        return _stream_feed(loader, wish)
    own = is_stateful(loader) and any(map(is_stateful, (loader.dataset, *_own_samplers(loader))))
    if own:
        by_state = Replayability.exact("the loader's own state", *_worker_limits(loader))
        facts = _facts(wish, by_state)
        return StatefulFeed(loader, loader, _announced(loader), facts, across=False, length=len(loader))
    batches, facts = _batches_of(loader, wish)
    items = SeededItems(loader.dataset, wish.seed)
    return OrderedFeed(_rebuilt(loader, items, batches, kind=DataLoader), batches, facts)


def _stream_feed(loader: DataLoader[Any], wish: Wish) -> Feed:
    """Follow a DataLoader over an IterableDataset."""
    dataset: Any = loader.dataset
    facts = _facts(wish, _BY_COUNT, workers=loader.num_workers, batch_size=loader.batch_size)
    reports = is_stateful(loader) or not loader.num_workers
    if is_stateful(dataset) and reports and not _has_shuffle_buffer(dataset):
        stream = SeededStatefulStream(dataset, *wish.key)
        rebuilt = _rebuilt(loader, stream)
        by_state = facts._replace(
            replayability=Replayability.exact("the stream's own state", *_stream_limits(dataset))
        )
        holder = rebuilt if is_stateful(rebuilt) else stream
        return StatefulFeed(rebuilt, holder, (stream,), by_state, across=False)
    replayed = SeededStream(dataset, *wish.key)
    return CountedFeed(_rebuilt(loader, replayed, kind=DataLoader), (replayed,), facts)


def _batches_of(loader: DataLoader[Any], wish: Wish) -> tuple[Batches, Facts]:
    """Return what takes the place of a map-style loader's samplers.

    Raises:
        NotFollowed: a sampler cannot be replayed.
        DataError: there are too few samples.
    """
    sampler, size, drops = _parts_of(loader)
    tail = wish.tail or (Tail.DROP if drops else Tail.PAD)
    if size is None:
        return _own_batches(sampler, wish)
    name = _name_of(sampler)
    if name in _DISTRIBUTED:
        _check_share(sampler, wish.share)
    reordered = name in _SEQUENTIAL | _DISTRIBUTED | _SUBSET or (name in _RANDOM and _is_permutation(sampler))
    if not reordered:
        return _sampler_batches(sampler, size, tail, wish)
    shuffle = bool(getattr(sampler, "shuffle", name not in _SEQUENTIAL))
    members = sampler.indices if name in _SUBSET else None
    length = len(sampler.dataset if name in _DISTRIBUTED else sampler)
    batches = OrderBatches(SeekableOrder(length, wish.seed, shuffle=shuffle), size, wish.share, tail, members)
    _check_some(batches, wish.share)
    facts = _facts(wish, Replayability.exact("the order of its samples"))
    fixed: dict[str, Any] = {"length": length, "seed": wish.seed, "shuffle": shuffle}
    if members is not None:
        fixed["members"] = digest(np.asarray(members))
    return batches, facts._replace(fixed=fixed, free=_free(wish, size, tail))


def _check_some(batches: OrderBatches, share: Share) -> None:
    if len(batches):
        return
    raise DataError(
        f"{batches.order.length:,} samples do not fill one batch of {batches.batch_size} on each of {share.size} "
        "ranks, and the incomplete one is dropped: an epoch would be empty",
        hint="take smaller batches or fewer ranks, or drop_last=False",
    )


def _sampler_batches(sampler: Any, size: int, tail: Tail, wish: Wish) -> tuple[Batches, Facts]:
    facts = _facts(wish, Replayability.exact("asking the sampler again"), sampler=type(sampler).__name__)
    if _name_of(sampler) in _GLOBAL:
        del facts.fixed["ranks"]
        share = wish.share
    else:
        check_replayable(sampler, wish.seed)
        share = Share()
    batches = SamplerBatches(sampler, size, share, tail, seed=wish.seed, ranks=wish.share.size)
    return batches, facts._replace(free=_free(wish, size, tail))


def _own_batches(sampler: Any, wish: Wish) -> tuple[Batches, Facts]:
    check_replayable(sampler, wish.seed)
    by_count = Replayability.exact("asking the batch sampler again")
    facts = _facts(wish, by_count, sampler=type(sampler).__name__)
    return OwnBatches(sampler, wish.seed, wish.share.size), facts


def _parts_of(loader: DataLoader[Any]) -> tuple[Any, int | None, bool]:
    """Return the sampler of single indices, the batch size and drop_last; or a batch sampler and None."""
    batch_sampler: Any = loader.batch_sampler
    if batch_sampler is None:
        return loader.sampler, 1, False
    if _name_of(batch_sampler) in {f"{_TORCH}.BatchSampler", f"{_TORCHDATA}.BatchSampler"}:
        return batch_sampler.sampler, batch_sampler.batch_size, batch_sampler.drop_last
    return batch_sampler, None, False


def _rebuilt(
    loader: DataLoader[Any], dataset: Any, batches: Any = None, *, kind: Any = None
) -> DataLoader[Any]:
    """Return a loader with the arguments of another, over ``dataset``.

    Its batches come in the order in which they were asked for, its workers are seeded from the place in the data, and
    those of a stream are started anew every epoch, since what they remember cannot be replayed.
    """
    kept: dict[str, Any] = {name: getattr(loader, name) for name in _KEPT}
    if loader.num_workers:
        kept["prefetch_factor"] = loader.prefetch_factor
        kept["worker_init_fn"] = PatientWorker(loader.worker_init_fn)
    if loader.pin_memory_device:
        kept["pin_memory_device"] = loader.pin_memory_device
    kind = kind or next(base for base in type(loader).__mro__ if base.__module__.startswith(_OF_TORCH))
    if batches is None:
        kept |= {"batch_size": loader.batch_size, "drop_last": loader.drop_last}
        if hasattr(loader, "snapshot_every_n_steps") and kind is not DataLoader:
            kept["snapshot_every_n_steps"] = loader.snapshot_every_n_steps
    else:
        kept["persistent_workers"] = loader.persistent_workers
        single = loader.batch_sampler is None
        kept |= {"batch_size": None, "sampler": Single(batches)} if single else {"batch_sampler": batches}
    rebuilt: DataLoader[Any] = kind(dataset, generator=torch.Generator(), **kept)
    return rebuilt


_KEPT = ("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context")
_BY_COUNT = Replayability.exact("fetching the epoch again from its start and passing over what was used")


def _facts(wish: Wish, replayability: Replayability, **fixed: Any) -> Facts:
    known = {"ranks": wish.share.size, "seed": wish.seed, **fixed}
    return Facts(replayability, wish.key, wish.share.size, known, {})


def _free(wish: Wish, batch_size: int, tail: Tail) -> dict[str, Any]:
    return {"ranks": wish.share.size, "batch_size": batch_size, "tail": str(tail)}


def _name_of(thing: object) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def _is_permutation(sampler: Any) -> bool:
    return not sampler.replacement and sampler.num_samples == len(sampler.data_source)


def _check_share(sampler: Any, share: Share) -> None:
    if (sampler.rank, sampler.num_replicas) != share:
        raise NotFollowed(
            f"the DistributedSampler is of rank {sampler.rank} among {sampler.num_replicas}, the run of rank "
            f"{share.rank} among {share.size}",
            hint="give both the same process group",
        )


def _announced(loader: Any) -> tuple[Any, ...]:
    return loader, getattr(loader, "dataset", None)


def _own_samplers(loader: DataLoader[Any]) -> list[Any]:
    """Return the samplers of a loader that are the script's own."""
    samplers = (loader.batch_sampler, getattr(loader.batch_sampler, "sampler", None), loader.sampler)
    return [
        sampler
        for sampler in samplers
        if sampler is not None and not _name_of(sampler).startswith(("torch.", "torchdata."))
    ]


def _worker_limits(loader: Any) -> tuple[str, ...]:
    """Return what a loader's own state leaves out."""
    if not getattr(loader, "num_workers", 0):
        return ()
    return ("random numbers drawn in its worker processes are not in that state",)


def _is_of_accelerate(loader: Any) -> bool:
    """Say whether accelerate prepared a loader: it has the methods of a stateful one and fetches one batch ahead.

    Raises:
        NotFollowed: it keeps an iterator from when it was prepared, which cannot be made again.
    """
    if not type(loader).__module__.startswith("accelerate."):
        return False
    if getattr(loader, "use_stateful_dataloader", False):
        raise NotFollowed(
            "a loader that accelerate prepared with use_stateful_dataloader begins with an iterator made back then",
            hint="leave use_stateful_dataloader out, or follow the loader before it is prepared",
        )
    return True


def _stages(dataset: Any) -> Iterator[Any]:
    """Yield the stages of a Hugging Face stream; none of anything else."""
    todo: list[Any] = [getattr(dataset, "_ex_iterable", None)]
    while todo:
        stage = todo.pop()
        yield stage
        todo += [stage.ex_iterable] if hasattr(stage, "ex_iterable") else getattr(stage, "ex_iterables", ())


def _has_shuffle_buffer(dataset: Any) -> bool:
    """Say whether a Hugging Face stream holds samples back to shuffle them: its state leaves these out."""
    return any("BufferShuffled" in type(stage).__name__ for stage in _stages(dataset))


def _stream_limits(dataset: Any) -> tuple[str, ...]:
    """Return what the state of a Hugging Face stream cannot bring back."""
    if not any(getattr(stage, "batched", False) for stage in _stages(dataset)):
        return ()
    return ("random numbers that a batched map draws may differ in the first batch of rows after a restart",)
