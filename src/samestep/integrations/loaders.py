"""Loaders as frameworks want them, over data that is followed."""

from __future__ import annotations

import itertools
from collections import deque
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader, IterableDataset

from samestep.run.errors import RunError
from samestep.run.reachable import alive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from samestep.data import FollowedData

_KEPT = ("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context")
_END = object()


class Given(IterableDataset[Any]):
    """The batches of followed data, one pass each time it is iterated.

    A framework that has counted the batches of an epoch does not ask for one more, so the end of an epoch is only
    noticed when the next one is begun.

    Args:
        followed: gives the batches; it may have been put to a position.
        passed_over: how many batches of the resumed epoch the framework will pass over itself: it gets None for each,
            since the data stands behind them already.
        finished: whether no more batches are to be given: the run has all its steps.
    """

    def __init__(
        self, followed: FollowedData, passed_over: int = 0, finished: Callable[[], bool] = lambda: False
    ) -> None:
        self.followed = followed
        self._passed_over, self._finished = passed_over, finished
        self._open: Iterator[Any] | None = None

    def __len__(self) -> int:
        length = self.followed.batches_per_epoch
        if length is None:
            raise TypeError("nobody knows how many batches an epoch has")
        return length

    def __iter__(self) -> Iterator[Any]:
        passed_over, self._passed_over = self._passed_over, 0
        yield from itertools.repeat(None, passed_over)
        if self._finished():
            return
        self.end_epoch()
        self._open = self.followed.epoch()
        while (batch := next(self._open, _END)) is not _END:
            yield batch
        self._open = None

    @property
    def at_end(self) -> bool:
        """Whether all batches of the epoch were given."""
        used = self.followed.position.batches
        return used > 0 and used == self.followed.batches_per_epoch

    def end_epoch(self) -> None:
        """Let the data see that the epoch before is over, if it is.

        Raises:
            RunError: it was left before its end.
        """
        left, self._open = self._open, None
        if self.at_end:
            deque(left if left is not None else self.followed.epoch(), maxlen=0)
        elif left is not None:
            raise RunError(
                f"epoch {self.followed.position.epoch + 1} was left after {self.followed.position.batches} batches, "
                "and another pass through the data begins",
                hint="an epoch that ends early cannot be resumed exactly: make the epochs shorter instead",
            )


def plain(loader: Any) -> Any:
    """Return the torch loader inside one that accelerate has prepared, as it was before it was shared among ranks.

    Raises:
        RunError: it splits each batch among the ranks.
    """
    base = getattr(loader, "base_dataloader", loader)
    sampler, data = getattr(base, "batch_sampler", None), getattr(base, "dataset", None)
    inner, dataset = _inside(sampler, "batch_sampler"), _inside(data, "dataset")
    if inner is sampler and dataset is data:
        return base
    if getattr(sampler, "split_batches", False):
        raise RunError(
            "the loader was prepared with split_batches, which this adapter does not follow",
            hint="give the loader as it was before accelerator.prepare: data=loader",
        )
    kept = {name: getattr(base, name) for name in _KEPT}
    if base.num_workers:
        kept |= {"prefetch_factor": base.prefetch_factor, "persistent_workers": base.persistent_workers}
    if inner is None:
        kept |= {"batch_size": base.batch_size, "drop_last": base.drop_last}
    else:
        kept["batch_sampler"] = inner
    return DataLoader(dataset, **kept)


def require_batches_of_own(together: int) -> None:
    """Refuse ranks that work on one batch together: followed data gives every rank batches of its own.

    Args:
        together: how many ranks share a batch, by tensor, context or sequence parallelism.

    Raises:
        RunError: it is more than one.
    """
    if together > 1:
        raise RunError(
            f"{together} ranks work on each batch together, and this adapter would give each of them another one",
            hint="write the loop with samestep.Run, which keeps such models, and with batches of your own: "
            "run.restore(), run.step_done(), run.save()",
        )


def living_loaders() -> list[Any]:
    """Return every torch loader in the process."""
    return alive(lambda kind: issubclass(kind, DataLoader))


def _inside(thing: Any, attribute: str) -> Any:
    """Return what accelerate's sharing wraps."""
    while type(thing).__name__ in ("BatchSamplerShard", "IterableDatasetShard"):
        thing = getattr(thing, attribute)
    return thing
