"""How close the durable, digested write of a part comes to what the disk can do.

Four ways to put the same bytes on the disk, interleaved, each ending with an fsync of file and folder:

raw       whole blocks past the page cache from one aligned buffer, by as many threads as the store uses: the ceiling
buffered  write and fsync, as a careful script does it
part      ``LocalStorage.write`` and ``settle``: the bytes are gathered, digested with BLAKE3 and written
undigested  the same without the digest

    python benchmarks/part_writer.py --size-mib 1024 --rounds 7 --folder .
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import numpy as np
from blake3 import blake3

from samestep.bundle import digests
from samestep.bundle.digests import CHUNK_BYTES
from samestep.bundle.storage import direct, system
from samestep.bundle.storage.contents import BufferContent
from samestep.bundle.storage.local import LocalStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MIB = 1 << 20


def main() -> None:
    """Measure, and print one JSON object."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--size-mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=7, help="the first one warms up and is left out")
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="on the disk to be measured")
    asked = parser.parse_args()
    data = np.random.default_rng(1).bytes(asked.size_mib * MIB)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=asked.folder)))
        ways = {"raw": raw, "buffered": buffered, "part": part, "undigested": undigested}
        rounds = [
            {name: measured(way, folder, data) for name, way in ways.items()} for _ in range(asked.rounds)
        ]
    json.dump(report(asked.size_mib, rounds[1:], data), sys.stdout, indent=2)
    print()


def raw(folder: Path, data: bytes) -> None:
    """Write as many bytes from one aligned buffer, whole blocks, past the page cache."""
    with direct.Ring(1).borrow() as buffer, opened(folder / "raw") as descriptor:
        buffer[:] = data[:CHUNK_BYTES]
        system.set_direct(descriptor, direct=True)
        system.reserve(descriptor, len(data))
        with concurrent.futures.ThreadPoolExecutor(direct.WRITERS) as pool:
            offsets = range(0, len(data), CHUNK_BYTES)
            list(pool.map(lambda offset: system.write_all(descriptor, buffer, offset), offsets))
        system.sync(descriptor)


def buffered(folder: Path, data: bytes) -> None:
    """Write and fsync."""
    with opened(folder / "buffered") as descriptor:
        system.write_all(descriptor, memoryview(data), 0)
        system.sync(descriptor)


def part(folder: Path, data: bytes) -> None:
    """Store the bytes as a part."""
    storage = LocalStorage(folder / "store")
    storage.write("part", BufferContent(data))
    storage.settle(["part"])


def undigested(folder: Path, data: bytes) -> None:
    """Store the bytes as a part, without the digest."""
    with mock.patch.object(digests, "blake3", Undigested):
        part(folder, data)


class Undigested:
    """What stands in for BLAKE3."""

    def __init__(self, data: bytes = b"") -> None:
        """Take data, or none."""

    def update(self, data: memoryview) -> None:
        """Take more data."""

    def hexdigest(self) -> str:
        """Return no digest."""
        return "00"


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    """Lend a new file; its name is durable afterwards."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
    above = os.open(path.parent, os.O_RDONLY)
    os.fsync(above)
    os.close(above)


def measured(way: Callable[[Path, bytes], None], folder: Path, data: bytes) -> tuple[float, float]:
    """Return wall and processor seconds of one write into an empty folder."""
    place = folder / "round"
    place.mkdir()
    wall, processor = time.perf_counter(), processor_seconds()
    way(place, data)
    wall, processor = time.perf_counter() - wall, processor_seconds() - processor
    shutil.rmtree(place)
    os.sync()
    return wall, processor


def processor_seconds() -> float:
    """Return the seconds of this process, user and system."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def report(size_mib: int, rounds: list[dict[str, tuple[float, float]]], data: bytes) -> dict[str, object]:
    """Return rates and ratios; ``of_raw`` compares within each round, so that a busy minute counts for both."""
    gib = size_mib / 1024
    ways = {
        name: {
            "median_gib_s": round(gib / statistics.median(turn[name][0] for turn in rounds), 3),
            "best_gib_s": round(gib / min(turn[name][0] for turn in rounds), 3),
            "processor_s_per_gib": round(statistics.median(turn[name][1] for turn in rounds) / gib, 3),
            "of_raw": round(statistics.median(turn["raw"][0] / turn[name][0] for turn in rounds), 3),
        }
        for name in rounds[0]
    }
    return {
        "size_mib": size_mib,
        "rounds": len(rounds),
        "load": os.getloadavg()[0],
        "cores": len(os.sched_getaffinity(0)),
        "ways": ways,
        "blake3_gib_s": round(digest_rate(data), 3),
    }


def digest_rate(data: bytes) -> float:
    """Return what one core digests, in GiB a second, a chunk at a time."""
    piece = memoryview(data)[:CHUNK_BYTES]
    started = time.perf_counter()
    for _ in range(16):
        blake3(piece).digest()
    return 16 * len(piece) / 2**30 / (time.perf_counter() - started)


if __name__ == "__main__":
    main()
