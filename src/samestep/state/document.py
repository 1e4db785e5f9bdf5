"""``state.json``: the trees of all tracked objects, and where the bytes of each of their tensors are."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, Final

import msgspec

from samestep.bundle import canonical
from samestep.bundle.errors import FormatError
from samestep.state.blocks import DIGEST_BYTES, block_count, blocks_path
from samestep.state.dtypes import DTYPES
from samestep.state.planning import split_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from samestep.state.capture import Plan
    from samestep.state.layout import Layout
    from samestep.state.seam import Described
    from samestep.state.spelling import Speller

STATE_PATH: Final = "state.json"
STATE_SCHEMA: Final = "samestep.state/1"
STATE_LIMIT: Final = canonical.BYTES_LIMIT


@dataclasses.dataclass(frozen=True, slots=True)
class Extent:
    """A piece of a tensor and where its bytes are."""

    part: str
    begin: int
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """A tensor of a tree, over all ranks."""

    dtype: str
    shape: tuple[int, ...]
    extents: tuple[Extent, ...]


@dataclasses.dataclass(frozen=True)
class Record:
    """What state.json says of one tracked object.

    Attributes:
        component: of the training state.
        kind: the class that was tracked.
        notes: what the tracked object says about itself.
        per_rank: whether every rank had tensors of its own.
        trees: its tree, or one for every rank where they differ.
        tensors: its tensors by key.
        own: of each rank, the tensors of which every rank has one of its own; empty if there are none.
    """

    component: str
    kind: str
    notes: dict[str, Any]
    per_rank: bool
    trees: tuple[Any, ...]
    tensors: dict[str, Entry]
    own: tuple[dict[str, Entry], ...]

    def of_rank(self, rank: int) -> dict[str, Entry]:
        """Return the tensors for a rank; one that there was not then gets those of the first."""
        if not self.own:
            return self.tensors
        return self.tensors | self.own[rank if rank < len(self.own) else 0]


@dataclasses.dataclass(frozen=True)
class Document:
    """The content of state.json."""

    world: int
    records: dict[str, Record]
    blocks: dict[
        str, tuple[str, int]
    ]  #: of each part: the part with its blocks' digests, and where they begin


_Table = dict[str, tuple[str, list[int], list[list[int | list[int]]]]]


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    component: str
    kind: str
    notes: msgspec.Raw
    per_rank: bool
    trees: list[msgspec.Raw]
    tensors: _Table
    own: list[_Table]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: str
    world: int
    parts: list[tuple[str, int, int]]
    tracked: dict[str, _Row]


class _Schema(msgspec.Struct, frozen=True):
    schema: str


def spelled_tables(
    layout: Layout, sources: Sequence[Described], world: int
) -> dict[str, tuple[bytes, bytes]]:
    """Return the spelled tables of each tracked object: of tensors that ranks share, and of each rank's own."""
    shared: dict[str, dict[str, Any]] = {source.name: {} for source in sources}
    own: dict[str, list[dict[str, Any]]] = {source.name: [] for source in sources}
    for number, part in enumerate(layout.parts):
        for placed in part.placed:
            piece = placed.piece
            name, rank, key = split_name(piece.fqn)
            if rank is not None and not own[name]:
                own[name] = [{} for _ in range(world)]
            table = shared[name] if rank is None else own[name][rank]
            row = table.setdefault(key, [piece.dtype, list(piece.shape), []])
            extent: list[Any] = [number, placed.begin]
            row[2].append(extent if piece.whole else [*extent, list(piece.offsets), list(piece.sizes)])
    return {name: (_spelled(shared[name]), _spelled(own[name])) for name in shared}


def compose(
    plan: Plan, sources: Sequence[Described], trees: Mapping[str, Sequence[Any]], speller: Speller, world: int
) -> bytes:
    """Return state.json.

    Args:
        plan: of the save.
        sources: the tracked objects.
        trees: of each object, one or one for every rank, as ``leaves.encode`` made them.
        speller: of this run's former saves.
        world: how many ranks there are.
    """

    def tracked(source: Described) -> bytes:
        spelled = [speller.spell(tree, f"{source.name}\0{at}") for at, tree in enumerate(trees[source.name])]
        return _object(
            component=_spelled(source.component),
            kind=_spelled(source.kind),
            notes=speller.spell(source.notes, f"{source.name}\0notes"),
            per_rank=b"true" if source.per_rank else b"false",
            own=plan.tables[source.name][1],
            tensors=plan.tables[source.name][0],
            trees=b"[" + b",".join(spelled) + b"]",
        )

    parts = [[part.path, part.rank, part.blocks_begin] for part in plan.layout.parts]
    content = _object(
        parts=speller.spell(parts, "parts"),
        schema=_spelled(STATE_SCHEMA),
        tracked=_object(**{source.name: tracked(source) for source in sources}),
        world=_spelled(world),
    )
    return content + b"\n"


def _object(**fields: bytes) -> bytes:
    """Return a JSON object of fields that are spelled already."""
    items = [_spelled(name) + b":" + fields[name] for name in sorted(fields)]
    return b"{" + b",".join(items) + b"}"


def _spelled(value: Any) -> bytes:
    """Return canonical JSON without its newline."""
    return canonical.encode(value, what=STATE_PATH)[:-1]


def parse(data: bytes, sizes: Mapping[str, int]) -> Document:
    """Return what state.json says.

    Args:
        data: its bytes, verified or not.
        sizes: of the bundle's parts, by path.

    Raises:
        FormatError: it is malformed, of another format, or points outside of the parts.
    """
    try:
        schema = msgspec.json.decode(data, type=_Schema).schema
        if schema != STATE_SCHEMA:
            raise FormatError(
                f"{STATE_PATH} is of format {ascii(schema)[:80]}; this version reads {STATE_SCHEMA}"
            )
        file = msgspec.json.decode(data, type=_File)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise FormatError(f"{STATE_PATH} is malformed: {error}") from None
    reading = _Reading(file, sizes)
    records = {name: reading.record(name, row) for name, row in file.tracked.items()}
    return Document(file.world, records, _blocks(file, sizes))


def _blocks(file: _File, sizes: Mapping[str, int]) -> dict[str, tuple[str, int]]:
    found = {}
    for path, rank, begin in file.parts:
        digests = blocks_path(rank, file.world)
        needed = begin + block_count(sizes.get(path, 0)) * DIGEST_BYTES
        if begin < 0 or not 0 <= rank < file.world or needed > sizes.get(digests, -1):
            raise FormatError(f"{STATE_PATH}: the digests of the blocks of {path!a} are not where it says")
        found[path] = (digests, begin)
    return found


class _Reading:
    """The records of a file, checked against the parts there are."""

    def __init__(self, file: _File, sizes: Mapping[str, int]) -> None:
        self._world = file.world
        self._parts = [(path, sizes.get(path, -1)) for path, _, _ in file.parts]

    def record(self, name: str, row: _Row) -> Record:
        if len(row.own) not in {0, self._world} or len(row.trees) not in {1, self._world}:
            raise FormatError(f"{STATE_PATH}: {name} has not one table and one tree for each rank")
        shared = self._table(name, row.tensors)
        own = tuple(self._table(name, table) for table in row.own)
        trees = tuple(_typed(tree) for tree in row.trees)
        return Record(row.component, row.kind, _typed(row.notes), row.per_rank, trees, shared, own)

    def _table(self, name: str, table: _Table) -> dict[str, Entry]:
        return {key: self._entry(f"{name}.{key}", *fields) for key, fields in table.items()}

    def _entry(self, what: str, dtype: str, shape: list[int], rows: list[list[Any]]) -> Entry:
        if dtype not in DTYPES:
            raise FormatError(f"{STATE_PATH}: {what} has the unknown type {dtype!a}")
        if not all(0 <= length < 1 << 50 for length in shape):
            raise FormatError(f"{STATE_PATH}: {what} has an absurd shape")
        whole = tuple(shape)
        if len(rows) == 1 and len(rows[0]) == 2:
            return Entry(dtype, whole, (self._extent(what, rows[0], DTYPES[dtype].itemsize, whole),))
        extents = tuple(self._extent(what, row, DTYPES[dtype].itemsize, whole) for row in rows)
        if sum(math.prod(extent.sizes) for extent in extents) != math.prod(whole) or _overlap(whole, extents):
            raise FormatError(f"{STATE_PATH}: the pieces of {what} do not make it up")
        return Entry(dtype, whole, extents)

    def _extent(self, what: str, row: list[Any], itemsize: int, shape: tuple[int, ...]) -> Extent:
        number, begin, offsets, lengths = _fields(row, shape)
        if not (0 <= number < len(self._parts) and begin >= 0 and _inside(offsets, lengths, shape)):
            raise FormatError(f"{STATE_PATH}: {what} has a malformed piece")
        path, size = self._parts[number]
        if begin + math.prod(lengths) * itemsize > size:
            raise FormatError(f"{STATE_PATH}: {what} lies outside of the part {path!a}")
        return Extent(path, begin, offsets, lengths)


def _typed(raw: msgspec.Raw) -> Any:
    """Return a value that canonical JSON spells. Its bytes were vouched for by the manifest already."""
    value = msgspec.json.decode(raw)
    return canonical.typed(value, STATE_PATH) if b'"$' in bytes(raw) else value


def _fields(row: list[Any], shape: tuple[int, ...]) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
    """Return part, beginning, offsets and sizes of a piece; a negative part if the row is not one."""
    if list(map(type, row)) == [int, int]:
        return row[0], row[1], (0,) * len(shape), shape
    if list(map(type, row)) == [int, int, list, list]:
        return row[0], row[1], tuple(row[2]), tuple(row[3])
    return -1, 0, (), ()


def _inside(offsets: tuple[int, ...], lengths: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    if lengths is shape:
        return True
    if len(offsets) != len(shape) or len(lengths) != len(shape):
        return False
    return all(
        at >= 0 and length >= 0 and at + length <= whole
        for at, length, whole in zip(offsets, lengths, shape, strict=True)
    )


def _overlap(shape: tuple[int, ...], extents: Sequence[Extent]) -> bool:
    """Say whether two pieces of a tensor have elements in common."""
    if len(extents) < 2:
        return False
    longest = max(range(len(shape)), key=lambda dim: shape[dim])
    ordered = sorted(extents, key=lambda extent: extent.offsets[longest])
    going_on: list[Extent] = []
    for extent in ordered:
        begin = extent.offsets[longest]
        going_on = [one for one in going_on if one.offsets[longest] + one.sizes[longest] > begin]
        if any(_meet(extent, one) for one in going_on):
            return True
        going_on.append(extent)
    return False


def _meet(one: Extent, other: Extent) -> bool:
    return all(
        at < there + length and there < at + own
        for at, own, there, length in zip(one.offsets, one.sizes, other.offsets, other.sizes, strict=True)
    )
