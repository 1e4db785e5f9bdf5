"""Runs ``samestep drill`` the way a user does, in a project folder of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT_SECONDS = 600

LOOP = """
    import argparse, os, pathlib, torch
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--width", type=int, default=4)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    model = torch.nn.Linear(args.width, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    newest = max(args.out.glob("step-*.pt"), default=None)
    begin = 0
    if newest:
        state = torch.load(newest)
        begin = state["step"]
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    for step in range(begin, 12):
        inputs = torch.full((2, args.width), float(step + 1)) / 12
        loss = model(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 3 == 0:
            state = {"step": step + 1, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
            aside = args.out / "writing"
            torch.save(state, aside)
            os.replace(aside, args.out / f"step-{step + 1:04}.pt")
"""
"""A sound little training: 12 steps, a save every 3."""


@dataclass
class Drilled:
    """A finished ``samestep drill``."""

    exit_code: int
    stdout: str
    stderr: str
    project: Path

    @property
    def result(self) -> dict[str, Any]:
        return json.loads((self.project / ".samestep/latest/drill.json").read_text())

    def scenario(self, name: str) -> dict[str, Any]:
        return next(item for item in self.result["scenarios"] if item["name"] == name)

    def slugs(self, name: str = "") -> set[str]:
        scenarios = [item for item in self.result["scenarios"] if name in item["name"]]
        return {finding["slug"] for item in scenarios for finding in item["findings"]}


class Project:
    """A user's project folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def example(self, name: str) -> str:
        shutil.copy(ROOT / "examples" / name, self.folder / name)
        return name

    def script(self, text: str, name: str = "train.py") -> str:
        (self.folder / name).write_text(textwrap.dedent(text), encoding="utf-8")
        return name

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "samestep.cli.main", "drill", *words]

    def environment(self) -> dict[str, str]:
        return {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}

    def drill(self, *words: str, env: dict[str, str] | None = None) -> Drilled:
        done = subprocess.run(
            self.command(*words),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
            env={**self.environment(), **(env or {})},
        )
        return Drilled(done.returncode, done.stdout, done.stderr, self.folder)
