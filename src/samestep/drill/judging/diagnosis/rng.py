"""Random generators: the global ones, and those that the script owns."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from samestep.contract import Severity
from samestep.drill.judging.diagnosis.records import finding, listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samestep.drill.judging.beside import Aligned, Beside
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
    own = any(stray.drawn and stray.step <= aligned.number for stray in own_generators(pair))
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
    """Return the script's own generators that are not in the control's state, before the first step or later.

    Later ones count only while nothing else differs, and when steps draw from them: a loader's generator moves when its
    epochs begin, and a restart may rightly begin one more.
    """
    found: dict[str, Stray] = {}
    for aligned in pair.steps[: len(pair.moments)]:
        if aligned.offset:
            continue
        control, resumed = aligned.control.generators, aligned.resumed.generators
        for name in control.keys() & resumed.keys() - found.keys():
            if resumed[name] == control[name] or pair.measure.ignores(f"generators/{name}"):
                continue
            stray = Stray(name, aligned.number, _drawn_by_steps(pair.control, name))
            if stray.drawn or aligned is pair.steps[0]:
                found[name] = stray
    return [found[name] for name in sorted(found)]


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
    first = min(stray.step for stray in shown)
    text = f"own generator {names} before step {first} is not in the control's state"
    slug = "rng-not-restored" if influential else "untracked-state"
    return [finding(slug, text, step=first, quantity=f"generators/{shown[0].name}")]


def _differing(pair: Beside, aligned: Aligned) -> Iterator[str]:
    """Yield the global generators that differ before a step or one of its micro-steps."""
    pairs = [(aligned.resumed.before.rng, aligned.control_rng)]
    pairs += [
        (one.rng, other.rng)
        for one, other in zip(aligned.resumed.micro_steps, aligned.control_micros, strict=False)
    ]
    names = {name for one, other in pairs for name in one.keys() & other.keys() if one[name] != other[name]}
    yield from (name for name in sorted(names) if not pair.measure.ignores(f"rng/{name}"))


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
