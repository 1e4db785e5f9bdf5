"""Where every piece lies: the parts of a bundle, each one safetensors file, laid out before anything is written."""

from __future__ import annotations

import dataclasses
import functools
import json
from typing import TYPE_CHECKING, Final

from samestep.state.blocks import DIGEST_BYTES, block_count
from samestep.state.dtypes import DTYPES, header_type
from samestep.state.planning import split_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from samestep.state.planning import Piece
    from samestep.state.seam import Described

ALIGNMENT: Final = 64
FROZEN_BYTES: Final = 1 << 20
"""Frozen weights of at least so many bytes get a part of their own, which later bundles share."""
WEIGHTS: Final = "weights"
MODEL: Final = "model"


@dataclasses.dataclass(frozen=True, slots=True)
class Placed:
    """A piece and where its bytes begin in its part."""

    piece: Piece
    begin: int
    nbytes: int


@dataclasses.dataclass(frozen=True)
class PartLayout:
    """One safetensors file.

    Attributes:
        path: of the part.
        rank: that writes it.
        source: name of the tracked object whose tensors it holds.
        header: the file up to where the data begins.
        placed: the pieces, in the order of their bytes, without gaps.
        size: of the file.
        blocks_begin: where the digests of its blocks begin in the part that holds those of its rank.
    """

    path: str
    rank: int
    source: str
    header: bytes
    placed: tuple[Placed, ...]
    size: int
    blocks_begin: int = 0

    @functools.cached_property
    def frozen(self) -> bool:
        """Whether it holds nothing but weights that are not trained."""
        return bool(self.placed) and all(placed.piece.frozen for placed in self.placed)


@dataclasses.dataclass(frozen=True)
class Layout:
    """All parts with tensors of a bundle."""

    parts: tuple[PartLayout, ...]

    def of_rank(self, rank: int) -> tuple[PartLayout, ...]:
        """Return the parts that one rank writes."""
        return tuple(part for part in self.parts if part.rank == rank)

    def is_whole(self, source: str) -> bool:
        """Whether every tensor of an object is in one piece."""
        parts = [part for part in self.parts if part.source == source]
        return bool(parts) and all(placed.piece.whole for part in parts for placed in part.placed)


def lay_out(sources: Sequence[Described], pieces_by_rank: Sequence[Sequence[Piece]]) -> Layout:
    """Lay out the parts. Every rank makes the same of the same pieces."""
    stems = file_stems(sources)
    per_rank = {source.name for source in sources if source.per_rank}
    groups: dict[tuple[str, str], dict[tuple[int, bool], list[Piece]]] = {
        (source.name, stems[source.name]): {} for source in sources
    }
    for rank, pieces in enumerate(pieces_by_rank):
        for piece in pieces:
            name, owner, _ = split_name(piece.fqn)
            stem = stems[name] if not owner or name in per_rank else f"{stems[name]}.rank-{owner:05d}"
            groups.setdefault((name, stem), {}).setdefault((rank, piece.frozen), []).append(piece)
    parts: list[PartLayout] = []
    for (name, stem), by_writer in groups.items():
        shards = sorted(_merged(by_writer).items())
        for at, ((rank, _), pieces) in enumerate(shards):
            parts.append(_part(_path(stem, at, len(shards)), rank, name, pieces))
    return Layout(tuple(_with_blocks(parts)))


def _with_blocks(parts: Iterable[PartLayout]) -> Iterator[PartLayout]:
    taken: dict[int, int] = {}
    for part in parts:
        begin = taken.get(part.rank, 0)
        taken[part.rank] = begin + block_count(part.size) * DIGEST_BYTES
        yield dataclasses.replace(part, blocks_begin=begin)


def file_stems(sources: Iterable[Described]) -> dict[str, str]:
    """Return the name of each object's file without its ending; that of the first model is ``model``."""
    names = [source.name for source in sources]
    stems = dict(zip(names, names, strict=True))
    first = next((source.name for source in sources if source.component == WEIGHTS), None)
    if first is not None and MODEL not in stems:
        stems[first] = MODEL
    return stems


def index_path(layout: Layout, source: str) -> str:
    """Return the name of the index of a model in several files."""
    first = next(part.path for part in layout.parts if part.source == source)
    return first.rsplit("-", 3)[0] + ".safetensors.index.json"


def index_text(layout: Layout, source: str) -> bytes | None:
    """Return the index by which other programs read a model in several files; None when it has only one."""
    parts = [part for part in layout.parts if part.source == source and ".rank-" not in part.path]
    if len(parts) < 2:
        return None
    placed = [(part.path, one.piece) for part in parts for one in part.placed]
    names = {_key(piece): path for path, piece in placed}
    total = sum(piece.nbytes for _, piece in placed)
    return json.dumps({"metadata": {"total_size": total}, "weight_map": names}, indent=2).encode() + b"\n"


def _merged(by_writer: Mapping[tuple[int, bool], list[Piece]]) -> dict[tuple[int, bool], list[Piece]]:
    """Keep frozen pieces apart only where that is worth a file."""
    merged: dict[tuple[int, bool], list[Piece]] = {}
    for (rank, frozen), pieces in by_writer.items():
        apart = frozen and (rank, False) in by_writer and sum(map(_nbytes, pieces)) >= FROZEN_BYTES
        alone = frozen and (rank, False) not in by_writer
        merged.setdefault((rank, apart or alone), []).extend(pieces)
    return merged


def _path(stem: str, at: int, count: int) -> str:
    return f"{stem}.safetensors" if count == 1 else f"{stem}-{at + 1:05d}-of-{count:05d}.safetensors"


def _part(path: str, rank: int, source: str, pieces: Iterable[Piece]) -> PartLayout:
    ordered = sorted(pieces, key=lambda piece: -DTYPES[piece.dtype].itemsize)
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    begin, begins = 0, []
    for key, piece in zip(_unique_keys(ordered), ordered, strict=True):
        dtype, shape = header_type(piece.dtype, piece.sizes)
        entries[key] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, begin + piece.nbytes]}
        begins.append(begin)
        begin += piece.nbytes
    header = file_header(entries)
    placed = tuple(
        Placed(piece, len(header) + start, piece.nbytes) for piece, start in zip(ordered, begins, strict=True)
    )
    return PartLayout(path, rank, source, header, placed, len(header) + begin)


def file_header(entries: Mapping[str, object]) -> bytes:
    """Return a safetensors file up to where its data begins."""
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def _unique_keys(pieces: Iterable[Piece]) -> Iterator[str]:
    """Yield the names of the pieces within one file, which may hold several pieces of one tensor."""
    seen: set[str] = set()
    for piece in pieces:
        key = name = _key(piece)
        if name in seen:
            name = f"{key}@{','.join(map(str, piece.offsets))}"
        seen.add(name)
        yield name


def _key(piece: Piece) -> str:
    return split_name(piece.fqn)[2]


def _nbytes(piece: Piece) -> int:
    return piece.nbytes
