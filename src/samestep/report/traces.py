"""Two traces laid side by side: which quantities agree, step by step, and where they part first. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from samestep.drill.judging.align import find_resume_step
from samestep.drill.judging.beside import Beside
from samestep.drill.judging.compare import Measure, by_rank, relative_distance, same_plain
from samestep.drill.result import Criterion

from .view import count_of, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from samestep.drill.judging.beside import Aligned
    from samestep.trace import MicroStep, Quantity, State, Trace

COMPARE_SCHEMA = "samestep.compare/1"
ROW_LIMIT = 20
"""Most differing steps printed per rank."""

FINDING_STEPS = 2
"""Steps in which a probe may not have found the schedules, scalers and averages of a process yet."""

_FOUND_LATE = ("schedules", "scalers", "average ")
_EXACT = Criterion(kind="exact", rule="every digest is equal")


class StepRow(msgspec.Struct, kw_only=True):
    """One step: the quantities both traces recorded, and those of them that differ with how they do."""

    step: int
    compared: list[str]
    different: dict[str, str]


class RankComparison(msgspec.Struct, kw_only=True):
    """One rank of two runs.

    Attributes:
        rank: of both processes.
        steps: steps that each recorded.
        goes_on_from: steps of the first run that are complete where the second goes on; None: its state is
            none of the first's.
        rows: one per step that both have, numbered as in the first.
        first_different_step: None when all agree.
    """

    rank: int
    steps: tuple[int, int]
    goes_on_from: int | None
    rows: list[StepRow]
    first_different_step: int | None


class TraceComparison(msgspec.Struct, kw_only=True):
    """Two runs, rank by rank. ``same`` needs at least one compared step on every rank of either."""

    same: bool
    ranks: list[RankComparison]
    unpaired_ranks: list[int]
    schema: str = COMPARE_SCHEMA


def compare_traces(first: Sequence[Trace], second: Sequence[Trace]) -> TraceComparison:
    """Compare the traces of two runs; the second may be a restart that goes on from any step of the first."""
    left, right = by_rank(first), by_rank(second)
    ranks = [_compare_rank(rank, left[rank], right[rank]) for rank in left if rank in right]
    unpaired = sorted(left.keys() ^ right.keys())
    agree = all(r.rows and r.goes_on_from is not None and r.first_different_step is None for r in ranks)
    return TraceComparison(same=bool(ranks) and agree and not unpaired, ranks=ranks, unpaired_ranks=unpaired)


def _compare_rank(rank: int, first: Trace, second: Trace) -> RankComparison:
    alignment = find_resume_step(first, second, _EXACT)
    beside = Beside(first, second, alignment.basis() or 0, Measure(_EXACT))
    rows = [_row(aligned, place) for place, aligned in enumerate(beside.steps)]
    return RankComparison(
        rank=rank,
        steps=(len(first.steps), len(second.steps)),
        goes_on_from=alignment.step,
        rows=rows,
        first_different_step=next((row.step for row in rows if row.different), None),
    )


def _row(aligned: Aligned, place: int) -> StepRow:
    found = {**_state_pairs(aligned), **_step_pairs(aligned)}
    pairs = {
        name: pair
        for name, pair in found.items()
        if any(map(_given, pair)) and not (place < FINDING_STEPS and _not_found_yet(name, *pair))
    }
    different = {name: text for name, pair in pairs.items() if (text := _difference(*pair))}
    return StepRow(step=aligned.number, compared=list(pairs), different=different)


def _not_found_yet(name: str, one: object, other: object) -> bool:
    return name.startswith(_FOUND_LATE) and _given(one) and not _given(other)


def _given(value: object) -> bool:
    return value is not None and value not in ([], {})


Pair = tuple[Any, Any]


def _state_pairs(aligned: Aligned) -> dict[str, Pair]:
    """Pair what both runs held before the step, by the names the probe gave."""
    one, other = aligned.control.before, aligned.resumed.before
    pairs: dict[str, Pair] = {
        name: (getattr(one, name), getattr(other, name)) for name in ("weights", "buffers", "gradients")
    }
    pairs |= _paired("optimizer ", one.optimizer, other.optimizer)
    pairs |= {name: (getattr(one, name), getattr(other, name)) for name in ("groups", "scalers")}
    pairs["schedules"] = (_schedules(one), _schedules(other))
    pairs |= _paired("average ", _averages(one), _averages(other))
    return pairs | _paired("rng ", aligned.control_rng, other.rng)


def _schedules(state: State) -> list[dict[str, Any]]:
    """Leave out the count of calls: it rightly starts anew in a schedule that was rebuilt."""
    return [
        {name: value for name, value in each.items() if name != "_step_count"} for each in state.schedules
    ]


def _averages(state: State) -> dict[str, Quantity]:
    return {average.name: average.content for average in state.averages}


def _paired(prefix: str, one: dict[str, Any], other: dict[str, Any]) -> dict[str, Pair]:
    return {f"{prefix}{name}": (one.get(name), other.get(name)) for name in dict.fromkeys([*one, *other])}


def _step_pairs(aligned: Aligned) -> dict[str, Pair]:
    """Pair what went into the step and what came out of it."""
    one, other = aligned.control_micros, aligned.resumed.micro_steps
    return {
        "data": ([micro.inputs for micro in one], [micro.inputs for micro in other]),
        "samples": (_samples(one), _samples(other)),
        "loss": ([micro.loss for micro in one], [micro.loss for micro in other]),
        "weights after": (aligned.control.weights_after, aligned.resumed.weights_after),
    }


def _samples(micros: Iterable[MicroStep]) -> list[Any] | None:
    batches = [micro.samples for micro in micros]
    return None if None in batches else batches


def _difference(one: object, other: object) -> str:
    """Say in a phrase how two recorded values differ; empty when they do not."""
    if not _given(one) or not _given(other):
        return f"only in the {'second' if not _given(one) else 'first'}"
    if hasattr(one, "digest") and hasattr(other, "digest"):
        if one.digest == other.digest:
            return ""
        return f"relative distance {relative_distance(other, one):.3g}"  # type: ignore[arg-type]
    return (
        ""
        if same_plain(one, other) or one == other
        else f"{shortened(str(one), 40)} and {shortened(str(other), 40)}"
    )


def render_comparison(comparison: TraceComparison) -> str:
    """Render a comparison as text: a sentence per rank, then the steps that differ."""
    lines = []
    for rank in comparison.ranks:
        lines += [_rank_line(rank), *_difference_lines(rank)]
    for number in comparison.unpaired_ranks:
        lines.append(f"rank {number}: only one of the two has it")
    lines.append("same" if comparison.same else "DIFFERENT")
    return "\n".join(lines) + "\n"


def _rank_line(rank: RankComparison) -> str:
    if not rank.rows:
        return f"rank {rank.rank}: no step to compare ({rank.steps[0]} and {rank.steps[1]} recorded)"
    begin = {
        None: "starts from a state that the first never had",
        0: "starts as the first",
    }.get(rank.goes_on_from, f"goes on from step {rank.goes_on_from}")
    compared = f"steps {rank.rows[0].step} to {rank.rows[-1].step} compared"
    if rank.first_different_step is None:
        verdict = (
            f"equal in {count_of(len({n for row in rank.rows for n in row.compared}), 'recorded value')}"
        )
    else:
        verdict = f"first difference at step {rank.first_different_step}"
    return f"rank {rank.rank}: the second {begin}; {compared}, {verdict}"


def _difference_lines(rank: RankComparison) -> list[str]:
    differing = [row for row in rank.rows if row.different]
    lines = []
    for row in differing[:ROW_LIMIT]:
        lines.append(f"  step {row.step}: {len(row.different)} of {len(row.compared)} differ")
        lines += [f"    {name:<28}{text}" for name, text in row.different.items()]
    left = len(differing) - ROW_LIMIT
    return [*lines, f"  and {count_of(left, 'more step')} that differ"] if left > 0 else lines
