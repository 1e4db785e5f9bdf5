"""From the options of ``samestep cost`` to a case: what a file says, what flags say, what was measured."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from samestep.cli.cost_offers import (
    BY_HAND,
    OFFER_FLAGS,
    SWITCH,
    Choosing,
    no_choice,
    offer_flags,
    option,
    said,
    table_notes,
)
from samestep.contract.durations import seconds_in
from samestep.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from samestep.cost.inputs import Case
    from samestep.cost.records.actual import Actual
    from samestep.cost.records.observed import Observed


if TYPE_CHECKING:
    _Kind = click.ParamType[float]
else:
    _Kind = click.ParamType


class Duration(_Kind):
    """A duration: ``90``, ``90s``, ``10 min``, ``1h 30min``."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return its seconds."""
        if isinstance(value, int | float):
            return float(value)
        try:
            found: float | None = float(value)
        except ValueError:
            found = seconds_in(value)
        if found is None:
            self.fail(f"{value!r} is no duration: write seconds, or such as 10min or 1h30min", param, ctx)
        return found


DURATION = Duration()

_FLAGS: dict[str, tuple[str, str, Any, str, str]] = {
    "steps": ("work", "steps", int, "N", "Steps that finish the run."),
    "step_seconds": ("measured", "step", DURATION, "TIME", "One step, waiting for its data not included."),
    "stall_seconds": ("measured", "stall", DURATION, "TIME", "One step's wait for its data."),
    "save_seconds": ("measured", "save", DURATION, "TIME", "Training stands still for one save."),
    "persist_seconds": ("measured", "persist", DURATION, "TIME", "Until a save would survive the machine."),
    "restart_seconds": (
        "measured",
        "restart",
        DURATION,
        "TIME",
        "From a machine that is there to the first new step.",
    ),
    "save_bytes": ("measured", "save_bytes", float, "BYTES", "Written by one save."),
    "kept_bytes": ("measured", "kept_bytes", float, "BYTES", "That the store holds, on average."),
    "mean_life": ("risk", "mean", DURATION, "TIME", "Running time between two interruptions."),
    "interruptions": ("risk", "interruptions", int, "N", "How many the mean life rests on."),
    "observed": ("risk", "observed", DURATION, "TIME", "Running time in which they were seen."),
    "wait": ("risk", "wait", DURATION, "TIME", "Until there is capacity again."),
    "usable_notice": (
        "risk",
        "usable_notice",
        float,
        "SHARE",
        "Interruptions announced early enough for a save.",
    ),
    "notice_seconds": ("risk", "notice", DURATION, "TIME", "From a notice to the end, not used for steps."),
    "capacity": (
        "policy",
        "capacity",
        click.Choice(["spot", "greedy", "uniform-progress", "on-demand"]),
        "",
        "Which capacity the run uses.",
    ),
    "interval": (
        "policy",
        "interval",
        DURATION,
        "TIME",
        "Productive time between saves; without it, the best.",
    ),
    "deadline": ("policy", "deadline", DURATION, "TIME", "Wall time that it must be finished in."),
    "budget": ("policy", "budget", float, "MONEY", "What it may cost."),
    "quality": ("policy", "quality", str, "TEXT", "Condition on the result, which is stated and not judged."),
    "first_hour": (
        "policy",
        "first_hour",
        SWITCH,
        "",
        "Count on a first hour that is free if it is interrupted.",
    ),
    "seed": ("", "seed", int, "N", "Of every random draw."),
    "paths": ("", "paths", int, "N", "Simulated runs."),
}
"""Flag: section and key of a case file, kind, placeholder, help."""


def case_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb every flag that says something of a case."""
    for name, (_, _, kind, metavar, text) in reversed(_FLAGS.items()):
        command = option(name, kind, metavar, text)(command)
    return offer_flags(command)


def first_hour_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb the switch of the first hour; it means the same in all of them."""
    _, _, kind, metavar, text = _FLAGS["first_hour"]
    given: Callable[..., Any] = option("first_hour", kind, metavar, text)(command)
    return given


@dataclasses.dataclass(frozen=True)
class Given:
    """What the command line names besides flags of the case.

    Attributes:
        file: of the case.
        run: root of a bundle store.
        drill: result of a drill.
        measured: what a pilot measured.
        offers: files of offers.
        choosing: which of their offers count.
    """

    file: Path | None = None
    run: str | None = None
    drill: Path | None = None
    measured: Path | None = None
    offers: Sequence[Path] = ()
    choosing: Choosing = dataclasses.field(default_factory=no_choice)


@dataclasses.dataclass(frozen=True)
class Gathered:
    """A case, what the run has come to so far, and what has to be known of both."""

    case: Case
    actual: Actual | None
    notes: list[str]
    files: list[str]


def gather(given: Given, flags: dict[str, Any]) -> Gathered:
    """Put a case together: a flag beats the file, which beats what was measured.

    Raises:
        CostError: something of it cannot be read or used.
        UsageError: nothing says what to reckon with.
    """
    from samestep.cost.cases.reading import case_of, load_tree

    if not (given.file or given.run or given.drill or given.measured or any(said(flags))):
        raise UsageError(
            "nothing says what to reckon with",
            hint="name a case file, or see samestep cost predict --help and samestep cost example",
        )
    written, content = load_tree(given.file) if given.file else ({}, "")
    tree = with_flags(written, flags)
    observed, reads = _observed(given), [given.choosing.read(path) for path in given.offers]
    with _in_flags() if given.file is None else contextlib.nullcontext():
        case = case_of(
            tree,
            place=str(given.file) if given.file else "command line",
            folder=given.file.parent if given.file else Path(),
            observed=observed,
            offers=[offer for read in reads for offer in read.offers],
            content=content,
            flagged=_flagged(tree, flags) if given.file else (),
        )
    notes = [*(observed.notes if observed else []), *(note for read in reads for note in table_notes(read))]
    notes += _unmeasured(case, observed)
    return Gathered(case, _actual(given.run, case), notes, _files(given))


@contextlib.contextmanager
def _in_flags() -> Iterator[None]:
    """Let hints name flags instead of the keys of a case file that nobody wrote."""
    from samestep.cost.errors import CostError

    try:
        yield
    except CostError as error:
        hint = error.hint.replace('mean = "4h"', "--mean-life 4h")
        hint = hint.replace("interruptions and observed", "--interruptions and --observed")
        for name, (section, key, *_) in _FLAGS.items():
            hint = re.sub(rf"\b{section}\.{key}\b", f"--{name.replace('_', '-')}", hint) if section else hint
        raise type(error)(error.message, hint=hint) from error


def with_flags(tree: dict[str, Any], flags: dict[str, Any]) -> dict[str, Any]:
    """Return the tree of a case file with what flags say put over it, section by section."""
    found = {**tree}
    for name in said(flags):
        if name in _FLAGS:
            section, key = _FLAGS[name][:2]
            if not section:
                found[key] = flags[name]
            elif isinstance(table := found.get(section, {}), dict):
                found[section] = {**table, key: flags[name]}
    if flags.get("mean_life") is not None and isinstance(found["risk"], dict):
        found["risk"] = _without_model(found["risk"])
    offer = {OFFER_FLAGS[name][0]: flags[name] for name in said(flags) if name in OFFER_FLAGS}
    if "spot" in offer or "on_demand" in offer:
        if isinstance(listed := found.get("offers", []), list):
            found["offers"] = [*listed, {**BY_HAND, **offer}]
    elif offer:
        flag = next(iter(offer)).replace("_", "-")
        raise UsageError(f"--{flag} says nothing without a price", hint="give --spot, --on-demand or both")
    return found


def _flagged(tree: dict[str, Any], flags: dict[str, Any]) -> set[str]:
    """Return the keys of a tree that flags have put there, and the offer that they describe."""
    named = said(flags)
    keys = {".".join(filter(None, _FLAGS[name][:2])) for name in named if name in _FLAGS}
    listed = tree.get("offers")
    if isinstance(listed, list) and {"spot", "on_demand"} & {*named}:
        keys.add(f"offers[{len(listed)}]")
    return keys


def _without_model(risk: dict[str, Any]) -> dict[str, Any]:
    """Keep of a risk what fits a mean life that was given on the command line: it replaces the model of the file."""
    foreign = {"model", "shape", "scale", "lives", "censored", "traces", "kind"}
    kept = {key: value for key, value in risk.items() if key not in foreign}
    return {**kept, "model": "exponential"}


def _observed(given: Given) -> Observed | None:
    """Return what was measured: by the run itself, then by a pilot, then by a drill."""
    from samestep.cost.records.measuring import observe_drill, observe_run, read_measured

    found = [observe_run(given.run)] if given.run else []
    found += [read_measured(given.measured)] if given.measured else []
    found += [observe_drill(given.drill)] if given.drill else []
    if not found:
        return None
    whole = found[0]
    for one in found[1:]:
        whole = whole | one
    return whole


def _unmeasured(case: Case, observed: Observed | None) -> list[str]:
    """Say which inputs count as zero because nothing measured them."""
    if observed is None:
        return []
    zero = {name: why for name, why in observed.missing.items() if not getattr(case.measured, name).value}
    return [f"{name} counts as 0: {why}" for name, why in zero.items()]


def _actual(root: str | None, case: Case) -> Actual | None:
    if root is None:
        return None
    from samestep.cost.records.actual import actual_of

    offer = case.offers[0] if len(case.offers) == 1 else None
    return actual_of(root, offer=offer, first_hour=case.policy.first_hour)


def _files(given: Given) -> list[str]:
    named = [given.file, given.run, given.drill, given.measured, *given.offers]
    return [str(one) for one in named if one is not None]
