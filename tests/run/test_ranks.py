"""Several gloo ranks: replicated and sharded models resume exactly, also with another number of ranks."""

from __future__ import annotations

import itertools
import signal
import time

import pytest
import torch
from torch import distributed
from torch.utils.data import DataLoader, TensorDataset

from run_trainings import SAMPLES, train_ranks
from samestep import data
from samestep.bundle.storage.local import LocalStorage
from samestep.bundle.store import Store
from samestep.run.ranks import Agreement

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


@pytest.mark.parametrize("kind", ["replicated", pytest.param("sharded", marks=pytest.mark.full)])
def test_two_ranks_go_on_as_if_nothing_had_happened(kind, tmp_path):
    control = train_ranks(kind, tmp_path / "control", 2, steps=10)
    assert [one.exit_code for one in control] == [0, 0], control[0].text
    noticed = train_ranks(kind, tmp_path / "cut", 2, steps=10, **TERMINATED)
    assert [one.exit_code for one in noticed] == [75, 75], noticed[0].text
    resumed = train_ranks(kind, tmp_path / "cut", 2, steps=10)
    assert [one.exit_code for one in resumed] == [0, 0], resumed[0].text
    for rank in range(2):
        losses = list(control[rank].losses.values())
        assert list(noticed[rank].losses.values()) + list(resumed[rank].losses.values()) == losses
        assert resumed[rank].digest == control[rank].digest


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
