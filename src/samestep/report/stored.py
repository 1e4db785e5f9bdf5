"""What every result has in common as a file: written at once, refused by name when it is not what was expected."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec

from samestep.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def encoded(result: msgspec.Struct) -> bytes:
    """Return the JSON of a result, indented, ending in a newline. NaN and infinities are written as null."""
    return msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n"


def plain_values(data: bytes, source: str, schema: str, *, run_first: str) -> dict[str, Any]:
    """Read the JSON of a result.

    Args:
        data: the JSON.
        source: where it came from, for messages.
        schema: that it must have.
        run_first: what to do to get such a result.

    Raises:
        UsageError: it is cut off, no object, or of another schema.
    """
    try:
        plain = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise UsageError(
            f"{source} is no complete JSON ({error}): expected a result of the schema {schema!r}",
            hint=f"it may have been cut off while it was written; {run_first}",
        ) from error
    found = plain.get("schema") if isinstance(plain, dict) else None
    if found != schema:
        raise UsageError(
            f"{source} has the schema {found!r}, expected {schema!r}",
            hint="read it with the samestep version that wrote it",
        )
    return dict(plain)


def read_result(path: Path, name: str, *, run_first: str) -> tuple[bytes, str]:
    """Return what the file at ``path`` holds, and its path; of a folder, the file ``name`` in it.

    Raises:
        UsageError: it is missing or unreadable.
    """
    file = path / name if path.is_dir() else path
    try:
        return file.read_bytes(), str(file)
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}", hint=run_first) from error


def write_atomically(path: Path, data: bytes) -> None:
    """Replace ``path`` by ``data``: readers see the old content or the new, never a part.

    Raises:
        OSError: the folder is missing or not writable, or the disk is full; ``path`` is then as it was.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
