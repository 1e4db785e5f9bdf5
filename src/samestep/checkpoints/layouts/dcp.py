"""A torch.distributed.checkpoint folder (``filesystem.py`` and ``metadata.py`` of torch 2.13)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from samestep.checkpoints.containers import read_part
from samestep.checkpoints.model import Presence, Problem
from samestep.checkpoints.state import component_named
from samestep.checkpoints.values import Built
from samestep.contract import Component

if TYPE_CHECKING:
    from .draft import Draft

_MAX_BYTE_ITEMS = 200
_CLOCK_SLACK_SECONDS = 2.0
_EXPECTED = {
    Component.WEIGHTS: "",
    Component.OPTIMIZER: "",
    Component.PROGRESS: "",
    Component.SCHEDULE: "right only if the learning rate is constant or computed from the step",
    Component.RNG: "dropout, shuffling and augmentation differ after a restart",
    Component.DATA_POSITION: "right only if the script computes it from the step",
}


class _Part(NamedTuple):
    """Where one entry lies: a byte range of a shard."""

    name: str
    shard: str
    offset: int
    length: int


def examine(draft: Draft) -> None:
    """Report what one or more DCP folders inside the unit hold."""
    for metadata in sorted(name for name in draft.names if name.endswith(".metadata")):
        _examine_one(draft, metadata)
    if not any(name.endswith(".metadata") for name in draft.names):
        draft.missing(".metadata", "it is written last, so the save did not end")
    for component, note in _EXPECTED.items():
        if component not in draft.components:
            draft.absent(component, note)
    if draft.unit.step is not None and draft.components[Component.PROGRESS].presence is Presence.ABSENT:
        draft.present(Component.PROGRESS, "the folder's name")
    draft.report(Component.CONFIG, Presence.NOT_STORABLE, note="unless the script stores it as an entry")


def _examine_one(draft: Draft, metadata: str) -> None:
    prefix = metadata.removesuffix(".metadata")
    described = draft.contents[metadata].value
    state = described.state if isinstance(described, Built) and isinstance(described.state, dict) else {}
    entries = state.get("state_dict_metadata")
    parts = _parts(state.get("storage_data"))
    if not isinstance(entries, dict):
        draft.problems.append(
            Problem(draft.names[metadata], "does not describe a torch.distributed.checkpoint")
        )
        return
    _check_shards(draft, prefix, metadata, parts)
    for name in entries:
        _report_entry(draft, prefix, str(name))
    for part in [part for part in parts if _is_bytes(entries.get(part.name))][:_MAX_BYTE_ITEMS]:
        shard = draft.names.get(f"{prefix}{part.shard}")
        if shard is not None:
            draft.note_dangers(read_part(draft.root / shard, shard, part.offset, part.length))


def _is_bytes(entry: object) -> bool:
    return isinstance(entry, Built) and entry.type_name.endswith("BytesStorageMetadata")


def _parts(storage: Any) -> list[_Part]:
    found = []
    for index, info in storage.items() if isinstance(storage, dict) else ():
        key, place = _fields(index), _fields(info)
        shard, offset, length = (place.get(field) for field in ("relative_path", "offset", "length"))
        if isinstance(shard, str) and isinstance(offset, int) and isinstance(length, int):
            found.append(_Part(str(key.get("fqn")), shard, offset, length))
    return found


def _fields(value: object) -> dict[Any, Any]:
    return value.state if isinstance(value, Built) and isinstance(value.state, dict) else {}


def _check_shards(draft: Draft, prefix: str, metadata: str, parts: list[_Part]) -> None:
    needed: dict[str, int] = {}
    for part in parts:
        needed[part.shard] = max(needed.get(part.shard, 0), part.offset + part.length)
    written = (draft.root / draft.names[metadata]).stat().st_mtime
    for shard, length in sorted(needed.items()):
        path = draft.names.get(f"{prefix}{shard}")
        if path is None:
            draft.missing(f"{prefix}{shard}", f"{metadata} names it")
            continue
        found = (draft.root / path).stat()
        if found.st_size < length:
            draft.problems.append(
                Problem(path, f"has {found.st_size} of the {length} bytes that {metadata} names")
            )
        elif found.st_mtime > written + _CLOCK_SLACK_SECONDS:
            why = "a later save into the same folder did not end, or it was copied"
            draft.notes.append(f"{path} is newer than {metadata}: {why}")
    stale = [
        name for name in draft.names if name.endswith(".distcp") and name.removeprefix(prefix) not in needed
    ]
    if prefix == "" and stale:
        draft.notes.append(f"{', '.join(stale[:3])} belong to another save: {metadata} does not name them")


def _report_entry(draft: Draft, prefix: str, name: str) -> None:
    words = [word for word in (*prefix.split("/"), *name.split(".")) if word]
    component = next((found for word in words if (found := component_named(word))), Component.WEIGHTS)
    if component not in draft.components:
        draft.present(component, f"{prefix}{name}")
    if component is Component.WEIGHTS:
        draft.weights_files.add(draft.names[f"{prefix}.metadata"])
