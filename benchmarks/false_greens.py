"""Three passes of ckpt-chaos that are none, beside what a drill says of the same scripts.

    python benchmarks/false_greens.py --chaos path/to/ckpt-chaos

Each script has one defect that it is known for: it saves without a single fsync; it loses Adam's moments and the
result file is named wrongly; it loses them under torchrun. Printed are exit code and last line of both tools.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from dataclasses import dataclass
from pathlib import Path

from drill_vs_ckpt_chaos import chaos_program

SCRIPT = """
    import argparse, os, pathlib, torch
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    rank = int(os.environ.get("RANK", "0"))
    torch.manual_seed(0)
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    begin = 0
    newest = max(out.glob(f"rank{rank}-*.pt"), default=None)
    if newest:
        state = torch.load(newest)
        begin = state["step"]
        print(f"resuming from step {begin}", flush=True)
        model.load_state_dict(state["model"])
        if KEEPS_OPTIMIZER:
            optimizer.load_state_dict(state["optimizer"])
    for step in range(begin, 12):
        loss = model(torch.full((2, 64), float(step + 1)) / 12).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 3 == 0:
            state = {"step": step + 1, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
            aside = out / f"writing-{rank}"
            torch.save(state, aside)
            os.replace(aside, out / f"rank{rank}-{step + 1:04}.pt")
    torch.save(model.state_dict(), out / f"final-{rank}.pt")
"""


@dataclass(frozen=True)
class Case:
    """A script with a defect, and how both tools are asked about it."""

    name: str
    keeps_optimizer: bool
    launcher: tuple[str, ...]
    chaos: tuple[str, ...]
    drill: tuple[str, ...]


TORCHRUN = ("torchrun", "--standalone", "--nproc-per-node", "2")
CASES = (
    Case(
        "saves without any fsync",
        True,
        (sys.executable,),
        ("--modes", "unsynced", "--result-file", "{out}/final-0.pt"),
        ("--only", "crash", "--max-states", "30"),
    ),
    Case(
        "loses the optimizer, result file named wrongly",
        False,
        (sys.executable,),
        ("--modes", "before", "--result-file", "{out}/finale.pt"),
        ("--only", "cut"),
    ),
    Case(
        "loses the optimizer under torchrun",
        False,
        TORCHRUN,
        ("--modes", "before", "--result-file", "{out}/final-0.pt"),
        ("--only", "cut"),
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--chaos", help="the ckpt-chaos program")
    program = parser.parse_args().chaos or chaos_program()
    for case in CASES:
        print(f"\n{case.name}")
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder, "train.py")
            text = textwrap.dedent(SCRIPT).replace("KEEPS_OPTIMIZER", str(case.keeps_optimizer))
            script.write_text(text)
            print(f"  ckpt-chaos  {ask_chaos(case, program, Path(folder))}")
            shutil.rmtree(Path(folder, "work"), ignore_errors=True)
            print(f"  samestep    {ask_samestep(case, Path(folder))}", flush=True)


def ask_chaos(case: Case, program: str, folder: Path) -> str:
    command = [
        program,
        "run",
        "--work",
        "work",
        "--max-points",
        "6",
        "--step-regex",
        r"step ([0-9]+)",
        *case.chaos,
    ]
    done = run([*command, "--", *case.launcher, "train.py", "--out", "{out}"], folder)
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return f"exit {done.returncode}: {lines[-1][:150] if lines else 'no output'}"


def ask_samestep(case: Case, folder: Path) -> str:
    command = [sys.executable, "-m", "samestep.cli.main", "drill", "--json", *case.drill]
    done = run([*command, "--", *case.launcher, "train.py", "--out", "{out}"], folder)
    if not done.stdout.startswith("{"):
        return f"exit {done.returncode}: {done.stderr[-300:]}"
    result = json.loads(done.stdout)
    found = [record for item in result["scenarios"] for record in item["findings"]]
    slugs = sorted({record["slug"] for record in found if record["severity"] == "defect"})
    return f"exit {done.returncode}: {len(result['scenarios'])} scenarios, {', '.join(slugs) or 'no defect'}"


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=env)


if __name__ == "__main__":
    main()
