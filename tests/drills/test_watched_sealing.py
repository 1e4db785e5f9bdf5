"""``samestep bundle seal --watch`` beside a training that saves: real processes, real signals."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys

import pytest

from forging import Forge
from samestep.journal import read_journal


@pytest.fixture
def watcher(tmp_path):
    """A watcher of ``out``, running."""
    words = ["bundle", "seal", "out", "--run", "store", "--watch", "--settle", "0.3", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "samestep", *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert b"made the root" in process.stderr.readline()
    assert b"watching out" in process.stderr.readline()
    yield process
    process.kill()
    process.communicate()


def next_sealed(process):
    """Return the next object that the watcher prints."""
    assert select.select([process.stdout], [], [], 60)[0], "nothing was sealed"
    return json.loads(process.stdout.readline())


def steps(folder):
    done = subprocess.run(
        [sys.executable, "-m", "samestep", "bundle", "ls", "store", "--json"],
        cwd=folder,
        capture_output=True,
        check=True,
    )
    return [one["step"] for one in json.loads(done.stdout)["bundles"]]


def test_checkpoints_are_sealed_as_they_appear_and_once_more_at_the_end(watcher, tmp_path):
    Forge().trainer_checkpoint(tmp_path / "out" / "checkpoint-10", 10)
    assert next_sealed(watcher)["bundle"]["step"] == 10
    Forge().trainer_checkpoint(tmp_path / "out" / "checkpoint-20", 20)
    watcher.send_signal(signal.SIGTERM)
    assert watcher.wait(60) == 143
    assert steps(tmp_path) == [20, 10]
    (kept,) = (tmp_path / ".samestep" / "journal").glob("*/*.jsonl")
    assert [event.event for event in read_journal(kept).events if event.event != "save-durable"] == [
        "journal-opened", "attempt-started", "decision",
        "save-asked", "save-committed", "save-asked", "save-committed", "ended",
    ]  # fmt: skip
    carried = b"".join(
        path.read_bytes() for path in sorted((tmp_path / "store" / "journal").glob("*/*.jsonl"))
    )
    assert carried == kept.read_bytes()


def test_a_watcher_that_was_killed_is_replaced_without_sealing_anything_twice(watcher, tmp_path):
    Forge().trainer_checkpoint(tmp_path / "out" / "checkpoint-10", 10)
    next_sealed(watcher)
    watcher.kill()
    watcher.wait(60)
    again = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "samestep",
            "bundle",
            "seal",
            "out",
            "--run",
            "store",
            "--watch",
            "--settle",
            "0",
        ],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert b"watching out" in again.stderr.readline()
    Forge().trainer_checkpoint(tmp_path / "out" / "checkpoint-20", 20)
    again.send_signal(signal.SIGINT)
    assert again.wait(60) == 130
    again.communicate()
    assert steps(tmp_path) == [20, 10]
