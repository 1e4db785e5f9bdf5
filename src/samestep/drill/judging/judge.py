"""The verdict on one restarted run. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from samestep.contract import FINDINGS, Component, Family, Outcome, Severity, worst_outcome
from samestep.drill.judging.align import find_resume_step
from samestep.drill.judging.beside import Beside
from samestep.drill.judging.compare import Measure, by_rank, epoch_starts
from samestep.drill.judging.diagnose import diagnose
from samestep.drill.judging.diagnosis.progress import length, noisy_paths
from samestep.drill.judging.diagnosis.records import finding, listed
from samestep.drill.judging.diagnosis.results import first_other_result, unseen
from samestep.drill.judging.judgement import Judgement
from samestep.drill.judging.selection import selection
from samestep.drill.judging.stops import complaints, judge_stop, names_damage
from samestep.drill.judging.summary import summary_of
from samestep.drill.judging.world import FOLLOWS, transferred
from samestep.drill.result import Observation

if TYPE_CHECKING:
    from samestep.drill.judging.align import Alignment
    from samestep.drill.judging.judgement import Case, Ending, Reference
    from samestep.drill.result import Criterion, Expectation, FindingRecord
    from samestep.trace import Trace

DATA_SLUGS = frozenset(
    {
        "data-order-changed",
        "data-position-restarted",
        "data-repeated",
        "data-skipped",
        "worker-rng-not-restored",
    }
)

RANKS = re.compile(r"rank|world|nproc|num.?proc|parallel|dp.?(size|degree)", re.IGNORECASE)
"""Arguments of a transfer to another number of ranks, also where one process plays them all."""


@dataclass
class View:
    """One rank of the resumed run beside its control.

    Attributes:
        pair: None when nothing tells where the run goes on.
        restarted: it began again although a whole checkpoint was there.
    """

    rank: int
    alignment: Alignment
    pair: Beside | None
    restarted: bool = False
    findings: list[FindingRecord] = field(default_factory=list)

    @property
    def resume_step(self) -> int | None:
        """The step whose state it really holds."""
        if self.alignment.fresh_weights_only:
            return None
        if self.restarted:
            return 0
        return self.alignment.step if self.alignment.step is not None else self.alignment.ema_step


@dataclass(frozen=True)
class _Scene:
    """What all ranks are judged by."""

    reference: Reference
    ending: Ending
    case: Case
    expected: Expectation
    criterion: Criterion

    @property
    def newest(self) -> int | None:
        """The step that should be resumed, as far as it is fixed."""
        fixed = self.expected.resume_step
        return fixed if fixed is not None else max(self.case.whole_steps, default=None)

    @property
    def had_something(self) -> bool:
        """Whether a start from step 0 passes over a checkpoint: a whole one, or a damaged one without a word."""
        if self.case.family == Family.CRASH:
            return self.case.due_step > 0  # a save that never was complete is nothing to resume from
        untold = bool(self.case.damaged) and not names_damage(self.ending.log_tail, self.case.damaged)
        return any(self.case.whole_steps) or untold

    @property
    def saves(self) -> list[int]:
        """Steps of all checkpoints that lay there, whole or not."""
        damaged = [] if self.case.damaged_step is None else [self.case.damaged_step]
        return sorted({*self.case.whole_steps, *self.case.foreign_steps, *damaged})


def judge(  # noqa: PLR0917 - each argument is another thing, and all are needed
    reference: Reference,
    resumed: list[Trace],
    ending: Ending,
    case: Case,
    expected: Expectation,
    criterion: Criterion,
) -> Judgement:
    """Judge a restarted run against the continuation of the run that wrote its checkpoint.

    A verdict of ``same`` needs proof: the step whose state was restored is found by content, and at least one
    step after it was compared. Ranks are compared one by one.
    """
    controls, ranks = by_rank(reference.traces), by_rank(resumed)
    if not ranks:
        return judge_stop(reference, ending, case, expected)
    scene = _Scene(reference, ending, case, expected, criterion)
    views = [_view(scene, controls[rank], trace) for rank, trace in ranks.items() if rank in controls]
    if not views:
        summary = "the control has no trace of the ranks that stepped"
        return Judgement(
            Observation(outcome=Outcome.INCONCLUSIVE, exit_code=ending.exit_code, summary=summary)
        )
    findings = [*selection(views, case), *_world(views, controls, ranks), *_across_ranks(_gathered(views))]
    moved = _transferred(views, controls, ranks, case)
    if moved is not None:
        findings = [moved, *(record for record in findings if record.slug not in FOLLOWS)]
    unlike = moved is None and controls.keys() != ranks.keys()
    findings = _without_consequences(findings, case, changed_world=unlike)
    return _verdict(views, findings, scene)


def _view(scene: _Scene, control: Trace, resumed: Trace) -> View:
    rank, case = control.header.rank, scene.case
    alignment = find_resume_step(control, resumed, scene.criterion, scene.saves)
    basis = alignment.basis(scene.newest)
    if basis is None:
        return View(rank, alignment, None)
    pair = Beside(
        control,
        resumed,
        basis,
        Measure(scene.criterion),
        epoch_starts(control, scene.reference.epoch_ends),
        noisy_paths(control, by_rank(scene.reference.followers).get(rank)),
    )
    view = View(rank, alignment, pair, restarted=basis == 0 and scene.had_something)
    if pair.steps and not view.restarted and not case.finished:
        found = diagnose(pair, alignment)
        explained = any(record.severity is Severity.DEFECT for record in found)
        found = found if explained else [*found, *length(pair)]
        view.findings = [replace(record, rank=rank) for record in found]
    return view


def _gathered(views: list[View]) -> list[FindingRecord]:
    """Return the findings of all ranks: one each, with the ranks that it was also seen on."""
    kept: dict[tuple[str, str, Severity], FindingRecord] = {}
    others: dict[tuple[str, str, Severity], list[int]] = {}
    for view in views:
        for record in view.findings:
            key = (record.slug, record.quantity, record.severity)
            if key in kept:
                others.setdefault(key, []).append(view.rank)
            else:
                kept[key] = record
    for key, ranks in others.items():
        kept[key].details = [*kept[key].details, f"also on rank {listed(ranks)}"]
    return sorted(kept.values(), key=lambda record: FINDINGS[record.slug].rank)


def _across_ranks(findings: list[FindingRecord]) -> list[FindingRecord]:
    """Drop a result that differs on one rank for no reason of its own when another rank lost something before it."""
    causes = [r for r in findings if r.severity is Severity.DEFECT and r.slug != "step-differs"]
    return [
        record
        for record in findings
        if record.slug != "step-differs"
        or not any(cause.rank != record.rank and (cause.step or 0) <= (record.step or 0) for cause in causes)
    ]


def _world(views: list[View], controls: dict[int, Trace], ranks: dict[int, Trace]) -> list[FindingRecord]:
    """Tell whether all ranks of the control went on, and from one step."""
    if sorted(controls) != sorted(ranks):
        text = f"{len(ranks)} ranks trained, control {len(controls)}"
        return [finding("world-changed", text, step=_first_step(views))]
    steps = {view.rank: view.resume_step for view in views}
    if len(set(steps.values())) == 1:
        return []
    shown = ", ".join(
        f"rank {rank} at step {'unknown' if step is None else step}" for rank, step in steps.items()
    )
    odd = next(rank for rank, step in steps.items() if step != views[0].resume_step)
    return [
        finding(
            "world-changed", f"ranks went on from different steps: {shown}", rank=odd, step=_first_step(views)
        )
    ]


def _transferred(
    views: list[View], controls: dict[int, Trace], ranks: dict[int, Trace], case: Case
) -> FindingRecord | None:
    """Return the note on a transfer to another number of ranks that goes on as it should; None for anything else."""
    steps = {view.resume_step for view in views}
    if case.family != Family.TRANSFER or len(steps) != 1 or any(view.restarted for view in views):
        return None
    basis = steps.pop()
    return None if basis is None else transferred(controls, ranks, basis)


def _first_step(views: list[View]) -> int | None:
    return min((view.pair.basis + 1 for view in views if view.pair), default=None)


def _without_consequences(
    findings: list[FindingRecord], case: Case, *, changed_world: bool
) -> list[FindingRecord]:
    """Fold what follows from another world size or from one flipped byte into the finding that says so."""
    if changed_world:
        follows = [record for record in findings if record.slug in DATA_SLUGS]
        world = next(record for record in findings if record.slug == "world-changed")
        world.components = list(
            dict.fromkeys([*world.components, *(c for r in follows for c in r.components)])
        )
        world.details = [*world.details, *(record.evidence for record in follows)]
        findings = [record for record in findings if record not in follows]
    if RANKS.search(case.changed):
        for record in findings:
            if record.slug in DATA_SLUGS or record.slug == "config-drift":
                # dealt out anew, samples do not tell whether their order or the place in it was lost
                data = [Component.DATA_POSITION] if record.slug in DATA_SLUGS else []
                record.components = list(dict.fromkeys([Component.WORLD, *record.components, *data]))
    defects = [r for r in findings if r.severity is Severity.DEFECT and r.slug != "silent-restart"]
    if case.flipped and defects:
        first = min(defects, key=lambda record: FINDINGS[record.slug].rank)
        details = [f"{record.slug}: {record.evidence}" for record in defects]
        text = f"{listed(case.damaged)}: one flipped byte was loaded; {first.evidence}"
        note = finding("byte-flip-accepted", text, step=first.step, rank=first.rank, details=details)
        return [note, *(record for record in findings if record not in defects)]
    return findings


def _verdict(views: list[View], findings: list[FindingRecord], scene: _Scene) -> Judgement:
    case, ending = scene.case, scene.ending
    first = _leading(views, findings)
    verified = min((len(view.pair.steps) if view.pair else 0) for view in views)
    observation = Observation(
        outcome=Outcome.SAME,
        resume_step=first.resume_step,
        claimed_step=first.alignment.claimed_step,
        first_divergent_step=_first_divergent(views, findings),
        steps_verified=0 if first.restarted or case.finished else verified,
        ran_to_end=all(_to_end(view) for view in views),
        exit_code=ending.exit_code,
    )
    if case.cut_step is not None and first.resume_step is not None:
        observation.steps_lost = max(case.cut_step - first.resume_step, 0)
    findings = [*findings, *_crash(views, findings, ending), *_measurements(findings, case, scene.criterion)]
    observation.outcome = _outcome(findings, observation, ending, case)
    if observation.outcome is Outcome.SAME and (due := _due(views, case)) > observation.steps_verified:
        observation.outcome = Outcome.INCONCLUSIVE
        observation.summary = f"only {observation.steps_verified} of {due} steps could be compared"
    hidden = next((what for view in views if view.pair and (what := unseen(view.pair))), "")
    if observation.outcome is Outcome.SAME and hidden:
        observation.outcome = Outcome.INCONCLUSIVE
        observation.summary = f"the probe saw no {hidden} of the restarted run"
    observation.rank = first.rank if observation.outcome not in (Outcome.SAME, Outcome.INCONCLUSIVE) else None
    observation.summary = observation.summary or summary_of(observation, findings, ending, case)
    return Judgement(observation, sorted(findings, key=lambda record: FINDINGS[record.slug].rank))


def _due(views: list[View], case: Case) -> int:
    """Return how many steps must have been compared: as many as were wanted and the control holds."""
    left = [len(view.pair.control.steps) - view.pair.basis for view in views if view.pair]
    due = min(left, default=0)
    return min(case.wanted, due) if case.wanted else due


def _leading(views: list[View], findings: list[FindingRecord]) -> View:
    """Return the rank to report on: the one that parts from the control first."""
    seen = [record for record in findings if record.severity is Severity.DEFECT]
    rank = min(seen, key=lambda record: (record.step or 0, record.rank)).rank if seen else views[0].rank
    return next((view for view in views if view.rank == rank), views[0])


def _first_divergent(views: list[View], findings: list[FindingRecord]) -> int | None:
    """Return the first control step that was not repeated equally; none for a run that began again."""
    if any(view.restarted for view in views):
        return None
    steps = [
        r.step
        for r in findings
        if r.step is not None and (r.severity is Severity.DEFECT or r.slug == "byte-flip-accepted")
    ]
    other = [first_other_result(view.pair) for view in views if view.pair]
    return min([*steps, *(aligned.number for aligned in other if aligned)], default=None) if steps else None


def _to_end(view: View) -> bool:
    pair = view.pair
    return pair is not None and pair.basis + len(pair.steps) == len(pair.control.steps)


def _crash(views: list[View], findings: list[FindingRecord], ending: Ending) -> list[FindingRecord]:
    """Return the finding for a run that took steps and then failed."""
    if not ending.exit_code or ending.hit_step_limit or any(r.severity is Severity.DEFECT for r in findings):
        return []
    last = next(iter(reversed(complaints(ending.log_tail))), "no message")
    steps = max(len(view.pair.steps) if view.pair else 0 for view in views)
    return [finding("crash-on-resume", f"exit code {ending.exit_code} after {steps} steps: {last[:160]}")]


def _measurements(findings: list[FindingRecord], case: Case, criterion: Criterion) -> list[FindingRecord]:
    if not criterion.blind or case.finished or any(r.severity is Severity.DEFECT for r in findings):
        return []
    return [finding("blind-criterion", f"the criterion does not see a loss of {listed(criterion.blind)}")]


def _outcome(findings: list[FindingRecord], observation: Observation, ending: Ending, case: Case) -> Outcome:
    reached = [_outcome_of(record, case) for record in findings]
    found = [outcome for outcome in reached if outcome is not None]
    if found:
        return worst_outcome(found)
    proven = observation.resume_step is not None and observation.steps_verified > 0
    return Outcome.SAME if proven and not ending.timed_out else Outcome.INCONCLUSIVE


def _outcome_of(record: FindingRecord, case: Case) -> Outcome | None:
    """Return what a finding makes of the scenario; notes about what changes nothing make nothing of it."""
    if record.severity is Severity.MEASUREMENT:
        return Outcome.INCONCLUSIVE
    if record.slug == "lost-work" or (record.slug == "stale-checkpoint-selected" and not case.foreign_steps):
        return Outcome.LOST_WORK
    if record.slug == "byte-flip-accepted":
        return Outcome.DIFFERENT
    if record.severity is Severity.NOTE:
        return None
    return {"silent-restart": Outcome.RESTARTED, "crash-on-resume": Outcome.CRASHED}.get(
        record.slug, Outcome.DIFFERENT
    )
