"""Fine digests beside the coarse ones of the manifest, so that a rank verifies what it needs and reads little else.

A manifest has a digest for every 16 MiB of a part. A rank that needs a quarter of every tensor would have to read
all of it to verify any of it. So every rank stores, as a part that the manifest vouches for, an XXH3 of every
32 KiB of its parts; it costs a thirtieth of the save's own digests.
"""

from __future__ import annotations

from typing import Final

import xxhash

BLOCK_BYTES: Final = 32 << 10
DIGEST_BYTES: Final = 16


def blocks_path(rank: int, ranks: int) -> str:
    """Return the name of a rank's part with the digests of its blocks."""
    return "blocks.xxh3" if ranks == 1 else f"blocks-{rank + 1:05d}-of-{ranks:05d}.xxh3"


def block_count(size: int) -> int:
    """Return how many blocks ``size`` bytes have."""
    return -(-size // BLOCK_BYTES)


def digests_of_blocks(view: memoryview) -> bytes:
    """Return the digests of the blocks of what is in memory, one after the other."""
    digest = xxhash.xxh3_128_digest
    return b"".join([digest(view[begin : begin + BLOCK_BYTES]) for begin in range(0, len(view), BLOCK_BYTES)])


def first_wrong(view: memoryview, begin: int, digests: memoryview) -> int | None:
    """Return where the first block begins whose bytes are not those that were digested; None when all are.

    Args:
        view: whole blocks of a part, the part's last one perhaps short.
        begin: where in the part they begin.
        digests: of all blocks of the part.
    """
    first = begin // BLOCK_BYTES
    expected = digests[first * DIGEST_BYTES : (first + block_count(len(view))) * DIGEST_BYTES]
    found = digests_of_blocks(view)
    if found == expected:
        return None
    steps = range(0, len(found), DIGEST_BYTES)
    wrong = next(at for at in steps if found[at : at + DIGEST_BYTES] != expected[at : at + DIGEST_BYTES])
    return begin + wrong // DIGEST_BYTES * BLOCK_BYTES
