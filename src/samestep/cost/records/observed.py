"""What was observed of a run: quantities with their spread, what is missing and why, and the interruptions seen."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from samestep.cost.cases.places import near
from samestep.cost.errors import MeasuringError
from samestep.cost.inputs import MEASURED_SCHEMA, Exponential, Measured, Quantity, Risk
from samestep.cost.units import duration

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

QUANTITIES = tuple(name for name in Measured.__struct_fields__ if name != "schema")
REQUIRED = ("step_seconds", "save_seconds", "restart_seconds")
ENOUGH_INTERRUPTIONS = 10
"""Below so many the mean life is known too badly for a verdict."""


@dataclasses.dataclass(frozen=True)
class Seen:
    """What has happened to the machines of a run.

    Attributes:
        lives_seconds: of attempts that were interrupted.
        censored_seconds: of attempts that ended by themselves, or still go on.
        wait: until the next attempt began, after each interruption.
        notices: interruptions that announced themselves.
        usable_notices: of these, how many left time for a save.
        notice_seconds: from a notice to the end.
    """

    lives_seconds: tuple[float, ...] = ()
    censored_seconds: tuple[float, ...] = ()
    wait: Quantity | None = None
    notices: int = 0
    usable_notices: int = 0
    notice_seconds: Quantity | None = None

    @property
    def interruptions(self) -> int:
        """How many were seen."""
        return len(self.lives_seconds)

    @property
    def observed_seconds(self) -> float:
        """The running time in which they were seen."""
        return math.fsum((*self.lives_seconds, *self.censored_seconds))

    @property
    def notes(self) -> list[str]:
        """What has to be known of the numbers."""
        if not self.interruptions:
            return []
        of_all = f"of {self.interruptions} interruption{'' if self.interruptions == 1 else 's'}"
        return [f"{of_all} {self.notices} announced themselves, {self.usable_notices} in time for a save"]

    def risk(self) -> Risk:
        """Return the risk that follows from what was seen.

        Lives reach to the notice, and its length is that of all interruptions on average, unannounced ones included: a
        prediction puts it on top of every life.

        Raises:
            MeasuringError: nothing was.
        """
        if self.observed_seconds <= 0:
            raise MeasuringError(
                "no running time was observed, so nothing is known of interruptions",
                hint="say how long a machine lives: risk.mean",
            )
        noticed = self.notice_seconds.value * self.notices if self.notice_seconds else 0.0
        return Risk(
            lives=exponential(self.interruptions, max(self.observed_seconds - noticed, 1e-3)),
            wait_seconds=self.wait or Quantity(value=0.0),
            usable_notice=self.usable_notices / self.interruptions if self.interruptions else 0.0,
            notice_seconds=noticed / self.interruptions if self.interruptions else 0.0,
        )


@dataclasses.dataclass(frozen=True)
class Observed:
    """What was measured, and what was not.

    Attributes:
        quantities: by field of ``Measured``.
        missing: by field, why it was not measured.
        notes: what has to be known of the numbers.
        seen: interruptions; None where nothing could be seen of them.
    """

    quantities: dict[str, Quantity] = dataclasses.field(default_factory=dict)
    missing: dict[str, str] = dataclasses.field(default_factory=dict)
    notes: list[str] = dataclasses.field(default_factory=list)
    seen: Seen | None = None

    def __or__(self, other: Observed) -> Observed:
        """Return both; where both have measured something, what this one says counts."""
        quantities = other.quantities | self.quantities
        missing = {
            name: why for name, why in (other.missing | self.missing).items() if name not in quantities
        }
        return Observed(quantities, missing, [*self.notes, *other.notes], self.seen or other.seen)

    def measured(self) -> Measured:
        """Return it as the input of a prediction; what may be left out and was not measured is zero.

        Raises:
            MeasuringError: something is missing that a prediction cannot do without.
        """
        lacking = [name for name in REQUIRED if name not in self.quantities]
        if lacking:
            reasons = "; ".join(f"{name}: {self.missing.get(name, 'nothing says it')}" for name in lacking)
            keys = ", ".join(f"measured.{name.removesuffix('_seconds')}" for name in lacking)
            raise MeasuringError(f"not measured, and needed: {reasons}", hint=f"give it by hand: {keys}")
        return msgspec.convert(self.quantities, Measured)


def exponential(interruptions: int, observed_seconds: float) -> Exponential:
    """Return lives without memory with the mean that most likely shows so many interruptions.

    Where none was seen the mean is only known to be long: the time without one stands for it, as if the first came now.
    """
    mean = observed_seconds / max(1, interruptions)
    return Exponential(mean_seconds=mean, interruptions=interruptions, observed_seconds=observed_seconds)


def few_interruptions(interruptions: int, observed_seconds: float, mean_seconds: float | None = None) -> str:
    """Return what has to be said of a mean life that rests on few interruptions; without one, it follows from them."""
    if interruptions == 0:
        if mean_seconds is None or math.isclose(mean_seconds, observed_seconds):
            taken = f"{duration(observed_seconds)} stand for it, as if the first came now"
        else:
            taken = f"{duration(mean_seconds)} are assumed"
        return (
            f"no interruption was seen in {duration(observed_seconds)}: the mean life is above "
            f"{duration(observed_seconds / 3)} with 95 % confidence, and {taken}"
        )
    return (
        f"the mean life rests on {interruptions} interruption{'' if interruptions == 1 else 's'} in "
        f"{duration(observed_seconds)}; a verdict needs about {ENOUGH_INTERRUPTIONS}"
    )


def quantity_of(numbers: Sequence[float], source: str, *, count: int | None = None) -> Quantity:
    """Return the mean of ``numbers`` with their 5th and 95th percentile, which a single one does not have."""
    values = np.asarray(numbers, dtype=float)
    low, high = np.quantile(values, [0.05, 0.95]) if len(values) > 1 else (None, None)
    mean = float(values.mean())
    return Quantity(
        value=mean,
        low=None if low is None else min(float(low), mean),
        high=None if high is None else max(float(high), mean),
        count=len(values) if count is None else count,
        source=source,
    )


def read_measured(path: Path) -> Observed:
    """Read what a pilot, or anybody, has measured: schema ``samestep.measured/1``.

    Raises:
        MeasuringError: it cannot be read, or is of another format.
    """
    tree = read_json(path)
    if not isinstance(tree, dict) or tree.get("schema") != MEASURED_SCHEMA:
        found = tree.get("schema") if isinstance(tree, dict) else None
        raise MeasuringError(f"{path} is of format {found!r}; this version reads {MEASURED_SCHEMA}")
    if unknown := sorted(tree.keys() - {"schema", *QUANTITIES}):
        raise MeasuringError(f"{path}: unknown field {unknown[0]!r}", hint=near(unknown[0], QUANTITIES))
    try:
        measured = msgspec.convert(tree, Measured)
    except msgspec.ValidationError as error:
        raise MeasuringError(f"{path}: {error}") from None
    given = {name: getattr(measured, name) for name in QUANTITIES if name in tree}
    for name, found in given.items():
        _check(found, f"{path}: {name}")
    missing = {name: f"{path.name} does not say it" for name in QUANTITIES if name not in given}
    return Observed(given, missing)


def write_measured(measured: Measured, path: Path) -> None:
    """Write what was measured: schema ``samestep.measured/1``.

    Raises:
        MeasuringError: the file cannot be written.
    """
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(measured), indent=2) + b"\n")
    except OSError as error:
        raise MeasuringError(f"cannot write {path}: {error.strerror}") from error


def read_json(path: Path) -> object:
    """Return the content of a JSON file.

    Raises:
        MeasuringError: it cannot be read.
    """
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise MeasuringError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise MeasuringError(f"{path} is no JSON: {error}") from None


def _check(found: Quantity, where: str) -> None:
    low = found.value if found.low is None else found.low
    high = found.value if found.high is None else found.high
    if not all(math.isfinite(number) and number >= 0 for number in (low, found.value, high)):
        raise MeasuringError(f"{where} has a number that is negative or not finite")
    if not low <= found.value <= high:
        raise MeasuringError(f"{where} does not lie between its low and its high")
