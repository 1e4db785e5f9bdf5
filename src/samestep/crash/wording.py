"""What an operation did, and what an interruption did to a file, in words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from samestep.crash.operations import Kind
from samestep.crash.windows import relative

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from samestep.crash.operations import Operation

_UNSAFE = re.compile(r"[^A-Za-z0-9._+=@-]+")

_VERBS = {
    Kind.CREATE: "create",
    Kind.OPEN: "open",
    Kind.WRITE: "write to",
    Kind.TRUNCATE: "truncate",
    Kind.ALLOCATE: "allocate",
    Kind.SYMLINK: "make symbolic link",
    Kind.UNLINK: "delete",
    Kind.MKDIR: "make folder",
    Kind.RMDIR: "remove folder",
    Kind.SYNC: "fsync of",
    Kind.SYNC_DATA: "fdatasync of",
    Kind.SYNC_ALL: "sync of everything",
    Kind.CLOSE: "close",
    Kind.STORED: "stores through a mapping to",
}

WAYS = {
    "torn-first-byte": "the write in flight was cut after its first byte",
    "torn-half": "the write in flight was cut in the middle",
    "torn-last-page": "the write in flight was cut before its last page",
    "empty": "its unsynced data never reached the disk: 0 bytes",
    "zeros": "its size is there, its unsynced data is not: zeros",
    "old": "its unsynced data never reached the disk: what was there before",
    "half": "only the first half of its unsynced pages reached the disk",
    "last-page-missing": "the last of its unsynced pages did not reach the disk",
    "all-lost": "no unsynced data of any file reached the disk",
    "all-half": "of every file only the first half of the unsynced pages reached the disk",
    "newer-lost": "of the unsynced data what is newer than this file's never reached the disk",
    "lost": "this change of a name never reached the disk, later ones did",
}
"""Each way to damage a state, in words."""


def safe(text: str) -> str:
    """Return a text as part of a name that shells and file systems take as it is."""
    return _UNSAFE.sub("_", text).strip("-.") or "_"


def final_names(operations: Iterable[Operation]) -> dict[str, str]:
    """Return under which name a file ends that is written under a temporary one, by the temporary path."""
    return {
        operation.path: operation.target
        for operation in operations
        if operation.kind is Kind.RENAME and operation.done
    }


def described(operation: Operation, root: str, final: Mapping[str, str] | None = None) -> str:
    """Say what an operation did, with paths relative to the root where they lie below it."""
    path, target = (_shown(place, root) for place in (operation.path, operation.target))
    if operation.kind is Kind.RENAME:
        same_folder = operation.path.rpartition("/")[0] == operation.target.rpartition("/")[0]
        return (
            f"rename the temporary file to {target}"
            if final and same_folder
            else f"rename {path} to {target}"
        )
    if operation.path in (final or {}):
        # temporary names are often random: what they stand for is the same in every run
        path = f"the temporary file of {_shown(str((final or {})[operation.path]), root)}"
    if operation.kind is Kind.LINK:
        return f"link {target} to {path or 'an unnamed file'}"
    if operation.kind is Kind.TRUNCATE:
        return f"truncate {path} to {operation.size} bytes"
    return f"{_VERBS.get(operation.kind, str(operation.kind))} {path}".rstrip()


def _shown(path: str, root: str) -> str:
    inside = relative(path, root)
    return path if inside is None else inside or "the output folder"
