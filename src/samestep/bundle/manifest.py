"""The manifest: what a bundle holds, which of its parts carries what, and what it rests on."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import msgspec

from samestep.bundle.digests import ALGORITHMS, CHUNK_BYTES, chunk_count, combine
from samestep.bundle.errors import FormatError
from samestep.bundle.identity import check_id, check_time
from samestep.bundle.paths import check_part_path, check_part_paths
from samestep.contract import Component

if TYPE_CHECKING:
    from collections.abc import Iterator

MANIFEST_SCHEMA = "samestep.bundle/1"
PARTS_LIMIT = 100_000
ORIGINS = ("state", "sealed")
STATES = ("saved", "rebuilt", "irrelevant", "open")

_OF_THE_STORE = {Component.SELECTION, Component.COMPLETENESS, Component.ROTATION, Component.ACCESS}
COMPONENTS = tuple(str(component) for component in Component if component not in _OF_THE_STORE)
"""The components of a training state, each of which has a row."""

IN_MANIFEST = frozenset({"progress", "data-position", "config", "environment", "world"})
"""The components that the manifest itself can carry, without a part."""

_SIZE_LIMIT = 1 << 50
_STEP_LIMIT = 2**53 - 1
_WORLD_LIMIT = 10_000_000
_DEPTH_LIMIT = 1000
_TEXT_LIMIT = 100_000
_HEX = re.compile(r"[0-9a-f]{64}")
_NAMED_DIGEST = re.compile(r"[a-z0-9-]{1,32}:[0-9a-f]{8,128}")
_SEGMENT = re.compile(r"journal/(.+)/[0-9]{10}\.jsonl")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One stored file of a bundle."""

    path: str  #: relative to the bundle's folder, as the framework names it
    size: int  #: bytes
    algorithm: str  #: of the digest: ``blake3``, or ``blake3-16MiB`` above one chunk
    digest: str  #: hex
    chunks: tuple[str, ...] = ()  #: hex digest of every 16 MiB piece, when there is more than one
    components: tuple[str, ...] = ()  #: the components of the training state it carries
    rank: int | None = None  #: the rank that wrote it, where parts differ by rank
    stored_in: str = ""  #: id of the bundle whose folder holds the bytes; empty: this one's
    share_depth: int = 0  #: how many bundles in a row the bytes were not written again


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What became of one component: one row of the contract."""

    state: str  #: ``saved``, ``rebuilt``, ``irrelevant`` or ``open``
    parts: tuple[str, ...] = ()  #: saved: the part paths that carry it
    how: str = ""  #: rebuilt: from what and by what
    test: str = ""  #: rebuilt: the test that shows it
    because: str = ""  #: irrelevant or open: the reason


class Data(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Where the run stands in its data."""

    version: str = ""  #: of the data set, as the run knows it
    position: Any = None  #: typed values, see canonical JSON
    rule: str = ""  #: how the data goes on when it changed (streams)


class World(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The ranks that made the bundle."""

    size: int = 1
    layout: Any = None  #: mesh and sharding, typed values


class Timings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Seconds since 1970 at the marks of a save."""

    started: float | None = None  #: the save was asked for
    state_ready: float | None = None  #: the training could go on
    parts_durable: float | None = None
    committing: float | None = None  #: right before the commit


class Parent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The bundle that this one continues, or its run was started from."""

    id: str
    number: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Everything a reader must know to restore a bundle, and to say why it may."""

    schema: str = MANIFEST_SCHEMA
    id: str
    attempt: str
    step: int  #: completed optimizer updates
    parts: tuple[Part, ...]
    contract: dict[str, Row]  #: by component
    parent: Parent | None = None
    created: str  #: UTC, ISO 8601
    origin: str = "state"  #: ``state`` (captured by samestep) or ``sealed`` (a framework's folder)
    framework: str = ""
    name: str = ""  #: the folder's name when sealed, so that restore can put it back
    progress: Any = None  #: counters beside the step, typed values
    data: Data = Data()
    code: dict[str, str] = {}
    config_digest: str = ""
    environment: dict[str, str] = {}
    world: World = World()
    timings: Timings = Timings()
    journal: tuple[str, ...] = ()  #: keys of the journal segments carried with this commit

    @property
    def size(self) -> int:
        """Bytes of all parts together."""
        return sum(part.size for part in self.parts)

    @property
    def open_rows(self) -> tuple[str, ...]:
        """The components of which nobody has said what becomes of them."""
        rows = self.contract
        return tuple(name for name in COMPONENTS if name not in rows or rows[name].state == "open")


def check_manifest(manifest: Manifest) -> None:
    """Check everything that the types do not say.

    Raises:
        FormatError: the manifest is not one that a samestep writes; the message names the field.
    """
    require(manifest.schema == MANIFEST_SCHEMA, "schema", f"is not {MANIFEST_SCHEMA}")
    check_id(manifest.id, "bundle")
    check_id(manifest.attempt, "attempt")
    check_time(manifest.created)
    require(0 <= manifest.step <= _STEP_LIMIT, "step", "is negative or absurdly large")
    require(manifest.origin in ORIGINS, "origin", f"is none of {', '.join(ORIGINS)}")
    if manifest.parent is not None:
        check_id(manifest.parent.id, "bundle")
        require(manifest.parent.id != manifest.id, "parent", "is the bundle itself")
    if manifest.name:
        require("/" not in check_part_path(manifest.name), "name", "is more than one name")
    require(1 <= manifest.world.size <= _WORLD_LIMIT, "world.size", "is not a number of ranks")
    check_digest_name(manifest.config_digest, "config_digest")
    _check_parts(manifest)
    _check_rows(manifest)
    _check_timings(manifest.timings)
    _check_journal(manifest.journal)
    for field, text in _texts(manifest):
        check_text(text, field)


def check_text(text: str, field: str) -> None:
    """Refuse a text that could steer a terminal, or is longer than anybody reads."""
    require(len(text) <= _TEXT_LIMIT, field, f"is longer than {_TEXT_LIMIT:,} characters")
    require(_CONTROL.search(text) is None, field, "has control characters in it")


def check_digest_name(text: str, field: str) -> None:
    """Refuse a digest that does not say its algorithm; an empty one is none."""
    named = not text or _NAMED_DIGEST.fullmatch(text) is not None
    require(named, field, "is not a digest like sha256:0123456789abcdef…")


def require(holds: bool, field: str, wrong: str) -> None:
    """Refuse a record when something about ``field`` does not hold."""
    if not holds:
        raise FormatError(f"{field} {wrong}")


def _check_parts(manifest: Manifest) -> None:
    count = len(manifest.parts)
    require(count <= PARTS_LIMIT, "parts", f"are {count:,}; at most {PARTS_LIMIT:,} make a bundle")
    check_part_paths(part.path for part in manifest.parts)
    for part in manifest.parts:
        field = f"part {part.path!a}"
        _check_digest(part, field)
        _check_components(part.components, field)
        require(
            part.rank is None or 0 <= part.rank < manifest.world.size, field, "is of a rank not in the world"
        )
        require(0 <= part.share_depth <= _DEPTH_LIMIT, field, "has an absurd share_depth")
        if part.stored_in:
            check_id(part.stored_in, "bundle")
            require(part.stored_in != manifest.id, field, "is stored_in its own bundle, which is left unsaid")
            require(part.share_depth > 0, field, "is stored in another bundle and has no share_depth")


def _check_digest(part: Part, field: str) -> None:
    require(0 <= part.size <= _SIZE_LIMIT, field, f"has the absurd size {part.size}")
    require(part.algorithm in ALGORITHMS, field, f"has a digest of an unknown algorithm: {part.algorithm!a}")
    require(_HEX.fullmatch(part.digest) is not None, field, "has a digest that is not 64 hex digits")
    expected = chunk_count(part.size) if part.size > CHUNK_BYTES else 0
    found = len(part.chunks)
    require(found == expected, field, f"has {found} chunk digests; its size makes {expected}")
    require(all(map(_HEX.fullmatch, part.chunks)), field, "has a chunk digest that is not 64 hex digits")
    algorithm, digest = combine(part.chunks or (part.digest,))
    require(part.algorithm == algorithm, field, f"is of a size that is digested as {algorithm}")
    require(part.digest == digest, field, "has a digest that does not follow from those of its chunks")


def _check_components(components: tuple[str, ...], field: str) -> None:
    unknown = next((name for name in components if name not in COMPONENTS), None)
    require(unknown is None, field, f"carries the unknown component {unknown!a}")
    require(len(set(components)) == len(components), field, "names a component twice")


def _check_rows(manifest: Manifest) -> None:
    paths = {part.path for part in manifest.parts}
    for component, row in manifest.contract.items():
        field = f"contract.{component}"
        require(component in COMPONENTS, "contract", f"has a row for the unknown component {component!a}")
        require(row.state in STATES, field, f"has the unknown state {row.state!a}")
        missing = next((path for path in row.parts if path not in paths), None)
        require(missing is None, field, f"is saved in {missing!a}, which is no part")
        require(len(set(row.parts)) == len(row.parts), field, "names a part twice")
        require(_says_enough(component, row), field, _ENOUGH[row.state])


_ENOUGH = {
    "saved": "is saved and names no part that carries it",
    "rebuilt": "is rebuilt and does not say how and by which test that is shown, or names parts",
    "irrelevant": "is irrelevant and does not say why, or names parts",
    "open": "is open and names parts",
}


def _says_enough(component: str, row: Row) -> bool:
    if row.state == "saved":
        return bool(row.parts) or component in IN_MANIFEST
    if row.parts:
        return False
    return bool((row.how and row.test) if row.state == "rebuilt" else (row.because or row.state == "open"))


def _check_timings(timings: Timings) -> None:
    for field in timings.__struct_fields__:
        seconds = getattr(timings, field)
        require(
            seconds is None or (math.isfinite(seconds) and seconds >= 0), f"timings.{field}", "is not a time"
        )


def _check_journal(keys: tuple[str, ...]) -> None:
    for key in keys:
        match = _SEGMENT.fullmatch(key)
        if match is None:
            raise FormatError(f"journal holds {key!a}, which is not the key of a segment")
        check_id(match[1], "attempt")


def _texts(manifest: Manifest) -> Iterator[tuple[str, str]]:
    yield from (("framework", manifest.framework), ("data.version", manifest.data.version))
    yield "data.rule", manifest.data.rule
    for field in ("code", "environment"):
        for name, text in getattr(manifest, field).items():
            yield field, name
            yield f"{field}.{name}", text
    for component, row in manifest.contract.items():
        for text in (row.how, row.test, row.because):
            yield f"contract.{component}", text
