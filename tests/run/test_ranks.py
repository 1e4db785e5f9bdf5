"""Several gloo ranks: replicated and sharded models resume exactly, also with another number of ranks."""

from __future__ import annotations

import itertools
import signal
import time
from types import SimpleNamespace

import pytest
import torch
from torch import distributed, nn
from torch.utils.data import DataLoader, TensorDataset

from run_trainings import SAMPLES, train_ranks
from samestep import data
from samestep.bundle.records import AttemptRecord
from samestep.bundle.storage.local import LocalStorage
from samestep.bundle.store import Store
from samestep.run.ranks import Agreement
from samestep.run.sharing import regrouped

TERMINATED = {"signals": {3: [signal.SIGTERM]}}


def seen_since(folder, known):
    """The samples of every rank since the files that are known, a list of batches for each rank."""
    files = sorted(set(folder.glob("seen-*")) - known, key=lambda path: path.stat().st_mtime)
    known.update(files)
    return [
        [[int(word) for word in line.split()] for line in path.read_text().splitlines()] for path in files
    ]


def test_what_was_proposed_before_a_save_does_not_ask_for_another(tmp_path):
    distributed.init_process_group(
        "gloo", store=distributed.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1
    )
    try:
        agreement = Agreement()
        assert agreement.propose([False, True]) == [False, False]
        assert agreement.propose([True, True]) == [False, True]
        agreement.settle(1)
        assert agreement.propose([False, False]) == [True, False]
        assert agreement.propose([False, True]) == [False, False]
        assert agreement.propose([False, False]) == [False, True]
    finally:
        distributed.destroy_process_group()


@pytest.mark.parametrize(
    ("kind", "ranks"),
    [
        ("replicated", 2),
        pytest.param("sharded", 2, marks=pytest.mark.full),
        pytest.param("replicated", 4, marks=pytest.mark.full),
        pytest.param("sharded", 4, marks=pytest.mark.full),
        pytest.param("split", 2, marks=pytest.mark.full),
    ],
)
def test_ranks_go_on_as_if_nothing_had_happened(kind, ranks, tmp_path):
    control = train_ranks(kind, tmp_path / "control", ranks, steps=8)
    assert [one.exit_code for one in control] == [0] * ranks, control[0].text
    noticed = train_ranks(kind, tmp_path / "cut", ranks, steps=8, **TERMINATED)
    assert [one.exit_code for one in noticed] == [75] * ranks, noticed[0].text
    resumed = train_ranks(kind, tmp_path / "cut", ranks, steps=8)
    assert [one.exit_code for one in resumed] == [0] * ranks, resumed[0].text
    for rank in range(ranks):
        losses = list(control[rank].losses.values())
        assert 0 < len(noticed[rank].losses) < len(losses)
        assert list(noticed[rank].losses.values()) + list(resumed[rank].losses.values()) == losses
        assert resumed[rank].digest == control[rank].digest


@pytest.mark.parametrize(("ranks", "fixed"), [(2, False), (4, False), (4, True)])
def test_sums_that_are_rounded_otherwise_after_a_restart_are_told(ranks, fixed, tmp_path):
    distributed.init_process_group(
        "gloo", store=distributed.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1
    )
    try:
        model = nn.parallel.DistributedDataParallel(nn.Linear(2, 1), find_unused_parameters=fixed)
        said = regrouped([model], SimpleNamespace(size=ranks))
        assert ("sums over 4 ranks may differ" in said) is (ranks == 4 and not fixed)
    finally:
        distributed.destroy_process_group()


@pytest.mark.full
def test_ranks_that_work_on_a_batch_together_read_the_same_samples(tmp_path):
    trained = train_ranks("split", tmp_path / "root", 2, steps=6)
    assert [one.exit_code for one in trained] == [0, 0], trained[0].text
    one, other = seen_since(tmp_path, set())
    assert one == other
    assert len(one) == 6


def test_fewer_ranks_go_on_only_when_asked_to_and_the_record_says_so(tmp_path):
    root, known = tmp_path / "root", set()
    noticed = train_ranks("sharded", root, 2, steps=8, **TERMINATED)
    assert [one.exit_code for one in noticed] == [75, 75], noticed[0].text
    before = seen_since(tmp_path, known)
    refused = train_ranks("sharded", root, 1, steps=8)[0]
    assert (refused.exit_code, refused.losses) == (1, {})
    assert "would be transferred from 2 to 1 ranks" in refused.text
    assert "Run(..., transfer=True)" in refused.text
    asked = train_ranks("sharded", root, 1, steps=8, transfer=True)[0]
    assert asked.exit_code == 0, asked.text
    store = Store.open(LocalStorage(root), writing=False)
    records = [
        record for record in store.chain.backwards(store.chain.head()) if isinstance(record, AttemptRecord)
    ]
    assert [record.reason for record in reversed(records)] == [
        "samestep.Run: first start",
        "samestep.Run: transfer from 2 to 1 ranks",
    ]
    order = DataLoader(TensorDataset(torch.arange(SAMPLES)), batch_size=1, shuffle=True)
    due = [int(batch[0]) for batch in data.follow(order, seed=0).epoch()]
    used = [sample for step in zip(*before, strict=True) for sample in sorted(itertools.chain(*step))]
    rest = list(itertools.chain(*seen_since(tmp_path, known)[0]))
    assert len(used) + len(rest) == 4 * len(before[0]) + 2 * (8 - len(before[0]))
    assert sorted(used) == sorted(due[: len(used)])
    assert rest == due[len(used) : len(used) + len(rest)]


@pytest.mark.full
def test_another_number_of_ranks_goes_on_with_the_same_samples_each_once(tmp_path):
    known, seen = set(), []
    for ranks, options, code in ((4, TERMINATED, 75), (2, TERMINATED, 75), (4, {}, 0)):
        transferred = ranks == 2 or code == 0
        results = train_ranks("sharded", tmp_path / "root", ranks, steps=12, transfer=transferred, **options)
        assert [one.exit_code for one in results] == [code] * ranks, results[0].text
        batches = seen_since(tmp_path, known)
        assert len(batches) == ranks
        seen += [sorted(itertools.chain(*together)) for together in zip(*batches, strict=True)]
    assert sorted(itertools.chain(*seen)) == list(range(SAMPLES))
    order = DataLoader(TensorDataset(torch.arange(SAMPLES)), batch_size=1, shuffle=True)
    expected = [int(batch[0]) for batch in data.follow(order, seed=0).epoch()]
    for step in seen:
        assert step == sorted(expected[: len(step)])
        expected = expected[len(step) :]


@pytest.mark.full
@pytest.mark.parametrize("sent", [signal.SIGSTOP, signal.SIGKILL], ids=lambda one: one.name)
def test_a_rank_that_is_stopped_or_killed_leaves_no_bundle_and_an_error_on_the_others(sent, tmp_path):
    started = time.monotonic()
    first, _ = train_ranks(
        "replicated", tmp_path / "root", 2, steps=10, limit_seconds=6, rank_signals={1: {4: [sent]}}
    )
    assert first.exit_code not in (0, 75)
    assert "rank" in first.text or "Connection" in first.text
    assert time.monotonic() - started < 60
    store = Store.open(LocalStorage(tmp_path / "root"), writing=False)
    assert not list(store.bundles())
