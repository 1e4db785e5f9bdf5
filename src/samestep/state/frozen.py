"""Parts that do not change from save to save: the frozen weights under an adapter are neither copied nor written."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import xxhash

from samestep.state.writer import elements

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from samestep.bundle.storage.base import Content
    from samestep.state.layout import PartLayout


@dataclasses.dataclass(frozen=True)
class Known:
    """What was found about a frozen part when it was stored.

    Attributes:
        fast: a digest to compare memory with, which costs less than copying it.
        digest: of the stored part, by the scheme of the format.
        blocks: the digests of its blocks.
    """

    fast: bytes
    digest: str
    blocks: bytes


class Frozen:
    """Remembers the frozen parts of the plan that was used last."""

    def __init__(self) -> None:
        self._known: dict[str, Known] = {}

    def forget(self) -> None:
        """Begin anew, with another plan."""
        self._known = {}

    def remember(self, path: str, known: Known) -> None:
        """Keep what was found about a part when it was stored."""
        self._known[path] = known

    def unchanged(self, path: str, fast: bytes) -> Known | None:
        """Return what is known of a part whose memory has that digest."""
        known = self._known.get(path)
        return known if known is not None and known.fast == fast else None


class KnownContent:
    """A part whose digest is known, so that it need not be read when it is shared.

    Args:
        digest: of the part. What is stored must have it: the memory is live.
        content: the part.
    """

    def __init__(self, digest: str, content: Content) -> None:
        self.digest = digest
        self.size = content.size
        self.read_into = content.read_into


def fast_digest(part: PartLayout, tensors: Mapping[str, torch.Tensor]) -> bytes:
    """Return a digest of the memory of a part, which costs less than a copy of it."""
    digest = xxhash.xxh3_128(part.header)
    for placed in part.placed:
        digest.update(elements(tensors[placed.piece.fqn]))
    return digest.digest()
