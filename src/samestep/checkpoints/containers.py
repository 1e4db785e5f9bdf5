"""Opening any file that may hold training state, headers only.

Formats and their sources: torch's zip (``torch/serialization.py``; the central directory of APPNOTE.TXT),
torch's format before 1.6 (five pickles, then raw storages), safetensors (an 8-byte little-endian length, a
JSON header, then the tensors; https://github.com/huggingface/safetensors), NumPy's ``.npy`` and ``.npz``
(NEP 1), plain pickles, and JSON.
"""

from __future__ import annotations

import errno
import io
import json
import lzma
import os
import stat
import struct
import zipfile
import zlib
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from .pickles import PickleScan, scan_pickle
from .trust import Trust
from .values import Storage, count_tensors, walk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MAX_JSON_BYTES = 64 * 1024 * 1024
"""Largest JSON text read: a trainer's log history of a very long run."""

MAX_HEADER_BYTES = 100_000_000
"""Largest safetensors header; the limit of the format's own reader."""

_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error)
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_ELEMENT_BYTES = {
    "DoubleStorage": 8, "LongStorage": 8, "ComplexFloatStorage": 8, "ComplexDoubleStorage": 16,
    "FloatStorage": 4, "IntStorage": 4, "HalfStorage": 2, "BFloat16Storage": 2, "ShortStorage": 2,
    "ByteStorage": 1, "CharStorage": 1, "BoolStorage": 1, "UntypedStorage": 1,
}  # fmt: skip


@dataclass(frozen=True)
class FileFacts:
    """What one file says about itself.

    Attributes:
        name: the file's name relative to the checkpoint.
        kind: ``torch-zip``, ``torch-legacy``, ``pickle``, ``safetensors``, ``npz``, ``npy``, ``json``,
            ``text``, ``empty`` or ``unknown``.
        size_bytes: its length.
        problem: what is wrong with it; empty when nothing is.
        value: what it holds, with inert records in place of objects.
        tensors: how many tensors or arrays it holds.
        dangers: names and opcodes that can run commands when it is unpickled.
        foreign: names of packages whose code runs when it is unpickled.
    """

    name: str
    kind: str
    size_bytes: int
    problem: str = ""
    value: Any = None
    tensors: int = 0
    dangers: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()

    @property
    def mapping(self) -> dict[Any, Any]:
        """Return the value if it is a mapping, else an empty one."""
        return self.value if isinstance(self.value, dict) else {}


def read_file(path: Path, name: str = "") -> FileFacts:
    """Read what ``path`` says about itself, without running or fully reading it.

    Args:
        path: the file.
        name: how messages call it; the file's own name by default.
    """
    name = name or path.name
    try:
        with open_regular(path) as raw:
            size = os.fstat(raw.fileno()).st_size
            return _read(raw, name, size)
    except OSError as error:
        return FileFacts(name, "unknown", 0, f"cannot be read ({error.strerror})")


def open_regular(path: Path) -> IO[bytes]:
    """Open a file for reading; what is none, such as a pipe that nobody writes to, is refused and never waited for.

    Raises:
        OSError: it cannot be opened, or is no regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "no regular file")
    return os.fdopen(descriptor, "rb")


def read_part(path: Path, name: str, offset: int, length: int) -> FileFacts:
    """Read what a part of a file says about itself: shards are torch archives laid end to end.

    Args:
        path: the file.
        name: how messages call it.
        offset: where the part begins.
        length: how long it is; parts longer than the longest JSON text read are not looked into.
    """
    if length > MAX_JSON_BYTES:
        return FileFacts(name, "unknown", length)
    try:
        with path.open("rb") as raw:
            raw.seek(offset)
            data = raw.read(length)
    except OSError as error:
        return FileFacts(name, "unknown", 0, f"cannot be read ({error.strerror})")
    return _read(io.BytesIO(data), name, len(data))


def _read(raw: IO[bytes], name: str, size: int) -> FileFacts:
    head = raw.read(16)
    raw.seek(0)
    if not size:
        return FileFacts(name, "empty", 0, "is empty")
    if name.endswith(".safetensors"):
        return _read_safetensors(raw, name, size)
    reader = next((reader for start, reader in _STARTS.items() if head.startswith(start)), None)
    if reader is not None:
        return reader(raw, name, size)
    if head.lstrip()[:1] in (b"{", b"[") and name.endswith((".json", ".txt")):
        return _read_json(raw, name, size)
    return _read_other(raw, name, size)


def _read_npy(_: IO[bytes], name: str, size: int) -> FileFacts:
    return FileFacts(name, "npy", size, tensors=1)


def _read_other(raw: IO[bytes], name: str, size: int) -> FileFacts:
    if name.endswith(".json"):
        return FileFacts(name, "json", size, "is not JSON")
    if name.endswith((".pkl", ".pickle")):
        return _read_pickles(raw, name, size)
    if name.endswith((".pt", ".pth", ".ckpt", ".bin", ".tar", ".npz", ".distcp")):
        return FileFacts(name, "unknown", size, "does not begin like any checkpoint format")
    text = raw.read(4096)
    kind = "text" if size <= len(text) and text.isascii() and b"\0" not in text else "unknown"
    return FileFacts(name, kind, size, value=text.decode("ascii").strip() if kind == "text" else None)


def _read_json(raw: IO[bytes], name: str, size: int) -> FileFacts:
    if size > MAX_JSON_BYTES:
        return FileFacts(name, "json", size, f"is longer than {MAX_JSON_BYTES} bytes and was not read")
    try:
        return FileFacts(name, "json", size, value=json.loads(raw.read()))
    except (ValueError, RecursionError) as error:
        return FileFacts(name, "json", size, f"is not whole JSON ({error})")


def _read_safetensors(raw: IO[bytes], name: str, size: int) -> FileFacts:
    try:
        header = _safetensors_header(raw, size)
    except (ValueError, TypeError, RecursionError, struct.error) as error:
        return FileFacts(name, "safetensors", size, str(error) or "has a header that cannot be read")
    header.pop("__metadata__", None)
    return FileFacts(name, "safetensors", size, value=header, tensors=len(header))


def _safetensors_header(raw: IO[bytes], size: int) -> dict[str, Any]:
    if size < 8:
        raise ValueError("is shorter than a safetensors header")
    (length,) = struct.unpack("<Q", raw.read(8))
    if length > min(size - 8, MAX_HEADER_BYTES):
        raise ValueError(f"ends inside its header ({size} bytes, the header alone needs {length + 8})")
    header = json.loads(raw.read(length))
    if not isinstance(header, dict):
        raise TypeError("has a header that is not a table of tensors")
    entries = [entry for key, entry in header.items() if key != "__metadata__"]
    needed = 8 + length + max(map(_end_of_tensor, entries), default=0)
    if needed != size:
        raise ValueError(f"has {size} bytes, its header describes {needed}")
    return header


def _end_of_tensor(entry: object) -> int:
    match entry:
        case {"data_offsets": [int(start), int(end)]} if 0 <= start <= end:
            return end
    raise ValueError("has a header that does not say where its tensors lie")


def _read_zip(raw: IO[bytes], name: str, size: int) -> FileFacts:
    try:
        with zipfile.ZipFile(raw) as archive:
            entries = {entry.filename: entry for entry in archive.infolist()}
            described = next((entry for entry in entries if entry.endswith("data.pkl")), None)
            if described is None:
                return _read_npz(name, size, entries)
            with archive.open(described) as inner:
                scan = scan_pickle(inner, entries[described].file_size)
            problem = scan.problem or _zip_problem(scan, entries, described, size)
            return _from_scan(name, "torch-zip", size, [scan], problem)
    except (*_ZIP_ERRORS, OSError, ValueError, NotImplementedError, RuntimeError, EOFError) as error:
        return FileFacts(name, "torch-zip", size, f"is cut off or damaged ({error})")


def _read_npz(name: str, size: int, entries: dict[str, zipfile.ZipInfo]) -> FileFacts:
    arrays = [entry.removesuffix(".npy") for entry in entries if entry.endswith(".npy")]
    problem = "" if arrays else "is a zip archive without tensors"
    return FileFacts(name, "npz", size, problem, dict.fromkeys(arrays, "array"), len(arrays))


def _zip_problem(scan: PickleScan, entries: dict[str, zipfile.ZipInfo], described: str, size: int) -> str:
    """Compare the tensors that the pickle names with the parts that the archive lists."""
    if any(entry.header_offset + entry.compress_size > size for entry in entries.values()):
        return "is shorter than its own table of contents says"
    prefix = described.removesuffix("data.pkl")
    for storage in _storages(scan.value).values():
        entry = entries.get(f"{prefix}data/{storage.key}")
        needed = storage.elements * _ELEMENT_BYTES.get(storage.kind, 1)
        if entry is None:
            return f"lacks the tensor data {storage.key} that it refers to"
        if entry.file_size < needed:
            return f"has {entry.file_size} of the {needed} bytes of tensor data {storage.key}"
    return ""


def _storages(value: object) -> dict[str, Storage]:
    return {item.key: item for item in walk(value) if isinstance(item, Storage)}


def _read_pickles(raw: IO[bytes], name: str, size: int) -> FileFacts:
    first = scan_pickle(raw, size)
    if first.problem or first.value != _LEGACY_MAGIC:
        trailing = size - raw.tell()
        problem = first.problem or (f"has {trailing} bytes behind its end" if trailing else "")
        return _from_scan(name, "pickle", size, [first], problem)
    scans = [first]
    while len(scans) < 5 and not scans[-1].problem:
        scans.append(scan_pickle(raw, size))
    if scans[-1].problem:
        return _from_scan(name, "torch-legacy", size, scans, scans[-1].problem)
    return _from_scan(name, "torch-legacy", size, scans, _legacy_problem(scans, raw.tell(), size))


def _legacy_problem(scans: list[PickleScan], start: int, size: int) -> str:
    storages = _storages(scans[3].value)
    needed = start + sum(8 + item.elements * _ELEMENT_BYTES.get(item.kind, 1) for item in storages.values())
    return f"has {size} bytes, its tensors need {needed}" if size < needed else ""


def _from_scan(name: str, kind: str, size: int, scans: list[PickleScan], problem: str) -> FileFacts:
    value = scans[3].value if len(scans) > 3 else scans[0].value
    dangers = [danger for scan in scans for danger in (*scan.names(Trust.DANGEROUS), *scan.oddities)]
    foreign = [item for scan in scans for item in scan.names(Trust.FOREIGN)]
    return FileFacts(
        name,
        kind,
        size,
        problem,
        value,
        count_tensors(value),
        tuple(dict.fromkeys(dangers)),
        tuple(dict.fromkeys(foreign)),
    )


_STARTS: dict[bytes | tuple[bytes, ...], Callable[[IO[bytes], str, int], FileFacts]] = {
    b"PK": _read_zip,
    b"\x93NUMPY": _read_npy,
    tuple(bytes((0x80, version)) for version in range(2, 6)): _read_pickles,
}
"""How files of each format begin, and what reads them."""
