"""What the bundle store shows: tables for people, plain values for programs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import msgspec

from samestep.bundle import canonical
from samestep.bundle.bundles import Bundle
from samestep.bundle.chain import Unreadable, marks
from samestep.bundle.contracts import STATED
from samestep.bundle.manifest import COMPONENTS
from samestep.bundle.records import CommitRecord
from samestep.contract.redaction import redacted_text
from samestep.contract.sizes import readable_bytes

from .tables import Table
from .view import count_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from samestep.bundle.manifest import Row
    from samestep.bundle.retention import Pruning
    from samestep.bundle.store import Store
    from samestep.bundle.verifying import Verification


def records_of(store: Store, limit: int | None = None) -> tuple[list[Bundle], list[Unreadable]]:
    """Return the newest living bundles, and the records that may be bundles and cannot be read.

    Args:
        store: of the run.
        limit: at most so many of both together.
    """
    bundles: list[Bundle] = []
    unreadable: list[Unreadable] = []
    for mark in marks(store.chain, store.chain.head()):
        if limit is not None and len(bundles) + len(unreadable) >= limit:
            break
        record = mark.record or (None if mark.retired else store.chain.look(mark.number))
        if isinstance(record, CommitRecord) and not mark.retired:
            bundles.append(Bundle(record))
        elif isinstance(record, Unreadable):
            unreadable.append(record)
    return bundles, unreadable


def bundles_table(bundles: Iterable[Bundle], pins: Mapping[str, Sequence[str]]) -> Table:
    """Return one row for every bundle."""
    rows = [
        (
            bundle.id,
            str(bundle.step),
            _moment(bundle.manifest.created),
            readable_bytes(bundle.manifest.size),
            str(len(bundle.manifest.parts)),
            " ".join(filter(None, (bundle.manifest.framework, bundle.manifest.name)))
            or bundle.manifest.origin,
            _remarks(bundle, pins.get(bundle.id, ())),
        )
        for bundle in bundles
    ]
    return Table(("bundle", "step", "saved", "size", "parts", "from", ""), rows, frozenset({1, 3, 4}))


def parts_table(bundle: Bundle) -> Table:
    """Return one row for every part of a bundle."""
    rows = [
        (
            part.path,
            readable_bytes(part.size),
            ", ".join(part.components),
            _shared(part.share_depth, part.stored_in),
        )
        for part in bundle.manifest.parts
    ]
    return Table(("part", "size", "carries", ""), rows, frozenset({1}))


def contract_table(contract: Mapping[str, Row]) -> Table:
    """Return one row for every component, in the order of the vocabulary."""
    rows = [(name, contract[name].state, _detail(contract[name])) for name in COMPONENTS if name in contract]
    return Table(("component", "state", ""), rows)


def facts(store: Store, bundle: Bundle) -> list[tuple[str, str]]:
    """Return what a bundle says of itself, besides parts and contract."""
    manifest = bundle.manifest
    parent = (
        f"{manifest.parent.id}, record {manifest.parent.number}"
        if manifest.parent
        else "none: the first of the run"
    )
    rows = [
        ("run", store.run.id),
        ("record", str(bundle.number)),
        ("step", str(bundle.step)),
        ("saved", _moment(manifest.created)),
        ("attempt", manifest.attempt),
        ("parent", parent),
        ("size", f"{readable_bytes(manifest.size)} in {count_of(len(manifest.parts), 'part')}"),
        ("from", " ".join(filter(None, (manifest.origin, manifest.framework, manifest.name)))),
        ("ranks", str(manifest.world.size)),
        ("data", manifest.data.version),
        ("code", _joined(manifest.code)),
        ("config", manifest.config_digest),
        ("environment", _joined(manifest.environment)),
    ]
    return [(name, text) for name, text in rows if text]


def plain_bundle(bundle: Bundle, pins: Sequence[str] = ()) -> dict[str, Any]:
    """Return one bundle in a few values."""
    manifest = bundle.manifest
    return {
        "id": bundle.id,
        "number": bundle.number,
        "step": bundle.step,
        "created": manifest.created,
        "size_bytes": manifest.size,
        "parts": len(manifest.parts),
        "origin": manifest.origin,
        "framework": manifest.framework,
        "name": manifest.name,
        "open_rows": list(manifest.open_rows),
        "pins": list(pins),
    }


def plain_manifest(bundle: Bundle) -> Any:
    """Return the manifest with the typed encodings of the format."""
    return canonical.spelled(msgspec.to_builtins(bundle.manifest, builtin_types=(bytes,)), bundle.id)


def plain_verification(found: Verification) -> dict[str, Any]:
    """Return what was found about one bundle."""
    return {
        "bundle": found.bundle,
        "level": str(found.level),
        "holds": found.holds,
        "faults": [dataclasses.asdict(fault) for fault in found.faults],
    }


def plain_pruning(pruning: Pruning) -> dict[str, Any]:
    """Return what pruning did, or would do."""
    return {
        "kept": [{**msgspec.structs.asdict(kept.ref), "why": kept.why} for kept in pruning.kept],
        "retired": [msgspec.structs.asdict(ref) for ref in pruning.retired],
        "reinstated": [msgspec.structs.asdict(ref) for ref in pruning.reinstated],
        "removed": list(pruning.removed),
        "bytes_removed": pruning.bytes_removed,
    }


def render_verification(found: Verification, step: int) -> str:
    """Return what was found about one bundle as lines."""
    head = f"{found.bundle}  step {step}  "
    if found.holds:
        return f"{head}whole ({found.level})\n"
    return f"{head}{count_of(len(found.faults), 'fault')} ({found.level})\n" + "".join(
        f"  {fault.reason}: {fault.text}\n" for fault in found.faults
    )


def render_pruning(pruning: Pruning, *, dry_run: bool) -> str:
    """Return what pruning did, or would do, as lines."""
    would = "would be " if dry_run else ""
    lines = [f"{kept.ref.id}  step {kept.ref.step}  stays: {kept.why}" for kept in pruning.kept]
    lines += [f"{ref.id}  step {ref.step}  {would}given up" for ref in pruning.retired]
    lines += [f"{ref.id}  step {ref.step}  taken back: it is held" for ref in pruning.reinstated]
    lines.append(
        f"{count_of(len(pruning.removed), 'file')}, {readable_bytes(pruning.bytes_removed)}, {would}removed"
    )
    return "\n".join(lines) + "\n"


def _moment(created: str) -> str:
    return f"{created[:10]} {created[11:19]}"


def _remarks(bundle: Bundle, pins: Sequence[str]) -> str:
    rows = bundle.manifest.open_rows
    remarks = [f"open: {', '.join(rows)}"] if rows else []
    return "; ".join([*remarks, *(f"pinned ({name})" for name in pins)])


def _shared(depth: int, stored_in: str) -> str:
    if not depth:
        return ""
    return f"shared with {stored_in}" if stored_in else "shared with the one before"


def _detail(row: Row) -> str:
    if row.state == "saved":
        return ", ".join(row.parts) or "in the manifest"
    if row.state != "rebuilt":
        return row.because
    return f"{row.how} ({row.test if row.test == STATED else f'shown by {row.test}'})"


def _joined(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {redacted_text(text)}" for name, text in sorted(values.items()))
