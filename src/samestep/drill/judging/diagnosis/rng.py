"""Random generators: the global ones, and those that the script owns."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from samestep.contract import Severity
from samestep.drill.judging.diagnosis.records import finding, listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samestep.drill.judging.compare import Aligned, Beside
    from samestep.drill.result import FindingRecord
    from samestep.trace import Trace


@dataclass(frozen=True)
class Stray:
    """A generator that is not in the control's state.

    Attributes:
        name: ``torch``, ``numpy``, ... or the path of an own one.
        step: control step before which it is first seen to differ.
        drawn: it is drawn from during the control's steps, so that its state matters from there on.
    """

    name: str
    step: int
    drawn: bool


def strays(pair: Beside, data_from: int | None) -> list[Stray]:
    """Return the global generators that are not in the control's state.

    Args:
        pair: the two runs.
        data_from: first step with wrong data. Generators that part only later follow from that: a loader draws when its
            epoch begins.
    """
    found: dict[str, Stray] = {}
    for aligned in pair.steps:
        if data_from is not None and data_from < aligned.number and aligned is not pair.steps[0]:
            break
        for name in _differing(pair, aligned):
            if name not in found:
                found[name] = Stray(name, aligned.number, drawn_inside(pair, name))
    return list(found.values())


def explains(pair: Beside, aligned: Aligned) -> bool:
    """Tell whether a generator, global or own, that the control draws from at its steps differs before this one."""
    own = any(stray.drawn for stray in own_generators(pair))
    return own or any(drawn_inside(pair, name) for name in _differing(pair, aligned))


def rng(found: list[Stray], *, influential: bool) -> list[FindingRecord]:
    """Return the finding for global generators.

    A generator that was not restored is a defect when the control demonstrably draws from it during its steps
    (dropout), or when something that differs is explained by nothing else. Otherwise nothing has used it: a note.
    Drawing at an epoch's beginning alone is no proof: every loader draws a seed for workers it may not have.

    Args:
        found: generators that differ.
        influential: whether data or numbers differ without another reason.
    """
    counted = [stray for stray in found if stray.drawn] or (found if influential else [])
    if not found:
        return []
    shown = counted or found
    names = listed([stray.name for stray in shown])
    first = min(stray.step for stray in shown)
    used = "" if counted else "; nothing draws from it during the steps"
    text = f"generator {names} before step {first} is not in the control's state{used}"
    return [
        finding(
            "rng-not-restored",
            text,
            step=first,
            quantity=f"rng/{shown[0].name}",
            severity=None if counted else Severity.NOTE,
        )
    ]


def own_generators(pair: Beside) -> list[Stray]:
    """Return the script's own generators that are not in the control's state before the first step."""
    if not pair.steps:
        return []
    first = pair.steps[0]
    control, resumed = first.control.generators, first.resumed.generators
    names = [
        name
        for name in control
        if name in resumed
        and resumed[name] != control[name]
        and not pair.measure.ignores(f"generators/{name}")
    ]
    drawn = {name: _drawn_by_steps(pair.control, name) for name in names}
    return [Stray(name, first.number, drawn[name]) for name in names if not first.offset]


def _drawn_by_steps(control: Trace, name: str) -> bool:
    seen = [step.generators.get(name) for step in control.steps]
    moved = [before != after for before, after in pairwise(seen) if before and after]
    return sum(moved) * 2 > len(moved)


def own(found: list[Stray], *, influential: bool) -> list[FindingRecord]:
    """Return the finding for the script's own generators: a defect only when their difference shows in a step."""
    if not found:
        return []
    shown = [stray for stray in found if stray.drawn and influential] or found
    names = listed([stray.name for stray in shown])
    text = f"own generator {names} before step {shown[0].step} is not in the control's state"
    slug = "rng-not-restored" if influential else "untracked-state"
    return [finding(slug, text, step=shown[0].step, quantity=f"generators/{shown[0].name}")]


def _differing(pair: Beside, aligned: Aligned) -> Iterator[str]:
    resumed, control = aligned.resumed.before.rng, aligned.control_rng
    for name in sorted(resumed.keys() & control.keys()):
        if resumed[name] != control[name] and not pair.measure.ignores(f"rng/{name}"):
            yield name


def drawn_inside(pair: Beside, name: str) -> bool:
    """Tell whether the control draws from a generator at most of its micro-steps, epoch beginnings apart."""
    drawn = list(_draws(pair.control, name, set(pair.starts)))
    return sum(drawn) * 2 > len(drawn)


def _draws(control: Trace, name: str, starts: set[int]) -> Iterator[bool]:
    seen = [
        micro.rng.get(name) or (step.before.rng.get(name) if place == 0 else None)
        for step in control.steps
        for place, micro in enumerate(step.micro_steps)
    ]
    for position, (before, after) in enumerate(pairwise(seen), start=1):
        if before and after and position not in starts:
            yield before != after
