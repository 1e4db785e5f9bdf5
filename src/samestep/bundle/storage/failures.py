"""What went wrong on a disk, in words: what was being done, to which path, the system's answer, what to do."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING, Final

from samestep.bundle.errors import StoreError, UnreadableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_SPOILT: Final = frozenset({errno.EIO, errno.EUCLEAN, errno.EBADMSG, errno.ENODATA, errno.EILSEQ})
"""What reading gives where a file system works and has lost what was stored under one name."""
_READING: Final = ("read", "look at", "list")
_MAY_WRITE: Final = "Let the user who trains write there, or choose another place."
_MAY_READ: Final = "Let this user read it, and enter the folders that lead to it."
_HINTS: Final = {
    errno.EROFS: "The file system is mounted read-only, often after it met an error: look at dmesg.",
    errno.EACCES: _MAY_WRITE,
    errno.EPERM: _MAY_WRITE,
    errno.EIO: "The disk failed. Look at dmesg, and move the store to a disk that works.",
    errno.ELOOP: "A store never follows symbolic links inside itself: put the file or folder itself there.",
    errno.ENOTDIR: "Something that is not a folder stands where the store keeps one.",
    errno.EMFILE: "Raise the limit of open files (ulimit -n).",
    errno.ESTALE: "The network file system lost the folder: mount it anew.",
}


class SourceError(Exception):
    """What was to be stored could not be read."""


def out_of_room(error: StoreError) -> bool:
    """Whether what failed is that there is no room left."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in FULL


@contextlib.contextmanager
def told(
    doing: str, path: str, *, needed: int = 0, free: Callable[[], int | None] = lambda: None
) -> Iterator[None]:
    """Turn an ``OSError`` into a ``StoreError`` that says what happened where.

    Args:
        doing: what is being done, as in "cannot … PATH".
        path: of the file or folder.
        needed: the bytes it takes; says how much room is missing when there is none left.
        free: returns the bytes that are left, once they are wanted.
    """
    try:
        yield
    except SourceError as error:
        raise StoreError(f"what should become {path} cannot be read: {error}") from error
    except OSError as error:
        if error.errno in FULL:
            raise _no_room(error, doing, path, needed, free()) from error
        kind = UnreadableError if doing in _READING and error.errno in _SPOILT else StoreError
        hint = _HINTS.get(error.errno or 0, "")
        if hint == _MAY_WRITE and doing in _READING:
            hint = _MAY_READ
        raise kind(f"cannot {doing} {path}: {_answer(error)}", hint=hint) from error


def _no_room(error: OSError, doing: str, path: str, needed: int, free: int | None) -> StoreError:
    text = f"cannot {doing} {path}: {_answer(error)}; it takes {needed:,} bytes"
    if free is None:
        text += ", and how many are left is not known"
    elif free < needed:
        text += f", {free:,} are left, so {needed - free:,} are missing"
    else:
        text += f". {free:,} seem to be left: a quota, a file size limit or another writer is in the way"
    return StoreError(text, hint="Make room (samestep bundle prune), or choose a larger place.")


def _answer(error: OSError) -> str:
    name = errno.errorcode.get(error.errno or 0, "")
    text = error.strerror or str(error)
    return f"{text} ({name})" if name and text == os.strerror(error.errno or 0) else text
