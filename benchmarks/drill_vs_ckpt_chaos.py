"""Wall time per verified interruption: samestep drill against ckpt-chaos, same script, same run, same number of jobs.

    python benchmarks/drill_vs_ckpt_chaos.py --chaos path/to/ckpt-chaos [--saves]

Both tools get the same command and the same number of jobs; controls and reference runs are included in both
times. An interruption counts as verified only when the restarted run really resumed from a checkpoint *and* what
it did then was compared with an uninterrupted run. With --saves only interrupted saves are tried on both sides, and
every restart from one of their disk states counts. ckpt-chaos lives in its own virtual environment: the script
makes one below ``benchmarks/.ckpt-chaos`` when ``--chaos`` is not given.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
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
    """One run of one tool: wall and processor seconds, verified interruptions, and disk states that it knew of."""

    seconds: float
    processor: float
    verified: int
    states: int = 0

    @property
    def each(self) -> float:
        """Seconds per verified interruption."""
        return self.seconds / self.verified if self.verified else float("inf")

    def __str__(self) -> str:
        return (
            f"{self.verified} verified in {self.seconds:.0f} s ({self.each:.2f} s each, "
            f"{self.processor / max(self.verified, 1):.2f} s of processor)"
        )


class Clock:
    """Wall and processor seconds since it was made; those of ended children, whoever has waited for them."""

    def __init__(self) -> None:
        self._wall, self._processor = time.monotonic(), self._used()

    @staticmethod
    def _used() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def read(self) -> tuple[float, float]:
        """Return wall and processor seconds."""
        return time.monotonic() - self._wall, self._used() - self._processor


def run_samestep(case: Case, jobs: int, folder: Path, saves: int, more: list[str]) -> Measurement:
    """Drill with samestep, with ``more`` options, and count restarts that resumed and were compared."""
    shutil.copy(ROOT / case.script, folder / "train.py")
    command = [sys.executable, "-m", "samestep.cli.main", "drill", "--json", "--jobs", str(jobs)]
    command += ["--only", "crash", "--max-states", str(saves)] if saves else []
    command += more
    clock = Clock()
    done = subprocess.run(
        [*command, "--", sys.executable, "train.py", "--out", "{out}"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds, processor = clock.read()
    if done.returncode not in {0, 1}:
        raise SystemExit(f"samestep drill ended with {done.returncode}:\n{done.stderr[-2000:]}")
    result = json.loads(done.stdout)
    scenarios = [item for item in result["scenarios"] if item["observed"]["outcome"] != "inconclusive"]
    verified = [
        item
        for item in scenarios
        if saves or (item["observed"]["steps_verified"] and item["observed"]["resume_step"])
    ]
    states = sum(window["states"] for window in (result.get("crash") or {}).get("windows", []))
    return Measurement(seconds, processor, len(verified), states)


def run_chaos(  # noqa: PLR0917 - each is another thing
    case: Case, jobs: int, folder: Path, program: str, points: int, saves: int
) -> Measurement:
    """Crash-test with ckpt-chaos and count crashes whose resume continued a checkpoint and was compared."""
    shutil.copy(ROOT / case.script, folder / "train.py")
    clock = Clock()
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
    seconds, processor = clock.read()
    results = [json.loads(path.read_text()) for path in sorted(folder.glob("work/pt_[0-9]*/result.json"))]
    verified = [
        item
        for item in results
        if item["crashed"]
        and (
            saves
            or (item["outcome"].get("resumed_from_step") and item["outcome"].get("weights_diff") is not None)
        )
    ]
    return Measurement(seconds, processor, len(verified), len(results))


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
    parser.add_argument(
        "--saves", type=int, default=0, help="try interrupted saves only, at most this many states"
    )
    parser.add_argument(
        "--models",
        help="persistence models for samestep, with every state of them (default: its own defaults)",
    )
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    case, program = CASES[args.case], args.chaos or chaos_program()
    more = ["--models", args.models, "--max-states", "1000"] if args.models else []
    ratios = []
    for number in range(args.repeats):
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
            ours = run_samestep(case, args.jobs, Path(one), args.saves, more)
            theirs = run_chaos(case, args.jobs, Path(two), program, args.points, args.saves)
        ratios.append(theirs.each / ours.each)
        print(
            f"{number + 1}: samestep {ours} · ckpt-chaos {theirs} · "
            f"ratio {ratios[-1]:.1f} · disk states known: {ours.states} and {theirs.states}",
            flush=True,
        )
    print(
        f"median ratio {statistics.median(ratios):.1f} over {args.repeats} runs, {args.jobs} jobs, {args.case}"
    )


if __name__ == "__main__":
    main()
