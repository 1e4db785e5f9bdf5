"""What keeps the training waiting at a save: the copy of its state, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import pytest

SCRIPT = """
    import json, os, sys, threading
    import torch, samestep
    from samestep.run import session
    from samestep.state.arena import Slot

    session._FLUSH_SECONDS = 0.0
    synced, touched = [], []
    fsync, touch = os.fsync, Slot.touch
    os.fsync = lambda descriptor: (synced.append(threading.current_thread() is threading.main_thread()),
                                   fsync(descriptor))[1]
    Slot.touch = lambda slot: (touched.append(slot.size), touch(slot))[1]
    torch.manual_seed(0)
    model = torch.nn.Linear(512, 512)
    optimizer = torch.optim.Adam(model.parameters())
    run = samestep.Run(sys.argv[1], model=model, optimizer=optimizer, progress=False, save=10**9,
                       asynchronous=sys.argv[2])
    found = {"restored": run.restore(), "copying": run.copying}
    synced.clear()

    def step():
        optimizer.zero_grad()
        model(torch.randn(4, 512)).square().sum().backward()
        optimizer.step()
        run.step_done()

    step()
    expected = model.weight.detach().clone()
    found["touched_before"] = len(touched)
    found["bytes"] = sum(p.nbytes for p in model.parameters()) * 3
    run.save()
    step()
    run.wait()
    found["slot"] = touched[0]
    found["touched"] = len(touched)
    found["waited"] = any(synced)
    found["synced"] = len(synced)
    from samestep.bundle.storage.opening import open_storage
    from samestep.bundle.store import Store
    bundle = Store.open(open_storage(sys.argv[1]), writing=False).bundle("latest")
    found["step"] = bundle.step
    import safetensors.torch
    stored = safetensors.torch.load_file(f"{sys.argv[1]}/bundles/{bundle.id}/model.safetensors")
    found["same"] = torch.equal(stored["weight"], expected)
    run.wait()
    run.close()
    print(json.dumps(found))
"""


@pytest.mark.parametrize("asynchronous", ["stage", "overlap"])
def test_the_training_waits_for_no_disk_and_the_first_save_finds_its_memory_ready(tmp_path, asynchronous):
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), str(tmp_path / "run"), asynchronous]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["copying"] == asynchronous
    assert found["step"] == 1
    assert found["same"]
    assert found["slot"] >= found["bytes"]
    assert found["touched_before"] == found["touched"] == 1
    assert found["synced"] > 0
    assert not found["waited"]
