"""The tables of a run, in markdown."""

from __future__ import annotations

import os
import platform
import statistics
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from peers.worker import DISK, OURS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from peers.driving import Result, Run

    Cost = dict[str, float]

_INCLUDED: Final = "included"


def page(runs: list[Run], *, threads: int) -> str:
    """Return what was measured as one markdown page."""
    about = (
        f"{len(os.sched_getaffinity(0))} cores, Linux {platform.release()}, Python {platform.python_version()}, "
        f"torch {version('torch')}, blake3 {version('blake3')}, {threads} thread(s) for each library."
    )
    return "\n\n".join([about, *(_table(run) for run in runs), _goals(runs)])


def _table(run: Run) -> str:
    load = " to ".join(f"{load:.1f}" for load in run.load)
    title = (
        f"### {run.workload}: {run.tensors:,} tensors, {run.state_bytes / 1e6:,.0f} MB; "
        f"{run.rounds - 1} rounds after the first, load {load}"
    )
    head = (
        "| | version | save | + fsync | + SHA-256 | first save | restore | + SHA-256 | processor s, save "
        "| extra MiB, save | bytes written |\n|" + " --- |" * 11
    )
    rows = [_row(run, peer, result) for peer, result in run.results.items()]
    return "\n".join([title, "", head, *rows])


def _row(run: Run, peer: str, result: Result) -> str:
    saves, restores = _steady(result.saves), _steady(result.restores)
    name = f"**{peer}**" if peer == OURS else peer
    if not saves:
        return f"| {name} | {result.version} | could not be run: {result.failed} |" + " |" * 8
    equal = peer in {OURS, DISK}
    cells = [
        _seconds(saves, "seconds"),
        _INCLUDED if equal else _seconds(saves, "seconds", "sync"),
        _INCLUDED if peer == OURS else "-" if equal else _seconds(saves, "seconds", "sync", "digest"),
        _seconds([cost for cost in result.saves[:1] if cost], "seconds"),
        _seconds(restores, "seconds"),
        _INCLUDED if peer == OURS else _seconds(restores, "seconds", "digest"),
        f"{statistics.median(cost['processor'] for cost in saves):.2f}",
        f"{max(cost['extra_mib'] for cost in result.saves if cost):.0f}",
        f"{statistics.median(cost['written'] for cost in saves) / run.state_bytes:.1%}",
    ]
    name += f" ({len(saves)} round only)" if len(saves) < run.rounds - 1 else ""
    name += f" (failed later: {result.failed})" if result.failed else ""
    return f"| {name} | {result.version} | " + " | ".join(cells) + " |"


def _seconds(costs: list[Cost], *fields: str) -> str:
    return f"{statistics.median(_sum(cost, fields) for cost in costs):.3f} s" if costs else "-"


def _sum(cost: Cost, fields: tuple[str, ...]) -> float:
    return sum(cost[field] for field in fields)


def _steady(costs: list[Cost | None]) -> list[Cost]:
    return [cost for cost in costs[1:] if cost]


def _goals(runs: list[Run]) -> str:
    lines = [line for run in runs for line in _GOALS[run.workload](run)]
    full = all(run.scale == 1 for run in runs)
    note = "" if full else "They are for states of full size, which these are not.\n\n"
    head = "| | aim | measured | reached |\n| --- | --- | --- | --- |"
    return f"### Goals\n\n{note}" + "\n".join([head, *lines])


def _of_gpt(run: Run) -> Iterator[str]:
    for peer in ("torch DCP", "torch DCP, 2 threads"):
        yield _goal(f"save, against {peer}", 1.7, _ratio(run, peer, "saves", "seconds"))
    yield _goal(
        "save, against torch.save with fsync", 2.2, _ratio(run, "torch.save", "saves", "seconds", "sync")
    )
    yield _goal("or all of it: share of what the disk can do", 0.85, _ratio(run, DISK, "saves", "seconds"))
    for peer in ("torch DCP", "torch DCP, 2 threads"):
        yield _goal(f"restore, against {peer} unverified", 1.0, _ratio(run, peer, "restores", "seconds"))
    yield _most(run)


def _of_small(run: Run) -> Iterator[str]:
    for fields, how in ((("seconds",), "as shipped"), (("seconds", "sync"), "with fsync")):
        yield _goal(
            f"save of small tensors, against safetensors {how}",
            1.4,
            _ratio(run, "safetensors", "saves", *fields),
        )
    ratio = _ratio(run, "safetensors", "restores", "seconds")
    yield _goal("restore of small tensors, against safetensors unverified", 1.4, ratio)
    yield _most(run)


def _of_lora(run: Run) -> Iterator[str]:
    saves = _steady(run.results[OURS].saves)
    share = max((cost["written"] for cost in saves), default=float("inf")) / max(1, run.state_bytes)
    yield f"| bytes written over an unchanged base | at most 3 % | {share:.1%} | {_yes(share <= 0.03)} |"


_GOALS: Final[dict[str, Callable[[Run], Iterator[str]]]] = {
    "gpt": _of_gpt,
    "small": _of_small,
    "lora": _of_lora,
}


def _most(run: Run) -> str:
    most = max((cost["extra_mib"] for cost in run.results[OURS].saves if cost), default=float("inf"))
    return (
        f"| extra memory of a save, {run.workload} | at most 64 MiB | {most:.0f} MiB | {_yes(most <= 64)} |"
    )


def _goal(what: str, aim: float, ratio: float | None) -> str:
    if ratio is None:
        return f"| {what} | {aim:g} | not measured | no |"
    return f"| {what} | {aim:g} | {ratio:.2f} | {_yes(ratio >= aim)} |"


def _yes(reached: bool) -> str:
    return "yes" if reached else "no"


def _ratio(run: Run, peer: str, kind: str, *fields: str) -> float | None:
    """Return how many times as long the peer took as samestep, the median over rounds."""
    if peer not in run.results:
        return None
    theirs, ours = getattr(run.results[peer], kind), getattr(run.results[OURS], kind)
    ratios = [
        _sum(their, fields) / our["seconds"]
        for their, our in list(zip(theirs, ours, strict=False))[1:]
        if their and our
    ]
    return statistics.median(ratios) if ratios else None
