"""What recording costs: a transformers run with and without the recorder of file operations, in turn.

    python benchmarks/recorder_overhead.py [--rounds 5] [--steps 600]

Whole runs are timed, from start to exit, imports and saves included; the longer the run, the less the file operations
of starting Python count. Wall seconds and processor seconds of the tree, the recorder's own included.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from samestep.crash.recorder import Order, supervisor_command

ROOT = Path(__file__).resolve().parents[1]
TARGET_PERCENT = 5.0


def timed(command: list[str]) -> tuple[float, float]:
    """Run a command; returns wall seconds and processor seconds of it and everything below it."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seconds, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def one_round(number: int, script: Path, folder: Path) -> tuple[tuple[float, float], tuple[float, float]]:
    """Run once without and once with the recorder; the order changes from round to round."""
    results = {}
    for kind in sorted(["plain", "recorded"], reverse=bool(number % 2)):
        out = folder / f"{kind}-{number}"
        command = [sys.executable, str(script), "--out", str(out)]
        order = Order((str(out),), str(folder / f"recording-{number}"))
        results[kind] = timed(command if kind == "plain" else [*supervisor_command(order), *command])
    return results["plain"], results["recorded"]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=600, help="of the run; it saves six times")
    args = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    text = (ROOT / "examples" / "transformers_trainer.py").read_text(encoding="utf-8")
    text = text.replace("max_steps=24", f"max_steps={args.steps}")
    text = text.replace("save_steps=6", f"save_steps={args.steps // 6}")
    with tempfile.TemporaryDirectory() as name:
        script = Path(name, "train.py")
        script.write_text(text, encoding="utf-8")
        timed([sys.executable, str(script), "--out", str(Path(name, "warm-up"))])
        rounds = [one_round(number, script, Path(name)) for number in range(args.rounds)]
    percents = []
    for label, index in (("wall", 0), ("processor", 1)):
        plain = statistics.median(one[index] for one, _ in rounds)
        recorded = statistics.median(two[index] for _, two in rounds)
        paired = statistics.median(100 * (two[index] / one[index] - 1) for one, two in rounds)
        percents.append(paired)
        print(
            f"{label:10s} {plain:.2f} s plain, {recorded:.2f} s recorded, {paired:+.1f} % (median of pairs)"
        )
    print(f"target: at most {TARGET_PERCENT:.0f} % of wall time")
    return 0 if percents[0] <= TARGET_PERCENT else 1


if __name__ == "__main__":
    raise SystemExit(main())
