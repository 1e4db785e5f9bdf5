"""Ranks over a gloo group, and a store to save into, for tests that run several processes."""

from __future__ import annotations

import torch
import torch.distributed as dist

from samestep.bundle.bundles import Bundle
from samestep.bundle.manifest import COMPONENTS, Row, World
from samestep.bundle.parts import PartWriter
from samestep.bundle.records import CommitRecord
from samestep.bundle.storage.local import LocalStorage
from samestep.bundle.store import Store
from samestep.errors import SamestepError


class GroupRanks:
    """The ranks of a group, which may be some of all."""

    def __init__(self, group, members):
        self._group = group
        self.rank, self.size = dist.get_group_rank(group, dist.get_rank()), len(members)

    def exchange(self, data):
        every = [None] * self.size
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in every]
        dist.all_gather(sizes, torch.tensor([len(data)]), group=self._group)
        longest = max(1, *(int(size) for size in sizes))
        texts = [torch.empty(longest, dtype=torch.uint8) for _ in every]
        own = torch.frombuffer(bytearray(data.ljust(longest, b"\0")), dtype=torch.uint8)
        dist.all_gather(texts, own, group=self._group)
        return [bytes(text[: int(size)].numpy()) for text, size in zip(texts, sizes, strict=True)]

    def barrier(self):
        self.exchange(b"")


def irrelevant_but(*saved):
    """Return rows for all components that no part carries."""
    return {name: Row(state="irrelevant", because="a test") for name in COMPONENTS if name not in saved}


def first_attempt(folder):
    store = Store.create(LocalStorage(folder))
    return store.register(store.select(), "first")


def save(attempt, snapshot, *, step=1):
    """Save a snapshot of a process by itself."""
    with attempt.begin(step=step, size_bytes=snapshot.size_bytes) as saving:
        components = {name for part in snapshot.write(saving) for name in part.components}
        return saving.commit(contract=irrelevant_but(*components))


def save_together(ranks, snapshot, attempt, storage, *, step=1):
    """Save a snapshot of several ranks; the first has the attempt. Returns the bundle on every rank."""
    import msgspec

    from samestep.bundle.manifest import Part

    saving = attempt.begin(step=step) if ranks.rank == 0 else None
    name = ranks.exchange(saving.id.encode() if saving else b"")[0].decode()
    newest = ranks.exchange(str(attempt.newest.number if attempt.newest else 0).encode() if saving else b"")[
        0
    ]
    base = bundle_of(storage, int(newest)).manifest if int(newest) else None
    writer = saving or PartWriter(storage, name, base)
    failure, parts = "", []
    try:
        parts = snapshot.write(writer)
        if saving is None:
            writer.settle()
    except SamestepError as error:
        failure = error.message
    told = ranks.exchange(msgspec.json.encode([failure, parts]))
    every = [msgspec.json.decode(data, type=tuple[str, list[Part]]) for data in told]
    failures = [f"rank {rank}: {text}" for rank, (text, _) in enumerate(every) if text]
    number = b""
    if saving is not None:
        if failures:
            saving.abandon()
        else:
            for _, theirs in every[1:]:
                for part in theirs:
                    saving.take(part)
            components = {one for _, theirs in every for part in theirs for one in part.components}
            world = World(size=ranks.size)
            bundle = saving.commit(contract=irrelevant_but(*components), world=world)
            number = str(bundle.number).encode()
    number = ranks.exchange(number)[0]
    if failures:
        raise RuntimeError("; ".join(failures))
    return bundle_of(storage, int(number))


def bundle_of(storage, number):
    from samestep.bundle.records import decode_record, record_key

    record = decode_record(storage.read(record_key(number), limit=1 << 26), number=number, what="a record")
    assert isinstance(record, CommitRecord)
    return Bundle(record)
