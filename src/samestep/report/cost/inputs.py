"""What a prediction rests on, as pairs of a name and a text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samestep.cost.units import duration, money, share

from .words import lives_text, quantity_text

if TYPE_CHECKING:
    from samestep.cost.inputs import Case, Policy, Risk

_MEASURED = (
    ("step_seconds", "one step", "s"),
    ("stall_seconds", "waiting for its data", "s"),
    ("save_seconds", "training stands still for a save", "s"),
    ("persist_seconds", "until a save is durable", "s"),
    ("persist_share", "slowed meanwhile by", ""),
    ("restart_seconds", "start to first useful step", "s"),
    ("save_bytes", "written by a save", "B"),
    ("kept_bytes", "kept in the store", "B"),
    ("save_requests", "requests of a save", ""),
)


def input_rows(case: Case) -> list[tuple[str, str]]:
    """Return every input in words, what was left at zero by default not among them."""
    progress = f"{case.work.steps:,} steps"
    if case.work.per_step != 1 or str(case.work.unit) != "steps":
        progress += f" ({case.work.steps * case.work.per_step:,.0f} {case.work.unit})"
    rows = [("work", progress)]
    for field, name, unit in _MEASURED:
        quantity = getattr(case.measured, field)
        if quantity.value:
            rows.append((name, quantity_text(quantity, unit)))
    return [*rows, *_risk(case.risk), *_policy(case.policy, _currency(case))]


def _risk(risk: Risk) -> list[tuple[str, str]]:
    rows = [("interruptions", lives_text(risk.lives))]
    if risk.wait_seconds.value:
        rows.append(("wait for capacity", quantity_text(risk.wait_seconds, "s")))
    rows.append(("usable notice", f"{share(risk.usable_notice)} of interruptions"))
    if risk.notice_seconds:
        rows.append(("from notice to end", duration(risk.notice_seconds)))
    if risk.nodes > 1:
        kind = "lives are those of one machine" if risk.correlated else "lives are those of the whole run"
        rows.append(("machines", f"{risk.nodes}; {kind}"))
    return rows


def _policy(policy: Policy, currency: str) -> list[tuple[str, str]]:
    interval = policy.interval_seconds
    rows = [
        ("capacity", str(policy.capacity)),
        ("save interval", "the one that costs least" if interval is None else duration(interval)),
    ]
    if policy.deadline_seconds is not None:
        rows.append(("deadline", duration(policy.deadline_seconds)))
    if policy.budget is not None:
        rows.append(("budget", money(policy.budget, currency)))
    return rows


def _currency(case: Case) -> str:
    return case.offers[0].currency if case.offers else "USD"
