"""Hundreds of disk states of one Trainer save with rotation, restarted in one drill.

    python benchmarks/many_states.py [--states 650]

The transformers example, keeping one checkpoint only, so that every save deletes the one before. Compared are restarts
forked from a process that has imported the libraries and the fresh ones that confirm each kind of result, in the same
drill: median wall seconds of one restart, verified steps and judging included. Restarts run side by side on both cores,
so the wall time that a state takes of the drill is about half of that.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODELS = "kill,power-ext4,power-xfs,posix-worst,nfs"


def drill(folder: Path, states: int, jobs: int) -> tuple[float, dict]:
    """Drill the example with one checkpoint kept; returns wall seconds and the result."""
    script = (ROOT / "examples" / "transformers_trainer.py").read_text(encoding="utf-8")
    assert "save_total_limit=3" in script
    (folder / "train.py").write_text(script.replace("save_total_limit=3", "save_total_limit=1"))
    command = [sys.executable, "-m", "samestep.cli.main", "drill", "--json", "--only", "crash"]
    command += ["--models", MODELS, "--max-states", str(states), "--jobs", str(jobs)]
    started = time.monotonic()
    done = subprocess.run(
        [*command, "--", sys.executable, "train.py", "--out", "{out}"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - started
    if done.returncode != 1:
        raise SystemExit(f"samestep drill ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return seconds, json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--states", type=int, default=650)
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        seconds, result = drill(Path(folder), args.states, args.jobs)
    states = [item for item in result["scenarios"] if item["crash"] and item["crash"]["model"] != "fault"]
    forked = [item["seconds"] for item in states if item["forked"]]
    fresh = [item["seconds"] for item in states if not item["forked"]]
    for window in result["crash"]["windows"]:
        counts = ", ".join(window["counts"])
        print(f"{window['name']}: {window['tried']} of {window['states']} states restarted; {counts}")
    print(f"{len(states)} states in {seconds:.0f} s, {seconds / len(states):.2f} s each with everything")
    short, long = statistics.median(forked), statistics.median(fresh)
    print(
        f"median of one restart: forked {short:.2f} s ({len(forked)}), fresh {long:.2f} s ({len(fresh)}), "
        f"ratio {long / short:.1f}"
    )
    print("outcomes:", dict(Counter(item["observed"]["outcome"] for item in states)))
    found = Counter(record["slug"] for item in states for record in item["findings"])
    print("findings:", dict(found.most_common()))
    operations = Counter(
        (item["crash"]["last"], item["observed"]["outcome"]) for item in states if not item["holds"]
    )
    print(f"failures at {len({last for last, _ in operations})} operations; the most telling:")
    for (last, outcome), count in operations.most_common(12):
        print(f"  {count:4d} {outcome:10s} {last}")


if __name__ == "__main__":
    main()
