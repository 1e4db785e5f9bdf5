"""Data sets that seed the random numbers of every sample, so that it comes out the same in whichever process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from torch.utils.data import Dataset, IterableDataset, Subset, get_worker_info

from samestep.data.generators import held_generators
from samestep.data.streams import marks, seed_streams

if TYPE_CHECKING:
    from collections.abc import Iterator


class Draws(list[Any]):
    """The indices of one batch, with what their random numbers depend on beside the sample.

    Attributes:
        epoch: that they belong to.
        first: where they stand among the draws of a sampler that may draw a sample twice; None in an order,
            where each sample comes once.
    """

    def __init__(self, indices: Any, epoch: int, first: int | None = None) -> None:
        super().__init__(indices)
        self.epoch = epoch
        self.first = first

    def __reduce__(self) -> tuple[Any, ...]:
        return Draws, (list(self), self.epoch, self.first)


class SeededItems(Dataset[Any]):
    """A map-style data set whose random numbers are seeded by (seed, epoch, sample) before each sample is fetched.

    A data set that fetches whole batches (``__getitems__``) is seeded once a batch. What a collate function draws
    follows from the last sample. It is asked by `Draws`; attributes are those of the data set inside, also when they
    are set, as a ``worker_init_fn`` does that opens files.
    """

    _OWN = frozenset({"_dataset", "_seed", "_held", "_draws", "_known"})

    def __init__(self, dataset: Any, seed: int) -> None:
        self._dataset = dataset
        self._seed = seed
        self._held: dict[str, Any] | None = None
        self._draws = False
        self._known = False

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, draws: Any) -> Any:
        """Return the one sample that is asked for where the loader makes no batches."""
        item = self._item(draws, 0)
        return self._item(draws, 0) if self._appeared() else item

    def __getitems__(self, draws: Draws) -> list[Any]:
        """Return the samples of a batch."""
        items = self._items(draws)
        return self._items(draws) if self._appeared() else items

    def _appeared(self) -> bool:
        """Say, once in a process, whether the first fetch has made generators that were not there to be seeded."""
        if self._known:
            return False
        self._known = True
        before, self._held = self._generators(), None
        return self._generators().keys() != before.keys()

    def _items(self, draws: Draws) -> list[Any]:
        if _fetches_together(self._dataset):
            self._seed_for(draws, *draws)
            fetched: list[Any] = self._dataset.__getitems__(list(draws))
            return fetched
        return self._without_drawing(draws) or [self._item(draws, number) for number in range(len(draws))]

    def _without_drawing(self, draws: Draws) -> list[Any] | None:
        """Return the samples if nothing is drawn for them: it saves the seeding, most of the work for small samples.

        What a collate function draws follows from the last sample, for which the streams are then seeded already. Once
        something has been drawn this is not tried again, so that only one batch in a process is fetched twice.
        """
        if self._draws or self._generators():
            return None
        self._seed_item(draws, len(draws) - 1)
        before = marks()
        items = [self._dataset[index] for index in draws]
        if marks() == before:
            return items
        self._draws = True
        return None

    def _item(self, draws: Draws, number: int) -> Any:
        self._seed_item(draws, number)
        return self._dataset[draws[number]]

    def _seed_item(self, draws: Draws, number: int) -> None:
        place = () if draws.first is None else (draws.first + number,)
        self._seed_for(draws, draws[number], *place)

    def _seed_for(self, draws: Draws, *sample: object) -> None:
        seed_streams("sample", self._seed, draws.epoch, *sample, held=self._generators())

    def _generators(self) -> dict[str, Any]:
        if self._held is None:
            self._held = held_generators(self._dataset)
        return self._held

    def __getattr__(self, name: str) -> Any:
        if name in self._OWN or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._dataset, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._OWN:
            super().__setattr__(name, value)
        else:
            setattr(self._dataset, name, value)


def _fetches_together(dataset: Any) -> bool:
    """Say whether a data set fetches whole batches; a subset asks what it is a subset of."""
    while type(dataset) is Subset:
        dataset = dataset.dataset
    return callable(getattr(dataset, "__getitems__", None))


class SeededStream(IterableDataset[Any]):
    """A stream whose random numbers are seeded by (seed, epoch, rank, worker, item) before each item is asked for.

    In the process of the training they are not, if the stream starts from its beginning alone and holds no generators:
    there each batch is fetched on streams seeded for it.

    Args:
        dataset: the stream, without state.
        seed: of the run's data.
        rank: this process's.
    """

    _CAN_START_INSIDE: ClassVar[bool] = False

    def __init__(self, dataset: Any, seed: int, rank: int) -> None:
        self.dataset = dataset
        self.epoch = 0
        self._seed = seed
        self._rank = rank
        self._items = 0
        self._restored = False
        self._ended = False

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration be of this epoch."""
        self.epoch = epoch
        inner = getattr(self.dataset, "set_epoch", None)
        if callable(inner):
            inner(epoch)

    def __iter__(self) -> Iterator[Any]:
        restored, self._restored = self._restored, False
        if restored and self._ended:
            return iter(())
        self._items = self._items if restored else 0
        self._ended = False
        return self._given()

    def _given(self) -> Iterator[Any]:
        worker = get_worker_info()
        held = held_generators(self.dataset)
        key = ("item", self._seed, self.epoch, self._rank, 0 if worker is None else worker.id)
        each = worker is not None or self._CAN_START_INSIDE or bool(held)
        if each:
            seed_streams(*key, "start", held=held)
        items = iter(self.dataset)
        while True:
            if each:
                seed_streams(*key, self._items, held=held)
            try:
                item = next(items)
            except StopIteration:
                self._ended = True
                return
            self._items += 1
            yield item

    def __getattr__(self, name: str) -> Any:
        if name in {"dataset", "state_dict", "load_state_dict"} or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.dataset, name)


class SeededStatefulStream(SeededStream):
    """A stream that says where it stands, with the count of its items and whether it has come to its end.

    A batch that ends an epoch is often short: the stream has ended before it is used, and many then stand at their
    start again. So the end is part of the state, and what is restored from it gives nothing more of that epoch.
    """

    _CAN_START_INSIDE = True

    def state_dict(self) -> dict[str, Any]:
        """Return where the stream stands in this process."""
        return {"items": self._items, "ended": self._ended, "stream": self.dataset.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next iteration go on from there."""
        self._items = state["items"]
        self._ended = state["ended"]
        self._restored = True
        self.dataset.load_state_dict(state["stream"])
