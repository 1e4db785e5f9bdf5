"""From what an inspection found in a checkpoint to the contract of the bundle that it becomes."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from samestep.bundle.manifest import COMPONENTS, IN_MANIFEST, Row
from samestep.checkpoints import FRAMEWORKS, UNKNOWN, Presence
from samestep.checkpoints.model import PRESENCE_PHRASES
from samestep.checkpoints.naming import is_state, stem_of
from samestep.checkpoints.state import component_named
from samestep.contract import Component
from samestep.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from samestep.checkpoints import ComponentReport, Inspection

TEST_OF_A_RESTART = "samestep drill --only cut"
"""The test that shows what a restart rebuilds."""

_RANK = re.compile(
    r"^(?:rng_state|random_states)_(\d+)\.|zero_pp_rank_(\d+)_|^__(\d+)_\d+\.distcp$|(?<!mp)[-_.]rank[-_]?(\d+)"
)
STATED = "stated when it was sealed"
"""What stands in place of a test where the user has said how a component is rebuilt."""

_ONLY_WHERE_USED = frozenset(
    {Component.SCHEDULE, Component.SCALER, Component.EMA, Component.CALLBACKS, Component.ACCUMULATION}
)
"""Components that many runs do not have at all."""


def contract_of(
    inspection: Inspection,
    parts: Sequence[str],
    *,
    says_step: bool = True,
    irrelevant: Mapping[str, str],
    rebuilt: Mapping[str, str],
) -> dict[str, Row]:
    """Return a row for every component.

    Args:
        inspection: of the checkpoint.
        parts: the names of its files, relative to itself.
        says_step: whether a restart can tell the step from the files or their names.
        irrelevant: components that the user says do not matter, each with the reason.
        rebuilt: components that the user says a restart makes anew, each with the way.

    Raises:
        UsageError: the user speaks of a component that does not exist, or says both of one.
    """
    _check_names([*irrelevant, *rebuilt])
    twice = sorted(irrelevant.keys() & rebuilt.keys())
    if twice:
        raise UsageError(f"{twice[0]} cannot be both irrelevant and rebuilt")
    reports = {str(report.component): report for report in inspection.components}
    stated = {name: Row(state="irrelevant", because=why) for name, why in irrelevant.items()}
    stated |= {name: Row(state="rebuilt", how=how, test=STATED) for name, how in rebuilt.items()}
    found = {name: _row(name, reports.get(name), inspection, parts) for name in COMPONENTS}
    if says_step and found["progress"].state != "saved":
        found["progress"] = Row(state="saved")
    return found | stated


def components_by_part(contract: Mapping[str, Row]) -> dict[str, tuple[str, ...]]:
    """Return for each part the components that it carries."""
    found: dict[str, list[str]] = {}
    for component in COMPONENTS:
        for part in contract[component].parts:
            found.setdefault(part, []).append(component)
    return {part: tuple(components) for part, components in found.items()}


def ranks_of(parts: Sequence[str]) -> int:
    """Return of how many ranks the files tell; 1 if they do not tell."""
    ranks = [rank for part in parts if (rank := rank_of(part)) is not None]
    return max(ranks, default=0) + 1


def rank_of(part: str) -> int | None:
    """Return the rank that wrote a part, where its name says so."""
    found = _RANK.search(PurePosixPath(part).name)
    return next((int(number) for number in found.groups() if number), 0) if found else None


def _row(name: str, report: ComponentReport | None, inspection: Inspection, parts: Sequence[str]) -> Row:
    component = Component(name)
    if component in (Component.ENVIRONMENT, Component.WORLD):
        return Row(state="saved")
    if report is not None and report.presence is Presence.PRESENT:
        return _saved(report, inspection, parts)
    if report is not None and report.presence is Presence.REBUILT:
        return Row(
            state="rebuilt", how=report.note or PRESENCE_PHRASES[report.presence], test=TEST_OF_A_RESTART
        )
    if component is Component.CONFIG:
        return Row(state="rebuilt", how="from the training command's own arguments", test=TEST_OF_A_RESTART)
    return _unsettled(component, report, inspection.unit.framework)


def _unsettled(component: Component, report: ComponentReport | None, framework: str) -> Row:
    """Return the row of a component that is not there."""
    if report is not None:
        note = f": {report.note}" if report.note else ""
        return Row(state="open", because=f"{PRESENCE_PHRASES[report.presence]}{note}")
    if component not in _ONLY_WHERE_USED:
        return Row(state="open", because="nothing in the files shows it")
    of_whom = "" if framework == UNKNOWN else f" as {FRAMEWORKS[framework].title} would leave it"
    return Row(state="irrelevant", because=f"the run has none: nothing of it is in the files{of_whom}")


def _saved(report: ComponentReport, inspection: Inspection, parts: Sequence[str]) -> Row:
    carriers = _carriers(report, inspection, parts)
    if not carriers and str(report.component) not in IN_MANIFEST:
        carriers = [part for part in parts if is_state(part)] or list(parts)
    return Row(state="saved", parts=tuple(carriers))


def _carriers(report: ComponentReport, inspection: Inspection, parts: Sequence[str]) -> list[str]:
    """Return the parts that hold a component: the one that the report names with its like, or by their names."""
    states = [part for part in parts if is_state(part) or part.endswith(".metadata")]
    shards = [part for part in states if part.endswith((".distcp", ".metadata"))]
    if shards and not any(part in report.where for part in parts):
        return [] if report.where == "the folder's name" else shards
    named = [part for part in parts if _names(report.where, part)]
    if named:
        shapes = {_shape(part) for part in named}
        return [part for part in parts if _shape(part) in shapes]
    if report.where in ("the folder's name", "the file's name"):
        return []
    if len(states) == 1 or (inspection.unit.path in inspection.unit.files and len(parts) == 1):
        return states or list(parts)
    return [part for part in states if component_named(stem_of(PurePosixPath(part).name)) is report.component]


def _names(where: str, part: str) -> bool:
    return re.search(rf"(?:^|[\s,]){re.escape(part)}(?:$|[\s,:])", where) is not None


def _shape(part: str) -> str:
    """Return a name without its numbers: equal for the shards, and for the ranks, of one thing."""
    return re.sub(r"\d+", "#", part)


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        if name not in COMPONENTS:
            raise UsageError(f"there is no component {name!r}", hint=f"components: {', '.join(COMPONENTS)}")
