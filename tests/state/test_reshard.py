"""Between every pair of 1, 2, 3 and 4 ranks a state is restored bit for bit, reading little more than is needed."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
from click.testing import CliRunner

from samestep.cli.main import cli

WORKER = Path(__file__).parent / "reshard_worker.py"
LIMIT_SECONDS = 240


def ranks_of(layout, folder):
    """Run four ranks and return what each of them found."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, WORKER, layout, str(rank), folder],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(4)
    ]
    try:
        said = [rank.communicate(timeout=LIMIT_SECONDS)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0] * 4, "\n".join(said)[-4000:]
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(4)]


OTHERS = [pytest.param(name, marks=pytest.mark.full) for name in ("tp", "hybrid", "both")]


@pytest.mark.parametrize("layout", ["fsdp", *OTHERS])
def test_every_pair_of_rank_counts_restores_the_same_bits_and_reads_little_else(tmp_path, layout):
    found = [one for rank in ranks_of(layout, tmp_path) for one in rank]
    pairs = {(one["saved_by"], one["restored_by"]) for one in found}
    assert pairs == {(saved, restored) for saved in range(1, 5) for restored in range(1, 5)}
    assert [one for one in found if one["unlike"]] == []
    for one in found:
        assert one["read"] - one["state_json"] <= 1.1 * one["needed"], one
    assert exported_unlike(tmp_path) == []


def exported_unlike(folder):
    """Return the weights that are not those of the model when what three ranks saved is exported."""
    expected = json.loads((folder / "digests-3.json").read_text())
    for layout in ("hf", "dcp"):
        words = ["bundle", "export", folder / "store-3", "--into", folder / layout, "--format", layout]
        done = CliRunner().invoke(cli, list(map(str, words)), standalone_mode=False)
        assert done.exception is None, done.output
    assert {path.name for path in (folder / "hf").iterdir()} == {"model.safetensors", "config.json"}
    assert json.loads((folder / "hf" / "config.json").read_text())["architectures"] == ["Net"]
    file = safetensors.torch.load_file(folder / "hf" / "model.safetensors")
    state = {"net": {name: torch.zeros_like(tensor) for name, tensor in file.items()}}
    dcp.load(state, checkpoint_id=folder / "dcp", no_dist=True)
    both = [*file.items(), *state["net"].items()]
    return [name for name, tensor in both if digest(tensor) != expected[name]]


def digest(tensor):
    return hashlib.sha256(tensor.numpy().tobytes()).hexdigest()
