"""The states of a save, grouped by what they show, with the most telling one of each group."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from samestep.contract import FINDINGS, Outcome, Severity, worst_outcome
from samestep.drill.result import CrashWindow
from samestep.report.view import BAD, GOOD, NEUTRAL, UNKNOWN, component_names, shown_findings

from .words import Steps, told

if TYPE_CHECKING:
    from collections.abc import Iterable

    from samestep.drill.result import CrashPoint, CrashRecord, DrillResult, FindingRecord, ScenarioResult

_STRENGTH = ("kill", "nfs", "machine-lost", "power-ext4", "power-xfs", "posix-worst", "compound")
"""Models, the most likely to be met first."""

NOTHING_LEFT = "nothing left"
"""What a state shows from which the run begins anew, rightly, since the interrupted save left it nothing."""

_OTHERS = [str(outcome) for outcome in reversed(Outcome) if outcome is not Outcome.SAME]
_HARMLESS_FIRST = [str(Outcome.SAME), NOTHING_LEFT, *_OTHERS]

_OF_DURABILITY = frozenset({"not-durable-after-save", "rename-not-durable"})
"""Findings about what power loss takes away, which a plain kill does not show."""

_COMMITS = frozenset({"rename", "link", "unlink"})
_HARMLESS = {Outcome.SAME, Outcome.INCONCLUSIVE}


@dataclass(frozen=True)
class Group:
    """States of one save that show the same finding.

    Attributes:
        slug: the finding; empty: these states have none.
        finding: as the most telling state has it.
        states: all that show it.
        telling: the most telling of them.
        sentence: what happens in that one.
    """

    slug: str
    finding: FindingRecord | None
    states: list[ScenarioResult]
    telling: ScenarioResult
    sentence: str

    @property
    def title(self) -> str:
        """The finding, or the outcome where there is none."""
        return self.slug or result_of(self.telling)

    @property
    def components(self) -> str:
        """Components that it concerns, comma separated."""
        return component_names(self.finding) if self.finding else ""


@dataclass(frozen=True)
class Summary:
    """One save in numbers.

    Attributes:
        window: the save.
        states: that were tried, in order.
        groups: why states do not hold.
        noted: what was found in states that hold, since nothing is asked of them.
    """

    window: CrashWindow
    states: list[ScenarioResult]
    groups: list[Group]
    noted: list[Group]

    @property
    def failing(self) -> list[ScenarioResult]:
        """The states that do not hold."""
        return [state for state in self.states if not state.holds]

    @property
    def models(self) -> list[str]:
        """Models of the states tried, the most likely first."""
        return in_strength({state.crash.model for state in self.states if state.crash})

    @property
    def outcome(self) -> Outcome:
        """The worst outcome of the states that do not hold; where all hold, ``same``."""
        failing = self.failing
        return worst_outcome(state.observed.outcome for state in failing) if failing else Outcome.SAME

    @property
    def word(self) -> str:
        """The worst outcome, in capitals when states do not hold; ``noted`` when only notes are left."""
        if self.failing:
            worst = min(map(result_of, self.failing), key=_HARMLESS_FIRST[::-1].index)
            return worst.upper()
        return "noted" if self.noted else str(Outcome.SAME)

    @property
    def tone(self) -> str:
        """Tone of that word."""
        if self.failing:
            return UNKNOWN if self.outcome is Outcome.INCONCLUSIVE else BAD
        return NEUTRAL if self.noted else GOOD

    @property
    def title(self) -> str:
        """For example ``save-18: 36 of 167 states, kill and power-ext4``."""
        return f"{self.window.name}: {self.size}, {listed(self.models)}"

    @property
    def size(self) -> str:
        """For example ``36 of 167 states``."""
        count, most = len(self.states), self.window.states
        return f"{count} of {most} states" if most > count else _states(count)

    @property
    def tally(self) -> str:
        """For example ``5 same · 24 refused``, the most harmless first."""
        seen = Counter(map(result_of, self.states))
        return " · ".join(f"{seen[word]} {word}" for word in _HARMLESS_FIRST if seen[word])

    def share(self, group: Group) -> str:
        """For example ``in 28 of 36 states``."""
        return f"in {len(group.states)} of {_states(len(self.states))}"


def summaries(result: DrillResult) -> list[Summary]:
    """Return one summary for each save that was taken apart and tried, in order."""
    names = dict.fromkeys(state.crash.window for state in crash_states(result.scenarios) if state.crash)
    return [summary_of(name, result.scenarios, result.crash) for name in names]


def summary_of(name: str, scenarios: Iterable[ScenarioResult], record: CrashRecord | None = None) -> Summary:
    """Sum up the states of one save.

    Args:
        name: of the save.
        scenarios: any, of which those of this save count.
        record: what is known of the saves.
    """
    window = window_of(name, record) or CrashWindow(name=name, step=0, operations=[])
    states = [state for state in crash_states(scenarios) if state.crash and state.crash.window == name]
    return _summed(window, states)


def _summed(window: CrashWindow, states: list[ScenarioResult]) -> Summary:
    failing = [state for state in states if not state.holds]
    noted = [state for state in states if state.holds and state.observed.outcome not in _HARMLESS]
    return Summary(window, states, _groups(failing, window), _groups(noted, window, notes=True))


def summary_by_model(summary: Summary) -> dict[str, Summary]:
    """Sum up a save for each model by itself."""
    window = replace(summary.window, states=0)  # the number of all is known over all models only
    return {
        model: _summed(
            window, [state for state in summary.states if state.crash and state.crash.model == model]
        )
        for model in summary.models
    }


def window_of(name: str, record: CrashRecord | None) -> CrashWindow | None:
    """Return the save of that name."""
    return next((window for window in record.windows if window.name == name), None) if record else None


def crash_states(scenarios: Iterable[ScenarioResult]) -> list[ScenarioResult]:
    """Return the scenarios that are disk states of an interrupted save."""
    return [item for item in scenarios if item.crash is not None]


def ordinary(scenarios: Iterable[ScenarioResult]) -> list[ScenarioResult]:
    """Return all other scenarios."""
    return [item for item in scenarios if item.crash is None]


def result_of(state: ScenarioResult) -> str:
    """Return the outcome of a state; one that does not hold although all went well has lost every checkpoint."""
    outcome = state.observed.outcome
    return NOTHING_LEFT if outcome is Outcome.SAME and not state.holds else str(outcome)


def word_of(state: ScenarioResult) -> str:
    """Return the outcome of a state, in capitals when it does not hold."""
    return result_of(state) if state.holds else result_of(state).upper()


def likeness_of(state: ScenarioResult) -> tuple[object, ...]:
    """Return what states of one kind have in common: outcome and findings."""
    return (state.observed.outcome, *sorted({finding.slug for finding in state.findings}))


def charted(result: DrillResult) -> DrillResult:
    """Return the result with no more states of interrupted saves than the most telling ones, for the charts."""
    telling = [group.telling.name for summary in summaries(result) for group in summary.groups]
    kept = [item for item in result.scenarios if item.crash is None or item.name in telling]
    return replace(result, scenarios=kept)


def not_recorded(result: DrillResult) -> list[str]:
    """Say what weakens the recording, in sentences; empty when nothing does or a finding says it."""
    record = result.crash
    if record is None:
        return []
    if any(finding.slug == "recording-unproven" for finding in result.findings):
        return []  # told by that finding
    lead = "replaying the recording does not give the bytes that the control left"
    return ([] if record.proven else [lead]) + record.notes


def in_strength(models: Iterable[str]) -> list[str]:
    """Order models by how likely they are met."""
    return sorted(models, key=_strength)


def listed(words: list[str]) -> str:
    """Return ``a``, ``a and b`` or ``a, b and c``."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def most_telling(states: Iterable[ScenarioResult], window: CrashWindow) -> ScenarioResult:
    """Return the state that says most: a silent outcome, a plain kill, next to a commit, in few words."""
    return min(states, key=lambda state: _weight(state, window))


def _weight(state: ScenarioResult, window: CrashWindow) -> tuple[object, ...]:
    outcomes = list(Outcome)
    point = state.crash
    model, way = (point.model, point.way) if point else ("", "")
    words = len(told(state, window).split())
    near = _near_commit(point, window) if point else False
    return outcomes.index(state.observed.outcome), _strength(model), not near, bool(way), words, state.name


def _near_commit(point: CrashPoint, window: CrashWindow) -> bool:
    """Whether the cut lies beside a rename, link, deletion, the end of a file or that of the save."""
    steps = Steps.of(window)
    at = steps.position(point.after)
    beside = steps.operations[max(at, 0) : at + 2]
    names = steps.names[max(at, 0) : at + 2]
    return len(beside) < 2 or len(set(names)) > 1 or any(operation.kind in _COMMITS for operation in beside)


def _groups(states: list[ScenarioResult], window: CrashWindow, *, notes: bool = False) -> list[Group]:
    found: dict[str, list[ScenarioResult]] = {}
    for state in states:
        for slug in _slugs(state, notes=notes) or [""]:
            found.setdefault(slug, []).append(state)
    ranks = {slug: FINDINGS[slug].rank if slug in FINDINGS else len(FINDINGS) for slug in found}
    return [_group(slug, found[slug], window) for slug in sorted(found, key=lambda slug: ranks[slug])]


def _slugs(state: ScenarioResult, *, notes: bool) -> list[str]:
    shown = state.findings if notes else shown_findings(state.findings, holds=False)
    counted = [finding for finding in shown if notes or finding.severity is not Severity.NOTE] or shown
    return list(dict.fromkeys(finding.slug for finding in counted))


def _group(slug: str, states: list[ScenarioResult], window: CrashWindow) -> Group:
    after_return = slug in _OF_DURABILITY
    lossy = [state for state in states if state.crash and state.crash.model != _STRENGTH[0]]
    telling = most_telling((lossy if after_return else []) or states, window)
    finding = next((finding for finding in telling.findings if finding.slug == slug), None)
    return Group(slug, finding, states, telling, told(telling, window, after_return=after_return))


def _strength(model: str) -> tuple[int, str]:
    return (_STRENGTH.index(model) if model in _STRENGTH else len(_STRENGTH)), model


def _states(count: int) -> str:
    return f"{count} state" if count == 1 else f"{count} states"
