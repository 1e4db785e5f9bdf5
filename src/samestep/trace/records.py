"""The records of a trace, one dataclass per line kind, and their JSON form.

A trace file holds one JSON object per line. The first is the ``header``; then one ``step`` per
optimizer step, ``event`` lines between them, and an ``end`` when the process ended on its own terms.
A killed process simply has no ``end``.
"""

from __future__ import annotations

import base64
import dataclasses
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = "samestep.trace/1"

Plain = Any  # None, bool, int, float, str, and lists or string-keyed dicts of these


@dataclass
class Quantity:
    """Content of a group of tensors (all parameters, all first moments, ...).

    Attributes:
        digest: ``algorithm:hex`` over names, shapes, dtypes and every byte, position-dependent.
        tensors: number of tensors.
        elements: number of elements.
        sample: base64 of little-endian float64 values taken at fixed, evenly spaced positions of every
            tensor in order (at least one of each), so that two contents can be compared
            numerically; empty when not sampled.
    """

    digest: str
    tensors: int = 0
    elements: int = 0
    sample: str = ""

    def values(self) -> list[float]:
        """Decode ``sample``."""
        raw = base64.b64decode(self.sample)
        return list(struct.unpack(f"<{len(raw) // 8}d", raw))

    @staticmethod
    def encode(values: list[float]) -> str:
        """Encode numbers as a ``sample``."""
        return base64.b64encode(struct.pack(f"<{len(values)}d", *values)).decode("ascii")


@dataclass
class Average:
    """Averaged weights: an ``AveragedModel`` or a copy that follows the model.

    Attributes:
        name: type and, when known, the name it is reachable by.
        content: its tensors.
        updates: its own update counter, when it has one.
    """

    name: str
    content: Quantity
    updates: int | None = None


@dataclass
class State:
    """Everything a step starts from, seen at a step boundary.

    Attributes:
        weights: parameters of all models that an optimizer updates, and of the modules around them.
        buffers: their buffers (batch-norm statistics).
        caches: their buffers that no state_dict holds; as a rule they can be made again.
        gradients: gradients present before the first forward; None when all are absent or zero.
        optimizer: tensors of optimizer state by ``<optimizer index>/<kind>``, e.g. ``0/exp_avg``, ``0/step``.
        groups: per optimizer, per parameter group: plain hyper-parameters (``lr`` first).
        schedules: per scheduler: ``type`` and its plain counters (``last_epoch``, ``_step_count``, ...).
        scalers: per loss scaler: ``scale``, ``growth_tracker``.
        averages: averaged weights.
        rng: digest per global generator: ``python``, ``numpy``, ``torch``, ``cuda:0``, ...
    """

    weights: Quantity | None = None
    buffers: Quantity | None = None
    caches: Quantity | None = None
    gradients: Quantity | None = None
    optimizer: dict[str, Quantity] = field(default_factory=dict)
    groups: list[list[dict[str, Plain]]] = field(default_factory=list)
    schedules: list[dict[str, Plain]] = field(default_factory=list)
    scalers: list[dict[str, Plain]] = field(default_factory=list)
    averages: list[Average] = field(default_factory=list)
    rng: dict[str, str] = field(default_factory=dict)


@dataclass
class MicroStep:
    """One forward-backward of an accumulation window.

    Attributes:
        inputs: digest over every tensor that entered the outermost training-mode forwards.
        forwards: number of outermost training-mode forwards (a GAN has several).
        samples: indices the sampler gave for this batch, where they could be followed.
        loss: value that ``backward`` was called on.
        rng: digests of the global generators just before the forward (the first micro-step's equal the state's).
        within_update: an optimizer asked for it from inside its call (a closure): it gathers no gradients.
    """

    inputs: str = ""
    forwards: int = 0
    samples: list[Plain] | None = None
    loss: float | None = None
    rng: dict[str, str] = field(default_factory=dict)
    within_update: bool = False


@dataclass
class Update:
    """One call of an optimizer.

    Attributes:
        optimizer: its index in order of first use.
        name: its class.
        applied: False when a loss scaler skipped it on overflow.
        groups: hyper-parameters used by this very call, per group (``lr`` first).
    """

    optimizer: int
    name: str
    applied: bool = True
    groups: list[dict[str, Plain]] = field(default_factory=list)


@dataclass
class StepRecord:
    """One optimizer step as one process saw it.

    Attributes:
        index: steps taken by this process, from 1.
        before: state before the first forward of the step.
        micro_steps: in order.
        updates: optimizer calls that made the step (Muon + AdamW: two).
        weights_after: parameters right after the last update.
        values: plain values reachable from the loop (``self.state.global_step``) *at the beginning* of the step.
        generators: digest per random generator reachable from the loop that is not a global one.
        durable: paths under the durable folder (relative) that were written or removed since the last step
            record began.
        began, ended: monotonic seconds (``time.monotonic``; comparable between processes of one machine).
        probe_seconds: time the probe itself took in this step.
    """

    index: int
    before: State = field(default_factory=State)
    micro_steps: list[MicroStep] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)
    weights_after: Quantity | None = None
    values: dict[str, Plain] = field(default_factory=dict)
    generators: dict[str, str] = field(default_factory=dict)
    durable: list[str] = field(default_factory=list)
    began: float = 0.0
    ended: float = 0.0
    probe_seconds: float = 0.0


@dataclass
class EventRecord:
    """Something that happened between steps.

    ``name`` is one of ``parked`` (detail: point, handles_sigterm), ``released``, ``read`` (detail: path under
    the durable folder that was opened for reading), ``idle-update`` (an optimizer call that was no step), ``sabotaged``
    (detail: what), ``not-followed`` (detail: what, why), ``untracked`` (detail: name, type), ``device``
    (detail: the device the parameters live on), ``signal`` (detail: number), ``saved`` (detail: path of a
    checkpoint-like file whose writing began here, when the probe saw it).
    """

    name: str
    step: int
    time: float
    detail: dict[str, Plain] = field(default_factory=dict)


@dataclass
class EndRecord:
    """The process ended on its own terms.

    Attributes:
        reason: ``exit``, ``step-limit`` (the orders' limit was reached) or ``exception``.
        steps: steps taken by this process.
        state: state at the end.
        durable: as in a step record, for what was written after the last step.
        values: as in a step record.
    """

    reason: str
    steps: int
    time: float
    state: State = field(default_factory=State)
    durable: list[str] = field(default_factory=list)
    values: dict[str, Plain] = field(default_factory=dict)


@dataclass
class Header:
    """Who wrote the trace.

    Attributes:
        attempt: name of the drill's attempt.
        argv: the process's command line, secrets in it hidden.
        versions: ``python``, ``torch`` and the frameworks that were imported.
        rank, world_size: of the process group, from the launcher's environment; 0 and 1 without one.
        digest: digest algorithm of all quantities.
        started: monotonic seconds.
        started_unix: seconds since the epoch.
    """

    attempt: str
    argv: list[str]
    pid: int
    parent_pid: int
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    executable: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    digest: str = ""
    started: float = 0.0
    started_unix: float = 0.0
    schema: str = SCHEMA


Record = Header | StepRecord | EventRecord | EndRecord

_KINDS: dict[str, type] = {
    "header": Header,
    "step": StepRecord,
    "event": EventRecord,
    "end": EndRecord,
}


def to_plain(record: Record) -> dict[str, Plain]:
    """Return the JSON object of ``record``, its ``kind`` first, without empty fields."""
    kind = next(name for name, cls in _KINDS.items() if isinstance(record, cls))
    return {"kind": kind, **_drop_empty(dataclasses.asdict(record))}


def from_plain(data: dict[str, Plain]) -> Record:
    """Rebuild a record from its JSON object.

    Raises:
        KeyError: the object's kind is unknown.
        TypeError: a required field is missing.
    """
    cls = _KINDS[data["kind"]]
    fields = {f.name for f in dataclasses.fields(cls)}
    known = {name: value for name, value in data.items() if name in fields}
    built = {name: _BUILDERS[name](value) if name in _BUILDERS else value for name, value in known.items()}
    return cast("Record", cls(**built))


def _quantity(data: Plain) -> Quantity | None:
    return None if data is None else Quantity(**data)


def _average(data: Plain) -> Average:
    return Average(**{**data, "content": Quantity(**data["content"])})


def _state(data: Plain) -> State:
    return State(
        weights=_quantity(data.get("weights")),
        buffers=_quantity(data.get("buffers")),
        caches=_quantity(data.get("caches")),
        gradients=_quantity(data.get("gradients")),
        optimizer={name: Quantity(**value) for name, value in data.get("optimizer", {}).items()},
        groups=data.get("groups", []),
        schedules=data.get("schedules", []),
        scalers=data.get("scalers", []),
        averages=[_average(item) for item in data.get("averages", [])],
        rng=data.get("rng", {}),
    )


_BUILDERS: dict[str, Callable[[Plain], Plain]] = {
    "before": _state,
    "state": _state,
    "weights_after": _quantity,
    "micro_steps": lambda items: [MicroStep(**item) for item in items],
    "updates": lambda items: [Update(**item) for item in items],
}


def _drop_empty(value: Plain) -> Plain:
    if isinstance(value, dict):
        kept = {name: _drop_empty(item) for name, item in value.items()}
        return {name: item for name, item in kept.items() if item not in (None, "", [], {})}
    if isinstance(value, list):
        return [_drop_empty(item) for item in value]
    return value
