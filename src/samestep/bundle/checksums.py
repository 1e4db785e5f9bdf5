"""The checksum that ends a record, so that one changed bit makes it unreadable and never another record."""

from __future__ import annotations

import re
from typing import Final

import xxhash

from samestep.bundle.errors import FormatError

CHECKSUM: Final = "xxh3"
"""The key it stands under, which sorts behind all others of a record."""

_SEAL: Final = re.compile(rb',"xxh3":"([0-9a-f]{16})"\}\n\Z')
_SEAL_BYTES: Final = len(b',"xxh3":"0123456789abcdef"}\n')


def sealed(data: bytes) -> bytes:
    """Return the canonical JSON of an object with its checksum: of everything that stands before it."""
    body = data[:-2]
    return body + f',"{CHECKSUM}":"{xxhash.xxh3_64_hexdigest(body)}"}}\n'.encode()


def require_sealed(data: bytes, what: str) -> None:
    """Refuse an object whose checksum is not that of its bytes.

    Raises:
        FormatError: it was changed after it was written, or carries no checksum.
    """
    seal = _SEAL.search(data, max(0, len(data) - _SEAL_BYTES))
    if seal is None:
        raise FormatError(f"{what} does not end with its checksum")
    if seal[1].decode() != xxhash.xxh3_64_hexdigest(data[: seal.start()]):
        raise FormatError(
            f"{what} was changed after it was written: its checksum is not that of what stands there",
            hint="The disk, or somebody, changed it. Nothing in it is believed.",
        )
