"""The tables of ``save_stall.py``, in markdown."""

from __future__ import annotations

import dataclasses
import os
import platform
import statistics
from typing import TYPE_CHECKING, Any, Final

from peers.stalls import DCP, NOTHING, OURS, OVERLAP, STAGE, WAYS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Turn = dict[str, Any]
_SYNCHRONOUS: Final = [name for name, way in WAYS.items() if not way.background and name != NOTHING]
_ASYNCHRONOUS: Final = [name for name, way in WAYS.items() if way.background and name not in OURS]
_MOST_COPIES: Final = 1.3
_OVERLAPPED: Final = _MOST_COPIES / 10


@dataclasses.dataclass
class Measured:
    """What all ways did; a turn that failed says why under ``failed``."""

    scale: float
    began_at_load: dataclasses.InitVar[float]
    load: tuple[float, float] = (0.0, 0.0)
    turns: dict[str, list[Turn]] = dataclasses.field(default_factory=dict)
    small: dict[str, list[Turn]] = dataclasses.field(default_factory=dict)

    def __post_init__(self, began_at_load: float) -> None:
        self.load = (began_at_load, began_at_load)

    def good(self, way: str) -> list[Turn]:
        """Return the turns of a way that did not fail."""
        return [turn for turn in self.turns.get(way, []) if "failed" not in turn]

    def pairs(self, way: str, other: str) -> Iterator[tuple[Turn, Turn]]:
        """Yield the turns of two ways in the rounds where neither failed."""
        for one, two in zip(self.turns.get(way, []), self.turns.get(other, []), strict=False):
            if "failed" not in one and "failed" not in two:
                yield one, two


def page(measured: Measured) -> str:
    """Return what was measured as one markdown page."""
    nothing = measured.good(NOTHING)
    if not nothing:
        return "the training itself could not be run"
    about = (
        f"{len(os.sched_getaffinity(0))} cores, Linux {platform.release()}, Python {platform.python_version()}, "
        f"one thread for the training; load {measured.load[0]:.1f} to {measured.load[1]:.1f}. "
        f"A step takes {_median(nothing, 'step'):.3f} s, one warm copy of the state "
        f'{_median(nothing, "warm_copy"):.3f} s. `asynchronous="auto"` chose "{nothing[0]["auto"]}".'
    )
    return "\n\n".join([about, _table(measured), _small(measured), _goals(measured)])


def _table(measured: Measured) -> str:
    first = measured.good(NOTHING)[0]
    title = (
        f"### Saving a training of {first['state_bytes'] / 1e6:,.0f} MB in {first['tensors']} tensors; "
        f"{len(measured.turns[NOTHING])} rounds"
    )
    head = (
        "| | version | added loop s per save | first save | blocked s per save | longest | first save "
        "| main process, processor s per save | helpers | memory over the training, share of the state |\n|"
        + " --- |"
        * 10
    )
    return "\n".join([title, "", head, *(_row(measured, way) for way in measured.turns)])


def _row(measured: Measured, way: str) -> str:
    turns = measured.good(way)
    name = f"**{way}**" if way in OURS else way
    if not turns:
        return f"| {name} | could not be run: {measured.turns[way][0]['failed']} |" + " |" * 8
    failed = len(measured.turns[way]) - len(turns)
    name += f" (failed {failed} times)" if failed else ""
    fields = ("added", "first_added", "blocked", "most_blocked", "first_blocked", "processor", "children")
    memory = max(turn["extra_mib"] * 2**20 / turn["state_bytes"] for turn in turns)
    cells = [turns[0]["version"], *(f"{_median(turns, field):.3f}" for field in fields), f"{memory:.2f}"]
    return f"| {name} | " + " | ".join(cells) + " |"


def _small(measured: Measured) -> str:
    rows = [
        "### Small tensors, each save waited for",
        "",
        "| | tensors | save s | blocked s |\n|" + " --- |" * 4,
    ]
    for way, turns in measured.small.items():
        turn = turns[0]
        if "failed" in turn:
            rows.append(f"| {way} | could not be run: {turn['failed']} | | |")
        else:
            rows.append(f"| {way} | {turn['tensors']:,} | {turn['whole']:.3f} | {turn['blocked']:.3f} |")
    return "\n".join(rows)


def _goals(measured: Measured) -> str:
    note = "" if measured.scale == 1 else "They are for a state of full size, which this is not.\n\n"
    head = "| | aim | measured | reached |\n| --- | --- | --- | --- |"
    lines = [*_of_blocking(measured), *_of_loops(measured), *_of_means(measured), *_of_small(measured)]
    return f"### Goals\n\n{note}" + "\n".join([head, *lines])


def _of_blocking(measured: Measured) -> Iterator[str]:
    for way, aim in ((STAGE, _MOST_COPIES), (OVERLAP, _OVERLAPPED)):
        for field, what in (("blocked", "blocked"), ("first_blocked", "blocked at the first save")):
            found = _ratio(measured, way, field, [NOTHING], "warm_copy")
            yield _line(
                f"{way}: {what}, in warm copies of the state",
                f"at most {aim:g}",
                found,
                lambda x, a=aim: x <= a,
            )
    for way in OURS:
        found = _ratio(measured, way, "blocked", _ASYNCHRONOUS)
        yield _line(f"{way}: blocked, against the best peer", "less than 1", found, lambda x: x < 1)


def _of_loops(measured: Measured) -> Iterator[str]:
    chosen = measured.good(NOTHING)[0]["auto"]
    way = OVERLAP if chosen == "overlap" else STAGE
    asynchronous = _ratio(measured, way, "added", _ASYNCHRONOUS)
    yield _line(
        f"{way}, which auto chose: added loop time, against the best asynchronous peer",
        "at most 0.5",
        asynchronous,
        lambda x: x <= 0.5,
    )
    synchronous = _ratio(measured, way, "added", _SYNCHRONOUS)
    yield _line(f"{way}: against the best synchronous one", "at most 0.2", synchronous, lambda x: x <= 0.2)


def _of_means(measured: Measured) -> Iterator[str]:
    for way in OURS:
        found = _ratio(measured, way, "processor", [DCP])
        yield _line(
            f"{way}: main-process processor time, against DCP", "at most 0.25", found, lambda x: x <= 0.25
        )
        shares = [
            (one["extra_mib"] - two["extra_mib"]) * 2**20 / one["state_bytes"]
            for one, two in measured.pairs(way, NOTHING)
        ]
        most = max(shares, default=None)
        what = f"{way}: memory, more than without saves, in states"
        yield _line(what, "at most 1.05", most, lambda x: x <= 1.05)


def _of_small(measured: Measured) -> Iterator[str]:
    turns = [measured.small.get(way, [{"failed": ""}])[0] for way in (STAGE, DCP)]
    found = None if any("failed" in turn for turn in turns) else turns[1]["whole"] / turns[0]["whole"]
    yield _line("small tensors: times as fast as DCP", "at least 10", found, lambda x: x >= 10)


def _ratio(measured: Measured, way: str, field: str, others: Iterable[str], of: str = "") -> float | None:
    """Return how a way compares with the best of others: the largest of the medians over rounds."""
    found = []
    for other in others:
        ratios = [one[field] / max(1e-9, two[of or field]) for one, two in measured.pairs(way, other)]
        found += [statistics.median(ratios)] if ratios else []
    return max(found, default=None)


def _line(what: str, aim: str, found: float | None, reached: Callable[[float], bool]) -> str:
    if found is None:
        return f"| {what} | {aim} | not measured | no |"
    return f"| {what} | {aim} | {found:.3f} | {'yes' if reached(found) else 'no'} |"


def _median(turns: list[Turn], field: str) -> float:
    return float(statistics.median(turn[field] for turn in turns))
