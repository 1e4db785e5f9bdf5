"""Memory that is made ready in the background is the memory that the first snapshot takes."""

from __future__ import annotations

import threading

import torch

from samestep.state import Capture, leaves, restore, track
from samestep.state.arena import Arena, Slot
from state_saving import first_attempt, save


def test_a_snapshot_waits_for_the_memory_that_is_made_ready_and_takes_no_other(tmp_path, monkeypatch):
    net = torch.nn.Linear(400, 300)
    expected = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    slots = Arena()
    capture = Capture([track("net", net)], arena=slots)
    go_on, touch = threading.Event(), Slot.touch
    monkeypatch.setattr(Slot, "touch", lambda slot: (go_on.wait(30), touch(slot)))
    capture.prepare(wait=False)
    threading.Timer(0.2, go_on.set).start()
    snapshot = capture.take()
    assert go_on.is_set()
    with torch.no_grad():
        net.weight.zero_()
    attempt = first_attempt(tmp_path)
    bundle = save(attempt, snapshot)
    snapshot.close()
    assert sorted(bool(slot.size) for slot in slots._free) == [False, True]
    restore([track("net", net)], bundle, attempt.chain.storage)
    assert leaves.differences(dict(net.state_dict()), expected) == []
