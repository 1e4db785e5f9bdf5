"""A run with very many bundles in an object store: selection asks as little as in one with few, and is quick."""

from __future__ import annotations

import concurrent.futures
import time
import uuid
from urllib.parse import unquote

import pytest

from bundle_memory import MemoryStorage
from bundle_samples import REST, started
from samestep.bundle.chain import PROBES
from samestep.bundle.storage.contents import BufferContent
from samestep.bundle.store import Store
from servers import emulators

FEW, SOME, MANY = 10, 500, 10_000
SECONDS = 1.0
UPLOADERS = 16
PARTS = 1
RECORDS = 4
"""Records that are read: the newest one, what was registered before it, and those read ahead."""


@pytest.fixture(scope="module")
def emulator():
    return emulators.running("s3")


def filled(emulator, bundles):
    """Save so many bundles, and return the prefix of a bucket that holds them all."""
    source, prefix = MemoryStorage(links=False), uuid.uuid4().hex
    _, attempt = started(source)
    for step in range(1, bundles + 1):
        saving = attempt.begin(step=step)
        for number in range(PARTS):
            saving.add(f"{number}.bin", BufferContent(f"{step} {number}".encode()))
        saving.commit(contract=REST | dict.fromkeys(("weights", "optimizer"), REST["rng"]))
    storage = emulator.opened(prefix)
    with concurrent.futures.ThreadPoolExecutor(UPLOADERS) as pool:
        list(pool.map(lambda key: storage.create(key, source.seen[key]), source.seen))
    return prefix


def asked(emulator, proxy, prefix, bundles):
    """Select once; return what was asked of the bundles' folders, and how often for records and for numbers."""
    store = Store.open(emulator.opened(prefix, port=proxy.port), writing=False)
    proxy.mend()
    assert store.select().step == bundles
    lines = [unquote(line) for line in proxy.seen]
    parts = [line.split(" ")[0] for line in lines if "/bundles/b-" in line]
    records = sum(line.startswith("GET ") and "/chain/" in line for line in lines)
    return parts, records, len(lines) - len(parts) - records


def test_selection_asks_no_more_among_many_bundles_than_among_few(emulator, proxy):
    few, some = (asked(emulator, proxy, filled(emulator, bundles), bundles) for bundles in (FEW, SOME))
    assert few[0] == some[0] == ["HEAD"] * PARTS
    assert max(few[1], some[1]) <= RECORDS
    assert some[2] <= few[2] + 2 * PROBES


@pytest.mark.full
def test_selection_among_ten_thousand_bundles_takes_less_than_a_second(emulator, proxy):
    prefix = filled(emulator, MANY)
    parts, _, probes = asked(emulator, proxy, prefix, MANY)
    assert parts == ["HEAD"] * PARTS
    assert probes <= 7 * PROBES  # six rounds: each narrows the bracket to a seventeenth
    assert min(seconds(emulator, prefix) for _ in range(3)) < SECONDS


def seconds(emulator, prefix):
    store = Store.open(emulator.opened(prefix), writing=False)
    begun = time.perf_counter()
    assert store.select().step == MANY
    return time.perf_counter() - begun
