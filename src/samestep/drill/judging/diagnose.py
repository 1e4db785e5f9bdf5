"""From differences to causes: what was lost, and what merely follows from it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samestep.contract import FINDINGS, Component, Severity
from samestep.drill.judging.diagnosis import contents, data, optimizer, progress, results, rng, schedule

if TYPE_CHECKING:
    from samestep.drill.judging.align import Alignment
    from samestep.drill.judging.beside import Beside
    from samestep.drill.result import FindingRecord

DRAWN = frozenset({"data-order-changed", "worker-rng-not-restored"})
"""Defects of the data that a generator can cause."""


STEERED = frozenset({"optimizer-reset", "optimizer-partly-reset", "schedule-restarted", "schedule-shifted"})
"""Defects that other hyper-parameters than the rate follow from."""


def diagnose(pair: Beside, alignment: Alignment) -> list[FindingRecord]:
    """Return what was lost, causes only: a wrong batch explains the wrong loss, lost moments the later weights.

    State is compared component by component before the first step, and before every later one as long as the steps in
    between were repeated equally; data, rates and results step by step. A loss or weights that differ with all
    recorded state equal are a finding of their own.
    """
    settings = optimizer.settings(pair)
    used = [*results.lost_gradients(pair), *([] if _explains_data(settings) else _data(pair))]
    data_from = min((record.step or 0 for record in (*used, *settings)), default=None)
    lost = [
        *contents.weights(pair, alignment),
        *contents.buffers(pair),
        *contents.averages(pair),
        *contents.scaler(pair),
        *optimizer.optimizer(pair),
        *schedule.schedule(pair, data_from),
    ]
    if not any(record.slug in STEERED for record in lost):
        lost += optimizer.cycled(pair)
    counted = [] if alignment.step is None or alignment.fresh_weights_only else progress.progress(pair)
    found = [*lost, *settings, *used, *counted, *progress.callbacks(pair)]
    found += _random(pair, found, data_from)
    if not any(record.severity is Severity.DEFECT for record in found):
        found += progress.tracking(pair)
    return sorted(_merged(found), key=lambda record: FINDINGS[record.slug].rank)


def _data(pair: Beside) -> list[FindingRecord]:
    """Return what is wrong with the data; a window of another length explains what its successors use."""
    used, regrouped = data.data(pair), optimizer.regrouped(pair)
    before = [record for record in regrouped if all((record.step or 0) < (seen.step or 0) for seen in used)]
    return before or used


def _explains_data(settings: list[FindingRecord]) -> bool:
    return any(Component.DATA_POSITION in record.components for record in settings)


def _random(pair: Beside, found: list[FindingRecord], data_from: int | None) -> list[FindingRecord]:
    """Return the findings about generators, and the result that not even they explain."""
    strays, own = rng.strays(pair, data_from), rng.own_generators(pair)
    other = results.first_other_result(pair)
    since = results.explained_from(found)
    drawn = [stray.step for stray in strays if stray.drawn]
    since = min([*drawn, *([] if since is None else [since])], default=None)
    open_result = other is not None and (since is None or since > other.number)
    by_data = any(record.slug in DRAWN for record in found)
    made = rng.rng(strays, influential=open_result or by_data)
    by_order = any(record.slug == "data-order-changed" for record in found)
    made += rng.own(own, influential=(open_result or by_order) and not strays)
    if open_result and not strays and not own and other is not None:
        made.append(results.unexplained(pair, other))
    return made


def _merged(found: list[FindingRecord]) -> list[FindingRecord]:
    """Fold together what has one cause: optimizer and schedule lost as a whole, buffers lost with the weights."""
    slugs = {record.slug: record for record in found}
    dropped = set()
    if "weights-not-restored" in slugs or "weights-are-averaged" in slugs:
        dropped.add("buffers-lost")
    whole, begun = slugs.get("optimizer-reset"), slugs.get("schedule-restarted")
    if whole is not None and begun is not None:
        dropped.add(begun.slug)
        whole.components = [*whole.components, *begun.components]
        whole.details = [*whole.details, begun.evidence]
    return [record for record in found if record.slug not in dropped]
