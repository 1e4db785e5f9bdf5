"""A process that is killed in the middle of an epoch, with workers and batches in flight, and the one after it."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from torch.utils.data import DataLoader, Dataset

from data_sets import Augmented, Stream, go
from samestep.data import follow
from samestep.data.position import Position
from samestep.data.workers import PatientWorker

TESTS = Path(__file__).parents[1]

SCRIPT = """
import itertools, json, os, signal, sys
sys.path.insert(0, {tests!r})
from torch.utils.data import DataLoader
from data_sets import Augmented, Stream, batches_of, digest
from samestep.data import follow

kind, start, stop, path = sys.argv[1:]
dataset, shuffle = (Augmented(), True) if kind == "map" else (Stream(), None)
loader = DataLoader(dataset, batch_size=5, shuffle=shuffle, num_workers=2, persistent_workers=True, prefetch_factor=3)
followed = follow(loader, seed=7)
if int(start):
    with open(path) as file:
        followed.load_state_dict(json.load(file))
for position, batch in itertools.islice(batches_of(followed), int(stop) - int(start)):
    print(position.epoch, position.batches, digest(batch), flush=True)
with open(path, "w") as file:
    json.dump(followed.state_dict(), file)
os.kill(os.getpid(), signal.SIGKILL)
"""


def lines(kind, start, stop, folder):
    """Let a process use batches ``start`` to ``stop``; what it wrote goes to a file, which its workers outlive."""
    said = folder / f"{start}.txt"
    command = [
        sys.executable,
        "-c",
        SCRIPT.format(tests=str(TESTS)),
        kind,
        str(start),
        str(stop),
        "state.json",
    ]
    with said.open("w") as file:
        ended = subprocess.run(command, stdout=file, stderr=file, timeout=120, check=False, cwd=folder)
    assert ended.returncode == -signal.SIGKILL, said.read_text()
    return said.read_text().splitlines()


@pytest.mark.parametrize("kind", ["map", pytest.param("stream", marks=pytest.mark.full)])
def test_killed_processes_use_what_one_uses(kind, tmp_path):
    dataset, shuffle = (Augmented(), True) if kind == "map" else (Stream(), None)
    loader = DataLoader(dataset, batch_size=5, shuffle=shuffle, num_workers=2, persistent_workers=True)
    straight = follow(loader, seed=7)
    expected = [f"{epoch} {batches} {content}" for epoch, batches, _, _, content in go(straight, 19)]
    parts = ((0, 3), (3, 8), (8, 19))
    assert [line for start, stop in parts for line in lines(kind, start, stop, tmp_path)] == expected
    assert json.loads((tmp_path / "state.json").read_text()) == json.loads(json.dumps(straight.state_dict()))


def holds_back(pid, number):
    """Say whether the main thread of a process has blocked a signal; a new one may have blocked others."""
    blocked = re.search(r"SigBlk:\s(\w+)\n", Path(f"/proc/{pid}/status").read_text())
    return int(blocked[1], 16) >> (number - 1) & 1


@pytest.mark.parametrize("way", ["fork", "forkserver"])
def test_a_worker_leaves_notices_to_the_training_and_ends_when_that_wants_it_to(way):
    worker = multiprocessing.get_context(way).Process(target=PatientWorker(time.sleep), args=(60,))
    worker.start()
    while not holds_back(worker.pid, signal.SIGTERM):
        time.sleep(0.05)
    os.kill(worker.pid, signal.SIGUSR1)
    if way == "fork":  # elsewhere a thread of a library may take it
        subprocess.run(["kill", "-TERM", str(worker.pid)], check=True)
    worker.join(1)
    assert worker.is_alive()
    worker.terminate()
    worker.join(20)
    assert worker.exitcode in {0, -signal.SIGTERM}


class Lazy(Dataset):
    """Makes its generator when it is asked for its first sample, in whichever process."""

    generator = None

    def __len__(self):
        return 20

    def __getitem__(self, index):
        if self.generator is None:
            self.generator = np.random.default_rng(0)
        return index, self.generator.random()


def test_a_generator_that_the_first_fetch_makes_is_seeded_by_the_sample_too():
    whole = go(follow(DataLoader(Lazy(), batch_size=4, num_workers=1), seed=7), 5)
    followed = follow(DataLoader(Lazy(), batch_size=4, num_workers=1), seed=7)
    followed.seek(Position(batches=2, samples=8, total=8))
    assert [one[2] for one in go(followed, 3)] == [one[2] for one in whole[2:]]
