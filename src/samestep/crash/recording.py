"""Writing and reading a recording's folder."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Self

import msgspec
import xxhash

from samestep.crash.operations import Header, Operation
from samestep.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

HEADER, OPERATIONS, BYTES = "recording.json", "operations.jsonl", "bytes.bin"
DEFAULT_SPILL_BYTES = 20 * 2**30

_encoder = msgspec.json.Encoder()


class SpillLimitError(MachineError):
    """The bytes of a recording would take more room than was allowed."""

    slug = "recording-too-large"


class RecordingWriter:
    """Appends to a recording; what it has accepted is in the hands of the kernel, so it outlives a SIGKILL.

    Args:
        folder: the recording; created.
        header: its header, rewritten by `close`.
        spill_bytes: most bytes kept.
    """

    def __init__(self, folder: Path, header: Header, spill_bytes: int = DEFAULT_SPILL_BYTES) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.header = header
        self._folder = folder
        self._operations = os.open(folder / OPERATIONS, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)
        self._bytes = os.open(folder / BYTES, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)
        self._end = 0
        self._spill_bytes = spill_bytes
        self._known: dict[bytes, int] = {}
        self.count = 0
        self.save_header()

    def keep(self, content: bytes | bytearray | memoryview) -> int:
        """Keep bytes, once, and return where they begin.

        Raises:
            SpillLimitError: there is no room left for them.
        """
        digest = xxhash.xxh3_128_digest(content) + len(content).to_bytes(8, "little")
        at = self._known.get(digest)
        if at is None:
            self._require_room(len(content))
            self._write(content)
            at = self._known[digest] = self._end
            self._end += len(content)
        return at

    def keep_parts(self, parts: Iterable[bytes | memoryview], size: int) -> int:
        """Keep ``size`` bytes that come in parts and are never in memory together; return where they begin.

        Raises:
            SpillLimitError: there is no room left for them.
        """
        self._require_room(size)
        hasher, length = xxhash.xxh3_128(), 0
        try:
            for part in parts:
                hasher.update(part)
                length += len(part)
                self._write(part)
        except BaseException:
            self._forget_after(self._end)
            raise
        digest = hasher.digest() + length.to_bytes(8, "little")
        at = self._known.setdefault(digest, self._end)
        if at == self._end:
            self._end += length
        else:
            self._forget_after(self._end)
        return at

    def append(self, operation: Operation) -> None:
        """Append an operation, giving it the next index."""
        operation.index = self.count
        self.count += 1
        os.write(self._operations, _encoder.encode(operation) + b"\n")

    def close(self, *, complete: bool) -> None:
        """Write the final header."""
        self.header.complete = complete
        self.save_header()
        os.close(self._operations)
        os.close(self._bytes)

    def save_header(self) -> None:
        """Write the header as it is now; a reader never sees half of it."""
        fresh = self._folder / f"{HEADER}.new"
        fresh.write_bytes(_encoder.encode(self.header))
        fresh.replace(self._folder / HEADER)

    def _require_room(self, size: int) -> None:
        if self._end + size > self._spill_bytes:
            raise SpillLimitError(
                f"the bytes of this recording exceed {self._spill_bytes / 2**30:.1f} GiB",
                hint="record a smaller model or fewer steps, or raise the limit with --spill-gib",
            )

    def _write(self, content: bytes | bytearray | memoryview) -> None:
        view = memoryview(content).cast("B")
        while view:
            view = view[os.write(self._bytes, view) :]

    def _forget_after(self, end: int) -> None:
        """Cut off bytes that turned out to be known, or incomplete."""
        os.ftruncate(self._bytes, end)
        os.lseek(self._bytes, end, os.SEEK_SET)


class Recording:
    """A recording that was made; use as a context manager or call `close`.

    Attributes:
        header: what was recorded.
        operations: all of them in order; a half-written last line of a recorder that was killed is left out.
    """

    def __init__(self, header: Header, operations: list[Operation], file: int) -> None:
        self.header = header
        self.operations = operations
        self._file = file

    @classmethod
    def open(cls, folder: Path) -> Recording:
        """Read a recording.

        Raises:
            MachineError: the folder holds no recording that this version can read.
        """
        try:
            header = msgspec.json.decode((folder / HEADER).read_bytes(), type=Header)
            lines = (folder / OPERATIONS).read_bytes().split(b"\n")[:-1]
            operations = [_decoder.decode(line) for line in lines]
            file = os.open(folder / BYTES, os.O_RDONLY | os.O_CLOEXEC)
        except (OSError, msgspec.MsgspecError) as error:
            raise MachineError(
                f"{folder} holds no recording: {error}", hint="make one with samestep crash record"
            ) from error
        return cls(header, operations, file)

    def read(self, at: int, size: int) -> bytes:
        """Return ``size`` bytes that were written, from position ``at`` of the kept bytes."""
        return os.pread(self._file, size, at)

    def close(self) -> None:
        """Close the file of bytes."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_decoder = msgspec.json.Decoder(Operation)
