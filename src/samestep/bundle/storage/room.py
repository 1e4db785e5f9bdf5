"""How much more this user may store: what the file system has left, and what a quota leaves of it."""

from __future__ import annotations

import ctypes
import os
from typing import Final

_QUOTACTL_FD: Final = 443
_GET_QUOTA: Final = 0x800007 << 8
_USER, _GROUP = 0, 1
_QUOTA_BLOCK_BYTES: Final = 1024

_libc = ctypes.CDLL(None, use_errno=True)


class _Quota(ctypes.Structure):
    """``struct if_dqblk`` of linux/quota.h."""

    _fields_ = (
        ("hard_limit_blocks", ctypes.c_uint64),
        ("soft_limit_blocks", ctypes.c_uint64),
        ("used_bytes", ctypes.c_uint64),
        ("inode_numbers", ctypes.c_uint64 * 3),
        ("grace_times", ctypes.c_uint64 * 2),
        ("valid", ctypes.c_uint32),
    )


def room_left(folder: int) -> int:
    """Return the bytes this user may still store in the file system of an open folder.

    Raises:
        OSError: the file system does not answer.
    """
    seen = os.fstatvfs(folder)
    return min([seen.f_bavail * seen.f_frsize, *quotas_left(folder)])


def quotas_left(folder: int) -> list[int]:
    """Return the bytes that each quota of this user and group leaves; none where no quota binds or can be asked."""
    if os.geteuid() == 0:
        return []
    asked = (_quota_left(folder, _USER, os.geteuid()), _quota_left(folder, _GROUP, os.getegid()))
    return [left for left in asked if left is not None]


def _quota_left(folder: int, kind: int, owner: int) -> int | None:
    quota = _Quota()
    if _libc.syscall(_QUOTACTL_FD, folder, _GET_QUOTA | kind, owner, ctypes.byref(quota)):
        return None
    limit: int = quota.hard_limit_blocks * _QUOTA_BLOCK_BYTES
    return max(0, limit - quota.used_bytes) if limit else None
