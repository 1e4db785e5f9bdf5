"""Putting a bundle back where its framework looks for it, whole or not at all."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

from samestep.bundle.decisions import PASSED_OVER
from samestep.bundle.errors import BundleRetired, DamageError, RequestError, StoreError
from samestep.bundle.identity import new_nonce
from samestep.bundle.records import CommitRecord
from samestep.checkpoints import would_pick
from samestep.journal.durable import make_folder, sync

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from samestep.bundle.bundles import Bundle
    from samestep.bundle.decisions import Decision
    from samestep.bundle.store import Store

_DEEPSPEED = "deepspeed"


def put_back(store: Store, bundle: Bundle, into: Path) -> Path:
    """Restore a bundle below ``into`` under the name that its framework expects, and return where it is.

    A sealed folder gets its own name again (``checkpoint-240``). A single file goes beside what is there. Anything
    else becomes ``into`` itself, which must then be missing or empty.

    Raises:
        DamageError: stored bytes are not what the manifest says; nothing was put there.
        StoreError: something is in the way, or the place failed.
    """
    name, parts = bundle.manifest.name, bundle.manifest.parts
    if name:
        _make_folder(into)
        place = store.restore(bundle, to=into / name)
        if bundle.manifest.framework == _DEEPSPEED:
            _write_pointer(into / "latest", name)
        return place
    if len(parts) == 1 and "/" not in parts[0].path:
        return _put_beside(store, bundle, into)
    _make_folder(into.absolute().parent)
    return store.restore(bundle, to=into)


def put_back_selected(
    store: Store,
    into: Path,
    *,
    show: Callable[[Decision], None],
    place: Callable[[Store, Bundle, Path], Path] = put_back,
    damaged: Mapping[str, str] | None = None,
    **wishes: Any,
) -> tuple[Decision, Path]:
    """Select and put back; a bundle found damaged on the way is set aside and selection asked again.

    Args:
        store: of the run.
        into: see `put_back`.
        show: told every decision before any of its work starts.
        place: what puts a bundle there.
        damaged: bundles that are known to be damaged, by id, with what was found.
        wishes: see ``selection.select``.

    Raises:
        NothingToResume: the store holds no bundle yet.
        AllDamaged: none of them can be used.
        StoreError: something is in the way, or the place failed.
    """
    found = dict(damaged or {})
    while True:
        decision = store.select(damaged=found, **wishes)
        show(decision)
        bundle = store.chosen(decision)
        try:
            return decision, place(store, bundle, into)
        except DamageError as error:
            found[bundle.id] = error.message
        except BundleRetired:
            continue


def other_pick(placed: Path, into: Path) -> str:
    """Return what the framework would take below ``into`` instead of what was put there; empty if nothing."""
    unit = would_pick(into)
    if unit is None or (into / unit.path).resolve() == placed.resolve() or into.resolve() == placed.resolve():
        return ""
    return unit.path


def passed_over(store: Store, bundle: Bundle, decision: Decision) -> str:
    """Return why the run does not go on from a bundle that was named; empty if nothing is known against it.

    Args:
        store: of the run.
        bundle: that was named.
        decision: what selection says without the name.
    """
    for one in decision.set_aside:
        if one.bundle == bundle.id:
            return f"{one.reason}: {one.text}" if one.reason in PASSED_OVER else ""
    if decision.bundle is None:
        return ""
    child = store.chosen(decision).record
    while child.number > bundle.number:
        parent = child.bundle.parent
        if parent is None or parent.number < bundle.number:
            return f"abandoned: {child.bundle.id} continued from {parent.id if parent else 'the beginning'}"
        found = store.chain.look(parent.number)
        if not isinstance(found, CommitRecord):
            return ""
        child = found
    return ""


def _put_beside(store: Store, bundle: Bundle, into: Path) -> Path:
    """Give a single file its name in a folder that may hold others; nothing there is replaced."""
    name = bundle.manifest.parts[0].path
    target = into / name
    if target.is_symlink() or target.exists():
        raise RequestError(f"{target} is in the way", hint="move it away, or restore into another folder")
    beside = into / f".{name}.restored-{new_nonce()[:8]}"
    _make_folder(into)
    try:
        store.restore(bundle, to=beside)
        os.link(beside / name, target)
        sync(into)
    except OSError as error:
        raise StoreError(f"{target} could not be written: {error.strerror}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return target


def _write_pointer(path: Path, name: str) -> None:
    """Name the folder in the file by which DeepSpeed finds it, without which it begins anew."""
    fresh = path.with_name(f".{path.name}.{new_nonce()[:8]}")
    try:
        with fresh.open("w", encoding="utf-8") as file:
            file.write(name)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        sync(path.parent)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise StoreError(f"{path} could not be written: {error.strerror}") from error


def _make_folder(folder: Path) -> None:
    """Make a folder and what leads to it, so that none of the new names is lost in a power cut."""
    try:
        make_folder(folder)
    except OSError as error:
        raise StoreError(f"{folder} could not be made: {error.strerror}") from error
