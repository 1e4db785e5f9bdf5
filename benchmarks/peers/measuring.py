"""What an action costs: seconds, processor seconds, bytes written, memory; and what equal durability adds to it."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import resource
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_RESET_PEAK = "5"


@dataclasses.dataclass
class Cost:
    """What one action took.

    Attributes:
        seconds: of wall time, of the action as shipped.
        processor: seconds of this process and of its children that have ended.
        written: bytes that the process had the kernel write.
        extra_mib: how far memory rose above where it stood when the action began.
        sync: seconds that fsync of every file and folder took afterwards.
        digest: seconds that SHA-256 over every file took after that.
    """

    seconds: float
    processor: float
    written: int
    extra_mib: float
    sync: float = 0.0
    digest: float = 0.0


def cost_of(action: Callable[[], None]) -> Cost:
    """Do something and return what it took."""
    resident = reset_peak()
    written, processor = _bytes_written(), _processor_seconds()
    started = time.perf_counter()
    action()
    seconds = time.perf_counter() - started
    return Cost(
        seconds=seconds,
        processor=_processor_seconds() - processor,
        written=_bytes_written() - written,
        extra_mib=(status("VmHWM") - resident) / 1024,
    )


def seconds_of(action: Callable[[], None]) -> float:
    """Do something and return how long it took."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def sync_tree(folder: Path) -> None:
    """Make a folder durable with everything below it, as a careful script does after a peer's save."""
    for place, _, names in os.walk(folder):
        for path in (*(Path(place, name) for name in names), Path(place)):
            _sync(path)
    _sync(folder.parent)


def digest_tree(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file, read back as a careful script does."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                found[str(path.relative_to(folder))] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def make_cold(folder: Path) -> None:
    """Drop the files below a folder from the page cache; they are on the disk already."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def size_of_tree(folder: Path) -> int:
    """Return how many bytes the files below a folder have."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def reset_peak() -> float:
    """Forget the most memory that this process had, and return what it has now, in KiB."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text(_RESET_PEAK)
    return status("VmRSS")


def status(field: str, process: str = "self") -> float:
    """Return a line of a process's status, in KiB."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return float(line.split()[1])
    raise LookupError(field)


def _bytes_written() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes:"))


def _processor_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)
