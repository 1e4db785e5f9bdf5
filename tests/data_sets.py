"""Data sets, samplers and loaders that tests of the data follow, and how they go through them."""

from __future__ import annotations

import itertools
import json
import random

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, Sampler, get_worker_info

from samestep.data import follow
from samestep.data.content import digest


class Augmented(Dataset):
    """Map-style samples of [index, four random numbers, one from a generator of its own]."""

    def __init__(self, length=37):
        self.length = length
        self.own = np.random.default_rng(3)

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        drawn = [
            random.random(),
            np.random.rand(),  # noqa: NPY002
            np.random.randn(),  # noqa: NPY002
            torch.rand(()).item(),
            self.own.random(),
        ]
        return torch.tensor([float(index), *drawn], dtype=torch.float64)


class Together(Augmented):
    """As `Augmented`, fetched a batch at a time."""

    def __getitems__(self, indices):
        return [self[index] for index in indices]


class Stream(IterableDataset):
    """Numbers dealt out to the workers, each with a random number, shuffled in a small buffer."""

    def __init__(self, length=40):
        self.length = length
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        worker = get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        buffer = []
        for number in range(first, self.length, step):
            buffer.append(number + 1000 * self.epoch)
            if len(buffer) == 4:
                yield self._item(buffer.pop(random.randrange(4)))
        while buffer:
            yield self._item(buffer.pop(random.randrange(len(buffer))))

    def _item(self, number):
        drawn = [torch.rand(()).item(), np.random.rand()]  # noqa: NPY002
        return torch.tensor([float(number), *drawn], dtype=torch.float64)


class Counting(IterableDataset):
    """A stream with a state, as torchdata describes it: each worker counts what it has given."""

    def __init__(self, length=40):
        self.length = length
        self.given = 0

    def __iter__(self):
        worker = get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        numbers = range(first, self.length, step)
        while self.given < len(numbers):
            self.given += 1
            yield torch.tensor([float(numbers[self.given - 1]), torch.rand(()).item()], dtype=torch.float64)
        self.given = 0

    def state_dict(self):
        return {"given": self.given}

    def load_state_dict(self, state):
        self.given = state["given"]


class Lengths(Sampler):
    """A script's own batch sampler: batches of growing length in an order from its own generator."""

    def __init__(self, length=37, seed=5):
        self.length = length
        self.generator = torch.Generator().manual_seed(seed)
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        order = iter(torch.randperm(self.length, generator=self.generator).tolist())
        for size in itertools.cycle((2, 3, 5)):
            batch = list(itertools.islice(order, size))
            if not batch:
                return
            yield batch

    def __len__(self):
        return 12


class Drawing(Sampler):
    """A script's own sampler that draws one index after another from the global stream."""

    def __init__(self, length=37):
        self.length = length

    def __iter__(self):
        for _ in range(self.length):
            yield random.randrange(self.length)

    def __len__(self):
        return self.length


class Restless(Sampler):
    """A sampler that cannot be replayed: it draws from the system."""

    def __init__(self, length=37):
        self.length = length

    def __iter__(self):
        yield from random.SystemRandom().sample(range(self.length), self.length)

    def __len__(self):
        return self.length


def batches_of(followed):
    """Yield (position, batch), epoch after epoch."""
    while True:
        for batch in followed.epoch():
            yield followed.position, batch


def go(followed, count):
    """Go ``count`` batches on; return what they were, to be compared."""
    return [
        (position.epoch, position.batches, position.samples, position.total, digest(batch))
        for position, batch in itertools.islice(batches_of(followed), count)
    ]


def disturb(seed=4711):
    """Leave the streams of the process somewhere else, as another process would have them."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    torch.manual_seed(seed)


def main_streams():
    """Say where the streams of the process stand."""
    return digest([random.getstate(), np.random.get_state()[1:], torch.get_rng_state()])  # noqa: NPY002


def straight(make, total, *, seed=11):
    """Go through ``total`` batches without a restart."""
    disturb(1)
    return go(follow(make(), seed=seed), total)


def restarted(make, cuts, total, *, plain=True, seed=11):
    """Go through ``total`` batches with a restart at each of ``cuts``, each in new objects and with other streams."""
    done, state = [], None
    for start, stop in itertools.pairwise((0, *cuts, total)):
        disturb(start + 17)
        followed = follow(make(), seed=seed)
        if state is not None:
            assert followed.load_state_dict(state) == ()
        before = main_streams()
        done += go(followed, stop - start)
        assert main_streams() == before
        state = followed.state_dict()
        if plain:
            state = json.loads(json.dumps(state))
    return done
