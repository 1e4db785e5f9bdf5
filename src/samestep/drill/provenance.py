"""Where and with what a drill was run."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from samestep.drill.options import DrillOptions

GIT_TIMEOUT_SECONDS = 10
_SHOWN_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUBLAS_WORKSPACE_CONFIG", "CUDA_VISIBLE_DEVICES")


def provenance(options: DrillOptions) -> dict[str, Any]:
    """Return facts about machine, code and settings; of the environment only names without secrets."""
    return {
        "samestep_python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "interpreter": sys.executable,
        "project": str(options.project),
        "commit": _git(options.project, "rev-parse", "HEAD"),
        "uncommitted_changes": bool(_git(options.project, "status", "--porcelain")),
        "environment": {name: os.environ[name] for name in _SHOWN_VARIABLES if name in os.environ},
        "settings": {
            "steps": options.steps,
            "verify_steps": options.verify_steps,
            "grace_seconds": options.grace_seconds,
            "jobs": options.jobs,
            "timeout_seconds": options.timeout_seconds,
            "allow_network": options.allow_network,
            "strict": options.strict,
            "durable": options.durable,
            "inputs": [str(path) for path in options.inputs],
        },
    }


def _git(folder: Path, *words: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words],  # noqa: S607 - the user's own git
            capture_output=True,
            text=True,
            timeout=GIT_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
