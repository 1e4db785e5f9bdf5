"""The state of one boundary, on its way into a bundle."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from samestep.bundle.parts import SHARED_BYTES
from samestep.bundle.storage.contents import BufferContent
from samestep.state.blocks import blocks_path
from samestep.state.document import STATE_PATH, compose
from samestep.state.frozen import Known, KnownContent
from samestep.state.hub import files_beside
from samestep.state.writer import DigestingContent, LeasedContent, live_content

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch

    from samestep.bundle.manifest import Part
    from samestep.bundle.parts import PartWriter
    from samestep.bundle.saving import Saving
    from samestep.bundle.storage.base import Content
    from samestep.state.arena import Lease
    from samestep.state.capture import Plan
    from samestep.state.frozen import Frozen
    from samestep.state.layout import PartLayout
    from samestep.state.ranks import Ranks
    from samestep.state.seam import Source
    from samestep.state.spelling import Speller
    from samestep.state.staging import Staged


@dataclasses.dataclass(frozen=True)
class Setting:
    """What all snapshots of one capture share."""

    sources: tuple[Source, ...]
    ranks: Ranks
    speller: Speller
    frozen: Frozen


@dataclasses.dataclass(frozen=True)
class Share:
    """One part that this rank writes.

    Attributes:
        part: its layout.
        begin: where it begins in the slot.
        tensors: the live tensors, by their full names.
        fast: a digest of their memory, if they are frozen.
        known: what is known of the stored part, if they have not changed since and were not copied.
    """

    part: PartLayout
    begin: int
    tensors: dict[str, torch.Tensor]
    fast: bytes
    known: Known | None


class Snapshot:
    """The state of one boundary. A copied one never changes again.

    Attributes:
        copied: whether there was memory for a copy. If not, ``write`` reads the live tensors, and has to be done
            before the training goes on.
        size_bytes: of all parts with tensors, of all ranks.
    """

    def __init__(
        self,
        setting: Setting,
        plan: Plan,
        trees: dict[str, list[Any]],
        shares: Sequence[Share],
        *,
        lease: Lease | None,
        staged: Staged,
    ) -> None:
        self._setting, self._plan, self._trees = setting, plan, trees
        self._lease, self._staged = lease, staged
        self._shares = [
            share if lease is None or share.known else _without_tensors(share) for share in shares
        ]
        self.copied = lease is not None
        self.size_bytes = sum(part.size for part in plan.layout.parts)

    def wait_staged(self) -> None:
        """Return when the training may change its parameters: before the next optimizer update.

        A device is told to wait for its copies; this thread does not.
        """
        self._staged.guard()

    def write(self, writer: Saving | PartWriter) -> list[Part]:
        """Add this rank's parts to a save, and return them.

        Nothing has to be settled or exchanged for it: the caller does both.

        Args:
            writer: the save on the first rank, a ``PartWriter`` for the same bundle on the others.

        Raises:
            StateError: a parameter was changed outside of an optimizer update while it was copied.
            StoreError: the place failed, or has no room.
        """
        self._staged.check()
        rank = self._setting.ranks.rank if self._setting.ranks.size > 1 else None
        stored: list[Part] = []
        blocks = b""
        for share in self._shares:
            part, digests = self._write(writer, share, rank)
            stored.append(part)
            blocks += digests
        for path, content, components, shared in self._others(blocks):
            owner = None if shared else rank
            stored.append(writer.add(path, content, components=components, rank=owner, share=False))
        return stored

    def close(self) -> None:
        """Give the memory back, once the bundle is committed or given up; otherwise that waits for the garbage."""
        if self._lease is not None:
            self._staged.wait()
            self._lease.end()
            self._lease = None

    def _write(self, writer: Saving | PartWriter, share: Share, rank: int | None) -> tuple[Part, bytes]:
        """Store one part; return it with the digests of its blocks."""
        known, part = share.known, share.part
        content = DigestingContent(self._content(share))
        stored = writer.add(
            part.path,
            content if known is None else KnownContent(known.digest, content),
            components=[self._components[part.source]],
            expected_digest=known.digest if known else "",
            rank=rank,
            share=known is not None or content.size >= SHARED_BYTES,
        )
        blocks = known.blocks if known else content.blocks()
        if share.fast:
            self._setting.frozen.remember(part.path, Known(share.fast, stored.digest, blocks))
        return stored, blocks

    def _content(self, share: Share) -> Content:
        if share.known is not None or self._lease is None:
            return live_content(share.part, share.tensors)
        return LeasedContent(self._lease, share.begin, share.part.size)

    def _others(self, blocks: bytes) -> Iterator[tuple[str, Content, list[str], bool]]:
        """Yield the path, content and components of each part that is no safetensors file; is it of all ranks?"""
        ranks, sources = self._setting.ranks, self._setting.sources
        if blocks:
            own = sorted({self._components[share.part.source] for share in self._shares})
            yield blocks_path(ranks.rank, ranks.size), BufferContent(blocks), own, False
        if ranks.rank == 0:
            document = compose(self._plan, sources, self._trees, self._setting.speller, ranks.size)
            yield STATE_PATH, BufferContent(document), sorted(set(self._components.values())), True
            for source in sources:
                for path, text in files_beside(source, self._plan.layout):
                    yield path, BufferContent(text), [source.component], True

    @property
    def _components(self) -> dict[str, str]:
        return {source.name: source.component for source in self._setting.sources}


def _without_tensors(share: Share) -> Share:
    """Let the live tensors go: their content was copied."""
    return dataclasses.replace(share, tensors={})
