"""The result of a drill as it is written to ``drill.json`` (schema ``samestep.drill/1``).

Everything a report shows comes from these records, so that a report can be made again without running anything.
"""

from __future__ import annotations

from typing import Any

import msgspec

from samestep.contract import Component, Family, Outcome, Severity

DRILL_SCHEMA = "samestep.drill/1"


class Expectation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """What must happen, written down before the scenario runs.

    Attributes:
        outcomes: outcomes that hold.
        resume_step: steps complete in the newest whole checkpoint; the next step is one more. 0: a fresh start.
            None: not fixed.
    """

    outcomes: list[Outcome]
    resume_step: int | None = None


class FindingRecord(msgspec.Struct, kw_only=True):
    """One finding of one scenario.

    Attributes:
        slug: key into the findings table.
        step: control step where it shows, if it has one.
        rank: rank it was seen on.
        evidence: one line: what was seen.
        details: further lines.
        quantity: what differed (``0/exp_avg``, ``weights``), for the report.
        silenced: it is intended (the setting ``silence``) and does not count.
    """

    slug: str
    severity: Severity
    components: list[Component]
    step: int | None = None
    rank: int = 0
    evidence: str = ""
    details: list[str] = []
    quantity: str = ""
    silenced: bool = False


class Observation(msgspec.Struct, kw_only=True):
    """What happened.

    Attributes:
        outcome: the verdict of the comparison.
        resume_step: control step whose state the resumed run really continued from (by content); 0: fresh start;
            None: no match.
        claimed_step: the same by the run's own counters; None when it shows none.
        first_divergent_step: first control step that the restarted run did not repeat equally; None when all
            verified agreed.
        steps_lost: cut step minus resume step.
        steps_verified: steps after the resume that were compared.
        ran_to_end: the restarted run was followed to the end of the control.
        rank: rank of the first divergence.
        exit_code: of the restarted command; None when the drill stopped it.
        summary: one short phrase for the terminal line.
    """

    outcome: Outcome
    resume_step: int | None = None
    claimed_step: int | None = None
    first_divergent_step: int | None = None
    steps_lost: int | None = None
    steps_verified: int = 0
    ran_to_end: bool = False
    rank: int | None = None
    exit_code: int | None = None
    summary: str = ""


class Series(msgspec.Struct, kw_only=True):
    """Per-step numbers of one attempt for the charts, indexed by control step.

    Attributes:
        attempt: name.
        rank: rank.
        steps: control step numbers.
        loss, learning_rate: one per step; None where unknown.
        samples: sample indices (or short data digests) per step.
        began, ended: seconds since the attempt's start.
    """

    attempt: str
    rank: int = 0
    steps: list[int] = []
    loss: list[float | None] = []
    learning_rate: list[float | None] = []
    samples: list[list[Any]] = []
    began: list[float] = []
    ended: list[float] = []


class CrashPoint(msgspec.Struct, kw_only=True):
    """The disk state of one interruption of a save.

    Attributes:
        window: name of the save, ``save-18``.
        model: the weakest persistence model that allows the state.
        after: index of the last operation that took effect (see `CrashOperation.index`).
        last: the operation at which the interruption came, in words.
        damage: what got lost or torn, in words; empty when nothing did.
        way: the kind of damage in one word.
        file: the damaged file, where it is one.
        whole: newest step whose checkpoint is there bit by bit; None: of none.
        torn: checkpoints that equal no save that was made.
        mixed: checkpoints with files of several saves.
        lasting: the state may be found even after the save has returned.
        allowed: the storage in use allows it; otherwise its outcome is noted only.
        also: how many further interruptions leave the same bytes.
    """

    window: str
    model: str
    after: int
    last: str
    damage: str = ""
    way: str = ""
    file: str = ""
    whole: int | None = None
    torn: list[str] = []
    mixed: list[str] = []
    lasting: bool = False
    allowed: bool = True
    also: int = 0


class CrashOperation(msgspec.Struct, kw_only=True):
    """One operation of a save window.

    Attributes:
        index: in the recording.
        kind: what it does.
        text: the same in words.
        path: the file or folder it concerns, relative to the durable folder where it lies below it.
        file: the name which that has at the end of the save; empty: the path.
    """

    index: int
    kind: str
    text: str
    path: str = ""
    file: str = ""


class CrashWindow(msgspec.Struct, kw_only=True):
    """One save, operation by operation.

    Attributes:
        name: ``save-18``.
        step: steps complete when it began.
        operations: in order.
        counts: per model a sentence: unique and raw states and the bound known beforehand.
        states: different disk states in all.
        tried: how many of them were restarted.
        untried: of the others, per model the operation after which each was cut.
    """

    name: str
    step: int
    operations: list[CrashOperation]
    counts: list[str] = []
    states: int = 0
    tried: int = 0
    untried: dict[str, list[int]] = {}


class CrashRecord(msgspec.Struct, kw_only=True):
    """What the family ``crash`` rests on.

    Attributes:
        tier: how file operations were recorded.
        operations: how many were recorded.
        proven: replaying the recording gives the very bytes that the control left.
        models: persistence models that were asked for.
        storage: file system whose guarantees count.
        windows: the saves that were taken apart.
        seed: of the choice of states.
        notes: what could not be followed.
    """

    tier: str
    operations: int
    proven: bool
    models: list[str]
    storage: str
    windows: list[CrashWindow] = []
    seed: int = 0
    notes: list[str] = []


class ScenarioResult(msgspec.Struct, kw_only=True):
    """One scenario: planned, run, judged.

    Attributes:
        name: stable and unique inside the drill; what ``--replay`` takes.
        family: group.
        title: what is done, in words.
        cut_step: steps complete when the machine was lost.
        attempts: names of the attempts it took (two when interrupted twice).
        holds: observed is one of the expected outcomes, from the expected point, and no defect was found.
        replay: command that repeats just this scenario.
        crash: the disk state, for the family ``crash``.
        forked: the restart was a fork of a preloaded process; results of its kind were confirmed by a fresh one.
        seconds: wall time it took.
    """

    name: str
    family: Family
    title: str
    expected: Expectation
    observed: Observation
    holds: bool
    cut_step: int | None = None
    attempts: list[str] = []
    findings: list[FindingRecord] = []
    series: list[Series] = []
    replay: str = ""
    log: str = ""
    crash: CrashPoint | None = None
    forked: bool = False
    seconds: float = 0.0


class Criterion(msgspec.Struct, kw_only=True):
    """The rule for "the same", fixed before any scenario runs.

    Attributes:
        kind: ``exact`` or ``tolerance``.
        rule: how tolerances were derived, in a sentence, with its source.
        tolerances: per quantity: largest accepted relative distance.
        sabotages: per sabotage (``optimizer``, ``schedule``, ``data``, ``rng``): True when the criterion caught it.
        blind: components whose sabotage was not caught; their verdict is inconclusive.
        ignored: quantities without numbers (``rng/python``, ``inputs``) in which the controls differ: never judged.
    """

    kind: str
    rule: str
    tolerances: dict[str, float] = {}
    sabotages: dict[str, bool] = {}
    blind: list[Component] = []
    ignored: list[str] = []


class Save(msgspec.Struct, kw_only=True):
    """One save of the control: ``step`` steps were complete, ``units`` are the checkpoint units it changed."""

    step: int
    units: list[str]
    size_bytes: int = 0


class InventoryRow(msgspec.Struct, kw_only=True):
    """One row of the component inventory.

    ``state`` is ``saved``, ``lost``, ``untracked``, ``absent`` or ``not-checked``.
    """

    component: str
    state: str
    detail: str = ""


class Control(msgspec.Struct, kw_only=True):
    """The uninterrupted runs.

    Attributes:
        runs: how many.
        steps: optimizer steps of the control.
        save_steps: steps after which a save was seen.
        bit_equal: two controls agreed in every digest.
        tolerances: as fixed by the criterion; empty when exactness is demanded.
        differing: quantities in which they did not.
        watching_proven: the tensor content of the durable folder was equal with and without the probe.
        watching: that proof in a sentence.
        epoch_ends: steps that ended an epoch, as far as the data order shows it.
        accumulation: micro-steps per step.
        ranks: world size.
        content: digest of all tensors that the control left in the durable folder.
    """

    runs: int
    steps: int
    save_steps: list[int]
    bit_equal: bool
    tolerances: dict[str, float] = {}
    differing: list[str] = []
    saves: list[Save] = []
    watching_proven: bool | None = None
    watching: str = ""
    epoch_ends: list[int] = []
    accumulation: int = 1
    ranks: int = 1
    content: str = ""
    seconds: float = 0.0
    series: list[Series] = []


class DrillResult(msgspec.Struct, kw_only=True):
    """A whole drill.

    Attributes:
        outcome: worst outcome of the scenarios that do not hold; ``same`` when all hold.
        exit_code: of the command.
        run_id: name of the run's folder.
        command: the drilled command with its placeholders.
        provenance: versions, machine, code and settings, values redacted.
        criterion: the rule for the same.
        control: the uninterrupted runs; None when there were none.
        scenarios: in the order of the plan.
        findings: findings that belong to no single scenario.
        inventory: component inventory.
        fingerprint: digest of code, settings and versions, which results rest on.
        crash: what the family ``crash`` rests on; None when no save was recorded.
        not_checked: what this drill did not check, in sentences.
        interrupted: the drill was ended before its plan was done.
    """

    schema: str = DRILL_SCHEMA
    version: str
    run_id: str
    outcome: Outcome
    exit_code: int
    command: list[str]
    resume_with: list[str] = []
    started_unix: float = 0.0
    seconds: float = 0.0
    provenance: dict[str, Any] = {}
    criterion: Criterion | None = None
    control: Control | None = None
    scenarios: list[ScenarioResult] = []
    findings: list[FindingRecord] = []
    inventory: list[InventoryRow] = []
    fingerprint: str = ""
    crash: CrashRecord | None = None
    not_checked: list[str] = []
    interrupted: bool = False
    message: str = ""
