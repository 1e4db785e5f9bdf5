"""The virtual environment of the peers, made on first use."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).resolve().parents[2]
_HOME: Final = _ROOT / "benchmarks" / ".peers"
_DONE: Final = _HOME / "installed"
# torch comes first and alone, so that no other package chooses its build.
_DISTRIBUTIONS: Final = (
    "torch",
    "safetensors",
    "torchsnapshot==0.1.0",
    "torch-checkpointing==0.1.1",
    "orbax-checkpoint==0.12.8 jax[cpu]",
    "numpy xxhash",
)


def python() -> Path:
    """Return the Python of the environment; what cannot be installed there is left to fail by name."""
    program = _HOME / "bin" / "python"
    if not _DONE.exists():
        venv.create(_HOME, with_pip=True, clear=True)
        for wanted in _DISTRIBUTIONS:
            command = [
                program,
                "-m",
                "pip",
                "install",
                "-q",
                "-c",
                _ROOT / "constraints.txt",
                *wanted.split(),
            ]
            if subprocess.run(command, check=False).returncode:
                print(f"{wanted} cannot be installed; its peer is reported as missing", file=sys.stderr)
        _DONE.touch()
    return program
