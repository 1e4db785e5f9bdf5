"""Drill results made up by hand for the tests of the reports: one of each kind of ending."""

from __future__ import annotations

import math
from pathlib import Path

from samestep.contract import Component, Family, Outcome, Severity
from samestep.drill.result import (
    Control,
    Criterion,
    DrillResult,
    Expectation,
    FindingRecord,
    InventoryRow,
    Observation,
    Save,
    ScenarioResult,
    Series,
)
from samestep.report import decode_result

STEPS = 24
SAVES = [6, 12, 18, 24]
BATCH = 4
COMMAND = ["python", "examples/transformers_trainer.py", "--out", "{out}"]


def loss_at(step: int) -> float:
    return round(0.35 + 2.1 * math.exp(-step / 7) + 0.06 * math.sin(step * 1.7), 6)


def rate_at(step: int) -> float:
    return round(5e-5 * (step / 3 if step <= 3 else (STEPS + 1 - step) / (STEPS - 2)), 10)


def samples_at(step: int) -> list[int]:
    return [((step - 1) * BATCH + i) * 37 % 48 for i in range(BATCH)]


def series(
    attempt: str,
    first: int,
    last: int,
    *,
    loss_shift: float = 0.0,
    rate_restart: bool = False,
    data_from: int = 0,
) -> Series:
    steps = list(range(first, last + 1))
    offset = first - 1
    return Series(
        attempt=attempt,
        steps=steps,
        loss=[round(loss_at(s) + loss_shift * (s - offset), 6) for s in steps],
        learning_rate=[rate_at(s - offset if rate_restart else s) for s in steps],
        samples=[samples_at(s - first + data_from if data_from else s) for s in steps],
        began=[round(0.4 + 0.11 * i, 3) for i in range(len(steps))],
        ended=[round(0.5 + 0.11 * i, 3) for i in range(len(steps))],
    )


def scenario(
    name: str,
    family: Family,
    title: str,
    *,
    outcome: Outcome = Outcome.SAME,
    expected: list[Outcome] | None = None,
    cut: int | None = None,
    resume: int | None = None,
    expected_resume: int | None = None,
    summary: str = "",
    findings: list[FindingRecord] | None = None,
    chart: Series | None = None,
    divergent: int | None = None,
) -> ScenarioResult:
    accepted = expected or [Outcome.SAME]
    defects = [f for f in findings or [] if f.severity is not Severity.NOTE]
    return ScenarioResult(
        name=name,
        family=family,
        title=title,
        expected=Expectation(
            outcomes=accepted, resume_step=resume if expected_resume is None else expected_resume
        ),
        observed=Observation(
            outcome=outcome,
            resume_step=resume,
            claimed_step=resume,
            first_divergent_step=divergent,
            steps_lost=None if cut is None or resume is None else cut - resume,
            steps_verified=len(chart.steps) if chart else 0,
            rank=0 if divergent else None,
            exit_code=None if chart else 1,
            summary=summary,
        ),
        holds=outcome in accepted and not defects,
        cut_step=cut,
        attempts=[f"{name}.1"],
        findings=findings or [],
        series=[chart] if chart else [],
        replay=f"samestep drill --replay {name} -- python examples/transformers_trainer.py --out {{out}}",
        log=f"logs/{name}.1.log",
        seconds=2.4,
    )


def optimizer_reset(step: int) -> FindingRecord:
    return FindingRecord(
        slug="optimizer-reset",
        severity=Severity.DEFECT,
        components=[Component.OPTIMIZER, Component.SCHEDULE],
        step=step,
        evidence=f"resumes at {step - 1} with a fresh Adam and a fresh schedule, exit code 0, no message above INFO",
        details=[f"0/exp_avg and 0/exp_avg_sq are empty before step {step}; the control's hold 38 tensors"],
        quantity="0/exp_avg",
    )


def byte_flip(file: str) -> FindingRecord:
    return FindingRecord(
        slug="byte-flip-accepted",
        severity=Severity.NOTE,
        components=[Component.ACCESS],
        evidence=f"one byte of {file} was flipped and loaded without a word",
    )


def control() -> Control:
    return Control(
        runs=2,
        steps=STEPS,
        save_steps=SAVES,
        bit_equal=True,
        saves=[Save(step=s, units=[f"checkpoint-{s}"], size_bytes=1_254_400) for s in SAVES],
        watching_proven=True,
        epoch_ends=[12, 24],
        seconds=9.8,
        series=[series("control", 1, STEPS)],
    )


def _cuts() -> list[ScenarioResult]:
    cut = Family.CUT
    lost = "resumed at 6, 2 steps lost"
    return [
        scenario(
            "cut-after-save",
            cut,
            "after step 8, save 6 complete",
            cut=8,
            resume=6,
            summary=lost,
            chart=series("cut-after-save.1", 7, STEPS),
        ),
        scenario(
            "cut-inside-step",
            cut,
            "inside step 8, no warning",
            cut=8,
            resume=6,
            summary=lost,
            chart=series("cut-inside-step.1", 7, 10),
        ),
        scenario(
            "cut-epoch-end",
            cut,
            "after the last step of an epoch",
            cut=12,
            resume=12,
            summary="resumed at 12, no step lost",
            chart=series("cut-epoch-end.1", 13, 16),
        ),
        scenario(
            "cut-twice",
            cut,
            "twice in one epoch",
            cut=11,
            resume=6,
            summary="resumed at 6 and at 6, 5 steps lost",
            chart=series("cut-twice.2", 7, 13),
        ),
        scenario(
            "cut-before-first-save",
            cut,
            "before the first save",
            cut=3,
            resume=0,
            summary="a true fresh start",
            chart=series("cut-before-first-save.1", 1, 4),
        ),
    ]


def _missing(file: str) -> ScenarioResult:
    return scenario(
        f"damage-missing-{file.split('.', maxsplit=1)[0]}",
        Family.DAMAGE,
        f"checkpoint-18/{file} missing",
        outcome=Outcome.DIFFERENT,
        expected=[Outcome.SAME, Outcome.REFUSED],
        cut=20,
        resume=18,
        summary="first at step 19",
        divergent=19,
        findings=[optimizer_reset(19)],
        chart=series("damage", 19, 22, loss_shift=0.031, rate_restart=True),
    )


def _flipped(file: str) -> ScenarioResult:
    return scenario(
        f"damage-flip-{file.split('.', maxsplit=1)[0]}",
        Family.DAMAGE,
        f"one byte of checkpoint-18/{file} flipped",
        expected=[Outcome.SAME, Outcome.REFUSED, Outcome.DIFFERENT],
        outcome=Outcome.DIFFERENT,
        cut=20,
        resume=18,
        summary="loaded without a word",
        findings=[byte_flip(file)],
        divergent=19,
        chart=series("flip", 19, 22, loss_shift=0.002),
    )


def _damages() -> list[ScenarioResult]:
    truncated = scenario(
        "damage-truncated-optimizer",
        Family.DAMAGE,
        "checkpoint-18/optimizer.pt truncated",
        outcome=Outcome.REFUSED,
        expected=[Outcome.SAME, Outcome.REFUSED],
        cut=20,
        summary="names the damaged part; a whole checkpoint-12 was there",
    )
    foreign = scenario(
        "damage-foreign",
        Family.DAMAGE,
        "an older run's checkpoint-30 beside",
        outcome=Outcome.LOST_WORK,
        cut=20,
        resume=12,
        expected_resume=18,
        summary="resumed at 12, checkpoint-18 was whole",
    )
    missing = [_missing(file) for file in ("optimizer.pt", "scheduler.pt")]
    flipped = [_flipped(file) for file in ("model.safetensors", "optimizer.pt")]
    return [*missing, truncated, *flipped, foreign]


def defect_result() -> DrillResult:
    """The transcript of the issue: cuts hold, a missing file is not noticed."""
    notice = scenario(
        "notice",
        Family.NOTICE,
        "SIGTERM after step 8, 30 s grace",
        cut=8,
        resume=8,
        summary="saved in 1.2 s, resumed at 8",
        chart=series("notice.1", 9, 12),
    )
    restart = scenario(
        "restart-finished",
        Family.RESTART,
        "the finished run started once more",
        cut=24,
        resume=24,
        summary="takes no step",
    )
    return DrillResult(
        version="0.1.0",
        run_id="20260102-030405-a1b2",
        outcome=Outcome.DIFFERENT,
        exit_code=1,
        command=COMMAND,
        resume_with=["--resume_from_checkpoint", "{checkpoint}"],
        started_unix=1_767_323_045.0,
        seconds=96.4,
        provenance={
            "versions": {"python": "3.11.9", "torch": "2.13.0", "transformers": "5.1.0"},
            "machine": {"system": "Linux", "cpus": 2, "accelerators": []},
            "code": {"git_commit": "0f1e2d3c", "changed": True},
            "environment": {"HF_TOKEN": "redacted", "OMP_NUM_THREADS": "1"},
            "settings": {"steps": 24, "verify_steps": 4},
        },
        criterion=Criterion(
            kind="exact", rule="two controls agree bit for bit, so every digest must be equal"
        ),
        control=control(),
        scenarios=[*_cuts(), notice, *_damages(), restart],
        inventory=[
            InventoryRow(component="weights", state="saved"),
            InventoryRow(
                component="optimizer", state="saved", detail="silently rebuilt when optimizer.pt is missing"
            ),
            InventoryRow(component="schedule", state="saved"),
            InventoryRow(component="scaler", state="absent", detail="no loss scaler in this run"),
            InventoryRow(component="rng", state="lost", detail="the generator of the data collator"),
            InventoryRow(component="callbacks", state="untracked", detail="self.best_metric"),
            InventoryRow(component="world", state="not-checked", detail="one rank only"),
        ],
        not_checked=[
            "Saves torn in the middle: no interruption inside a write was tried.",
            "Another world size: give --also to try one.",
        ],
    )


def holding_result() -> DrillResult:
    """Everything holds."""
    result = defect_result()
    result.scenarios = [s for s in result.scenarios if s.holds]
    result.outcome, result.exit_code = Outcome.SAME, 0
    return result


def noisy_result() -> DrillResult:
    """Two controls that differ, and a criterion that is blind for one component."""
    result = holding_result()
    assert result.control is not None
    result.control.bit_equal = False
    result.control.differing = ["weights", "loss"]
    result.control.watching_proven = None
    result.criterion = Criterion(
        kind="tolerance",
        rule="eight times the largest relative distance of two controls",
        tolerances={"weights": 3.2e-6, "loss": 4.1e-5, "0/exp_avg": math.inf},
        sabotages={"optimizer": True, "schedule": True, "data": True, "rng": False},
        blind=[Component.RNG],
    )
    result.scenarios[0].observed.outcome = Outcome.INCONCLUSIVE
    result.scenarios[0].holds = False
    result.scenarios[0].findings = [
        FindingRecord(
            slug="blind-criterion",
            severity=Severity.MEASUREMENT,
            components=[],
            evidence="resetting the generators on purpose went unnoticed",
        )
    ]
    result.outcome, result.exit_code = Outcome.INCONCLUSIVE, 4
    return result


def empty_result() -> DrillResult:
    """Nothing ran: the script never saved."""
    return DrillResult(
        version="0.1.0",
        run_id="20260102-030405-0000",
        outcome=Outcome.INCONCLUSIVE,
        exit_code=5,
        command=COMMAND,
        findings=[
            FindingRecord(
                slug="never-saved",
                severity=Severity.DEFECT,
                components=[Component.COMPLETENESS],
                evidence="24 steps, and nothing under {out} changed",
            )
        ],
        message="no save fell inside 24 steps: lower save_steps, or give --steps 200",
    )


def hostile_result() -> DrillResult:
    """Text that tries to leave its place in a page."""
    result = defect_result()
    attack = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    result.command = ["python", attack]
    result.scenarios[0].title = attack
    result.scenarios[-2].observed.summary = attack
    result.message = attack
    result.scenarios[0].series[0].loss[1] = math.nan
    result.scenarios[0].series[0].loss[2] = math.inf
    result.provenance["environment"]["EVIL"] = attack
    return result


def interrupted_result() -> DrillResult:
    """A real drill of a script that keeps one checkpoint and syncs nothing, cut down to 29 scenarios."""
    path = Path(__file__).parent / "golden" / "interrupted_saves.json"
    return decode_result(path.read_bytes(), str(path))


SAMPLES = {
    "defect": defect_result,
    "holding": holding_result,
    "noisy": noisy_result,
    "empty": empty_result,
    "hostile": hostile_result,
    "interrupted": interrupted_result,
}
