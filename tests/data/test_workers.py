"""Workers of a followed loader leave notices of the end to the training."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = """
import os, signal, subprocess, sys, time, torch
from torch.utils.data import DataLoader, TensorDataset
from samestep.data import follow

os.setpgrp()
heard = []
signal.signal(getattr(signal, sys.argv[1]), lambda number, _: heard.append(number))
loader = DataLoader(TensorDataset(torch.arange(40.0)), batch_size=2, num_workers=2)
batches = follow(loader, seed=0).epoch()
first = next(batches)
subprocess.run(["kill", "-s", sys.argv[1][3:], "--", str(-os.getpid())], start_new_session=True)
time.sleep(0.3)
print(len(heard), 1 + sum(1 for _ in batches))
"""


def run(script, name):
    return subprocess.run(
        [sys.executable, "-c", script, name],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1"])
def test_a_notice_to_every_process_ends_no_worker(name):
    done = run(SCRIPT, name)
    assert done.stdout.split() == ["1", "20"], done.stderr


def test_a_worker_ends_when_its_training_says_so():
    script = SCRIPT[: SCRIPT.index("subprocess.run")] + (
        "import multiprocessing\n"
        "children = multiprocessing.active_children()\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_DFL)\n"
        "for child in children:\n"
        "    child.terminate()\n"
        "    child.join(10)\n"
        "print([child.exitcode for child in children], flush=True)\n"
        "os._exit(0)\n"
    )
    done = run(script, "SIGTERM")
    assert done.stdout.split("\n")[-2] == "[0, 0]", done.stderr
