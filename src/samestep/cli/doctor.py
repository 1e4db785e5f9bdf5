"""``samestep doctor``: what this machine can and cannot do, and what that means for a drill."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from samestep import __version__
from samestep.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCTOR_SCHEMA: Final = "samestep.doctor/1"
FRAMEWORKS: Final = ("transformers", "accelerate", "lightning", "peft", "torchdata", "deepspeed")
GIB: Final = 1024**3
SCARCE_MEMORY_BYTES: Final = 4 * GIB
SCARCE_DISK_BYTES: Final = 5 * GIB
OLDEST_TORCH: Final = (2, 9)


class Check(msgspec.Struct, frozen=True):
    """One line of the doctor: what was looked at, what was found, whether that is good, what it means for a drill."""

    name: str
    found: str
    good: bool
    meaning: str
    refused: bool = False  #: it rules the place out


@click.command()
@click.option(
    "--storage",
    "storage_url",
    metavar="URL",
    help="Measure instead what this place promises a bundle store: a path, s3://, gs:// or az://.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def doctor(*, storage_url: str | None, as_json: bool) -> int:
    """Tell what this machine can and cannot do, and what that means for a drill."""
    checks = list(examine() if storage_url is None else examine_storage(storage_url))
    if as_json:
        plain = {"schema": DOCTOR_SCHEMA, "version": __version__, "checks": msgspec.to_builtins(checks)}
        click.echo(json.dumps(plain, indent=2))
    else:
        _show(checks)
    return ExitCode.DEFECT if any(check.refused for check in checks) else ExitCode.HOLDS


def _show(checks: list[Check]) -> None:
    name_width = max(len(check.name) for check in checks)
    found_width = max(len(check.found) for check in checks)
    for check in checks:
        click.echo(f"{_mark(check)}  {check.name:{name_width}}  {check.found:{found_width}}  {check.meaning}")


def _mark(check: Check) -> str:
    if check.refused:
        return click.style("no", fg="red")
    return click.style("ok", fg="green") if check.good else click.style("--", fg="yellow")


def examine_storage(url: str) -> Iterator[Check]:
    """Measure what a place promises a bundle store, and leave nothing there.

    Raises:
        StoreError: ``url`` names no place that can keep a store.
    """
    from samestep.bundle.storage.opening import open_storage
    from samestep.bundle.storage.promises import Kept, measure

    for promise in measure(open_storage(url)):
        yield Check(
            promise.name,
            promise.found,
            promise.kept is Kept.YES,
            promise.meaning,
            refused=promise.kept is Kept.NO,
        )


def examine() -> Iterator[Check]:
    """Look at the interpreter, its packages, what isolates machines, and the room there is."""
    yield Check(
        "python",
        platform.python_version(),
        good=True,
        meaning=f"runs samestep; scripts may use another ({sys.executable})",
    )
    yield _torch()
    yield from _frameworks()
    yield _xxhash()
    yield from _isolation()
    yield from _room()


def _version(package: str) -> str:
    """Return the installed version of ``package`` without importing it; empty when it is not there."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _torch() -> Check:
    version = _version("torch")
    if not version:
        return Check(
            "torch", "not here", good=False, meaning="fine if the training command brings its own Python"
        )
    numbers = tuple(int(part) for part in version.split("+")[0].split(".")[:2])
    if numbers < OLDEST_TORCH:
        return Check("torch", version, good=False, meaning="the probe is tested with torch 2.9 and newer")
    return Check("torch", version, good=True, meaning="scripts run by this Python can be watched")


def _frameworks() -> Iterator[Check]:
    for name in FRAMEWORKS:
        if version := _version(name):
            yield Check(
                name, version, good=True, meaning="its checkpoints and its resume flag are recognised"
            )


def _xxhash() -> Check:
    if version := _version("xxhash"):
        return Check("xxhash", version, good=True, meaning="digests of every step are cheap")
    return Check("xxhash", "not here", good=False, meaning="digests are computed with torch, which is slower")


def _isolation() -> Iterator[Check]:
    from samestep.crash.recorder.capability import capability
    from samestep.process import capabilities

    for item in [*capabilities(), capability()]:
        yield Check(item.name, "yes" if item.available else "no", item.available, item.reason)


def _room() -> Iterator[Check]:
    import psutil

    cores = len(os.sched_getaffinity(0))
    yield Check("cores", str(cores), good=True, meaning="they limit the attempts that run at a time (--jobs)")
    memory = psutil.virtual_memory().available
    needed = "every attempt needs what the training needs"
    yield Check("memory", f"{memory / GIB:.1f} GiB free", memory > SCARCE_MEMORY_BYTES, needed)
    machines = Path(tempfile.gettempdir())
    yield _free_disk(
        "temporary folder",
        machines,
        "machines live here, with copies of project and checkpoints (--work-dir)",
    )
    yield _free_disk("results", Path.cwd() / ".samestep", "traces and reports are kept here")


def _free_disk(name: str, folder: Path, meaning: str) -> Check:
    free = shutil.disk_usage(_existing(folder)).free
    return Check(name, f"{free / GIB:.1f} GiB free", free > SCARCE_DISK_BYTES, f"{folder}: {meaning}")


def _existing(folder: Path) -> Path:
    """Return ``folder`` or the nearest folder above it that exists."""
    return next(place for place in (folder, *folder.parents) if place.exists())
