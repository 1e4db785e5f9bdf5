"""One interruption of a save, and what came of it, in a sentence."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from samestep.contract import Component, Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from samestep.drill.result import CrashOperation, CrashPoint, CrashWindow, ScenarioResult

_EVENTS = {
    "kill": "killed",
    "machine-lost": "machine lost",
    "nfs": "NFS client lost",
    "compound": "killed once more",
}
"""What happened, by model; for all others the power went."""

_POWER = "power lost"

_DAMAGES = {
    "empty": "{file} empty",
    "zeros": "{file} all zeros",
    "old": "{file} with its old bytes",
    "half": "of {file} only the first half",
    "last-page-missing": "{file} without its last page",
    "all-lost": "without any unsynced data",
    "all-half": "with half of every unsynced file",
    "newer-lost": "without the data written after {file}",
}

_LOSSES = {
    "optimizer-reset": "a fresh optimizer",
    "optimizer-partly-reset": "part of the optimizer fresh",
    "schedule-restarted": "a fresh schedule",
    "schedule-shifted": "another learning rate",
    "scaler-reset": "a fresh loss scaler",
    "ema-lost": "fresh averaged weights",
    "buffers-lost": "fresh buffers",
    "weights-not-restored": "weights of no step",
    "mixed-generations": "files of several saves",
    "data-position-restarted": "the data from the start of its epoch",
    "data-repeated": "samples used twice",
    "data-skipped": "samples left out",
    "data-order-changed": "the samples in another order",
    "worker-rng-not-restored": "other augmentation",
    "rng-not-restored": "other random numbers",
    "callbacks-reset": "fresh callbacks",
    "progress-wrong": "a wrong step counter",
}
"""What a run goes on with, by finding, in the order in which it is told."""

_ADAM = "exp_avg_sq"
"""Only Adam and its kin keep a state of this name."""

_FILLING = frozenset({"write", "stored", "allocate", "truncate"})
_OPENING = frozenset({"create", "open"})
QUIET = frozenset({"close", "open", "map"})
"""Kinds of operations that change nothing on disk."""


@dataclass(frozen=True)
class Steps:
    """The operations of a save, each with the short name of the file it is about.

    Attributes:
        operations: in order.
        names: of the file, as it is called in the end; one per operation.
    """

    operations: Sequence[CrashOperation]
    names: list[str]

    @classmethod
    def of(cls, window: CrashWindow) -> Steps:
        """Name the files of a save as they are called at its end."""
        paths = [operation.file or operation.path for operation in window.operations]
        bases = Counter(PurePath(path).name for path in set(paths))
        names = [PurePath(path).name if bases[PurePath(path).name] == 1 else path for path in paths]
        return cls(window.operations, names)

    def position(self, after: int) -> int:
        """Return the place of the last operation that took effect; -1: none of this save did."""
        return sum(operation.index <= after for operation in self.operations) - 1


def told(scenario: ScenarioResult, window: CrashWindow | None = None, *, after_return: bool = False) -> str:
    """Say in one sentence when the save was interrupted and what the restart did.

    For example ``killed after optimizer.pt, before scheduler.pt: resumes at 6 with a fresh schedule, no error``.

    Args:
        scenario: one with a `CrashPoint`.
        window: the save; without it the operation is named as the recording names it.
        after_return: tell it as a power loss after the save, also where a plain kill leaves the same bytes.
    """
    if scenario.crash is None:
        return f"{scenario.title}: {ending(scenario)}"
    return f"{moment(scenario.crash, window, after_return=after_return)}: {ending(scenario)}"


def moment(point: CrashPoint, window: CrashWindow | None = None, *, after_return: bool = False) -> str:
    """Say when the interruption came and what it damaged, for example ``killed halfway through a write to x.pt``."""
    event = _POWER if after_return else _EVENTS.get(point.model, _POWER)
    steps = Steps.of(window) if window and window.operations else None
    if point.way.startswith("torn") and not after_return:
        return f"{event} {_torn(point)}"
    place = _afterwards(point, steps) if point.lasting and event == _POWER else _place(point, steps)
    damage = _damage(point)
    return f"{event} {place}, {damage}" if damage else f"{event} {place}"


def _torn(point: CrashPoint) -> str:
    name = PurePath(point.file).name
    return {
        "torn-first-byte": f"one byte into a write to {name}",
        "torn-last-page": f"before the last page of a write to {name}",
    }.get(point.way, f"halfway through a write to {name}")


def _damage(point: CrashPoint) -> str:
    if point.way in _DAMAGES:
        return _DAMAGES[point.way].format(file=PurePath(point.file).name)
    if point.way.startswith("torn"):
        return f"{PurePath(point.file).name} cut short"
    change, _, _ = point.damage.partition(": ")
    return f"the operation '{change}' lost" if point.way == "lost" else point.damage


def _place(point: CrashPoint, steps: Steps | None) -> str:
    if steps is None:
        return f"after: {point.last}"
    at = steps.position(point.after)
    if at < 0:
        return "before the save wrote anything"
    following = _next(steps, at)
    if following is None:
        return "after the last operation of the save"
    if steps.names[following] == steps.names[at]:
        return _inside(steps, at, following)
    return f"{_after(steps, at)}, {_before(steps, following)}"


def _afterwards(point: CrashPoint, steps: Steps | None) -> str:
    """Say what there was of a save that had returned when the power went."""
    following = _next(steps, steps.position(point.after)) if steps else None
    if steps is None or following is None:
        return "after the save had returned"
    at = steps.position(point.after)
    if at >= 0 and steps.names[at] == steps.names[following]:
        return f"after the save had returned, on disk only what came up to the middle of {steps.names[at]}"
    return f"after the save had returned, on disk only what came {_before(steps, following)}"


def _next(steps: Steps, at: int) -> int | None:
    """Return the place of the next operation that changes or keeps anything."""
    rest = range(at + 1, len(steps.operations))
    return next((place for place in rest if steps.operations[place].kind not in QUIET), None)


def _inside(steps: Steps, at: int, following: int) -> str:
    """Say that a file was begun and not done."""
    name, kind = steps.names[at], steps.operations[at].kind
    if kind in _OPENING:
        return f"when {name} was still empty"
    later = steps.operations[following].kind
    if later in _FILLING:
        return f"while {name} was being written"
    return f"before {name} got its name" if later == "rename" else _before(steps, following)


def _after(steps: Steps, at: int) -> str:
    kind, name = steps.operations[at].kind, steps.names[at]
    done = {"create": f"{name} was created", "mkdir": f"the folder {name} was made"}
    return f"after {done.get(kind) or _act(kind, name)}"


def _before(steps: Steps, at: int) -> str:
    return f"before {_act(steps.operations[at].kind, steps.names[at])}"


def _act(kind: str, name: str) -> str:
    acts = {
        "unlink": f"{name} was deleted",
        "mkdir": f"the folder {name}",
        "rmdir": f"the folder {name} was removed",
        "rename": f"the rename to {name}",
        "link": f"the link {name}",
        "symlink": f"the link {name}",
        "sync": f"the fsync of {name}",
        "sync-data": f"the fdatasync of {name}",
        "sync-all": "a sync of everything",
    }
    return acts.get(kind, name)


def ending(scenario: ScenarioResult) -> str:
    """Say what the restart did, for example ``resumes at 6 with a fresh optimizer, no error``."""
    seen = scenario.observed
    if seen.outcome is Outcome.DIFFERENT:
        return f"{_resumes(scenario)}{_with(scenario)}{_unused(scenario)}, {_error(seen.exit_code)}"
    if seen.outcome is Outcome.RESTARTED:
        return f"starts over from step 0{_unused(scenario)}, {_error(seen.exit_code)}"
    if seen.outcome is Outcome.LOST_WORK:
        return f"{_resumes(scenario)}{_unused(scenario)}"
    if seen.outcome in {Outcome.CRASHED, Outcome.REFUSED}:
        return _stops(seen.summary)
    return seen.summary or str(seen.outcome)


def _stops(summary: str) -> str:
    if summary.startswith("stops"):
        return summary
    return f"stops with {summary}" if summary.startswith("exit code") else f"stops; {summary}".rstrip("; ")


def _resumes(scenario: ScenarioResult) -> str:
    step = scenario.observed.resume_step
    if step is None:
        return "goes on from a state that the control never had"
    return f"resumes at {step}" if step else "starts at step 0"


def _with(scenario: ScenarioResult) -> str:
    slugs = {finding.slug for finding in scenario.findings}
    optimizer = [finding for finding in scenario.findings if finding.slug == "optimizer-reset"]
    if any(Component.SCHEDULE in finding.components for finding in optimizer):
        slugs.add("schedule-restarted")
    losses = [
        _optimizer(scenario) if slug == "optimizer-reset" else _LOSSES[slug]
        for slug in _LOSSES
        if slug in slugs
    ]
    if losses:
        return f" with {_listed(losses)}"
    first = scenario.observed.first_divergent_step
    return "" if first is None else f", step {first} is not the control's"


def _optimizer(scenario: ScenarioResult) -> str:
    found = [finding for finding in scenario.findings if finding.slug == "optimizer-reset"]
    texts = [text for finding in found for text in (finding.evidence, finding.quantity, *finding.details)]
    return "a fresh Adam" if any(_ADAM in text for text in texts) else _LOSSES["optimizer-reset"]


def _unused(scenario: ScenarioResult) -> str:
    """Name the whole checkpoint that was there and was not used."""
    whole = scenario.crash.whole if scenario.crash else None
    return (
        ""
        if not whole or whole == scenario.observed.resume_step
        else f", the whole checkpoint {whole} unused"
    )


def _error(exit_code: int | None) -> str:
    return f"exit code {exit_code}" if exit_code else "no error"


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
