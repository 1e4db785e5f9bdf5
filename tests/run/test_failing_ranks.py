"""A rank of a sharded training that ends inside a save: no manifest, an error on all others, nothing left behind."""

from __future__ import annotations

import re
import signal
import time

import pytest

from run_trainings import train_ranks
from samestep.bundle.storage.local import LocalStorage
from samestep.bundle.store import Store

LIMIT_SECONDS, STEPS = 6, 16
ENDS = {"raises": 1, "lingers": 1, "exits": 3, "stops": -signal.SIGKILL}
"""How the failing rank ends; a stopped one is killed when the other has ended.

One that lingers learns from the other ranks that a save has failed before its own is over.
"""


def bundles(root):
    store = Store.open(LocalStorage(root), writing=False)
    return [(bundle.step, store.verify(bundle).whole) for bundle in store.bundles()]


def orphans(root):
    """Names of folders below ``bundles/`` that belong to no bundle, and of unfinished files anywhere."""
    store = Store.open(LocalStorage(root), writing=False)
    kept = {bundle.id for bundle in store.bundles()}
    folders = [path.name for path in (root / "bundles").iterdir() if path.name not in kept]
    return folders + [str(path) for path in root.rglob(".unfinished-*")]


@pytest.mark.parametrize(
    "way", ["lingers", *(pytest.param(way, marks=pytest.mark.full) for way in ("raises", "exits", "stops"))]
)
def test_the_bundle_before_stays_all_others_say_so_in_time_and_a_restart_tidies_up(way, tmp_path):
    root, began = tmp_path / "root", time.monotonic()
    stopped = {"rank_signals": {1: {0: []}}} if way == "stops" else {}
    first, failed = train_ranks(
        "failing", root, 2, steps=STEPS, limit_seconds=LIMIT_SECONDS, fails=way, **stopped
    )
    assert time.monotonic() - began < 60 + LIMIT_SECONDS
    assert failed.exit_code == ENDS[way], failed.text
    assert first.exit_code not in (0, 75), first.text
    if way in ("raises", "lingers"):
        assert "the save of step 8 failed: rank 1: the disk of this rank is broken" in first.text
        assert (
            "SaveFailed: the save of step 8 failed: OSError: the disk of this rank is broken" in failed.text
        )
    else:
        assert re.search(
            r"heard nothing from another rank|another rank has left|[Cc]onnection", first.text
        ), first.text
    assert bundles(root) == [(4, True)]
    resumed = train_ranks("failing", root, 2, steps=STEPS)
    assert [one.exit_code for one in resumed] == [0, 0], resumed[0].text
    assert [step for step, _ in bundles(root)] == [16, 12, 8]
    assert orphans(root) == []
    if way not in ("raises", "lingers"):
        control = train_ranks("sharded", tmp_path / "control", 2, steps=STEPS)
        assert [one.digest for one in resumed] == [one.digest for one in control]
