"""What a loader keeps when it is followed, what is refused, what is said of it, and how ranks share it."""

from __future__ import annotations

import itertools
import json
import random

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    get_worker_info,
    random_split,
)

from data_sets import (
    Augmented,
    Counting,
    Drawing,
    Lengths,
    Restless,
    Stream,
    Together,
    batches_of,
    disturb,
    go,
    main_streams,
)
from samestep.data import (
    DataChanged,
    DataError,
    NotFollowed,
    Position,
    Replay,
    Replayability,
    ReplayDiffers,
    Tail,
    follow,
)


def samples_of(followed, count):
    return [[int(x) for x in batch[:, 0]] for _, batch in itertools.islice(batches_of(followed), count)]


def shuffled(length=37, batch_size=5, **options):
    return DataLoader(Augmented(length), batch_size=batch_size, shuffle=True, **options)


# What training uses


def test_what_workers_fetched_ahead_is_not_counted():
    followed = follow(shuffled(num_workers=2, prefetch_factor=4), seed=1)
    go(followed, 2)
    assert followed.position == Position(epoch=0, batches=2, samples=10, total=10)


@pytest.mark.parametrize("drawn", [0, 1, 2])
@pytest.mark.parametrize("workers", [0, 2])
def test_the_streams_of_the_process_are_not_touched(workers, drawn):
    disturb()
    np.random.randn(drawn)  # noqa: NPY002 - after an odd number NumPy holds the second of a pair
    before = main_streams()
    followed = follow(shuffled(num_workers=workers), seed=1)
    assert followed.version
    for batch in followed.epoch():
        assert len(batch)
    assert main_streams() == before


def test_a_batch_that_throws_is_not_counted_and_leaves_the_streams_alone():
    class Broken(Augmented):
        def __getitem__(self, index):
            if index == 7:
                random.random()
                raise ValueError("sample 7 is broken")
            return super().__getitem__(index)

    followed = follow(DataLoader(Broken(), batch_size=5), seed=1)
    before = main_streams()
    with pytest.raises(ValueError, match="sample 7"):
        list(followed.epoch())
    assert followed.position.batches == 1
    assert main_streams() == before


def test_a_loop_may_change_its_batches():
    make = lambda: DataLoader(Stream(), batch_size=5)  # noqa: E731
    followed = follow(make(), seed=1)
    for _, batch in itertools.islice(batches_of(followed), 4):
        batch.zero_()
    resumed = follow(make(), seed=1)
    resumed.load_state_dict(followed.state_dict())
    assert go(resumed, 5) == go(follow(make(), seed=1), 9)[4:]


def test_seeking_goes_anywhere():
    straight = go(follow(shuffled(), seed=1), 24)
    followed = follow(shuffled(), seed=1)
    followed.seek(Position(epoch=2, batches=3, samples=15, total=89))
    assert go(followed, 5) == straight[19:24]
    followed.seek(Position())
    assert go(followed, 8) == straight[:8]


# What a rebuilt loader keeps


def as_texts(samples):
    return [f"{int(sample[0])}" for sample in samples]


OPENED: list[int] = []


def open_files(worker):
    get_worker_info().dataset.opened_by = worker


class Opened(Augmented):
    opened_by = None

    def __getitem__(self, index):
        return self.opened_by


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_collate_worker_init_and_context_are_kept(context):
    loader = shuffled(
        num_workers=1,
        collate_fn=as_texts,
        multiprocessing_context=context,
        worker_init_fn=open_files,
        timeout=60,
    )
    followed = follow(loader, seed=1)
    assert sorted(itertools.chain(*followed.epoch()), key=int) == [str(index) for index in range(37)]
    assert loader.dataset is not None


def test_a_worker_init_function_may_change_its_copy_of_the_data_set():
    followed = follow(DataLoader(Opened(8), batch_size=4, num_workers=2, worker_init_fn=open_files), seed=1)
    assert [batch.tolist() for batch in followed.epoch()] == [[0] * 4, [1] * 4]


def test_random_numbers_of_a_collate_function_come_again():
    def masked(samples):
        return torch.stack(samples) * (torch.rand(len(samples), 1) > 0.5)

    def make(workers):
        return shuffled(collate_fn=masked, num_workers=workers)

    straight = go(follow(make(0), seed=1), 8)
    assert go(follow(make(2), seed=1), 8) == straight
    resumed = follow(make(0), seed=1)
    resumed.seek(Position(batches=3, samples=15, total=15))
    assert go(resumed, 5) == straight[3:]


def test_a_collate_function_draws_other_numbers_for_each_batch():
    loader = DataLoader(range(12), batch_size=4, collate_fn=lambda samples: torch.rand(()).item())
    followed = follow(loader, seed=1)
    assert len({number for _ in range(2) for number in followed.epoch()}) == 6


# Ranks


def world(size, make, state=None, seed=1, **options):
    followed = [follow(make(), seed=seed, world=(rank, size), **options) for rank in range(size)]
    for one in followed:
        if state is not None:
            one.load_state_dict(state)
    return followed


def used(ranks, steps):
    per_rank = [samples_of(one, steps) for one in ranks]
    return [sample for step in zip(*per_rank, strict=True) for part in step for sample in part]


@pytest.mark.parametrize("keep_global_batch", [True, False])
def test_four_two_four_ranks_use_the_same_samples_in_the_same_order(keep_global_batch):
    alone = [sample for batch in samples_of(follow(shuffled(96, 8), seed=1), 12) for sample in batch]
    state, done = None, []
    for size, steps in ((4, 3), (2, 4), (4, 2)):
        batch_size = 8 // size if keep_global_batch else 2
        ranks = world(size, lambda b=batch_size: shuffled(96, b), state)
        done += used(ranks, steps)
        assert len({json.dumps(one.state_dict()) for one in ranks}) == 1
        assert not ranks[0].per_rank
        state = ranks[1].state_dict()
    assert done == alone[: len(done)]
    assert len(set(done)) == len(done)
    assert state["position"]["samples"] == len(done)


def test_a_change_of_ranks_and_batch_size_is_said():
    state = world(4, lambda: shuffled(96, 2))[0].state_dict()
    changed = follow(shuffled(96, 8, drop_last=True), seed=1).load_state_dict(state)
    assert changed == ("batch size was 2 and is 8", "ranks was 4 and is 1", "tail was pad and is drop")


@pytest.mark.parametrize(("tail", "lengths"), [("drop", [8, 8]), ("pad", [11, 11]), ("uneven", [11, 10])])
def test_the_tail_rule_is_followed(tail, lengths):
    ranks = world(2, lambda: shuffled(21, 4), tail=tail)
    parts = [
        [sample for batch in samples_of(one, one.batches_per_epoch) for sample in batch] for one in ranks
    ]
    assert list(map(len, parts)) == lengths
    assert len(set(parts[0] + parts[1])) == (16 if tail == "drop" else 21)
    assert ranks[0].batches_per_epoch == ranks[1].batches_per_epoch == (2 if tail == "drop" else 3)


def test_samplers_of_torch_are_divided_among_the_ranks():
    def make(size):
        sampler = WeightedRandomSampler([1.0] * 37, num_samples=24)
        return DataLoader(Augmented(), batch_size=8 // size, sampler=sampler)

    alone = [sample for batch in samples_of(follow(make(1), seed=1), 3) for sample in batch]
    ranks = world(2, lambda: make(2))
    state = None
    assert used(ranks, 2) == alone[:16]
    state = ranks[0].state_dict()
    assert used(world(4, lambda: make(4), state), 1) == alone[16:]


def test_a_distributed_sampler_gives_way_to_the_order_if_it_is_of_the_same_ranks():
    data = Augmented(16)

    def make(rank, of=2):
        return DataLoader(data, batch_size=4, sampler=DistributedSampler(data, num_replicas=of, rank=rank))

    ranks = [follow(make(rank), seed=1, world=(rank, 2)) for rank in range(2)]
    assert sorted(used(ranks, 2)) == list(range(16))
    with pytest.raises(NotFollowed, match="rank 1 among 3"):
        follow(make(1, of=3), seed=1, world=(1, 2))


def test_own_batch_samplers_and_streams_refuse_another_number_of_ranks():
    for make in (
        lambda: DataLoader(Augmented(), batch_sampler=Lengths()),
        lambda: DataLoader(Stream(), batch_size=5),
    ):
        state = follow(make(), seed=1, world=(0, 2)).state_dict()
        with pytest.raises(DataChanged, match="ranks was 2 and is 1"):
            follow(make(), seed=1).load_state_dict(state)


def test_ranks_have_random_numbers_of_their_own_in_streams():
    first, second = world(2, lambda: DataLoader(Stream(), batch_size=5))
    assert go(first, 3) != go(second, 3)


# Refusals


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: DataLoader(Augmented(), sampler=Restless()), "Restless gives other indices"),
        (
            lambda: DataLoader(Augmented(), batch_sampler=BatchSampler(Restless(), 2, drop_last=False)),
            "Restless gives other",
        ),
        (lambda: DataLoader(Augmented(), batch_sampler=iter([[1, 2], [3]])), "gone through only once"),
        (lambda: DataLoader(Augmented(), sampler=iter(range(5))), "gone through only once"),
    ],
    ids=["restless", "restless-in-batches", "one-shot-batches", "one-shot"],
)
def test_samplers_that_cannot_be_replayed_are_refused_unless_accepted(make, said):
    with pytest.raises(NotFollowed, match=said) as caught:
        follow(make(), seed=1)
    assert "Replayability.none" in caught.value.hint
    accepted = follow(make(), seed=1, replay=Replayability.none("a curriculum from outside"))
    assert accepted.replayability.sentence == "the data cannot be replayed: a curriculum from outside"
    assert len(list(itertools.islice(accepted.epoch(), 2))) == 2


def test_a_stream_that_comes_otherwise_is_found_out():
    def make():
        return [
            torch.rand(3, generator=torch.Generator().manual_seed(random.SystemRandom().getrandbits(40)))
            for _ in range(5)
        ]

    followed = follow(make(), seed=1)
    go(followed, 3)
    resumed = follow(make(), seed=1)
    resumed.load_state_dict(followed.state_dict())
    with pytest.raises(ReplayDiffers, match="batch 3 of epoch 1"):
        go(resumed, 1)


def test_a_stream_that_has_become_shorter_is_found_out():
    followed = follow(DataLoader(Stream(40), batch_size=5), seed=1)
    go(followed, 6)
    resumed = follow(DataLoader(Stream(20), batch_size=5), seed=1)
    resumed.load_state_dict(followed.state_dict())
    with pytest.raises(ReplayDiffers):
        go(resumed, 1)


def test_a_position_of_other_data_is_refused():
    state = follow(shuffled(), seed=1).state_dict()
    with pytest.raises(DataChanged, match="length was 37 and is 36"):
        follow(shuffled(36), seed=1).load_state_dict(state)
    with pytest.raises(DataChanged, match="seed was 1 and is 2"):
        follow(shuffled(), seed=2).load_state_dict(state)
    with pytest.raises(DataChanged, match="shuffle was True and is False"):
        follow(DataLoader(Augmented(), batch_size=5), seed=1).load_state_dict(state)
    with pytest.raises(DataChanged, match="kept by order"):
        follow(DataLoader(Stream(), batch_size=5), seed=1).load_state_dict(state)


def test_a_stream_refuses_another_number_of_workers():
    state = follow(DataLoader(Stream(), batch_size=5, num_workers=2), seed=1).state_dict()
    with pytest.raises(DataChanged, match="workers was 2 and is 0"):
        follow(DataLoader(Stream(), batch_size=5), seed=1).load_state_dict(state)


@pytest.mark.parametrize(
    "state", [{}, {"schema": "other/1"}, {"position": 3}, {"way": "order", "surplus": 1}]
)
def test_what_is_no_state_is_refused(state):
    with pytest.raises(DataError, match="no state of followed data"):
        follow(shuffled(), seed=1).load_state_dict(state)


def test_a_state_of_a_later_format_is_refused():
    state = follow(shuffled(), seed=1).state_dict() | {"schema": "samestep.data/9"}
    with pytest.raises(DataError, match="format 'samestep"):
        follow(shuffled(), seed=1).load_state_dict(state)


def test_too_few_samples_for_one_batch_of_all_ranks_are_refused():
    with pytest.raises(DataError, match="an epoch would be empty"):
        follow(shuffled(7, 4, drop_last=True), seed=1, world=(0, 2))
    with pytest.raises(DataError, match="an order of 0 samples"):
        follow(DataLoader(Augmented(0), batch_size=2), seed=1)


def test_a_rank_outside_the_world_is_refused():
    with pytest.raises(DataError, match="no rank 2 among 2"):
        follow(shuffled(), seed=1, world=(2, 2))


def test_a_loader_with_its_own_state_cannot_be_put_to_a_number():
    followed = follow(DataLoader(Counting(), batch_size=5), seed=1)
    with pytest.raises(DataError, match="by number"):
        followed.seek(Position(batches=2, samples=10, total=10))


# Replayability


def test_a_stream_from_an_offset_needs_a_state_and_says_its_rule():
    rule = "records that arrive after the offset was passed are used in the next epoch"
    with pytest.raises(NotFollowed, match="offset"):
        follow(DataLoader(Stream(), batch_size=5), seed=1, replay=Replayability.from_offset(rule))
    followed = follow(DataLoader(Counting(), batch_size=5), seed=1, replay=Replayability.from_offset(rule))
    assert followed.replayability.kind is Replay.FROM_OFFSET
    assert rule in followed.replayability.sentence


def test_a_loader_that_can_be_gone_through_once_is_not_replayable_and_goes_on():
    followed = follow(iter([torch.zeros(2), torch.ones(2), torch.ones(2) * 2]), seed=1)
    assert followed.replayability.kind is Replay.NOT_REPLAYABLE
    assert "only once" in followed.replayability.because
    go(followed, 2)
    resumed = follow(iter([torch.full((2,), 9.0)]), seed=1)
    resumed.load_state_dict(json.loads(json.dumps(followed.state_dict())))
    assert [batch.tolist() for batch in resumed.epoch()] == [[9.0, 9.0]]
    assert resumed.position == Position(epoch=1, total=6)


def test_loaders_of_other_classes_are_asked_as_they_are():
    class Twice(DataLoader):
        def __iter__(self):
            for batch in super().__iter__():
                yield batch * 2

    make = lambda: Twice(Augmented(), batch_size=5, sampler=RandomSampler(range(37)))  # noqa: E731
    straight = go(follow(make(), seed=1), 18)
    assert straight == go(follow(make(), seed=1), 18)
    followed = follow(make(), seed=1)
    assert followed.replayability.how.startswith("fetching the epoch again")
    go(followed, 11)
    resumed = follow(make(), seed=1)
    resumed.load_state_dict(followed.state_dict())
    assert go(resumed, 7) == straight[11:]


# The data's version


class Plain(Augmented):
    def __init__(self, length=200, shift=0):
        super().__init__(length)
        self.shift = shift

    def __getitem__(self, index):
        return {"x": torch.arange(4) + index + self.shift, "text": f"sample {index}"}


def version(dataset, **options):
    return follow(DataLoader(dataset, batch_size=4, **options), seed=random.randrange(9)).version


def test_the_version_follows_the_content():
    assert version(Plain()) == version(Plain(), num_workers=2) == version(Plain(), shuffle=True)
    assert version(Plain()).startswith("200 samples, xxh3-128:")
    assert len({version(Plain()), version(Plain(shift=1)), version(Plain(201)), version(Augmented(200))}) == 4


def test_the_version_of_augmented_data_is_stable():
    disturb(1)
    first = version(Augmented())
    disturb(2)
    assert version(Augmented()) == first == version(Together(), num_workers=1)


def test_samples_that_never_come_the_same_count_only_by_their_number():
    class Noise(Augmented):
        def __getitem__(self, index):
            return random.SystemRandom().random()

    assert version(Noise()) == "37 samples"


def test_samples_that_never_come_the_same_do_not_count():
    class PartlyNoise(Plain):
        def __getitem__(self, index):
            return random.SystemRandom().random() if index < 100 else super().__getitem__(index)

    assert version(PartlyNoise()) == version(PartlyNoise()) != version(PartlyNoise(shift=1))


@pytest.mark.parametrize(("workers", "here"), [(0, True), (2, False)])
def test_samples_are_fetched_for_the_version_where_the_loader_fetches_them(workers, here):
    class Opening(Plain):
        opened = False

        def __getitem__(self, index):
            self.opened = True
            return super().__getitem__(index)

    data = Opening()
    assert version(data, num_workers=workers) == version(Plain())
    assert data.opened is here


def test_a_version_in_the_users_words_is_taken():
    assert follow(shuffled(), seed=1, version="corpus-2026-11").version == "corpus-2026-11"


def test_a_stream_is_not_touched_for_its_version():
    assert follow(DataLoader(Stream(), batch_size=5), seed=1).version == ""
    assert follow(iter([1, 2]), seed=1).version == ""


def test_other_data_is_refused_by_its_version():
    followed = follow(DataLoader(Plain(), batch_size=4), seed=1)
    followed.check_version(followed.version)
    followed.check_version("")
    with pytest.raises(DataChanged, match="200 samples"):
        followed.check_version(version(Plain(shift=1)))


def test_tail_words_are_checked():
    assert [str(tail) for tail in Tail] == ["drop", "pad", "uneven"]
    with pytest.raises(DataError, match="no tail rule"):
        follow(shuffled(), seed=1, tail="wrap")


def test_own_samplers_of_each_rank_count_for_all_ranks():
    followed = follow(DataLoader(Augmented(), batch_size=5, sampler=Drawing()), seed=1, world=(1, 3))
    go(followed, 2)
    assert followed.position.samples == 30
    resumed = follow(DataLoader(Augmented(), batch_size=5, sampler=Drawing()), seed=1, world=(1, 3))
    straight = go(follow(DataLoader(Augmented(), batch_size=5, sampler=Drawing()), seed=1, world=(1, 3)), 12)
    resumed.load_state_dict(followed.state_dict())
    assert go(resumed, 10) == straight[2:]


def test_an_epoch_without_a_batch_is_an_error_instead_of_an_endless_loop():
    followed = follow(iter([torch.zeros(2)]), seed=1)
    assert len(list(followed.epoch())) == 1
    with pytest.raises(DataError, match="epoch 2 gave no batch"):
        list(followed.epoch())


def test_a_state_without_the_loaders_own_is_refused():
    followed = follow(DataLoader(Counting(), batch_size=5), seed=1)
    go(followed, 2)
    with pytest.raises(DataError, match="lacks the loader's own state"):
        follow(DataLoader(Counting(), batch_size=5), seed=1).load_state_dict(
            followed.state_dict() | {"nested": None}
        )


def test_other_members_of_a_subset_are_refused():
    def make(first):
        return DataLoader(Augmented(), batch_size=4, sampler=SubsetRandomSampler(range(first, first + 8)))

    with pytest.raises(DataChanged, match="members"):
        follow(make(3), seed=1).load_state_dict(follow(make(2), seed=1).state_dict())


class Sometimes(Dataset):
    """Draws for one sample in nine only, and has no generator of its own."""

    def __len__(self):
        return 37

    def __getitem__(self, index):
        return torch.tensor([float(index), random.random() if index % 9 == 4 else 0.0])


def test_data_that_draws_now_and_then_is_the_same_in_whichever_process():
    def make(workers):
        return DataLoader(Sometimes(), batch_size=5, shuffle=True, num_workers=workers)

    straight = go(follow(make(0), seed=1), 20)
    assert go(follow(make(2), seed=1), 20) == straight
    for cut in range(1, 8):
        resumed = follow(make(0), seed=1)
        resumed.seek(Position(epoch=1, batches=cut, samples=5 * cut, total=37 + 5 * cut))
        assert go(resumed, 12 - cut) == straight[8 + cut :]


def test_hugging_face_data_is_followed_with_its_transforms():
    datasets = pytest.importorskip("datasets")

    def make(workers=0):
        rows = datasets.Dataset.from_dict({"x": list(range(30))})
        rows.set_transform(lambda batch: {"x": [torch.tensor([x, random.random()]) for x in batch["x"]]})
        return DataLoader(rows, batch_size=4, shuffle=True, num_workers=workers)

    straight = go(follow(make(), seed=1), 20)
    assert go(follow(make(2), seed=1), 20) == straight
    resumed = follow(make(), seed=1)
    resumed.seek(Position(epoch=1, batches=2, samples=8, total=38))
    assert go(resumed, 10) == straight[10:]
    assert follow(make(), seed=1).version == follow(make(), seed=2).version != ""


@pytest.mark.parametrize("kind", [Augmented, Sometimes])
def test_each_sample_of_a_split_has_random_numbers_of_its_own(kind):
    def drawn(batch_size):
        part, _ = random_split(kind(), [30, 7], generator=torch.Generator().manual_seed(1))
        rows = torch.cat(list(follow(DataLoader(part, batch_size=batch_size, shuffle=True), seed=1).epoch()))
        return sorted(rows.tolist())

    rows = drawn(4)
    assert rows == drawn(10)
    numbers = [row[1] for row in rows if row[1]]
    assert len(set(numbers)) == len(numbers) > 2


def test_what_is_accepted_as_not_replayable_does_not_begin_the_same_epoch_again():
    def make():
        return follow(shuffled(), seed=1, replay=Replayability.none("tried out"))

    followed = make()
    first = go(followed, 3)
    resumed = make()
    resumed.load_state_dict(followed.state_dict())
    again = go(resumed, 3)
    assert {content for *_, content in first} & {content for *_, content in again} == set()


def test_the_other_arguments_of_a_loader_are_kept():
    options = {
        "num_workers": 2,
        "persistent_workers": True,
        "prefetch_factor": 3,
        "timeout": 30,
        "collate_fn": as_texts,
    }
    rebuilt = follow(shuffled(worker_init_fn=open_files, **options), seed=1)._feed.loader
    assert {name: getattr(rebuilt, name) for name in options} == options
    assert rebuilt.worker_init_fn._init is open_files
