"""Sealing: a finished checkpoint folder of any framework becomes a bundle, and a folder again where it is needed."""

from __future__ import annotations

import contextlib
import dataclasses
import platform
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from samestep.bundle.contracts import components_by_part, contract_of, rank_of, ranks_of
from samestep.bundle.digests import digest_file
from samestep.bundle.errors import CommitRefused, StoreError
from samestep.bundle.folders import Checkpoint, look_at
from samestep.bundle.manifest import World
from samestep.bundle.parts import FULL_COPY_AFTER, ROOM_MARGIN_BYTES
from samestep.bundle.storage.contents import FileContent
from samestep.bundle.verifying import in_parallel
from samestep.checkpoints import UNKNOWN
from samestep.errors import SamestepError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from samestep.bundle.attempts import Attempt
    from samestep.bundle.bundles import Bundle
    from samestep.bundle.carrying import Carrier
    from samestep.bundle.manifest import Data, Part, Row
    from samestep.bundle.saving import Saving

_RECORDED = ("torch", "transformers", "accelerate", "lightning", "deepspeed", "peft", "torchdata", "numpy")
"""Packages whose versions a restart had better find again."""

_WRITERS = 4


def _silent(_bytes: int) -> None:
    """Report nothing."""


@dataclasses.dataclass(frozen=True)
class Statements:
    """What the files cannot say, and the user does.

    Attributes:
        irrelevant: components that do not matter, each with the reason.
        rebuilt: components that a restart makes anew, each with the way.
        data: position and version of the data.
        code: what identifies the code, by name.
        config_digest: of the configuration, with its algorithm.
        environment: what the bundle expects around it; by default what is installed here.
        progress: counters and the like beside the step; values that canonical JSON can hold.
        share_from: parts that are smaller than so many bytes are stored in every bundle anew, so that damage to one
            harms no other.
        allow_open: seal although nobody has said what becomes of some components.
    """

    irrelevant: Mapping[str, str] = dataclasses.field(default_factory=dict)
    rebuilt: Mapping[str, str] = dataclasses.field(default_factory=dict)
    data: Data | None = None
    code: Mapping[str, str] = dataclasses.field(default_factory=dict)
    config_digest: str = ""
    environment: Mapping[str, str] | None = None
    progress: Any = None
    share_from: int = 0
    allow_open: bool = False


def seal(
    attempt: Attempt,
    checkpoint: Path | Checkpoint,
    statements: Statements | None = None,
    *,
    step: int | None = None,
    report: Callable[[int], None] = _silent,
    carrier: Carrier | None = None,
) -> Bundle:
    """Turn a finished checkpoint into a bundle of the run.

    Every file becomes a part under its own name; files that are the same as in the bundle before are not stored
    twice. Nothing is followed that leads out of the folder, and leftovers of unfinished writes are left out.

    Args:
        attempt: that seals.
        checkpoint: the folder or file, or what `look_at` found there.
        statements: what the files cannot say.
        step: completed optimizer steps, where the files do not say.
        report: told how many more bytes are stored.
        carrier: of the attempt's journal, in which the save is noted and which travels with it.

    Raises:
        CheckpointError, UsageError: there is no checkpoint, or several; see `look_at`.
        CommitRefused: it is not whole, changed meanwhile, or leaves the fate of a component open; no bundle was made.
        FencedError: a newer attempt has registered.
        StoreError: the place failed.
    """
    found = look_at(checkpoint, step) if isinstance(checkpoint, Path) else checkpoint
    statements = statements or Statements()
    contract = checked_contract(found, statements)
    with (
        _noted(carrier, found.step) as noted,
        attempt.begin(step=found.step, size_bytes=_room_needed(attempt, found)) as saving,
    ):
        _store_all(saving, found, contract, report, statements.share_from)
        found.require_unchanged()
        framework = found.inspection.unit.framework
        made = saving.commit(
            contract=contract,
            progress=statements.progress,
            data=statements.data,
            code=statements.code,
            config_digest=statements.config_digest,
            environment=here() if statements.environment is None else statements.environment,
            world=World(size=ranks_of(list(found.files))),
            origin="sealed",
            framework="" if framework == UNKNOWN else framework,
            name=found.name,
            journal=carrier.carry() if carrier else (),
            allow_open_rows=statements.allow_open,
        )
        noted.append(made)
    return made


@contextlib.contextmanager
def _noted(carrier: Carrier | None, step: int) -> Iterator[list[Bundle]]:
    """Note in the journal that a save was asked for, and what became of it."""
    made: list[Bundle] = []
    if carrier is None:
        yield made
        return
    carrier.note("save-asked", step=step)
    try:
        yield made
    except SamestepError as error:
        carrier.note("save-failed", step=step, reason=error.slug, text=error.message)
        raise
    for bundle in made:
        carrier.note_commit(bundle)


def checked_contract(checkpoint: Checkpoint, statements: Statements) -> dict[str, Row]:
    """Return the contract that a checkpoint would be sealed with.

    Raises:
        UsageError: the statements speak of a component that does not exist.
        CommitRefused: nobody has said what becomes of some component.
    """
    contract = contract_of(
        checkpoint.inspection,
        sorted(checkpoint.files),
        says_step=checkpoint.says_step,
        irrelevant=statements.irrelevant,
        rebuilt=statements.rebuilt,
    )
    if not statements.allow_open:
        _require_closed(checkpoint, contract)
    return contract


def here() -> dict[str, str]:
    """Return what is installed here, by name."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for package in _RECORDED:
        try:
            found[package] = metadata.version(package)
        except (metadata.PackageNotFoundError, OSError):
            continue
    return found


def _require_closed(found: Checkpoint, contract: Mapping[str, Row]) -> None:
    """Refuse a checkpoint of which nobody has said what becomes of every component."""
    lines = [f"  {name}: {row.because}" for name, row in contract.items() if row.state == "open"]
    if lines:
        listed = "\n".join(lines)
        raise CommitRefused(
            f"{found.root / found.inspection.unit.path} leaves open what becomes of {len(lines)} "
            f"component{'s' if len(lines) > 1 else ''}:\n{listed}",
            hint="say of each --rebuilt NAME=HOW or --irrelevant NAME=REASON; with --allow-open it is sealed as it "
            "is, for its weights only",
        )


def _room_needed(attempt: Attempt, found: Checkpoint) -> int:
    """Return how much room the parts take.

    Only where not all of them fit are they digested beforehand, to tell which need no room of their own.
    """
    size = sum(state.size for state in found.files.values())
    free = attempt.chain.storage.free_bytes()
    if attempt.newest is None or free is None or free >= size + ROOM_MARGIN_BYTES:
        return size
    kept = {part.path: part for part in attempt.newest.bundle.parts if part.share_depth < FULL_COPY_AFTER}
    return size - sum(part.size for name, part in kept.items() if _is_same(found, name, part))


def _is_same(found: Checkpoint, name: str, part: Part) -> bool:
    state = found.files.get(name)
    return state is not None and state.size == part.size and _digest(found.root / name) == part.digest


def _digest(path: Path) -> str:
    try:
        return digest_file(path).digest
    except OSError as error:
        raise StoreError(f"{path} cannot be sealed: {error.strerror}") from error


def _store_all(
    saving: Saving,
    found: Checkpoint,
    contract: Mapping[str, Row],
    report: Callable[[int], None],
    share_from: int,
) -> None:
    components = components_by_part(contract)

    def store(name: str) -> Part:
        content = _opened(found.root / name)
        carried = components.get(name, ())
        return saving.add(
            name, content, components=carried, rank=rank_of(name), share=content.size >= share_from
        )

    for part in in_parallel(store, sorted(found.files), _WRITERS):
        report(part.size)


def _opened(path: Path) -> FileContent:
    try:
        return FileContent(path)
    except OSError as error:
        raise StoreError(f"{path} cannot be sealed: {error.strerror}") from error
