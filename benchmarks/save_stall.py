"""What saving costs a training loop while it trains: samestep.Run against the ways people save today.

    python benchmarks/save_stall.py [--quick] [--rounds 3] [--folder .] [--peers-python PATH]

A GPT of 90 M parameters is trained with fused AdamW by one thread on the CPU: 1.08 GB of state in 592 tensors, saved
every few steps. All ways are measured in one run and in turns: every round each of them, in a random order, trains in
a process of its own, first without a save, then with a first one, which is shown apart, and then with two more.

The headline is *added loop seconds per save at equal durability*: what the steps between saves took, the wait for the
last save included, less what as many undisturbed steps of the same process took. After it come the seconds that a
save kept the loop blocked (in the call, and before the next optimizer update where copying overlaps with it), the
processor seconds that it added to the main process and to helpers, and how far memory rose above the training's own.
Numbers are medians over rounds, ratios are medians of the ratios within each round. A line "no saves" goes through
the same motions without saving: what it shows is noise. One warm copy of the state is the floor for who copies first.

What each way has done when it says that a save is done, as measured:

* samestep: every file and folder is fsynced, every byte digested with BLAKE3, the bundle committed by one record that
  is created exclusively; older bundles are given up only after one that stays was read back and verified.
* torch.save, Accelerate: no promise of their own; here files and folders are fsynced before the loop goes on. Written
  in place, no digest.
* DCP (torch.distributed.checkpoint), sync and async: files are fsynced by itself, folders here; ``.metadata`` is the
  marker; no digest. "Reused stager" keeps its staging memory from save to save, "background staging" also copies
  while the next forward and backward run.
* torch-checkpointing, Orbax: no fsync of their own; here files and folders are fsynced in the background, and the
  next save waits for it. No digest of the content; Orbax compresses and renames into place.

Everybody has one save in flight and keeps two. A second table saves 16,000 small tensors, each save waited for.
``--quick`` takes a tenth of the state. The peers live in the environment that ``bundle_vs_peers.py`` makes. All of it
takes about ten minutes (no round begins after ``--minutes``), 8 GB of memory and 5 GB of disk. Run it on a machine
that does nothing else.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from peers import environment, stall_report
from peers.stall_report import Measured
from peers.stall_worker import Plan
from peers.stalls import AT_HOME, DCP, NOTHING, STAGE, WAYS

_SMALL = (STAGE, DCP)
_LIMIT_SECONDS = 240.0


def main() -> None:
    """Measure, and print markdown tables."""
    asked = _arguments()
    python = asked.peers_python or environment.python()
    scale = 0.1 if asked.quick else 1.0
    plan = Plan(scale=scale, plain=6, gap=4, saves=2)
    measured = Measured(scale, os.getloadavg()[0])
    until = time.monotonic() + 60 * asked.minutes
    small = Plan(scale=scale, plain=0, gap=0, saves=2, small=True)
    measured.small = {way: [_turn(way, small, python, asked.folder)] for way in _SMALL if way in asked.ways}
    for number in range(asked.rounds):
        began = time.monotonic()
        for way in random.Random(number).sample(asked.ways, len(asked.ways)):
            measured.turns.setdefault(way, []).append(_turn(way, plan, python, asked.folder))
        if time.monotonic() + (time.monotonic() - began) > until:
            break
    measured.load = (measured.load[0], os.getloadavg()[0])
    print(stall_report.page(measured))
    if asked.json:
        asked.json.write_text(json.dumps(dataclasses.asdict(measured), indent=1))


def _turn(way: str, plan: Plan, python: Path, folder: Path) -> dict[str, Any]:
    """Let a way take its turn, in a process and a folder of its own."""
    program = Path(sys.executable) if way in AT_HOME else python
    with tempfile.TemporaryDirectory(dir=folder, prefix="save-stall-", ignore_cleanup_errors=True) as place:
        command = [program, "-m", "peers.stall_worker", way, place, json.dumps(dataclasses.asdict(plan))]
        try:
            with (Path(place) / "log").open("w+") as log:
                done = subprocess.run(
                    command,
                    cwd=Path(__file__).parent,
                    env=_environment(),
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    timeout=_LIMIT_SECONDS,
                    check=False,
                )
            found = json.loads(done.stdout) if done.stdout else {"failed": f"ended with {done.returncode}"}
        except subprocess.TimeoutExpired:
            found = {"failed": f"was not done after {_LIMIT_SECONDS:g} s"}
        if "failed" in found:
            print((Path(place) / "log").read_text()[-2000:], file=sys.stderr)
    print(f"{way}: {found.get('failed') or _short(found)}", file=sys.stderr)
    return found


def _short(found: dict[str, Any]) -> str:
    return ", ".join(f"{name} {found[name]:.3f}" for name in ("added", "blocked", "whole") if name in found)


def _environment() -> dict[str, str]:
    pinned = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return {**os.environ, **pinned, "JAX_PLATFORMS": "cpu", "PYTHONWARNINGS": "ignore"}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the state")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=11.0, help="begin no round that would end later")
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="on the disk to be measured")
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--peers-python", type=Path, help="of an environment that has the peers")
    parser.add_argument("--json", type=Path, help="write every single measurement there, too")
    asked = parser.parse_args()
    asked.folder = asked.folder.resolve()
    if NOTHING not in asked.ways:
        asked.ways.insert(0, NOTHING)
    return asked


if __name__ == "__main__":
    main()
