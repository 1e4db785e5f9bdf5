"""A bundle of samestep: its manifest says what it holds and what becomes of everything else."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from samestep.checkpoints.bundles import commits_of, faults_of
from samestep.checkpoints.model import Presence, Problem
from samestep.contract import Component, Intent

if TYPE_CHECKING:
    from .draft import Draft

_PRESENCE = {"rebuilt": Presence.REBUILT, "open": Presence.UNKNOWN}


def examine(draft: Draft) -> None:
    """Report what one bundle holds, as its manifest says."""
    folder = PurePath(draft.unit.path)
    root = draft.root / folder.parent.parent
    commit = next((one for one in commits_of(root) if one.bundle == folder.name), None)
    if commit is None:
        draft.missing("its record in the chain", "without it the bundle does not exist")
        return
    prefix = "" if folder.parent.parent == PurePath() else f"{folder.parent.parent.as_posix()}/"
    draft.problems += [Problem(prefix + path, what) for path, what in faults_of(root, commit)]
    draft.weights_files |= {
        f"{folder.as_posix()}/{part['path']}"
        for part in commit.manifest.get("parts", ())
        if Component.WEIGHTS in part.get("components", ())
    }
    rows = commit.manifest.get("contract")
    for name, row in rows.items() if isinstance(rows, dict) else ():
        if isinstance(row, dict) and name in set(Component):
            _report(draft, Component(name), row)
    if any(isinstance(row, dict) and row.get("state") == "open" for row in (rows or {}).values()):
        draft.caveats[Intent.RESUME].append("it has open rows: samestep never resumes from it")
    draft.notes.append("samestep bundle verify compares every byte with the manifest")


def _report(draft: Draft, component: Component, row: dict[str, Any]) -> None:
    state = row.get("state")
    if state == "saved":
        parts = [str(part) for part in row.get("parts", ())]
        draft.report(component, Presence.PRESENT, ", ".join(parts[:3]) or "the manifest")
    elif state in _PRESENCE:
        note = " ".join(str(row[key]) for key in ("how", "because") if row.get(key))
        draft.report(component, _PRESENCE[state], note=note)
