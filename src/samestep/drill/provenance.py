"""Where and with what a drill was run."""

from __future__ import annotations

import dataclasses
import os
import platform
import sys
from typing import TYPE_CHECKING, Any

from samestep.contract.redaction import redacted, redacted_text
from samestep.process.revision import ask_git

if TYPE_CHECKING:
    from samestep.drill.options import DrillOptions

_NO_SETTINGS = frozenset(
    {"command", "project", "working_folder", "run_folder", "replay", "earlier", "origins", "sample_values"}
    | {"full_digest_every"}
)
"""Options that nobody sets by a setting, or that stand elsewhere in a result."""

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
        "commit": ask_git(options.project, "rev-parse", "HEAD") or "",
        "uncommitted_changes": bool(ask_git(options.project, "status", "--porcelain")),
        "environment": {name: os.environ[name] for name in _SHOWN_VARIABLES if name in os.environ},
        "settings": {
            field.name: _setting(options, field.name)
            for field in dataclasses.fields(options)
            if field.name not in _NO_SETTINGS
        },
    }


def _setting(options: DrillOptions, name: str) -> dict[str, Any]:
    """Return the value of a setting, secrets in it hidden, and where it came from."""
    return {"value": _shown(getattr(options, name)), "origin": options.origins.get(name, "default")}


def _shown(value: Any) -> Any:
    if isinstance(value, dict):
        return dict.fromkeys(sorted(value), "(set)")
    if isinstance(value, frozenset):
        return sorted(map(str, value))
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return redacted(value)
    if isinstance(value, list):
        return [_shown(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float) else redacted_text(str(value))
