"""What every report says about a drill, before it takes a form: pure functions from the result to words."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from samestep.contract import FINDINGS, Family, FindingKind, Outcome, Severity, worst_outcome
from samestep.contract.redaction import redacted
from samestep.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from samestep.drill.result import Control, Criterion, DrillResult, FindingRecord, ScenarioResult

GOOD, BAD, UNKNOWN, NEUTRAL = "good", "bad", "unknown", "neutral"
"""Tones: what a symbol and a colour express besides the word."""

SYMBOLS = {GOOD: "✓", BAD: "✗", UNKNOWN: "?", NEUTRAL: "·"}
"""One symbol per tone, so that nothing is said by colour alone."""

_FAMILY_SUBJECTS = {
    Family.CUT: "An interruption",
    Family.NOTICE: "An interruption with a warning",
    Family.CRASH: "An interruption during a save",
    Family.DAMAGE: "A damaged checkpoint",
    Family.TRANSFER: "A changed setup",
    Family.RESTART: "Starting the finished run again",
}

_PREDICATES = {
    Outcome.DIFFERENT: "would silently change this run",
    Outcome.RESTARTED: "would silently start this run over",
    Outcome.CRASHED: "would stop this run without naming what is wrong",
    Outcome.LOST_WORK: "would cost more work than it has to",
    Outcome.REFUSED: "would stop this run although it could go on",
    Outcome.INCONCLUSIVE: "may change this run",
    Outcome.SAME: "would leave a defect behind",
}

_NOTED_AS = {"byte-flip-accepted": "byte flip", "disk state": "disk state"}

_PLAIN_PASSES = {Outcome.SAME, Outcome.REFUSED}

_HEADLINES = {
    ExitCode.HOLDS: "The restarted run is the same run",
    ExitCode.DEFECT: "This run has a defect",
    ExitCode.USAGE: "The drill could not be carried out as asked",
    ExitCode.INTERNAL: "samestep itself failed",
    ExitCode.INCONCLUSIVE: "The measurement cannot tell",
    ExitCode.NOTHING_RAN: "Nothing was checked",
    ExitCode.INTERRUPTED: "The drill was ended before its plan was done",
    ExitCode.TERMINATED: "The drill was ended before its plan was done",
}


@dataclass(frozen=True)
class Verdict:
    """The answer in one glance: a tone, a headline and a sentence that carries the numbers."""

    tone: str
    headline: str
    sentence: str

    @property
    def symbol(self) -> str:
        """Symbol of the tone."""
        return SYMBOLS[self.tone]


@dataclass(frozen=True)
class Tally:
    """How one family of scenarios did."""

    family: Family
    total: int
    holding: int
    inconclusive: int
    notes: Counter[str]

    @property
    def sentence(self) -> str:
        """For example ``17 of 20 hold, 8 byte flips noted``."""
        verb = "holds" if self.holding == 1 else "hold"
        parts = [f"{self.holding} of {self.total} {verb}"]
        if self.inconclusive:
            parts.append(f"{self.inconclusive} inconclusive")
        parts += [_noted(slug, count) for slug, count in self.notes.items()]
        return ", ".join(parts)


def verdict(result: DrillResult) -> Verdict:
    """Say what the drill found."""
    failing = [scenario for scenario in result.scenarios if not scenario.holds]
    return Verdict(_verdict_tone(result), _headline(result, failing), _sentence(result, failing))


def _verdict_tone(result: DrillResult) -> str:
    return {ExitCode.HOLDS: GOOD, ExitCode.DEFECT: BAD}.get(ExitCode(result.exit_code), UNKNOWN)


def _headline(result: DrillResult, failing: Sequence[ScenarioResult]) -> str:
    decided = [s for s in failing if s.observed.outcome is not Outcome.INCONCLUSIVE]
    if result.exit_code != ExitCode.DEFECT or not decided:
        return _HEADLINES[ExitCode(result.exit_code)]
    worst = worst_outcome(scenario.observed.outcome for scenario in decided)
    families = {scenario.family for scenario in decided if scenario.observed.outcome is worst}
    family = next(family for family in _FAMILY_SUBJECTS if family in families)
    return f"{_FAMILY_SUBJECTS[family]} {_PREDICATES[worst]}"


def _sentence(result: DrillResult, failing: Sequence[ScenarioResult]) -> str:
    total = len(result.scenarios)
    if result.message:
        return result.message
    if not total:
        return "No scenario was carried out."
    if not failing:
        return f"{count_of(total, 'scenario')} carried out, every one holds."
    unclear = sum(scenario.observed.outcome is Outcome.INCONCLUSIVE for scenario in failing)
    wrong = len(failing) - unclear
    parts = (
        [f"{wrong} of {count_of(total, 'scenario')} {'does' if wrong == 1 else 'do'} not hold"]
        if wrong
        else []
    )
    parts += [f"{unclear} of {count_of(total, 'scenario')} cannot be judged"] if unclear else []
    return "; ".join(parts) + "."


def by_family(scenarios: Iterable[ScenarioResult]) -> dict[Family, list[ScenarioResult]]:
    """Group scenarios by family, in the order in which the families were drilled."""
    grouped: dict[Family, list[ScenarioResult]] = {}
    for scenario in scenarios:
        grouped.setdefault(scenario.family, []).append(scenario)
    return grouped


@dataclass(frozen=True)
class FailureGroup:
    """Scenarios that fail in the same way: the first is shown in full, the ``others`` by name."""

    first: ScenarioResult
    others: list[ScenarioResult]


def failure_groups(scenarios: Iterable[ScenarioResult]) -> list[FailureGroup]:
    """Group the scenarios that do not hold by family, outcome and findings, worst first."""
    grouped: dict[object, list[ScenarioResult]] = {}
    for scenario in worst_first(s for s in scenarios if not s.holds):
        findings = tuple(_likeness(f) for f in shown_findings(scenario.findings, holds=False))
        key = (scenario.family, scenario.observed.outcome, findings) if findings else scenario.name
        grouped.setdefault(key, []).append(scenario)
    return [FailureGroup(members[0], members[1:]) for members in grouped.values()]


def _likeness(finding: FindingRecord) -> tuple[str, str, str]:
    return finding.slug, component_names(finding), likeness(finding.evidence)


def likeness(text: str) -> str:
    """Return ``text`` without its numbers, to tell whether two findings say the same of different steps."""
    return re.sub(r"\d+", "#", text)


def tallies(scenarios: Iterable[ScenarioResult]) -> list[Tally]:
    """Return one tally per family, in the order in which the families were drilled."""
    return [_tally(family, members) for family, members in by_family(scenarios).items()]


def _tally(family: Family, members: list[ScenarioResult]) -> Tally:
    noted = Counter(
        finding.slug
        for scenario in members
        for finding in scenario.findings
        if finding.severity is Severity.NOTE and scenario.crash is None
    )
    states = sum(scenario_tone(scenario) == NEUTRAL for scenario in members if scenario.crash is not None)
    noted |= Counter({"disk state": states} if states else {})
    return Tally(
        family=family,
        total=len(members),
        holding=sum(scenario.holds for scenario in members),
        inconclusive=sum(scenario.observed.outcome is Outcome.INCONCLUSIVE for scenario in members),
        notes=noted,
    )


def _noted(slug: str, count: int) -> str:
    if slug in _NOTED_AS:
        return f"{count_of(count, _NOTED_AS[slug])} noted"
    return f"{count} {slug} noted"


def scenario_tone(scenario: ScenarioResult) -> str:
    """Tone of one scenario; one that holds although the run went on differently is only noted."""
    if scenario.holds:
        return GOOD if scenario.observed.outcome in _PLAIN_PASSES else NEUTRAL
    return UNKNOWN if scenario.observed.outcome is Outcome.INCONCLUSIVE else BAD


def worst_first(scenarios: Iterable[ScenarioResult]) -> list[ScenarioResult]:
    """Order scenarios: those that do not hold first, and the worst outcome of those first."""
    outcomes = list(Outcome)
    return sorted(scenarios, key=lambda s: (s.holds, not s.holds and outcomes.index(s.observed.outcome)))


def outcome_word(scenario: ScenarioResult) -> str:
    """Return the outcome, in capitals when it does not hold."""
    word = str(scenario.observed.outcome)
    return word if scenario.holds else word.upper()


def expected_words(scenario: ScenarioResult) -> str:
    """Return the outcomes that hold, for example ``same or refused``."""
    return " or ".join(str(outcome) for outcome in scenario.expected.outcomes)


def expectation_text(scenario: ScenarioResult) -> str:
    """Return what had to happen, for example ``same or refused, resumed at step 18``."""
    expected = scenario.expected
    words = expected_words(scenario)
    if expected.resume_step is None:
        return words
    return f"{words}, {_from_step(expected.resume_step)}"


def observation_text(scenario: ScenarioResult) -> str:
    """Return what did happen, in the words of :func:`expectation_text`."""
    seen = scenario.observed
    if seen.resume_step is None:
        return str(seen.outcome)
    return f"{seen.outcome}, {_from_step(seen.resume_step)}"


def _from_step(step: int) -> str:
    return f"resumed at step {step}" if step else "started fresh"


def finding_kind(finding: FindingRecord) -> FindingKind:
    """Look a finding up; one that a newer samestep wrote keeps its slug and says nothing more."""
    known = FINDINGS.get(finding.slug)
    return known or FindingKind(finding.slug, (), finding.severity, finding.slug, "", "", len(FINDINGS))


def component_names(finding: FindingRecord) -> str:
    """Return the components of a finding, comma separated."""
    return ", ".join(str(component) for component in finding.components)


def shown_findings(findings: Iterable[FindingRecord], *, holds: bool) -> list[FindingRecord]:
    """Return the findings worth full lines, most telling first; notes stay out where all else holds."""
    kept = [f for f in findings if not (holds and f.severity is Severity.NOTE)]
    severities = list(Severity)
    return sorted(kept, key=lambda f: (severities.index(f.severity), finding_kind(f).rank))


def control_text(control: Control) -> str:
    """Describe the control runs in one line."""
    steps = count_of(control.steps, "step")
    ranks = f" on {control.ranks} ranks" if control.ranks > 1 else ""
    if control.runs == 1:
        agreement = f"1 run of {steps}{ranks}"
    elif control.bit_equal:
        agreement = f"{control.runs} runs of {steps}{ranks} agree bit for bit"
    else:
        differing = ", ".join(control.differing) or "some quantities"
        agreement = f"{control.runs} runs of {steps}{ranks} differ in {shortened(differing, 60)}"
    return f"{agreement}; {_saves_text(control.save_steps)}"


def _saves_text(steps: list[int]) -> str:
    if not steps:
        return "no save seen"
    noun = "save seen at step" if len(steps) == 1 else "saves seen at steps"
    return f"{noun} {', '.join(map(str, steps))}"


def watching_text(control: Control) -> str:
    """Say whether watching was proven not to change the run."""
    if control.watching:
        return control.watching
    return {
        True: "proven not to change the run (final state equal with and without)",
        False: "changes the run: the final state differs with and without",
        None: "not proven: no run without the probe was compared",
    }[control.watching_proven]


def criterion_text(criterion: Criterion) -> str:
    """Describe the criterion and how many sabotages it caught."""
    text = criterion.rule or criterion.kind
    if not criterion.sabotages:
        return text
    caught = sum(criterion.sabotages.values())
    return f"{text}; {caught} of {count_of(len(criterion.sabotages), 'sabotage')} caught"


def count_of(count: int, noun: str) -> str:
    """Return ``1 step`` or ``2 steps``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def shortened(text: str, width: int) -> str:
    """Cut ``text`` to ``width`` characters."""
    return text if len(text) <= width else text[: width - 1] + "…"


def command_line(words: Iterable[str]) -> str:
    """Quote a command for a shell and leave placeholders such as ``{out}`` readable; secrets are hidden."""
    shown = redacted(words)
    return " ".join(word if re.fullmatch(r"[\w@%+=:,./{}-]+", word) else _quoted(word) for word in shown)


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "'\"'\"'") + "'"


def replay_command(result: DrillResult) -> str:
    """Return the command that repeats the whole drill."""
    resume = []
    if result.resume_with:
        resume = ["--resume-with", command_line(result.resume_with)]
    return command_line(["samestep", "drill", *resume, "--", *result.command])
