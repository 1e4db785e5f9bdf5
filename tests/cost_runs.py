"""Small helpers of the tests of simulated runs: units, the shared data, how far a mean is off."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

MINUTE, HOUR = 60.0, 3600.0


def shared(*parts):
    """Return a file of the shared validation data, which is not part of the repository; without it, skip visibly."""
    root = os.environ.get("SAMESTEP_SHARED", Path(__file__).parents[1].parent / "shared")
    path = Path(root).joinpath("data", *parts)
    if not path.exists():
        pytest.skip(f"there is no {path}: the recorded traces are not redistributed")
    return path


def spread_over(amounts, value):
    """Return by how many standard errors the mean of simulated amounts lies above a value."""
    return (amounts.mean() - value) / (amounts.std(ddof=1) / len(amounts) ** 0.5)
