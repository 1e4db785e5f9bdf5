"""File systems in image files. A copy of the image, taken while it is mounted, is what a power cut would leave."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

INSTALL = Path(__file__).parents[2] / "scripts" / "install_filesystem_tools.sh"
IMAGE_BYTES = {"ext4": 64 << 20, "xfs": 300 << 20}  # 300 MiB is the least that mkfs.xfs makes
MKFS_OPTIONS = {
    "ext4": ("-b", "4096"),
    "xfs": (),
}  # small ext4 would get smaller blocks, and Python smaller buffers
MOUNT_OPTIONS = {"ext4": "loop", "xfs": "loop,nouuid"}
PATIENCE_SECONDS = 20.0
CLONE_NEWNS = 0x0002_0000


def mount_alone():
    """Give this thread, and what it starts from now on, mounts of their own: nobody else can keep them busy."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "unshare")
    _run("mount", "--make-rprivate", "/")


def why_not(kind, folder):
    """Return why a file system cannot be mounted here; nothing if it can."""
    if os.geteuid() != 0:
        return "mounting needs root"
    if not shutil.which(f"mkfs.{kind}"):
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run([INSTALL], check=False, capture_output=True, timeout=300)
    if not shutil.which(f"mkfs.{kind}"):
        return f"mkfs.{kind} is not there and {INSTALL.name} could not install it"
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(_obstacle, kind, folder).result()


def _obstacle(kind, folder):
    try:
        mount_alone()
        with Disk(kind, folder):
            return ""
    except OSError as error:
        return f"a mount namespace is refused: {error}"
    except subprocess.CalledProcessError as error:
        return f"{kind} cannot be made and mounted through a loop device: {error.stderr.strip()}"


class Disk:
    """A fresh file system, mounted while in a ``with`` block.

    Attributes:
        mount: where it is mounted.
        copies: how many power cuts there were.
    """

    def __init__(self, kind, folder):
        self.kind = kind
        self.mount = folder / "mounted"
        self.copies = 0
        self._image = folder / "disk.img"
        folder.mkdir(parents=True, exist_ok=True)
        with self._image.open("wb") as file:
            file.truncate(IMAGE_BYTES[kind])
        _run(f"mkfs.{kind}", "-q", *MKFS_OPTIONS[kind], self._image)
        self._stack = contextlib.ExitStack()

    def __enter__(self):
        self._stack.enter_context(mounted(self._image, self.kind, self.mount))
        return self

    def __exit__(self, *_):
        self._stack.close()
        self._image.unlink()

    def settle(self):
        """Make all that was written durable."""
        _run("sync", "--file-system", self.mount)

    def cut(self):
        """Copy the image as it is on the disk at this moment, and return the copy.

        While an image is read, its disk may be written to; such a copy mixes moments and is taken again.
        """
        copy = self._image.with_name(f"cut-{self.copies}.img")
        self.copies += 1
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            before = self._writes()
            _run("cp", "--sparse=always", "--reflink=auto", self._image, copy)
            if before is not None and before == self._writes():
                return copy
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{self._image} was written to during every copy for {PATIENCE_SECONDS:.0f} s"
                )

    def _writes(self):
        """Return how many writes and flushes the disk has completed; None while one is under way."""
        device = self.mount.stat().st_dev
        numbers = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat").read_text().split()
        return None if int(numbers[8]) else (numbers[4], numbers[15])


@contextlib.contextmanager
def mounted(image, kind, where):
    """Mount an image, which replays its journal, and unmount it whatever happens."""
    where.mkdir(exist_ok=True)
    _run("mount", "-t", kind, "-o", MOUNT_OPTIONS[kind], image, where)
    try:
        yield where
    finally:
        if subprocess.run(["umount", where], check=False, capture_output=True).returncode:
            _run("umount", "--lazy", where)  # something still works on it: it goes when that ends


def _run(*argv):
    subprocess.run(argv, check=True, capture_output=True, text=True, timeout=120)
