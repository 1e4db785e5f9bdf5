"""A cost answer on a terminal: the verdict first, then what it rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samestep.cost.units import NOTHING, ratio
from samestep.report.paper import LABEL_WIDTH, Paper
from samestep.report.tables import Table
from samestep.report.terminal import DEFAULT_WIDTH
from samestep.report.view import UNKNOWN, count_of

from . import words
from .accounts import columns, compared_with_actual, lines, per_progress, sums

if TYPE_CHECKING:
    from samestep.cost.result import CostResult, OfferResult

    from .accounts import Column


def render_cost(
    result: CostResult, *, colour: bool = False, width: int = DEFAULT_WIDTH, page: str = ""
) -> str:
    """Render a cost answer as text.

    Args:
        result: what to show.
        colour: paint with ANSI codes.
        width: columns to wrap at.
        page: path of the page, named in the last line; empty: none is named.
    """
    paper = Paper(colour=colour, width=width)
    blocks = [
        _verdict(result, paper),
        _offers(result),
        _zones(result),
        _ledgers(result),
        _actual(result),
        _advice(result, paper),
        _tornado(result),
        _listed("besides", result.conditions, paper),
        _listed("notes", result.notes, paper),
        _last(result, paper, page),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _verdict(result: CostResult, paper: Paper) -> str:
    found = words.verdict(result)
    lines_ = paper.labelled("verdict", found.headline, found.tone)
    return "\n".join([*lines_, *paper.labelled("", found.sentence, None)])


def _offers(result: CostResult) -> str:
    if not result.offers:
        return ""
    shown = result.offers[: words.SHOWN_OFFERS]
    head = (
        "offer",
        "ratio",
        "spot",
        "on-demand",
        "spot is",
        "ends p50",
        "p95",
        "in time",
        "even at",
        "choice",
    )
    table = Table(head, [_offer_row(result, one) for one in shown], frozenset({1, 2, 3, 5, 6, 7}))
    text = (
        (table if result.case.policy.deadline_seconds is not None else _without(table, "in time"))
        .text()
        .rstrip()
    )
    rest = len(result.offers) - len(shown)
    return f"{text}\n… and {count_of(rest, 'offer')} more, dearer ones" if rest else text


def _offer_row(result: CostResult, one: OfferResult) -> tuple[str, ...]:
    currency, ways = one.offer.currency, one.spot or one.on_demand
    return (
        words.offer_name(one),
        ratio(one.ratio),
        words.cost_text(one.spot, currency),
        words.on_demand_text(result, one),
        words.saving(one.spot, words.compared(result, one)),
        words.end_text(ways, ways.finish_seconds.p50) if ways else NOTHING,
        words.end_text(ways, ways.finish_seconds.p95) if ways else NOTHING,
        words.in_time_text(ways),
        words.break_even_text(one),
        str(one.choice),
    )


def _zones(result: CostResult) -> str:
    if not result.zones:
        return ""
    rows = [
        (
            name,
            words.cost_text(ways, ways.money.unit),
            words.end_text(ways, ways.finish_seconds.p50),
            words.end_text(ways, ways.finish_seconds.p95),
            words.in_time_text(ways),
        )
        for name, ways in words.zones(result)
    ]
    return Table(words.ZONE_HEAD, rows, frozenset({1, 2, 3, 4})).text().rstrip()


def _without(table: Table, name: str) -> Table:
    """Leave out a column."""
    out = table.head.index(name)
    rows = [(*row[:out], *row[out + 1 :]) for row in table.rows]
    numbers = frozenset(column - (column > out) for column in table.numbers if column != out)
    return Table((*table.head[:out], *table.head[out + 1 :]), rows, numbers)


def _ledgers(result: CostResult) -> str:
    shown = columns(result)
    if not shown:
        return ""
    rows = _account_rows(shown)
    rows += [(name, *each, *("" for _ in each)) for name, _, each in per_progress(result)]
    return _account(shown, rows)


def _actual(result: CostResult) -> str:
    shown = compared_with_actual(result)
    if not shown:
        return ""
    steps = result.actual_steps
    said = f"{steps['accepted']} accepted, {steps.get('executed', 0)} executed, {steps.get('lost', 0)} lost"
    head = f"so far: {said}; predicted for as many accepted steps, saved as often\n"
    return head + _account(shown, _account_rows(shown))


def _account_rows(shown: list[Column]) -> list[tuple[str, ...]]:
    return [
        (line.name, *(one.text(value) for one, value in zip(shown, line.amounts, strict=True)))
        for line in [*lines(shown), *sums(shown)]
    ]


def _account(shown: list[Column], rows: list[tuple[str, ...]]) -> str:
    head = ("ledger", *(f"{one.kind}, {one.title}" for one in shown))
    return Table(head, rows, frozenset(range(1, len(head)))).text().rstrip()


def _advice(result: CostResult, paper: Paper) -> str:
    tone = UNKNOWN if result.evidence.interruptions is not None and result.choice == "undecided" else None
    spread = words.spread_text(result)
    parts = [
        *(paper.labelled("spread", spread, None) if spread else []),
        *paper.labelled("interval", words.interval_text(result), None),
        *paper.labelled("risk", words.risk_text(result.case.risk), None),
        *paper.labelled("evidence", words.evidence_text(result), tone),
    ]
    return "\n".join(parts)


def _tornado(result: CostResult) -> str:
    if not result.tornado:
        return ""
    rows = [
        (
            words.flip_name(flip),
            f"{words.flip_value(flip, flip.low)} to {words.flip_value(flip, flip.high)}",
            f"{ratio(flip.ratio_low)} to {ratio(flip.ratio_high)}",
            words.flip_text(flip),
        )
        for flip in result.tornado
    ]
    return Table(("what if", "from, to", "spot / on-demand", "the verdict turns at"), rows).text().rstrip()


def _listed(label: str, texts: list[str], paper: Paper) -> str:
    """Set paragraphs below one another beside one label."""
    found = [line for text in texts for line in paper.labelled("", f"- {text}", None)]
    return f"{label:<{LABEL_WIDTH}}" + "\n".join(found)[LABEL_WIDTH:] if found else ""


def _last(result: CostResult, paper: Paper, page: str) -> str:
    found, code = words.verdict(result), words.exit_code(result)
    text = f"{words.simulated_runs(result)}, seed {result.case.seed}"
    text += f" · report {page}" if page else ""
    ending = f"exit {int(code)}"
    gap = max(3, paper.width - len(text) - len(ending))
    return text + " " * gap + paper.paint(ending, found.tone, bold=True)
