"""Which names a part of a bundle may have, and where the store keeps it."""

from __future__ import annotations

import itertools
import unicodedata
from typing import TYPE_CHECKING

from samestep.bundle.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterable

PATH_BYTES = 1024
NAME_BYTES = 240
_ESCAPE = "="
_BELOW = "\0"  # sorts before whatever a name may hold
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_SHOWN = 60


def check_part_path(path: str) -> str:
    r"""Return ``path`` when a part may have it.

    It is relative, its names are joined by ``/``, and it means the same file on every file system.

    Raises:
        FormatError: it might lead out of the bundle's folder, or be taken for another one.
    """
    wrong = _fault(path)
    if wrong:
        raise FormatError(f"the part path {_shown(path)} {wrong}", hint="Rename the file, or leave it out.")
    return path


def check_part_paths(paths: Iterable[str]) -> None:
    """Check every path, and that no two would be the same file where letters have no case.

    Raises:
        FormatError: a path is not allowed, or two of them clash.
    """
    folded = sorted((_folded(check_part_path(path)), path) for path in paths)
    for (before, one), (after, other) in itertools.pairwise(folded):
        if before == after:
            raise FormatError(f"the part paths {_shown(one)} and {_shown(other)} would be one file")
        if after.startswith(before + _BELOW):
            raise FormatError(f"the part path {_shown(one)} is a file and the folder of {_shown(other)}")


def bundle_folder(bundle: str) -> str:
    """Return the folder of a bundle in its store, with a final ``/``."""
    return f"bundles/{bundle}/"


def part_key(bundle: str, path: str) -> str:
    """Return the key under which ``bundle`` keeps the part ``path``.

    Names beginning with ``.`` belong to the store, and a framework's own (``.metadata`` of torch's
    distributed checkpoints) are kept with ``=`` before them.
    """
    names = (_ESCAPE + name if name[0] in {".", _ESCAPE} else name for name in path.split("/"))
    return bundle_folder(bundle) + "/".join(names)


def part_path(bundle: str, key: str) -> str | None:
    """Return the part path that ``key`` of ``bundle`` stands for, or None for something of the store's own."""
    folder = bundle_folder(bundle)
    names = key.removeprefix(folder).split("/")
    if not key.startswith(folder) or any(not name or name[0] == "." for name in names):
        return None
    return "/".join(name[1:] if name[0] == _ESCAPE else name for name in names)


def _fault(path: str) -> str:
    """Say what is wrong with ``path``, or nothing."""
    names = path.split("/")
    checks = (
        ("" in names, "is absolute, or has an empty name in it"),
        ("." in names or ".." in names, "has a . or .. in it"),
        ("\\" in path or path[1:2] == ":", "has a backslash or a drive letter in it"),
        (_has_invisible(path), "has an invisible character in it"),
        (not unicodedata.is_normalized("NFC", path), "is not in Unicode's composed form (NFC)"),
        (
            any(name != name.strip() or name[-1:] == "." for name in names),
            "has a name with a blank or dot at an end",
        ),
        (_length(path) > PATH_BYTES, f"has more than {PATH_BYTES} bytes"),
        (max(map(_length, names)) > NAME_BYTES, f"has a name of more than {NAME_BYTES} bytes"),
    )
    return next((wrong for is_wrong, wrong in checks if is_wrong), "")


def _has_invisible(path: str) -> bool:
    if path.isascii():
        return not path.isprintable()
    return any(unicodedata.category(character) in _INVISIBLE for character in path)


def _length(name: str) -> int:
    return len(name) if name.isascii() else len(name.encode(errors="replace"))


def _folded(path: str) -> str:
    """Return what is the same for all paths that some file system takes for one; a folder sorts before its files."""
    if path.isascii():
        return path.lower().replace("/", _BELOW)
    return unicodedata.normalize("NFC", unicodedata.normalize("NFKC", path).casefold()).replace("/", _BELOW)


def _shown(path: str) -> str:
    return ascii(path if len(path) <= _SHOWN else path[:_SHOWN] + "…")
