"""Position-dependent 128-bit digest of a tensor's bytes, computed with torch on the device the tensor lives on.

Every 8-byte word is mixed with its position by bijections of 64 bits, and two different mixes are summed over
all words. A change of one word always changes both sums. Changes of several words cancel in one sum with a chance
of about 2**-64 and in both of about 2**-128, as far as mixed words behave like random numbers: good against
accidents, no protection against somebody who constructs a collision.
"""

from __future__ import annotations

from typing import Any

import torch

CHUNK_WORDS = 1 << 15
"""Words mixed at a time on a CPU: small enough for its caches."""

DEVICE_CHUNK_WORDS = 1 << 22
"""Words mixed at a time on an accelerator; bounds the transient memory to about 100 MiB."""

_WORD_BYTES = 8
_LOW_32 = 0xFFFFFFFF
_POSITION = -7046029254386353131
_FIRST = -4658895280553007687
_SECOND = -7723592293110705685


def mixed_digest(tensor: Any) -> bytes:
    """Return 16 bytes that stand for the content of a contiguous, detached ``tensor`` of any strided dtype."""
    words = _words(tensor)
    chunk = CHUNK_WORDS if tensor.device.type == "cpu" else DEVICE_CHUNK_WORDS
    places = torch.arange(1, min(chunk, len(words)) + 1, dtype=torch.int64, device=tensor.device)
    places *= _POSITION
    sums = torch.zeros(2, dtype=torch.int64, device=tensor.device)
    for start in range(0, len(words), chunk):
        part = words[start : start + chunk]
        mixed = places[: len(part)] + _wrapped(start * _POSITION)
        mixed += part
        _mix(mixed, _FIRST)
        sums[0] += mixed.sum()
        _mix(mixed, _SECOND)
        sums[1] += mixed.sum()
    return b"".join((number % 2**64).to_bytes(_WORD_BYTES, "big") for number in sums.tolist())


def _mix(numbers: Any, factor: int) -> None:
    """Apply a bijection of 64-bit words in place."""
    numbers *= factor
    high = numbers >> 32
    high &= _LOW_32  # the shift is arithmetic: without the mask the sign bit would be lost
    numbers ^= high
    numbers *= factor


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


def _wrapped(number: int) -> int:
    """Bring a product into the range of int64, as the device arithmetic would."""
    return (number + 2**63) % 2**64 - 2**63
