"""The records of the chain: one number each, created only if absent, never changed."""

from __future__ import annotations

import functools
import re
from typing import Any

import msgspec

from samestep.bundle import canonical
from samestep.bundle.checksums import CHECKSUM, require_sealed, sealed
from samestep.bundle.errors import FormatError
from samestep.bundle.identity import check_id, check_time
from samestep.bundle.manifest import MANIFEST_SCHEMA, Manifest, check_manifest, check_text, require
from samestep.bundle.privacy import check_privacy

CHAIN_SCHEMA = "samestep.chain/1"
NUMBER_LIMIT = 10**10 - 1  # ten digits name a record

_NONCE = re.compile(r"[0-9a-f]{16,64}")


class RecordBase(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag_field="kind",
):
    """What every record of the chain says."""

    schema: str = CHAIN_SCHEMA
    number: int
    run: str
    nonce: str  #: random, so that a writer knows its own record again
    written: str  #: UTC, ISO 8601
    attempt_ordinal: int  #: of the newest attempt registered, this record included


class BundleRef(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A bundle named by another record."""

    id: str
    number: int
    step: int


class AttemptRecord(RecordBase, frozen=True, kw_only=True, omit_defaults=True, tag="attempt"):
    """An attempt takes over; from here on every older one is fenced."""

    attempt: str
    saw: int  #: number of the head it saw when it registered
    resumed: BundleRef | None = None
    reason: str = ""  #: why it starts there
    host: str = ""  #: digest of the machine's name, to tell two machines apart


class CommitRecord(RecordBase, frozen=True, kw_only=True, omit_defaults=True, tag="commit"):
    """The act that makes a bundle exist."""

    bundle: Manifest


class RetireRecord(RecordBase, frozen=True, kw_only=True, omit_defaults=True, tag="retire"):
    """Bundles that are given up; their parts may be removed from here on."""

    bundles: tuple[BundleRef, ...]
    survivors: tuple[BundleRef, ...]
    policy: str
    verified: str = ""  #: id of the survivor that passed a full verification before
    lineage: tuple[str, ...] = ()  #: ids of the survivors that continue each other up to the newest commit


class RemoveRecord(RecordBase, frozen=True, kw_only=True, omit_defaults=True, tag="remove"):
    """From here on the parts in these folders are removed, and no retirement of theirs can be taken back."""

    bundles: tuple[str, ...]  #: ids


class ReinstateRecord(RecordBase, frozen=True, kw_only=True, omit_defaults=True, tag="reinstate"):
    """A retirement taken back before anything was removed, because somebody held the bundle."""

    bundles: tuple[BundleRef, ...]
    because: str


Record = AttemptRecord | CommitRecord | RetireRecord | RemoveRecord | ReinstateRecord


def record_key(number: int) -> str:
    """Return the key of the record with that number."""
    return f"chain/{number:010}.json"


def encode_record(record: Record) -> bytes:
    """Return the bytes of a record, as they are stored and digested.

    Raises:
        FormatError: it is one that ``decode_record`` would refuse, or would show something private.
    """
    what = f"record {record.number}"
    data = _written(record, what)
    decode_record(data, number=record.number, what=what)
    if isinstance(record, CommitRecord):
        check_privacy(record.bundle)
    return data


def decode_record(data: bytes, *, number: int, what: str) -> Record:
    """Return the record that ``data`` holds; whatever a writer would not write exactly so is refused.

    Args:
        data: the stored bytes, perhaps made by a hostile hand.
        number: the number it is stored under.
        what: how a user would name it, for the message.

    Raises:
        FormatError: it is malformed, of an unknown format, or under a wrong number.
    """
    tree = canonical.load(data, what=what)
    _check_schema(tree, what)
    tree.pop(CHECKSUM, None)
    try:
        record: Record = msgspec.convert(canonical.typed(tree, what), Record)
        _check_record(record, number)
    except msgspec.ValidationError as error:
        raise FormatError(f"{what} is malformed: {error}") from None
    except FormatError as error:
        raise FormatError(f"{what}: {error.message}", hint=error.hint) from None
    require_sealed(data, what)
    canonical.check_spelling(data, _written(record, what), what)
    return record


def _check_schema(tree: Any, what: str) -> None:
    """Refuse a format of another version before anything else in it is looked at."""
    if not isinstance(tree, dict):
        raise FormatError(f"{what} is not a JSON object")
    found = [(tree.get("schema"), CHAIN_SCHEMA)]
    bundle = tree.get("bundle")
    if isinstance(bundle, dict):
        found.append((bundle.get("schema"), MANIFEST_SCHEMA))
    for schema, known in found:
        if schema != known:
            raise FormatError(
                f"{what} is of format {ascii(schema)[:80]}; this version reads {known}",
                hint="Read it with the samestep that wrote it, or with a newer one.",
            )


def _check_record(record: Record, number: int) -> None:
    require(record.number == number, "number", f"is {record.number}, and it is stored as number {number}")
    require(1 <= number <= NUMBER_LIMIT, "number", "is not a number of the chain")
    require(0 <= record.attempt_ordinal <= number, "attempt_ordinal", "is negative or too large")
    require(_NONCE.fullmatch(record.nonce) is not None, "nonce", "is not 16 to 64 hex digits")
    check_id(record.run, "run")
    check_time(record.written)
    if isinstance(record, AttemptRecord):
        _check_attempt(record)
    elif isinstance(record, CommitRecord):
        check_manifest(record.bundle)
        parent = record.bundle.parent
        require(parent is None or 1 <= parent.number < number, "bundle.parent", "is not an earlier record")
    elif isinstance(record, RetireRecord):
        _check_retired(record)
    elif isinstance(record, RemoveRecord):
        _check_removed(record)
    else:
        _check_bundles(record.bundles, "bundles", number)
        check_text(record.because, "because")


def _check_attempt(record: AttemptRecord) -> None:
    check_id(record.attempt, "attempt")
    require(record.attempt_ordinal >= 1, "attempt_ordinal", "does not count the attempt itself")
    require(0 <= record.saw < record.number, "saw", "is not the number of an earlier record")
    if record.resumed is not None:
        _check_bundles((record.resumed,), "resumed", record.number)
    check_text(record.reason, "reason")
    check_text(record.host, "host")


def _check_retired(record: RetireRecord) -> None:
    retired = _check_bundles(record.bundles, "bundles", record.number)
    survivors = _check_bundles(record.survivors, "survivors", record.number) if record.survivors else set()
    require(not retired & survivors, "survivors", "are retired by the same record")
    require(set(record.lineage) <= survivors, "lineage", "names what is no survivor")
    require(not record.verified or record.verified in survivors, "verified", "is not the id of a survivor")
    check_text(record.policy, "policy")


def _check_removed(record: RemoveRecord) -> None:
    require(bool(record.bundles), "bundles", "names no bundle")
    require(len(set(record.bundles)) == len(record.bundles), "bundles", "names a bundle twice")
    for bundle in record.bundles:
        check_id(bundle, "bundle")


def _check_bundles(bundles: tuple[BundleRef, ...], field: str, number: int) -> set[str]:
    require(bool(bundles), field, "names no bundle")
    for bundle in bundles:
        check_id(bundle.id, "bundle")
        require(1 <= bundle.number < number, field, f"names {bundle.id}, which is not an earlier record")
        require(bundle.step >= 0, field, f"names {bundle.id} with a negative step")
    ids = {bundle.id for bundle in bundles}
    require(len(ids) == len(bundles), field, "names a bundle twice")
    return ids


def _written(record: Record, what: str) -> bytes:
    tree = canonical.spelled(_plain(record), what)
    data = sealed(canonical.dump(tree, what))
    if len(data) > canonical.BYTES_LIMIT:
        raise FormatError(
            f"{what} would have {len(data):,} bytes; at most {canonical.BYTES_LIMIT:,} are read",
            hint="Make fewer and larger parts.",
        )
    return data


def _plain(value: Any) -> Any:
    """Return a record as values; what it leaves at its default is left out, except for its format."""
    if isinstance(value, msgspec.Struct):
        return _plain_struct(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return value


def _plain_struct(struct: msgspec.Struct) -> dict[str, Any]:
    plain = {}
    for name, default, convert in _fields(type(struct)):
        value = getattr(struct, name)
        if name == "schema" or value != default or type(value) is not type(default):
            plain[name] = convert(value)
    config = struct.__struct_config__
    if config.tag_field:
        plain[config.tag_field] = config.tag
    return plain


@functools.cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, Any, Any], ...]:
    """Return the name, the default and the way to write every field; free values are written as they are."""
    return tuple(
        (
            field.name,
            field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default,
            _as_it_is if field.type is Any else _as_float if float in _kinds(field.type) else _plain,
        )
        for field in msgspec.structs.fields(kind)
    )


def _kinds(kind: Any) -> tuple[Any, ...]:
    return getattr(kind, "__args__", (kind,))


def _as_it_is(value: Any) -> Any:
    return value


def _as_float(value: float | None) -> float | None:
    return None if value is None else float(value)
