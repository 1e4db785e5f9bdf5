"""Stands in for W&B where scalars are passed on: ``init``, ``run``, ``log`` and ``finish`` as the package has them.

A row of the history is complete when a later step is logged or the run is finished; an earlier step is ignored, with a
warning. Without a run ``log`` raises. Rows go to ``wandb-history.jsonl``, and a run that is resumed goes on from there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

HISTORY = Path("wandb-history.jsonl")
run = None


class Error(Exception):
    """What the package raises."""


class Run:
    def __init__(self):
        lines = HISTORY.read_text().splitlines() if HISTORY.exists() else []
        self.step = json.loads(lines[-1])["_step"] + 1 if lines else 0
        self._row = {}

    def log(self, data, step=None, commit=None):
        if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
            raise ValueError("wandb.log must be passed a dictionary with strings as keys")
        if step is not None and step < self.step:
            print(
                f"wandb: WARNING Tried to log to step {step} that is less than {self.step}", file=sys.stderr
            )
            return
        if step is not None and step > self.step:
            self._flush()
            self.step = step
        self._row |= data
        if commit or (commit is None and step is None):
            self._flush()
            self.step += 1

    def _flush(self):
        if self._row:
            with HISTORY.open("a") as file:
                file.write(json.dumps({**self._row, "_step": self.step}) + "\n")
        self._row = {}

    def finish(self):
        global run  # noqa: PLW0603 - as the package has it
        self._flush()
        run = None


def init(**_):
    global run  # noqa: PLW0603
    run = run or Run()
    return run


def log(data, step=None, commit=None):
    if run is None:
        raise Error("You must call wandb.init() before wandb.log()")
    run.log(data, step, commit)


def finish():
    if run is not None:
        run.finish()
