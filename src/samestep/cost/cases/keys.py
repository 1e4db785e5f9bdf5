"""The keys of a case file: what each is called there, which field it fills, and how its value is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from samestep.cost.errors import CaseError
from samestep.cost.inputs import Capacity, Progress

from . import values
from .places import near

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .places import Place, Places


class Key(NamedTuple):
    """One key of a case file.

    Attributes:
        field: of the struct that its section fills.
        read: returns the value, or refuses it.
        kind: how it is written, in a word or two.
        unit: of its number.
        meaning: where the field's own does not say it.
    """

    field: str
    read: Callable[[object, Place], Any]
    kind: str
    unit: str = ""
    meaning: str = ""


def _duration(field: str) -> Key:
    return Key(field, values.seconds, "duration", "s")


def _some_duration(field: str) -> Key:
    return Key(field, values.positive_seconds, "duration", "s")


def _measured_duration(field: str) -> Key:
    return Key(field, values.quantity(values.seconds), "measured duration", "s")


def _measured_number(field: str, unit: str) -> Key:
    return Key(field, values.quantity(values.number), "measured number", unit)


def _number(field: str, unit: str) -> Key:
    return Key(field, values.number, "number", unit)


def _text(field: str) -> Key:
    return Key(field, values.text, "text")


def _word(field: str, vocabulary: type[Progress | Capacity]) -> Key:
    def read(value: object, place: Place) -> Progress | Capacity:
        return vocabulary(values.one_of(value, [str(word) for word in vocabulary], place))

    return Key(field, read, ", ".join(f"`{word}`" for word in vocabulary))


WORK = {
    "steps": Key("steps", values.whole, "whole number", "steps"),
    "duration": Key(
        "steps",
        values.positive_seconds,
        "duration",
        "s",
        "the same as the time that all steps take, none repeated",
    ),
    "samples": Key("steps", values.positive, "number", "samples", "the same in samples; needs `per_step`"),
    "tokens": Key("steps", values.positive, "number", "tokens", "the same in tokens; needs `per_step`"),
    "unit": _word("unit", Progress),
    "per_step": Key("per_step", values.positive, "number", "1/step"),
}
MEASURED = {
    "step": Key("step_seconds", values.quantity(values.positive_seconds), "measured duration", "s"),
    "save": _measured_duration("save_seconds"),
    "restart": _measured_duration("restart_seconds"),
    "persist": _measured_duration("persist_seconds"),
    "persist_share": Key("persist_share", values.quantity(values.share), "measured share"),
    "stall": _measured_duration("stall_seconds"),
    "save_bytes": _measured_number("save_bytes", "bytes"),
    "kept_bytes": _measured_number("kept_bytes", "bytes"),
    "save_requests": _measured_number("save_requests", "calls"),
}
RISK = {
    "wait": _measured_duration("wait_seconds"),
    "usable_notice": Key("usable_notice", values.share, "share"),
    "notice": _duration("notice_seconds"),
    "nodes": Key("nodes", values.whole, "whole number"),
    "correlated": Key("correlated", values.switch, "switch"),
    "label": _text("label"),
}
_SEEN = {
    "interruptions": Key("interruptions", values.counted, "whole number"),
    "observed": _duration("observed_seconds"),
}
LIVES = {
    "exponential": {"mean": _some_duration("mean_seconds"), **_SEEN},
    "weibull": {
        "shape": Key("shape", values.positive, "number"),
        "scale": _some_duration("scale_seconds"),
        **_SEEN,
    },
    "empirical": {
        "lives": Key("lives_seconds", values.listed(values.positive_seconds), "durations", "s"),
        "censored": Key("censored_seconds", values.listed(values.positive_seconds), "durations", "s"),
    },
    "replay": {
        "traces": Key("paths", values.listed(values.text), "paths"),
        "kind": Key(
            "kind",
            lambda value, place: values.one_of(value, ["held", "available"], place),
            "`held` or `available`",
        ),
    },
}
POLICY = {
    "capacity": _word("capacity", Capacity),
    "interval": Key("interval_seconds", values.advised_or_seconds, "duration or `auto`", "s"),
    "deadline": _some_duration("deadline_seconds"),
    "budget": _number("budget", "currency"),
    "quality": _text("quality"),
    "first_hour": Key("first_hour", values.switch, "switch"),
}
OFFER = {
    **{name: _text(name) for name in ("provider", "instance", "region", "zone", "accelerator")},
    "accelerators": _number("accelerators", ""),
    "nodes": Key("nodes", values.whole, "whole number"),
    "on_demand": _number("on_demand", "currency/h"),
    "spot": _number("spot", "currency/h"),
    "currency": Key("currency", values.currency, "three letters"),
    "priced": Key("priced", values.day, "day"),
    "billing": _text("billing"),
    "storage_month": _number("storage_month", "currency/GB/month"),
    "transfer": _number("transfer", "currency/GB"),
    "thousand_requests": _number("thousand_requests", "currency/1000"),
    "source": _text("source"),
}
CASE = {
    "seed": Key("seed", values.counted, "whole number"),
    "paths": Key("paths", values.whole, "whole number"),
    "offers_from": Key("offers", values.paths, "path or paths"),
}
TABLES = ("work", "measured", "risk", "policy", "offers")


def read_keys(
    section: str, table: Mapping[str, Any], keys: Mapping[str, Key], places: Places
) -> dict[str, Any]:
    """Return the values of a table by the field that each fills.

    Args:
        section: that the table is, for messages; empty at the top.
        table: as it was written.
        keys: that may stand there.
        places: of the case.

    Raises:
        CaseError: a key is unknown, or a value cannot be meant.
    """
    require_known(section, table, list(keys), places)
    found = {}
    for name, value in table.items():
        found[keys[name].field] = keys[name].read(value, places.of(_key(section, name)))
    return found


def require_known(section: str, table: Mapping[str, Any], known: Sequence[str], places: Places) -> None:
    """Refuse a key that is not known.

    Raises:
        CaseError: there is one.
    """
    for name in table:
        if name not in known:
            raise CaseError(f"{places.of(_key(section, name))} is no key of a case", hint=near(name, known))


def _key(section: str, name: str) -> str:
    return f"{section}.{name}" if section else name
