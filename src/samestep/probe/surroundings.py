"""What a process can say about itself: rank, world, versions."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from typing import TYPE_CHECKING, Any

from ..contract.redaction import redacted
from ..trace import Header
from ..trace.reading import MODULES_NAME

if TYPE_CHECKING:
    from pathlib import Path

_RANK = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_LOCAL_RANK = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
_WORLD_SIZE = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_FRAMEWORKS = (
    "accelerate",
    "datasets",
    "deepspeed",
    "lightning",
    "numpy",
    "peft",
    "pytorch_lightning",
    "timm",
    "torch",
    "torchdata",
    "torchvision",
    "transformers",
    "ultralytics",
)


def header(attempt: str, digest: str) -> Header:
    """Return the header of this process's trace as far as it is known now."""
    rank, world_size = ranks()
    return Header(
        attempt=attempt,
        argv=redacted(getattr(sys, "argv", None) or sys.orig_argv),
        pid=os.getpid(),
        parent_pid=os.getppid(),
        rank=rank,
        local_rank=_number(_LOCAL_RANK, rank),
        world_size=world_size,
        executable=sys.executable or "",
        versions=versions(),
        digest=digest,
        started=time.monotonic(),
        started_unix=time.time(),
    )


def ranks() -> tuple[int, int]:
    """Return rank and world size: the process group's once it exists, before that the launcher's."""
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return _number(_RANK, 0), _number(_WORLD_SIZE, 1)


def versions() -> dict[str, str]:
    """Return the versions of Python and of the frameworks imported so far."""
    found = {"python": platform.python_version()}
    for name in _FRAMEWORKS:
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            found[name] = str(version)
    return found


def list_modules(folder: Path) -> None:
    """Write name and file of every module that this process imported, in the order of their first import."""
    found = []
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        if spec is not None and spec.name == name and spec.origin:
            found.append([name, spec.origin])
    (folder / MODULES_NAME.format(pid=os.getpid())).write_text(json.dumps(found), encoding="utf-8")


def _number(variables: tuple[str, ...], default: int) -> int:
    for variable in variables:
        value = os.environ.get(variable, "")
        if value.isdigit():
            return int(value)
    return default
