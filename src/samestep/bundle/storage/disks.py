"""What a folder is kept on: the file system, its kind, and the disks below it, as Linux tells."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path
from typing import Final

MEMORY: Final = frozenset({"tmpfs", "ramfs"})
LAYERS: Final = frozenset({"overlay", "aufs"})
NETWORK: Final = frozenset(
    {
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "lustre",
        "ceph",
        "glusterfs",
        "beegfs",
        "gpfs",
        "wekafs",
        "afs",
        "9p",
        "virtiofs",
    }
)
INSTANCE_STORE: Final = "Amazon EC2 NVMe Instance Storage"
"""The model name of disks that are emptied when the machine stops."""
_BLOCK: Final = Path("/sys/dev/block")


@dataclasses.dataclass(frozen=True)
class Keeper:
    """What keeps a folder."""

    kind: str  #: of the file system, as the kernel calls it
    device: int  #: the number that all files of one file system share
    disks: frozenset[str]  #: names of the disks below it, as far as they can be told
    models: frozenset[str] = frozenset()  #: what those disks call themselves

    @property
    def shared(self) -> bool:
        """Whether other machines can reach it, or the machine's host keeps it."""
        return self.kind in NETWORK or self.kind.startswith("fuse.")

    def same_as(self, other: Keeper) -> bool:
        """Tell whether one broken disk would take both."""
        return self.device == other.device or bool(self.disks & other.disks)


def keeper_of(folder: Path) -> Keeper:
    """Return what keeps ``folder``, or the nearest folder above it that exists."""
    place = next(place for place in (folder, *folder.parents) if place.exists()).resolve()
    device = place.stat().st_dev
    kind, number = _mount(place)
    disks = _disks(_BLOCK / (number or f"{os.major(device)}:{os.minor(device)}"))
    return Keeper(kind, device, frozenset(disk.name for disk in disks), frozenset(map(_model, disks)) - {""})


def _mount(place: Path) -> tuple[str, str]:
    """Return the kind of the file system that ``place`` is on, and its device as ``major:minor``."""
    best, found = -1, ("unknown", "")
    for line in _mountinfo():
        fields, _, rest = line.partition(" - ")
        names = fields.split()
        point = Path(re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), names[4]))
        if len(point.parts) >= best and place.is_relative_to(point):
            best, found = len(point.parts), (rest.split()[0], names[2])
    return found


def _mountinfo() -> list[str]:
    try:
        return Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []


def _disks(entry: Path) -> set[Path]:
    """Return the disks a block device rests on: of a partition its disk, of a volume those of its members."""
    if not entry.exists():
        return set()
    device = entry.resolve()
    if (device / "partition").exists():
        return {device.parent}
    members = device / "slaves"
    below = [disk for member in members.iterdir() for disk in _disks(member)] if members.is_dir() else []
    return set(below) or {device}


def _model(disk: Path) -> str:
    try:
        return (disk / "device" / "model").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
