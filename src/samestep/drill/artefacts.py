"""The tensor content of files, whatever container holds it, without loading anything.

Two runs leave files that differ in names of storages, clocks and paths and still hold the same tensors. Only the bytes
of tensors are digested: the data section of safetensors, the storages of a torch archive, the body of an npy.
"""

from __future__ import annotations

import filecmp
import struct
import zipfile
from typing import TYPE_CHECKING

import xxhash

from samestep.checkpoints import saved_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import IO, BinaryIO

CHUNK_BYTES = 1 << 20
_NPY_MAGIC = b"\x93NUMPY"


def tensor_content(folder: Path) -> dict[str, str]:
    """Return a digest of the tensor bytes of every file below ``folder`` that holds tensors, by relative path.

    Where a save has a name of its own in every run, its step stands in the name's place, and what does not belong to
    a finished save is passed over.
    """
    digests: dict[str, str] = {}
    said = saved_steps(folder)
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and not p.is_symlink()):
        name = _known_by(path.relative_to(folder), said)
        digest = file_content(path) if name else None
        if digest is not None:
            digests[name] = digest
    return digests


def _known_by(path: Path, said: Mapping[str, int]) -> str:
    """Return the name of a file, the same in every run; nothing when it belongs to no save."""
    for parent in path.parents:
        step = said.get(parent.as_posix())
        if step is not None:
            return (parent.parent / f"step {step}" / path.relative_to(parent)).as_posix() if step >= 0 else ""
    return path.as_posix()


def file_content(path: Path) -> str | None:
    """Return the digest of the tensor bytes in ``path``; None when it is no tensor file that can be read."""
    try:
        if zipfile.is_zipfile(path):
            return _archive_content(path)
        return _safetensors_content(path) or _npy_content(path)
    except (OSError, zipfile.BadZipFile, struct.error):
        return None


def _archive_content(path: Path) -> str | None:
    with zipfile.ZipFile(path) as archive:
        # torch names the archive's root after the file; npz members stand at the top
        members = [
            info
            for info in archive.infolist()
            if "/data/" in f"/{info.filename}" or info.filename.endswith(".npy")
        ]
        if not members:
            return None
        # a reloaded state may list the same tensors in another order, and storages are numbered in that order
        return _joined(sorted(_member_digest(archive, info) for info in members))


def _member_digest(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> str:
    with archive.open(info) as member:
        return _stream_digest(member)


def _joined(digests: list[str]) -> str:
    return xxhash.xxh3_128_hexdigest("".join(digests).encode())


def _safetensors_content(path: Path) -> str | None:
    with path.open("rb") as file:
        start = file.read(9)
        if len(start) < 9 or start[8:] != b"{":
            return None
        (length,) = struct.unpack("<Q", start[:8])
        if length + 8 > path.stat().st_size:
            return None
        return _rest_digest(file, 8 + length)


def _npy_content(path: Path) -> str | None:
    with path.open("rb") as file:
        return _rest_digest(file, 0) if file.read(6) == _NPY_MAGIC else None


def _rest_digest(file: BinaryIO, offset: int) -> str:
    file.seek(offset)
    return _stream_digest(file)


def _stream_digest(file: IO[bytes]) -> str:
    digest = xxhash.xxh3_128()
    while chunk := file.read(CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()


def differing_artefacts(
    control: Path, other_control: Path, folder: Path, is_log: Callable[[str], bool]
) -> list[str]:
    """Return files of the control's durable folder that ``folder`` lacks or holds with other content.

    Only files are looked at that both controls left equal, so clocks and paths inside a file do not count: tensors
    are compared by content, text byte for byte. Other files (pickled arguments) may rightly tell a restart from a
    first start.
    """
    first, second, third = (tensor_content(root) for root in (control, other_control, folder))
    differing = []
    for path in sorted(p.relative_to(control).as_posix() for p in control.rglob("*") if p.is_file()):
        if is_log(path) or not (other_control / path).is_file():
            continue
        if path in first:
            equal_controls, equal = first[path] == second.get(path), first[path] == third.get(path)
        elif not _is_text(control / path):
            continue
        else:
            equal_controls = _same_bytes(control / path, other_control / path)
            equal = _same_bytes(control / path, folder / path)
        if equal_controls and not equal:
            differing.append(path)
    return differing


def differing_tensors(control: Path, folder: Path) -> list[str]:
    """Return tensor files of the control's durable folder that ``folder`` lacks or holds with other tensors."""
    expected, found = tensor_content(control), tensor_content(folder)
    return sorted(path for path, digest in expected.items() if found.get(path) != digest)


def _is_text(path: Path) -> bool:
    try:
        path.read_text(encoding="utf-8")
    except (UnicodeDecodeError, OSError):
        return False
    return True


def _same_bytes(one: Path, two: Path) -> bool:
    return two.is_file() and filecmp.cmp(one, two, shallow=False)
