"""Case files: TOML in, a case out; whatever cannot be meant is refused with its file, line and key."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from samestep.cost.errors import CaseError
from samestep.cost.inputs import (
    Case,
    Empirical,
    Exponential,
    Offer,
    Policy,
    Progress,
    Replay,
    Risk,
    Weibull,
    Work,
)
from samestep.cost.offers.table import offer_of, read_table
from samestep.cost.records.observed import Observed, exponential, read_measured

from .checking import refuse
from .keys import CASE, LIVES, MEASURED, POLICY, RISK, TABLES, WORK, read_keys, require_known
from .places import Places, near
from .values import seconds as _seconds

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from samestep.cost.inputs import Lives, Measured

    from .places import Place

_LEAST = (
    'at least: [work] steps = 36000; [measured] step = "1s", save = "20s", restart = "4min"; [risk] mean = "4h"; '
    "[[offers]] with provider, instance, spot and on_demand"
)
"""What a case file has to say."""

_AMOUNTS = ("steps", "duration", "samples", "tokens")
_NOBODY_SAW = Observed()


def read_case(path: Path, *, observed: Observed | None = None, offers: Sequence[Offer] = ()) -> Case:
    """Read a case file.

    Args:
        path: of the file.
        observed: what was measured of the run; what the file says by hand counts all the same.
        offers: in addition to those of the file.

    Raises:
        CostError: it cannot be read, or says something that cannot be meant.
    """
    tree, content = load_tree(path)
    return case_of(
        tree, place=str(path), folder=path.parent, observed=observed, offers=offers, content=content
    )


def load_tree(path: Path) -> tuple[dict[str, Any], str]:
    """Return what a case file says, unchecked, and its text.

    Raises:
        CaseError: it cannot be read, or is no TOML.
    """
    content = _content(path)
    return _parsed(content, path), content


def seconds_of(value: object, place: str) -> float:
    """Return the seconds of a duration: ``10h``, ``1h 30min``, or a number of seconds.

    Raises:
        CaseError: it is none.
    """
    return _seconds(value, Places(place).of("duration"))


def case_of(
    data: Mapping[str, Any],
    *,
    place: str = "command line",
    folder: Path = Path(),
    observed: Observed | None = None,
    offers: Sequence[Offer] = (),
    content: str = "",
    flagged: Collection[str] = (),
) -> Case:
    """Return the case that a tree of values stands for.

    Args:
        data: as a case file says it.
        place: where it was said, for messages.
        folder: that paths are relative to.
        observed: what was measured of the run; what ``data`` says counts all the same.
        offers: in addition to those of ``data``.
        content: of the file, to find lines in.
        flagged: keys and tables of ``data`` that the command line has put over the file.

    Raises:
        CostError: something cannot be meant.
    """
    places = Places(place, content, flagged=flagged)
    if not data:
        raise CaseError(f"{place} says nothing", hint=_LEAST)
    _require_known(data, places)
    top = read_keys("", {name: value for name, value in data.items() if name in CASE}, CASE, places)
    reader = _Reader(places, folder, observed or _NOBODY_SAW)
    measured = reader.measured(_table(data, "measured", places))
    named = [offer for name in top.pop("offers", []) for offer in read_table(folder / name)]
    case = Case(
        work=reader.work(_table(data, "work", places), measured.step_seconds.value),
        measured=measured,
        risk=reader.risk(_table(data, "risk", places)),
        policy=Policy(**read_keys("policy", _table(data, "policy", places), POLICY, places)),
        offers=[*_offers(data.get("offers", []), places), *named, *offers],
        **top,
    )
    refuse(case, place)
    return case


def _require_known(data: Mapping[str, Any], places: Places) -> None:
    """Refuse misspelt keys first: what lacks because of them is not what has to be mended."""
    require_known("", data, [*CASE, *TABLES], places)
    model = _table(data, "risk", places).get("model", "exponential")
    lives = LIVES.get(model, {}) if isinstance(model, str) else {}
    known = {"work": [*WORK], "measured": ["from", *MEASURED], "policy": [*POLICY]}
    if lives:
        known["risk"] = ["model", *lives, *RISK]
    for section, names in known.items():
        require_known(section, _table(data, section, places), names, places)


class _Reader:
    """Reads the tables that may be filled by what was observed."""

    def __init__(self, places: Places, folder: Path, observed: Observed) -> None:
        self._places, self._folder, self._observed = places, folder, observed

    def measured(self, table: Mapping[str, Any]) -> Measured:
        rest = dict(table)
        source = rest.pop("from", None)
        by_hand = Observed(read_keys("measured", rest, MEASURED, self._places))
        if source is not None and not isinstance(source, str):
            raise CaseError(f"{self._places.of('measured.from')} is {source!r}; a path was expected")
        by_file = read_measured(self._folder / source) if source else _NOBODY_SAW
        return (by_hand | by_file | self._observed).measured()

    def work(self, table: Mapping[str, Any], step_seconds: float) -> Work:
        amounts = [name for name in _AMOUNTS if name in table]
        if len(amounts) != 1:
            raise CaseError(
                f"{self._places.of('work')} says {' and '.join(amounts) or 'nothing'} of how much is to be done",
                hint=f"one of {', '.join(_AMOUNTS)}",
            )
        place = self._places.of(f"work.{amounts[0]}")
        found = read_keys("work", table, WORK, self._places)
        if amounts[0] == "duration":
            found["steps"] = math.ceil(found["steps"] / step_seconds - 1e-9)
        elif amounts[0] != "steps":
            unit = Progress(amounts[0])
            if "per_step" not in found or found.setdefault("unit", unit) != unit:
                raise CaseError(f"{place} needs per_step: how many {unit} one step makes, and no other unit")
            found["steps"] = math.ceil(found["steps"] / found["per_step"] - 1e-9)
        return Work(**found)

    def risk(self, table: Mapping[str, Any]) -> Risk:
        model = table.get("model", "exponential")
        place = self._places.of("risk.model")
        if not isinstance(model, str) or model not in LIVES:
            raise CaseError(f"{place} is {model!r}, which is not known", hint=near(str(model), LIVES))
        own = LIVES[model]
        rest = {name: value for name, value in table.items() if name != "model"}
        found = read_keys("risk", rest, RISK | own, self._places)
        of_lives = {key.field: found.pop(key.field) for key in own.values() if key.field in found}
        seen = self._observed.seen
        if not of_lives and seen is not None and seen.observed_seconds > 0:
            by_sight = seen.risk()
            fields = {name: getattr(by_sight, name) for name in by_sight.__struct_fields__}
            return Risk(**(fields | found))
        return Risk(lives=self._lives(model, of_lives), **found)

    def _lives(self, model: str, said: dict[str, Any]) -> Lives:
        place = self._places.of("risk")
        if model == "exponential":
            return _exponential(said, place)
        if model == "replay":
            _require(said, {"paths": "traces"}, place)
            said["paths"] = [str(self._folder / path) for path in said["paths"]]
            return Replay(**said)
        if model == "weibull":
            _require(said, {"shape": "shape", "scale_seconds": "scale"}, place)
            return Weibull(**said)
        _require(said, {"lives_seconds": "lives"}, place)
        return Empirical(**said)


def _exponential(said: dict[str, Any], place: Place) -> Exponential:
    if said.get("interruptions") == 0 and not said.get("observed_seconds"):
        raise CaseError(
            f"{place} says that no interruption was seen, and not in how much running time",
            hint='observed = "48h"; or leave interruptions out, and the mean life counts as assumed',
        )
    if "mean_seconds" in said:
        return Exponential(**said)
    if said.get("observed_seconds", 0.0) > 0 and "interruptions" in said:
        return exponential(said["interruptions"], said["observed_seconds"])
    raise CaseError(
        f"{place} does not say how long a machine lives",
        hint='mean = "4h"; or interruptions and observed: how many were seen in how much running time',
    )


def _require(said: Mapping[str, Any], keys: Mapping[str, str], place: Place) -> None:
    """Refuse lives of which something is not said; ``keys`` are by field."""
    lacking = [key for field, key in keys.items() if not said.get(field)]
    if lacking:
        raise CaseError(f"{place} lacks {lacking[0]}")


def _offers(tables: object, places: Places) -> list[Offer]:
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise CaseError(f"{places.of('offers')} is no list of tables", hint="[[offers]] begins each")
    return [offer_of(table, f"offers[{number}]", places) for number, table in enumerate(tables, start=1)]


def _table(data: Mapping[str, Any], name: str, places: Places) -> Mapping[str, Any]:
    table = data.get(name, {})
    if not isinstance(table, dict):
        raise CaseError(f"{places.of(name)} is {table!r}; a table was expected", hint=f"[{name}]")
    return table


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise CaseError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CaseError(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from None


def _parsed(content: str, path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(content)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise CaseError(f"{path} is no TOML: {error}") from None
