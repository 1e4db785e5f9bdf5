"""Reading what strace saw: the oracle that recordings are held against."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

CALLS = (
    "open,openat,openat2,creat,write,pwrite64,writev,pwritev,pwritev2,sendfile,copy_file_range,truncate,ftruncate,"
    "fallocate,rename,renameat,renameat2,link,linkat,symlink,symlinkat,unlink,unlinkat,mkdir,mkdirat,rmdir,mknod,"
    "mknodat,fsync,fdatasync,sync_file_range,sync,syncfs,msync,mmap"
)
LINE = re.compile(
    r"^(?P<call>\w+)\((?P<arguments>.*)\)\s+= (?P<result>-?\w+)(?:<(?P<path>.*?)>)?(?: E\w+ .*)?$"
)
DESCRIPTOR = re.compile(r"(?:AT_FDCWD|\d+)<(?P<path>[^>]*)>")
TEXT = re.compile(r'"(?P<text>[^"]*)"')
WRITING = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_TMPFILE")
BYTES = {"write", "pwrite64", "writev", "pwritev", "pwritev2", "sendfile", "copy_file_range"}
TWO_NAMES = {"rename", "renameat", "renameat2", "link", "linkat"}


class Seen(NamedTuple):
    """A call that succeeded: its name, the files it concerned, and for writes how many bytes it moved."""

    call: str
    paths: tuple[str, ...]
    size: int


def command(folder, argv):
    """Wrap a command so that strace writes what each thread does to a file of its own in ``folder``."""
    folder.mkdir()
    return [
        "strace",
        "-ff",
        "-y",
        "-s",
        "0",
        "-e",
        f"trace={CALLS}",
        "-e",
        "signal=none",
        "-o",
        f"{folder}/t",
        *argv,
    ]


def read(folder, root, cwd):
    """Return, by thread, the calls that changed something below ``root``, or wanted it durable."""
    threads = {}
    for path in folder.iterdir():
        calls = [
            seen for line in path.read_text(errors="replace").splitlines() if (seen := _parse(line, cwd))
        ]
        calls = [
            seen for seen in calls if any(name == root or name.startswith(root + "/") for name in seen.paths)
        ]
        if calls:
            threads[int(path.name.rpartition(".")[2])] = calls
    return threads


def _parse(line, cwd):
    match = LINE.match(line)
    if not match or match["result"].startswith("-") or match["result"] == "?":
        return None
    call, arguments = match["call"], match["arguments"]
    if call.startswith(("open", "creat")):
        return (
            Seen(call, (_clean(match["path"] or ""),), 0) if call == "creat" or _writes(arguments) else None
        )
    if call == "mmap" and not (
        "PROT_WRITE" in arguments and re.search(r"MAP_SHARED(?!\w*\|MAP_ANON)", arguments)
    ):
        return None
    if call in {"msync", "sync"}:
        return None
    if call in BYTES:
        size = int(match["result"])
        return Seen(call, (_clean(_target(call, arguments)),), size) if size else None
    return Seen(call, tuple(_names(call, arguments, cwd)), 0)


def _writes(arguments):
    return WRITING.search(arguments)


def _target(call, arguments):
    paths = [match["path"] for match in DESCRIPTOR.finditer(arguments)]
    if not paths:
        return ""
    return paths[1] if call == "copy_file_range" and len(paths) > 1 else paths[0]


def _names(call, arguments, cwd):
    """Return the paths of a call: texts, each relative to the descriptor before it, or the descriptor itself."""
    texts = list(TEXT.finditer(arguments))
    folders = list(DESCRIPTOR.finditer(arguments))
    if call in {"symlink", "symlinkat"}:
        texts = texts[1:]
    if not texts:
        return [_clean(match["path"]) for match in folders[:1]]
    found = []
    for text in texts:
        before = [match["path"] for match in folders if match.end() <= text.start()]
        found.append(os.path.normpath(_joined(before[-1] if before else cwd, text["text"])))
    return found if call in TWO_NAMES else found[:1]


def _clean(path):
    return "" if path.endswith("(deleted)") or "/#" in path else path


def _joined(folder, path):
    return path if path.startswith("/") else f"{folder}/{path}"
