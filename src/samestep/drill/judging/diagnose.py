"""From differences to causes: what was lost, and what merely follows from it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samestep.contract import FINDINGS, Component
from samestep.drill.judging.diagnosis import contents, data, optimizer, progress, results, rng, schedule

if TYPE_CHECKING:
    from samestep.drill.judging.align import Alignment
    from samestep.drill.judging.compare import Beside
    from samestep.drill.result import FindingRecord

DRAWN = frozenset({"data-order-changed", "worker-rng-not-restored"})
"""Defects of the data that a generator can cause."""


def diagnose(pair: Beside, alignment: Alignment) -> list[FindingRecord]:
    """Return what was lost, causes only: a wrong batch explains the wrong loss, lost moments the later weights.

    State before the first step is compared component by component, then the steps one by one. A loss or
    weights that differ with all recorded state equal are a finding of their own.
    """
    settings = optimizer.settings(pair)
    used = [*results.lost_gradients(pair), *([] if _explains_data(settings) else data.data(pair))]
    data_from = min((record.step or 0 for record in (*used, *settings)), default=None)
    lost = [
        *contents.weights(pair, alignment),
        *contents.buffers(pair),
        *contents.averages(pair),
        *contents.scaler(pair),
        *optimizer.optimizer(pair),
        *schedule.schedule(pair, data_from),
    ]
    counted = [] if alignment.step is None or alignment.fresh_weights_only else progress.progress(pair)
    found = [*lost, *settings, *used, *counted, *progress.callbacks(pair)]
    found += _random(pair, found, data_from)
    return sorted(_merged(found), key=lambda record: FINDINGS[record.slug].rank)


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
