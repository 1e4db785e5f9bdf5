"""Bundles as places that torch.distributed.checkpoint itself saves to and loads from."""

from __future__ import annotations

import pytest
import torch
import torch.distributed.checkpoint as dcp

from plain_trees import TrackedTree
from samestep.bundle.errors import DamageError
from samestep.state import Capture, StateError, leaves, restore, track
from samestep.state.interchange import BundleLoadPlanner, BundleReader, BundleWriter
from samestep.state.planning import Planner
from state_saving import first_attempt, irrelevant_but, save

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture
def attempt(tmp_path):
    return first_attempt(tmp_path)


def saved_by_torch(attempt, state):
    with attempt.begin(step=1) as saving:
        writer = BundleWriter(saving, "weights", "weights")
        dcp.save(state, storage_writer=writer, planner=Planner(), no_dist=True)
        return saving.commit(contract=irrelevant_but("weights"))


def test_what_torch_saves_a_restore_reads(attempt):
    state = {"a": torch.randn(300, 200), "b": torch.tensor(3), "c": torch.randn(4, 4).t().half()}
    bundle = saved_by_torch(attempt, state)
    again = TrackedTree("weights", {})
    restore([again], bundle, attempt.chain.storage)
    assert leaves.differences(again.tree, state) == []


def test_what_a_snapshot_holds_torch_loads(attempt):
    net = torch.nn.Sequential(torch.nn.Linear(40, 30), torch.nn.BatchNorm1d(30))
    bundle = save(attempt, Capture([track("net", net)]).take())
    state = {f"net.{name}": torch.zeros_like(tensor) for name, tensor in net.state_dict().items()}
    reader = BundleReader(attempt.chain.storage, bundle)
    dcp.load(state, storage_reader=reader, planner=BundleLoadPlanner(), no_dist=True)
    assert all(torch.equal(state[f"net.{name}"], tensor) for name, tensor in net.state_dict().items())


def test_damage_is_found_before_torch_fills_a_tensor(attempt):
    bundle = saved_by_torch(attempt, {"a": torch.ones(300), "b": torch.ones(300)})
    path = attempt.chain.storage.root / "bundles" / bundle.id / "model.safetensors"
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1] + b"\7")
    state = {"weights.a": torch.zeros(300), "weights.b": torch.zeros(300)}
    reader = BundleReader(attempt.chain.storage, bundle)
    with pytest.raises(BaseException) as raised:
        dcp.load(state, storage_reader=reader, planner=BundleLoadPlanner(), no_dist=True)
    assert DamageError.__name__ in str(raised.value)
    assert not any(tensor.any() for tensor in state.values())


def test_values_that_torch_would_pickle_are_refused_by_name(attempt):
    with pytest.raises(BaseException, match="epoch is a int") as raised:
        saved_by_torch(attempt, {"a": torch.ones(3), "epoch": 3})
    assert StateError.__name__ in str(raised.value)
