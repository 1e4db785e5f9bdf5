"""Runs small real training scripts under the probe."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from samestep.probe import environment
from samestep.trace import Orders, Trace, load_traces

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECONDS = 240


@dataclass
class Watched:
    """A finished process that the probe watched."""

    folder: Path
    returncode: int
    output: str

    @property
    def traces(self) -> list[Trace]:
        return load_traces(self.folder)

    @property
    def trace(self) -> Trace:
        (trace,) = self.traces
        return trace

    def events(self, name: str) -> list[dict[str, Any]]:
        return [event.detail for trace in self.traces for event in trace.events if event.name == name]


class Bench:
    """Writes scripts, orders and environments below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._attempts = 0

    def script(self, text: str) -> Path:
        self._attempts += 1
        path = self.folder / f"script_{self._attempts}.py"
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    def orders(self, **orders: Any) -> tuple[Path, dict[str, str]]:
        """Write orders; return the trace folder and the environment that carries them."""
        self._attempts += 1
        folder = self.folder / f"traces_{self._attempts}"
        folder.mkdir()
        path = folder / "orders.json"
        Orders(attempt="test", trace_folder=str(folder), **orders).write(path)
        base = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "HF_HUB_OFFLINE": "1"}
        return folder, environment(path, base)

    def run(self, command: list[str], *, env: dict[str, str] | None = None, **orders: Any) -> Watched:
        folder, environ = self.orders(**orders)
        done = subprocess.run(
            command,
            env={**environ, **(env or {})},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        return Watched(folder, done.returncode, done.stdout + done.stderr)

    def watch(self, text: str, *arguments: str, env: dict[str, str] | None = None, **orders: Any) -> Watched:
        done = self.run([sys.executable, str(self.script(text)), *arguments], env=env, **orders)
        assert done.returncode == 0, done.output
        return done


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    pytest.importorskip("torch")
    return Bench(tmp_path)


@pytest.fixture
def watch(bench: Bench) -> Callable[..., Watched]:
    """Run a script text under the probe and return what was recorded."""
    return bench.watch
