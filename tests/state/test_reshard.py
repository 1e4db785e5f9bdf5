"""Between every pair of 1, 2, 3 and 4 ranks a state is restored bit for bit, reading little more than is needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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
