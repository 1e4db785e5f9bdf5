"""Position-dependent 128-bit digest of a tensor's bytes, computed with torch on the device the tensor lives on.

Every 8-byte word is mixed with its position by a bijection of 64 bits; the mixed words are summed once as they
are and once weighted by an odd number of their position. A change of one word always changes both sums. Changes of
several words cancel in one sum with a chance of about 2**-64 and in both of about 2**-128, as far as mixed words
behave like random numbers: good against accidents, no protection against somebody who constructs a collision.
"""

from __future__ import annotations

from typing import Any

import torch

CHUNK_WORDS = 1 << 17
"""Words mixed at a time on a CPU: small enough for its caches."""

DEVICE_CHUNK_WORDS = 1 << 22
"""Words mixed at a time on an accelerator; bounds the transient memory to about 100 MiB."""

_WORD_BYTES = 8
_LOW_32 = 0xFFFFFFFF
_POSITION = -7046029254386353131
_FACTOR = -4658895280553007687
_CHUNK = 0xD6E8FEB86659FD93


def mixed_digest(tensor: Any) -> bytes:
    """Return 16 bytes that stand for the content of a contiguous, detached ``tensor`` of any strided dtype."""
    words = _words(tensor)
    chunk = CHUNK_WORDS if tensor.device.type == "cpu" else DEVICE_CHUNK_WORDS
    size = min(chunk, len(words))
    places = torch.arange(1, 2 * size + 1, 2, dtype=torch.int64, device=tensor.device)
    places *= _POSITION  # odd, as both factors are
    mixed, high = torch.empty_like(places), torch.empty_like(places)
    sums = []
    for start in range(0, len(words), chunk):
        part = words[start : start + chunk]
        sums.append(_sums(part, *(buffer[: len(part)] for buffer in (places, mixed, high))))
    return _joined(torch.stack(sums).tolist() if sums else [])


def _sums(part: Any, places: Any, mixed: Any, high: Any) -> Any:
    """Return the plain and the weighted sum of the mixed words, in the memory given."""
    torch.add(part, places, out=mixed)
    mixed *= _FACTOR
    torch.bitwise_right_shift(mixed, 32, out=high)
    high &= _LOW_32  # the shift is arithmetic: without the mask the sign bit would be lost
    mixed ^= high
    mixed *= _FACTOR
    plain = mixed.sum()
    mixed *= places
    return torch.stack((plain, mixed.sum()))


def _joined(sums: list[list[int]]) -> bytes:
    """Combine the sums of all chunks, each weighted by an odd number of its place."""
    joined = [sum(pair[i] * (2 * place * _CHUNK + 1) for place, pair in enumerate(sums)) for i in (0, 1)]
    return b"".join((number % 2**64).to_bytes(_WORD_BYTES, "big") for number in joined)


def _words(tensor: Any) -> Any:
    """View the bytes as 64-bit words, the last one filled up with zeros."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    flat = tensor.reshape(-1)
    size = flat.numel() * flat.element_size()
    offset = flat.storage_offset() * flat.element_size()
    if size % _WORD_BYTES == 0 and offset % _WORD_BYTES == 0 and size:
        return flat.view(torch.int64)
    filled = torch.zeros(-(-size // _WORD_BYTES) * _WORD_BYTES, dtype=torch.uint8, device=tensor.device)
    filled[:size] = flat.view(torch.uint8)
    return filled.view(torch.int64)
