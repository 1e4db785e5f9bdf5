"""Wall time per verified interruption: samestep drill against ckpt-chaos, same script, same run, same number of jobs.

    python benchmarks/drill_vs_ckpt_chaos.py --chaos path/to/ckpt-chaos

Both tools get the same command and the same number of jobs; controls and reference runs are included in both
times. An interruption counts as verified only when the restarted run really resumed from a checkpoint *and* what
it did then was compared with an uninterrupted run. ckpt-chaos lives in its own virtual environment: the script
makes one below ``benchmarks/.ckpt-chaos`` when ``--chaos`` is not given.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Case:
    """A script both tools drill: its file, the file its result is compared by, how its log names the resume step."""

    script: str
    result_file: str
    step_regex: str


CASES = {
    "plain": Case("examples/plain_good.py", "{out}/step-000024.pt", r"resuming from .*step-0*([0-9]+)"),
    "transformers": Case(
        "examples/transformers_trainer.py",
        "{out}/checkpoint-24/model.safetensors",
        r"resuming from .*checkpoint-([0-9]+)",
    ),
}


@dataclass(frozen=True)
class Measurement:
    """One run of one tool: wall seconds and verified interruptions."""

    seconds: float
    verified: int

    @property
    def each(self) -> float:
        """Seconds per verified interruption."""
        return self.seconds / self.verified if self.verified else float("inf")


def run_samestep(case: Case, jobs: int, folder: Path) -> Measurement:
    """Drill with samestep and count restarts that resumed and were compared."""
    shutil.copy(ROOT / case.script, folder / "train.py")
    command = [sys.executable, "-m", "samestep.cli.main", "drill", "--json", "--jobs", str(jobs)]
    started = time.monotonic()
    done = subprocess.run(
        [*command, "--", sys.executable, "train.py", "--out", "{out}"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - started
    if done.returncode not in {0, 1}:
        raise SystemExit(f"samestep drill ended with {done.returncode}:\n{done.stderr[-2000:]}")
    scenarios = json.loads(done.stdout)["scenarios"]
    verified = [
        item for item in scenarios if item["observed"]["steps_verified"] and item["observed"]["resume_step"]
    ]
    return Measurement(seconds, len(verified))


def run_chaos(case: Case, jobs: int, folder: Path, program: str, points: int) -> Measurement:
    """Crash-test with ckpt-chaos and count crashes whose resume continued a checkpoint and was compared."""
    shutil.copy(ROOT / case.script, folder / "train.py")
    started = time.monotonic()
    subprocess.run(
        [
            program,
            "run",
            "--work",
            "work",
            "--jobs",
            str(jobs),
            "--max-points",
            str(points),
            "--result-file",
            case.result_file,
            "--step-regex",
            case.step_regex,
            "--",
            sys.executable,
            "train.py",
            "--out",
            "{out}",
        ],
        cwd=folder,
        capture_output=True,
        check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    seconds = time.monotonic() - started
    results = [json.loads(path.read_text()) for path in sorted(folder.glob("work/pt_[0-9]*/result.json"))]
    verified = [
        item
        for item in results
        if item["crashed"]
        and item["outcome"].get("resumed_from_step")
        and item["outcome"].get("weights_diff") is not None
    ]
    return Measurement(seconds, len(verified))


def chaos_program() -> str:
    """Return ckpt-chaos from a virtual environment of its own, made on first use."""
    home = ROOT / "benchmarks" / ".ckpt-chaos"
    program = home / "bin" / "ckpt-chaos"
    if not program.exists():
        venv.create(home, with_pip=True)
        subprocess.run([home / "bin" / "pip", "install", "-q", "ckpt-chaos==0.1.8"], check=True)
    return str(program)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--chaos", help="the ckpt-chaos program")
    parser.add_argument("--case", choices=list(CASES), default="plain")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--points", type=int, default=12, help="crash points for ckpt-chaos")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    case, program = CASES[args.case], args.chaos or chaos_program()
    ratios = []
    for number in range(args.repeats):
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
            ours = run_samestep(case, args.jobs, Path(one))
            theirs = run_chaos(case, args.jobs, Path(two), program, args.points)
        ratios.append(theirs.each / ours.each)
        print(
            f"{number + 1}: samestep {ours.verified} verified in {ours.seconds:.0f} s ({ours.each:.2f} s each) · "
            f"ckpt-chaos {theirs.verified} verified in {theirs.seconds:.0f} s ({theirs.each:.2f} s each) · "
            f"ratio {ratios[-1]:.1f}",
            flush=True,
        )
    print(
        f"median ratio {statistics.median(ratios):.1f} over {args.repeats} runs, {args.jobs} jobs, {args.case}"
    )


if __name__ == "__main__":
    main()
