"""Numbers of the kernel's interface that the standard library does not name: seccomp, system calls, open flags.

Sources: ``linux/seccomp.h``, ``linux/audit.h``, ``asm/unistd_64.h`` (x86-64) and ``asm-generic/unistd.h`` (aarch64).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

PR_SET_NO_NEW_PRIVS = 38
PR_SET_PDEATHSIG = 1

SECCOMP_SET_MODE_FILTER = 1
SECCOMP_FILTER_FLAG_NEW_LISTENER = 1 << 3
SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV = 1 << 5  # Linux 5.19

SECCOMP_RET_ALLOW = 0x7FFF_0000
SECCOMP_RET_USER_NOTIF = 0x7FC0_0000
SECCOMP_RET_ERRNO = 0x0005_0000

NOTIF_RECV = 0xC050_2100
NOTIF_SEND = 0xC018_2101
NOTIF_ADDFD = 0x4018_2103
NOTIF_SET_FLAGS = 0x4008_2104
NOTIF_SYNC_WAKE_UP = 1  # Linux 6.6: wake the other side on the same processor
NOTIF_CONTINUE = 1
ADDFD_SEND = 2  # Linux 5.14: inject the descriptor and answer with its number in one act

AT_FDCWD = -100
AT_REMOVEDIR = 0x200
AT_SYMLINK_FOLLOW = 0x400
AT_EMPTY_PATH = 0x1000

PROT_WRITE = 2
MAP_SHARED = 1  # also a bit of MAP_SHARED_VALIDATE
MAP_ANONYMOUS = 0x20
MS_SYNC = 4

RWF_DSYNC, RWF_SYNC, RWF_APPEND = 2, 4, 16
MAX_TRANSFER = 0x7FFF_F000  # the most bytes that one call moves

FICLONE, FICLONERANGE = 0x4004_9409, 0x4020_940D


OLDEST_KERNEL = (5, 14)


class RefusedError(Exception):
    """This machine does not let a process be recorded; the message says why."""


@dataclass(frozen=True)
class Architecture:
    """How system calls are numbered on one kind of processor.

    Attributes:
        name: as ``uname -m`` says it.
        audit: its number in the kernel's audit interface, which a filter sees.
        seccomp: number of the seccomp call itself.
        calls: numbers of the calls that matter here, by name.
    """

    name: str
    audit: int
    seccomp: int
    calls: dict[str, int]


X86_64 = Architecture(
    "x86_64",
    0xC000_003E,
    317,
    {
        "write": 1,
        "open": 2,
        "mmap": 9,
        "ioctl": 16,
        "pwrite64": 18,
        "writev": 20,
        "msync": 26,
        "sendfile": 40,
        "execve": 59,
        "fsync": 74,
        "fdatasync": 75,
        "truncate": 76,
        "ftruncate": 77,
        "rename": 82,
        "mkdir": 83,
        "rmdir": 84,
        "creat": 85,
        "link": 86,
        "unlink": 87,
        "symlink": 88,
        "mknod": 133,
        "sync": 162,
        "io_submit": 209,
        "exit_group": 231,
        "openat": 257,
        "mkdirat": 258,
        "mknodat": 259,
        "unlinkat": 263,
        "renameat": 264,
        "linkat": 265,
        "symlinkat": 266,
        "splice": 275,
        "sync_file_range": 277,
        "fallocate": 285,
        "pwritev": 296,
        "syncfs": 306,
        "renameat2": 316,
        "execveat": 322,
        "copy_file_range": 326,
        "pwritev2": 328,
        "io_uring_setup": 425,
        "openat2": 437,
    },
)

AARCH64 = Architecture(
    "aarch64",
    0xC000_00B7,
    277,
    {
        "io_submit": 2,
        "ioctl": 29,
        "mknodat": 33,
        "mkdirat": 34,
        "unlinkat": 35,
        "symlinkat": 36,
        "linkat": 37,
        "renameat": 38,
        "truncate": 45,
        "ftruncate": 46,
        "fallocate": 47,
        "openat": 56,
        "write": 64,
        "writev": 66,
        "pwrite64": 68,
        "pwritev": 70,
        "sendfile": 71,
        "splice": 76,
        "sync": 81,
        "fsync": 82,
        "fdatasync": 83,
        "sync_file_range": 84,
        "exit_group": 94,
        "execve": 221,
        "mmap": 222,
        "msync": 227,
        "syncfs": 267,
        "renameat2": 276,
        "execveat": 281,
        "copy_file_range": 285,
        "pwritev2": 287,
        "io_uring_setup": 425,
        "openat2": 437,
    },
)

ARCHITECTURES = {architecture.name: architecture for architecture in (X86_64, AARCH64)}


def here() -> Architecture:
    """Return the architecture of this machine.

    Raises:
        RefusedError: there is no table for it, or its kernel is too old.
    """
    system = os.uname()
    if system.machine not in ARCHITECTURES:
        raise RefusedError(f"there is no table of system calls for this processor ({system.machine})")
    numbers = re.match(r"(\d+)\.(\d+)", system.release)
    if numbers and (int(numbers[1]), int(numbers[2])) < OLDEST_KERNEL:
        raise RefusedError(f"Linux 5.14 or newer is needed, here is {system.release}")
    return ARCHITECTURES[system.machine]
