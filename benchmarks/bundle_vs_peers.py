"""Saving and restoring a training state: samestep's bundle store against the checkpoint libraries people use.

    python benchmarks/bundle_vs_peers.py [--quick] [--rounds 5] [--threads 1] [--folder .] [--peers-python PATH]

Everything is measured in one run and in turns: every round each peer, in a random order and in a process of its own
with a pinned number of threads, saves a live state and restores it again on the same disk. Before a save the disk is
idle and the state has changed. Before a restore the files are out of the page cache and the live state is
overwritten; after it the live state must have the digest it had. The first round is left out, its saves are shown
apart. Times are medians of the other rounds, ratios are medians of the ratios within each round.

Samestep's times always include fsync of every file and folder, BLAKE3 of every byte and the commit, and on the way
back the verification of every byte. A peer is shown as shipped, with fsync of its files and folders afterwards, and
made equal: with SHA-256 of its files, too, read from the page cache, after the save and again at the restore. A
restore has ended when the live state holds the values, so what a loader returns as new tensors is copied.
"the disk itself" writes as many bytes in whole blocks past the page cache, and syncs: the ceiling.

Workloads: ``gpt`` is a GPT with Adam's moments, 592 tensors of 1.08 GB; ``small`` is 16,000 tensors of 49 MB;
``lora`` is a save after the adapters changed over a base of 1 GB that did not. ``--quick`` takes a tenth of each.

The peers live in a virtual environment of their own, which is made below ``benchmarks/.peers`` unless
``--peers-python`` names the Python of one. A peer that cannot be installed or run is shown with the reason; one that
takes longer than 12 seconds for a save and a restore takes part in two rounds only. All of it takes about ten
minutes, 12 GB of memory and 20 GB of disk. Run it on a machine that does nothing else: ours writes with several
threads and waits for a dozen fsyncs, both of which a busy machine makes slow.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from peers import environment, report
from peers.driving import crew, measured
from peers.ways import PEERS

ROUNDS = {"gpt": 5, "small": 4, "lora": 3}


def main() -> None:
    """Measure, and print markdown tables."""
    asked = _arguments()
    python = asked.peers_python or environment.python()
    with (
        tempfile.TemporaryDirectory(dir=asked.folder, prefix="bundle-vs-peers-") as folder,
        crew(asked.peers, python, asked.threads, Path(folder)) as workers,
    ):
        runs = [
            measured(
                workload,
                workers,
                scale=0.1 if asked.quick else asked.scale,
                rounds=asked.rounds or ROUNDS[workload],
            )
            for workload in asked.workloads
        ]
    print(report.page(runs, threads=asked.threads))
    if asked.json:
        asked.json.write_text(json.dumps([run.plain() for run in runs], indent=1))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of every state")
    parser.add_argument("--scale", type=float, default=1.0, help="another size of every state")
    parser.add_argument("--rounds", type=int, help=f"with the first, which is left out (default: {ROUNDS})")
    parser.add_argument("--threads", type=int, default=1, help="of torch, OpenMP and JAX in each process")
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="on the disk to be measured")
    parser.add_argument("--workloads", nargs="+", choices=list(ROUNDS), default=list(ROUNDS))
    parser.add_argument("--peers", nargs="+", choices=list(PEERS), default=list(PEERS))
    parser.add_argument("--peers-python", type=Path, help="of an environment that has the peers")
    parser.add_argument("--json", type=Path, help="write every single measurement there, too")
    asked = parser.parse_args()
    if asked.rounds is not None and asked.rounds < 2:
        parser.error("--rounds must be at least 2: the first is left out")
    return asked


if __name__ == "__main__":
    main()
