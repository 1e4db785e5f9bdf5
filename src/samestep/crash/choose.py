"""Choosing the states that tell the most, when there is no time for all of them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import xxhash

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from samestep.crash.states import CrashState


def choose(states: Sequence[CrashState], most: int, seed: int = 0) -> list[CrashState]:
    """Return the ``most`` most telling states, the most telling first.

    First come states next to a commit, then those next to the end of a file or of an old checkpoint, one for each
    file and kind of damage: the last one that may also be found after the save has returned, else the first; then one
    for each operation and kind of damage; then a seeded sample of the rest. The same input gives the same choice, and
    a smaller choice is the beginning of a larger one.
    """
    rest = list(states)
    order: list[CrashState] = []
    stages: list[tuple[Callable[[CrashState], bool], Callable[[CrashState], Hashable]]] = [
        (lambda state: state.weight == 0, _what),
        (lambda state: state.weight <= 1, _what),
        (lambda _: True, _where),
    ]
    for admitted, key in stages:
        taken = _one_each((state for state in rest if admitted(state)), key)
        order += _spread(taken)
        chosen = {state.name for state in order}
        rest = [state for state in rest if state.name not in chosen]
    order += sorted(rest, key=lambda state: (xxhash.xxh3_64_intdigest(state.name.encode(), seed), state.name))
    return order[:most]


def _what(state: CrashState) -> Hashable:
    return state.window, state.model, state.way, state.file or state.last


def _where(state: CrashState) -> Hashable:
    return state.window, state.after, state.way


def _one_each(states: Iterable[CrashState], key: Callable[[CrashState], Hashable]) -> list[CrashState]:
    kept: dict[Hashable, CrashState] = {}
    for state in states:
        known = kept.setdefault(key(state), state)
        if state.lasting and known.after <= state.after:
            kept[key(state)] = state
    return list(kept.values())


def _spread(states: list[CrashState]) -> list[CrashState]:
    """Take turns among windows, models and kinds of damage."""
    turns: Counter[Hashable] = Counter()
    ranked = []
    for state in states:
        group = (state.window, state.model, state.way)
        ranked.append((turns[group], state))
        turns[group] += 1
    return [state for _, state in sorted(ranked, key=lambda pair: pair[0])]
