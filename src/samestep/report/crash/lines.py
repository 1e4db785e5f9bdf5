"""The states of a save on a terminal: a line for the save, then what goes wrong in it, one paragraph a kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samestep.contract import Family
from samestep.report.view import scenario_tone

from .groups import in_strength, likeness_of, listed, summary_of, word_of
from .words import told

if TYPE_CHECKING:
    from samestep.drill.result import CrashRecord, ScenarioResult
    from samestep.report.paper import Paper

    from .groups import Group, Summary


class SaveLines:
    """Renders states as they come in, save by save.

    Args:
        paper: to write on.
        record: what is known of the saves.
        live: show the first failing state of each kind at once.
    """

    def __init__(self, paper: Paper, record: CrashRecord | None = None, *, live: bool = False) -> None:
        self._paper = paper
        self._record = record
        self._live = live
        self._open: list[ScenarioResult] = []
        self._met: set[tuple[object, ...]] = set()

    def take(self, state: ScenarioResult) -> list[str]:
        """Count a state; return the lines of the save before, when this is the first of another one."""
        lines = self.finish() if self._open and self._window != _window_of(state) else []
        self._open.append(state)
        if self._live and not state.holds and likeness_of(state) not in self._met:
            self._met.add(likeness_of(state))
            lines += self._first(state)
        return lines

    def finish(self) -> list[str]:
        """Return the lines of the save whose states were counted last; none when there is none."""
        if not self._open:
            return []
        summary = summary_of(self._window, self._open, self._record)
        self._open = []
        return self._save(summary)

    @property
    def _window(self) -> str:
        return _window_of(self._open[0])

    def _first(self, state: ScenarioResult) -> list[str]:
        windows = self._record.windows if self._record else []
        window = next((window for window in windows if window.name == _window_of(state)), None)
        text = f"{word_of(state)}: {told(state, window)}"
        return self._paper.labelled(str(Family.CRASH), text, scenario_tone(state))

    def _save(self, summary: Summary) -> list[str]:
        failing = bool(summary.failing)
        row = self._paper.row(
            str(Family.CRASH), summary.title, summary.word, summary.tally, tone=summary.tone, bold=failing
        )
        lines, shown = [row], set[str]()
        for group in summary.groups:
            lines += self._group(summary, group, shown)
        return lines + self._notes(summary)

    def _group(self, summary: Summary, group: Group, shown: set[str]) -> list[str]:
        """Return a finding's head, its most telling state unless another finding has shown it, and the advice."""
        head = "  ".join(part for part in (group.components, summary.share(group)) if part)
        lines = [self._paper.head(group.title, head)]
        if group.sentence in shown:
            lines[0] += ", told above"
        else:
            lines += self._paper.wrapped(group.sentence)
        advice = self._paper.advice(group.finding) if group.finding else []
        replay = [] if group.sentence in shown else [f"    {self._paper.dim(group.telling.replay)}"]
        shown.add(group.sentence)
        return [*lines, *advice, *replay] if group.telling.replay else [*lines, *advice]

    def _notes(self, summary: Summary) -> list[str]:
        if not summary.noted:
            return []
        noted = [state for group in summary.noted for state in group.states if state.crash]
        models = listed(in_strength({state.crash.model for state in noted if state.crash}))
        found = ", ".join(f"{group.title} {summary.share(group)}" for group in summary.noted)
        return self._paper.wrapped(f"noted, since only {models} allows it: {found}")


def _window_of(state: ScenarioResult) -> str:
    return state.crash.window if state.crash else ""
