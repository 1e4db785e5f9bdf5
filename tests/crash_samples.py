"""A save and states of it, made by hand for the tests of the reports."""

from __future__ import annotations

from samestep.contract import FINDINGS as TABLE
from samestep.contract import Family, Outcome
from samestep.drill.result import (
    CrashOperation,
    CrashPoint,
    CrashWindow,
    Expectation,
    FindingRecord,
    Observation,
    ScenarioResult,
)

FINDINGS = ["optimizer-reset", "schedule-restarted", "scaler-reset", "data-repeated", "rng-not-restored"]


def operation(index: int, kind: str, text: str, path: str) -> CrashOperation:
    file = "checkpoint-6/model.safetensors" if path == ".tmp" else ""
    return CrashOperation(
        index=index, kind=kind, text=text, path=f"checkpoint-6/{path}".rstrip("/"), file=file
    )


SAVE = CrashWindow(
    name="save-6",
    step=6,
    operations=[
        operation(10, "mkdir", "make folder checkpoint-6", ""),
        operation(11, "create", "create checkpoint-6/.tmp", ".tmp"),
        operation(12, "write", "write to checkpoint-6/.tmp", ".tmp"),
        operation(
            13, "rename", "rename checkpoint-6/.tmp to checkpoint-6/model.safetensors", "model.safetensors"
        ),
        operation(14, "write", "write to checkpoint-6/optimizer.pt", "optimizer.pt"),
        operation(15, "close", "close checkpoint-6/optimizer.pt", "optimizer.pt"),
        operation(16, "create", "create checkpoint-6/scheduler.pt", "scheduler.pt"),
        operation(17, "write", "write to checkpoint-6/scheduler.pt", "scheduler.pt"),
        operation(18, "write", "write to checkpoint-6/scheduler.pt", "scheduler.pt"),
        operation(19, "sync", "fsync of checkpoint-6/scheduler.pt", "scheduler.pt"),
        operation(20, "unlink", "delete old.pt", "old.pt"),
    ],
    counts=["kill: 12 unique of 15 states (at most m + 8f = 15)"],
    states=40,
)


def state(
    model: str,
    after: int,
    *,
    outcome: Outcome = Outcome.SAME,
    resume: int | None = None,
    whole: int | None = None,
    way: str = "",
    file: str = "",
    damage: str = "",
    lasting: bool = False,
    allowed: bool = True,
    findings: list[str] | None = None,
    divergent: int | None = None,
    exit_code: int | None = None,
    summary: str = "",
    window: str = "save-6",
) -> ScenarioResult:
    """A disk state and what a restart from it did."""
    name = "/".join(
        part for part in ("crash", window, model, f"op-{after:03}", f"{file}-{way}".strip("-")) if part
    )
    return ScenarioResult(
        name=name,
        family=Family.CRASH,
        title=name,
        expected=Expectation(outcomes=[Outcome.SAME], resume_step=whole),
        observed=Observation(
            outcome=outcome,
            resume_step=resume,
            first_divergent_step=divergent,
            exit_code=exit_code,
            summary=summary,
        ),
        holds=outcome is Outcome.SAME or not allowed,
        replay=f"samestep drill --replay {name} -- python train.py --out {{out}}",
        findings=[
            FindingRecord(slug=slug, severity=TABLE[slug].severity, components=list(TABLE[slug].components))
            for slug in findings or []
        ],
        crash=CrashPoint(
            window=window,
            model=model,
            after=after,
            last="write to checkpoint-6/optimizer.pt",
            damage=damage,
            way=way,
            file=file,
            whole=whole,
            lasting=lasting,
            allowed=allowed,
        ),
        seconds=0.5,
    )
