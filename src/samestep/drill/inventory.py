"""The component inventory and the list of what a drill did not check. Pure functions of its results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samestep.contract import FINDINGS, Component, Family, Outcome, Severity
from samestep.drill.observe import gathered
from samestep.drill.result import InventoryRow

if TYPE_CHECKING:
    from collections.abc import Iterable

    from samestep.drill.ground import Ground
    from samestep.drill.options import DrillOptions
    from samestep.drill.result import Criterion, DrillResult, ScenarioResult
    from samestep.trace import State, Trace

UNSEEN_DATA = "neither sample indices nor batches could be seen"

_IGNORED = {
    "samples": "sample indices",
    "inputs": "the content of batches",
    "groups": "learning rates and other hyper-parameters",
    "schedules": "the counters of schedules",
    "schedule-values": "the metric that a schedule watches",
    "scalers": "loss scalers",
    "micro-steps": "the number of micro-steps",
    "averages": "averaged weights",
}
_IGNORED_KINDS = {
    "rng": "the generator {}",
    "generators": "the script's own generator {}",
    "average": "averaged weights number {}",
    "updates": "the update count of averaged weights number {}",
}
"""What the quantities are called that two controls disagree on."""

_RUN_FAMILIES = {Family.CUT, Family.NOTICE}


def inventory(ground: Ground, scenarios: Iterable[ScenarioResult]) -> list[InventoryRow]:
    """Say of each component whether a restart brought it back, and list state that no component covers."""
    trace = ground.control.record.traces[0]
    cuts = [item for item in scenarios if item.family in _RUN_FAMILIES]
    lost = _lost(cuts)
    compared = {Outcome.SAME, Outcome.DIFFERENT}
    proven = any(
        item.observed.outcome in compared and item.observed.resume_step and item.observed.steps_verified
        for item in cuts
    )
    ignored = unjudged(ground.criterion, trace)
    rows = []
    for component, (present, detail) in _present(trace).items():
        if component in lost:
            rows.append(InventoryRow(component=str(component), state="lost", detail=lost[component]))
        elif not present:
            rows.append(InventoryRow(component=str(component), state="absent", detail=detail))
        else:
            judged = proven and component not in ignored
            state = "saved" if judged else "not-checked"
            rows.append(InventoryRow(component=str(component), state=state, detail=detail))
    return [*rows, *_untracked(trace)]


def _lost(cuts: Iterable[ScenarioResult]) -> dict[Component, str]:
    lost: dict[Component, str] = {}
    for item in cuts:
        for finding in item.findings:
            if finding.severity is Severity.DEFECT:
                for component in finding.components:
                    lost.setdefault(component, f"{FINDINGS[finding.slug].title} ({item.name})")
    return lost


def _present(trace: Trace) -> dict[Component, tuple[bool, str]]:
    """Return of each component whether the control has it, and what there is."""
    state: State = trace.steps[-1].before
    buffers = state.buffers.tensors if state.buffers else 0
    weights = state.weights.tensors if state.weights else 0
    kinds = sorted({name.split("/", 1)[-1] for name in state.optimizer})
    sampled = any(micro.samples for step in trace.steps for micro in step.micro_steps)
    seen = sampled or any(micro.inputs for step in trace.steps for micro in step.micro_steps)
    by = "sample indices" if sampled else "content of the batches" if seen else UNSEEN_DATA
    window = max((len(gathered(step)) for step in trace.steps), default=1)
    return {
        Component.WEIGHTS: (bool(weights), f"{weights} parameters, {buffers} buffers"),
        Component.OPTIMIZER: (bool(kinds), ", ".join(kinds) or "this optimizer keeps no state"),
        Component.SCHEDULE: (bool(state.schedules), ", ".join(str(s.get("type")) for s in state.schedules)),
        Component.SCALER: (bool(state.scalers), "" if state.scalers else "no loss scaler"),
        Component.RNG: (bool(state.rng), ", ".join(sorted(state.rng))),
        Component.DATA_ORDER: (seen, by),
        Component.DATA_POSITION: (seen, by),
        Component.ACCUMULATION: (window > 1, f"{window} micro-steps" if window > 1 else "no accumulation"),
        Component.EMA: (bool(state.averages), ", ".join(average.name for average in state.averages)),
        Component.PROGRESS: (True, "steps matched by content"),
    }


def unjudged(criterion: Criterion, trace: Trace) -> set[Component]:
    """Return the components of which nothing is judged: the controls themselves differ in all that shows them."""
    ignored = set(criterion.ignored)
    state = trace.steps[-1].before
    shown_by = {
        Component.OPTIMIZER: set(state.optimizer),
        Component.SCHEDULE: {"schedules", "groups"},
        Component.SCALER: {"scalers"},
        Component.RNG: {f"rng/{name}" for name in state.rng},
        Component.DATA_ORDER: {"samples", "inputs"},
        Component.DATA_POSITION: {"samples", "inputs"},
        Component.EMA: {f"average/{place}" for place in range(len(state.averages))},
    }
    if not any(micro.samples for step in trace.steps for micro in step.micro_steps):
        shown_by[Component.DATA_ORDER] = shown_by[Component.DATA_POSITION] = {"inputs"}
    if "averages" in ignored:
        shown_by[Component.EMA] = {"averages"}
    return {component for component, names in shown_by.items() if names and names <= ignored}


def _untracked(trace: Trace) -> list[InventoryRow]:
    seen: dict[str, str] = {}
    for event in trace.events:
        if event.name == "untracked":
            seen.setdefault(str(event.detail.get("name")), str(event.detail.get("type", "")))
    return [InventoryRow(component=name, state="untracked", detail=kind) for name, kind in seen.items()]


def ignored_quantity(name: str) -> str:
    """Return in words what a quantity of ``Criterion.ignored`` is."""
    kind, _, item = name.partition("/")
    if name in _IGNORED:
        return _IGNORED[name]
    return _IGNORED_KINDS[kind].format(item) if item and kind in _IGNORED_KINDS else name


def _saves_not_tried(result: DrillResult, *, tried: bool) -> list[str]:
    """Say what is open about interrupted saves."""
    if not tried or result.crash is None:
        return ["power loss, and saves torn in the middle (family crash)"]
    windows = result.crash.windows
    left = sum(window.states - window.tried for window in windows)
    names = " and ".join(window.name for window in windows)
    untried = [f"{left} further disk states of {names} (--max-states)"] if left else []
    return [*untried, f"interruptions of other saves than {names}"]


def not_checked(result: DrillResult, options: DrillOptions, not_followed: Iterable[str] = ()) -> list[str]:
    """Say in sentences what this drill leaves open.

    Args:
        result: of the drill.
        options: of the drill.
        not_followed: what the probe said that it could not follow.
    """
    open_points = [f"not followed by the probe: {what}" for what in not_followed]
    ran = {item.family for item in result.scenarios}
    open_points += _saves_not_tried(result, tried=Family.CRASH in ran)
    if Family.TRANSFER not in ran:
        open_points.append("another number of processes, batch size or data set (--also)")
    open_points += [
        f"the {family} scenarios (left out by --only or --replay)"
        for family in (Family.CUT, Family.NOTICE, Family.DAMAGE, Family.RESTART)
        if result.scenarios and family not in ran and not (family is Family.RESTART and options.steps)
    ]
    if result.scenarios:
        limit = f"more than {options.verify_steps} steps after most restarts (--verify-steps)"
        open_points.append(f"{limit}; one per family ran to its end")
    if options.steps:
        open_points.append("the end of the run: the drill ended it (--steps)")
    followed = result.control.series if result.control else []
    if followed and not any(rate is not None for series in followed for rate in series.learning_rate):
        open_points.append("learning rates: no optimizer showed one")
    if result.criterion is not None:
        open_points += [f"{component}: the criterion is blind to it" for component in result.criterion.blind]
        open_points += [
            f"{ignored_quantity(name)}: two uninterrupted runs already differ there"
            for name in result.criterion.ignored
        ]
    if any(row.state == "absent" and row.detail == UNSEEN_DATA for row in result.inventory):
        open_points.append(f"data order and position: {UNSEEN_DATA}")
    open_points.append("other hardware than this machine's, and other library versions")
    return open_points
