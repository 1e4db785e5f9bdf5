"""Bundles that go elsewhere: to another root, to a new run, or as plain weights to a folder."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import msgspec

from samestep.bundle.bundles import Bundle
from samestep.bundle.continuing import continue_run
from samestep.bundle.errors import StoreError, StoreMissing
from samestep.bundle.manifest import COMPONENTS
from samestep.bundle.privacy import without_private
from samestep.bundle.storage.base import Absent
from samestep.bundle.store import Store
from samestep.bundle.verifying import in_parallel
from samestep.checkpoints.naming import is_state
from samestep.contract import Component, Intent
from samestep.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from samestep.bundle.manifest import Manifest, Part
    from samestep.bundle.saving import Saving
    from samestep.bundle.storage.base import Storage

_WRITERS = 4
_TRAINING_ONLY = re.compile(r"^(trainer_state|zero_to_fp32|latest|global_step.*)(\.\w+)?$")
_SHARDS = re.compile(r"\.distcp$|(^|/)\.metadata$|_model_states\.pt$")
_PIECES = re.compile(r"(?P<stem>.+?)(?P<own>\.rank-\d{5})?(-\d{5}-of-\d{5})?\.safetensors")
_STATE = "state.json"
CONFIGURATIONS = frozenset({"config.json", "generation_config.json"})
"""Files that a captured bundle has beside the weights, for transformers."""
WEIGHTS_FILE = "model.safetensors"
DESCRIBED = ".json"
"""How the names of parts end that say something about weights, and hold none."""


def copy(
    source: Store,
    bundle: Bundle,
    target: Storage,
    *,
    report: Callable[[int], None] = lambda _: None,
    begin_again: str = "",
) -> Bundle:
    """Copy a bundle to another root, every byte verified on the way, and return what it is there.

    A place that holds no run becomes the root of a new one, whose lineage says where it comes from; in a run that
    is there already, a new attempt takes over with the copy.

    Args:
        source: the store that holds it.
        bundle: what to copy.
        target: the other place.
        report: told how many more bytes are stored.
        begin_again: why the target's run goes on with the copy although none of its own bundles can be used.

    Raises:
        AllDamaged: the target holds bundles, none of them can be used, and ``begin_again`` is not said.
        DamageError: stored bytes are not what the manifest says; nothing was committed.
        RequestError: the target holds a later step.
        StoreError: a place failed.
    """
    if target.url == source.storage.url:
        raise UsageError(f"{target.url} is the root that {bundle.id} comes from", hint="name another one")
    reason = f"copied {bundle.id} of {source.run.id}"
    store = _opened_or_made(target, lineage=lineage(source, bundle, Intent.RESUME, reason))
    _, attempt = continue_run(store, reason, step=bundle.step, begin_again=begin_again)
    manifest = bundle.manifest
    with attempt.begin(step=bundle.step, size_bytes=manifest.size) as saving:
        _store_all(saving, source, bundle, report)
        return saving.commit(
            contract=manifest.contract,
            progress=manifest.progress,
            data=manifest.data,
            code=manifest.code,
            config_digest=manifest.config_digest,
            environment=manifest.environment,
            world=manifest.world,
            origin=manifest.origin,
            framework=manifest.framework,
            name=manifest.name,
            allow_open_rows=True,  # the copy says what the original says
        )


def begin_new_run(source: Store, bundle: Bundle, target: Storage, reason: str) -> Store:
    """Make the root of a new run that starts from the weights of a bundle, with its lineage and the reason.

    Raises:
        UsageError: no reason is given.
        StoreError: the place holds a run already, or failed.
    """
    if not reason.strip():
        raise UsageError("a new run needs a reason", hint="say it with --reason: it stays with the run")
    return Store.create(target, lineage=lineage(source, bundle, Intent.NEW_RUN, reason))


def lineage(source: Store, bundle: Bundle, intent: Intent, reason: str) -> dict[str, Any]:
    """Return where a run comes from, as its identity keeps it."""
    return {
        "intent": str(intent),
        "run": source.run.id,
        "bundle": bundle.id,
        "number": bundle.number,
        "step": bundle.step,
        **without_private({"root": source.storage.url}),
        "reason": reason,
    }


def export(store: Store, bundle: Bundle, into: Path) -> Path:
    """Write the weights, and what is needed to open them, as a plain folder, verified, whole or not at all.

    Files keep their names, so that transformers and safetensors open them as they are. What only a training needs
    stays behind.

    Args:
        store: of the run.
        bundle: what to export.
        into: a folder that does not exist, or is empty.

    Raises:
        UsageError: the weights cannot be told apart, or lie in shards that only their framework can join.
        DamageError: stored bytes are not what the manifest says.
        StoreError: ``into`` is in the way, or the place failed.
    """
    manifest = bundle.manifest
    parts = exported_parts(manifest)
    record = msgspec.structs.replace(bundle.record, bundle=msgspec.structs.replace(manifest, parts=parts))
    return store.restore(Bundle(record), to=into)


def exported_parts(manifest: Manifest) -> tuple[Part, ...]:
    """Return the parts that opening the weights takes.

    Raises:
        UsageError: there are none, or they lie in shards that only their framework can join.
    """
    weights = [part for part in manifest.parts if _has_weights(part, captured=is_captured(manifest))]
    if not weights:
        raise UsageError(f"{manifest.id} says of no part that it holds weights")
    if in_pieces(manifest):
        raise UsageError(
            f"the weights of {manifest.id} lie in pieces of {manifest.world.size} ranks",
            hint="samestep bundle export joins them",
        )
    if is_captured(manifest):
        return tuple(weights)
    shards = sharded_weights(manifest)
    if shards:
        raise UsageError(
            f"the weights of {manifest.id} lie in shards of {manifest.framework or 'its framework'}: {shards[0]}, ...",
            hint="restore it (--intent resume) and let the framework join them, for instance with "
            "python -m torch.distributed.checkpoint.format_utils dcp_to_torch FOLDER FILE",
        )
    return tuple(part for part in manifest.parts if part in weights or _describes(part))


def is_captured(manifest: Manifest) -> bool:
    """Say whether the bundle holds a state that ``samestep.Run`` captured, and no checkpoint of a framework."""
    return manifest.origin == "state" and any(part.path == _STATE for part in manifest.parts)


def in_pieces(manifest: Manifest) -> bool:
    """Say whether tensors of captured weights were cut up among ranks, so that no other program opens them."""
    if not is_captured(manifest):
        return False
    paths = {part.path for part in manifest.parts if _has_weights(part, captured=True)}
    pieces = [piece for path in paths if (piece := _PIECES.fullmatch(path))]
    return any(
        piece["own"] or (piece[3] and f"{piece['stem']}.safetensors.index.json" not in paths)
        for piece in pieces
    )


def beside_weights(manifest: Manifest) -> tuple[str, ...]:
    """Return what else of the training state comes with the weights, because it lies in the same files."""
    if is_captured(manifest):
        return ()
    parts = manifest.parts if sharded_weights(manifest) else exported_parts(manifest)
    found = {component for part in parts for component in part.components}
    return tuple(name for name in COMPONENTS if name in found - {Component.WEIGHTS, Component.CONFIG})


def sharded_weights(manifest: Manifest) -> list[str]:
    """Return the paths of weights in shards that only their framework can join."""
    weights = (part.path for part in manifest.parts if Component.WEIGHTS in part.components)
    return [path for path in weights if _SHARDS.search(path)]


def _has_weights(part: Part, *, captured: bool) -> bool:
    """Tell whether a part holds weights; in a captured bundle also whether it lets other programs open them."""
    if Component.WEIGHTS not in part.components:
        return False
    return not captured or (part.path.endswith((".safetensors", DESCRIBED)) and part.path != _STATE)


def _describes(part: Part) -> bool:
    """Tell whether a part is about the model and not about the training: its configuration, the tokenizer."""
    path = PurePosixPath(part.path)
    return not is_state(path.name) and not _TRAINING_ONLY.match(path.name)


def _opened_or_made(target: Storage, lineage: dict[str, Any]) -> Store:
    try:
        return Store.open(target, writing=True)
    except StoreMissing:
        return Store.create(target, lineage=lineage)


def _store_all(saving: Saving, source: Store, bundle: Bundle, report: Callable[[int], None]) -> None:
    def store(part: Part) -> Part:
        content = StoredContent(source.storage, bundle.key_of(part), part.size)
        return saving.add(
            part.path, content, components=part.components, expected_digest=part.digest, rank=part.rank
        )

    for part in in_parallel(store, bundle.manifest.parts, _WRITERS):
        report(part.size)


class StoredContent:
    """What a place holds under a key, as content for another place."""

    def __init__(self, storage: Storage, key: str, size: int) -> None:
        self._storage, self._key = storage, key
        self.size = size

    def read_into(self, offset: int, target: memoryview) -> None:
        """Fill ``target`` with the bytes from ``offset`` on.

        Raises:
            OSError: they cannot be read.
        """
        try:
            self._storage.read_into(self._key, offset, target)
        except (Absent, StoreError) as error:
            raise OSError(f"{self._key} of {self._storage.url}: {error}") from error
