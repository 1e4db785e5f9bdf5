"""What a prediction rests on: the run as it was measured, what threatens it, how it is to be run, and the offers."""

from __future__ import annotations

import datetime as dt
from typing import Annotated

import msgspec

from samestep.contract.words import Word

MEASURED_SCHEMA = "samestep.measured/1"

Positive = Annotated[float, msgspec.Meta(gt=0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Quantity(msgspec.Struct, frozen=True, kw_only=True):
    """A number with where it comes from and how sure it is.

    Attributes:
        value: the number, in the unit of the field that holds it.
        low: its 5th percentile, or the lower end of a 90 % interval; None: not known.
        high: its 95th percentile, or the upper end.
        count: observations it rests on; 0: it was given by hand.
        source: in words for the report: ``given``, ``journal of 3 attempts``, ``drill 20261129-120000``.
    """

    value: NotNegative
    low: float | None = None
    high: float | None = None
    count: int = 0
    source: str = "given"


class Progress(Word):
    """What the progress of a run is counted in."""

    STEPS = "steps"
    SAMPLES = "samples"
    TOKENS = "tokens"


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The run as it was measured, in seconds and bytes.

    Attributes:
        step_seconds: one step, waiting for its data not included.
        save_seconds: training stands still for one save (the blocking part).
        persist_seconds: from the moment the state is captured until the bundle would survive the loss of the machine.
        persist_share: share by which training is slower meanwhile.
        restart_seconds: from a machine that is there to the first new step: boot, libraries, restore, data.
        stall_seconds: one step's wait for its data.
        save_bytes: written by one save.
        kept_bytes: that the store holds for this run, on average.
        save_requests: calls to the object store by one save.
    """

    schema: str = MEASURED_SCHEMA
    step_seconds: Quantity
    save_seconds: Quantity
    restart_seconds: Quantity
    persist_seconds: Quantity = Quantity(value=0.0)
    persist_share: Quantity = Quantity(value=0.0)
    stall_seconds: Quantity = Quantity(value=0.0)
    save_bytes: Quantity = Quantity(value=0.0)
    kept_bytes: Quantity = Quantity(value=0.0)
    save_requests: Quantity = Quantity(value=0.0)


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """How much is to be done.

    Attributes:
        steps: accepted steps that finish the run.
        unit: what progress is counted in.
        per_step: how many of them one step makes.
    """

    steps: Annotated[int, msgspec.Meta(ge=1)]
    unit: Progress = Progress.STEPS
    per_step: Positive = 1.0


class Exponential(msgspec.Struct, frozen=True, kw_only=True, tag="exponential", tag_field="model"):
    """Lives without memory.

    Attributes:
        mean_seconds: running time between two interruptions of the job.
        interruptions: how many were seen; None: the mean is assumed, not observed.
        observed_seconds: running time in which they were seen.
    """

    mean_seconds: Positive
    interruptions: int | None = None
    observed_seconds: float = 0.0


class Weibull(msgspec.Struct, frozen=True, kw_only=True, tag="weibull", tag_field="model"):
    """Lives whose hazard rises or falls with age.

    Attributes:
        shape: above 1 the hazard rises with age, below 1 it falls.
        scale_seconds: the age that 37 % of the lives reach.
        interruptions: how many were seen; None: the lives are assumed, not observed.
        observed_seconds: running time in which they were seen.
    """

    shape: Positive
    scale_seconds: Positive
    interruptions: int | None = None
    observed_seconds: float = 0.0


class Empirical(msgspec.Struct, frozen=True, kw_only=True, tag="empirical", tag_field="model"):
    """Lives as they were seen, drawn again with replacement.

    Attributes:
        lives_seconds: of instances that were taken away.
        censored_seconds: of instances that were still there, or were given back, when watching ended.
    """

    lives_seconds: list[Positive]
    censored_seconds: list[Positive] = []


class Replay(msgspec.Struct, frozen=True, kw_only=True, tag="replay", tag_field="model"):
    """A recorded trace of capacity, replayed from seeded starts; several files are several zones.

    Attributes:
        paths: of trace files.
        kind: ``held``: how many of the instances we held were alive; ``available``: whether one could be had.
    """

    paths: list[str]
    kind: str = "available"


Lives = Exponential | Weibull | Empirical | Replay


class Risk(msgspec.Struct, frozen=True, kw_only=True):
    """What can happen to the machines of a run.

    Attributes:
        lives: how long the job runs between interruptions.
        wait_seconds: unbilled, until capacity is there again; drawn as exponential unless lives are a replay.
        usable_notice: probability that an interruption announces itself early enough for a save, as measured.
        notice_seconds: between notice and end, not used for steps; the end of every recorded life where traces are
            replayed, on top of lives otherwise.
        nodes: machines of one run; it stands still when one is lost.
        correlated: lives are those of one node: True brackets the job's by ``mean / nodes`` and ``mean``.
        label: what the provider publishes of interruptions, such as a band; it is shown, and nothing follows from it.
    """

    lives: Lives
    wait_seconds: Quantity = Quantity(value=0.0)
    usable_notice: Share = 0.0
    notice_seconds: NotNegative = 0.0
    nodes: Annotated[int, msgspec.Meta(ge=1)] = 1
    correlated: bool = False
    label: str = ""


class Capacity(Word):
    """Which capacity a run uses."""

    SPOT = "spot"
    GREEDY = "greedy"
    UNIFORM_PROGRESS = "uniform-progress"
    ON_DEMAND = "on-demand"


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """How the run is to be run.

    Attributes:
        capacity: which capacity it uses.
        interval_seconds: productive seconds between two saves; None: the one that costs least.
        deadline_seconds: wall time it must be finished in; None: no deadline.
        budget: money it may cost; None: no limit.
        quality: the condition on the result that this prediction says nothing about, in the user's words.
        first_hour: count on a first hour that is free if the provider takes the machine away in it, where a billing
            rule has one; it pays most where progress is worst, so no comparison should lean on it.
    """

    capacity: Capacity = Capacity.SPOT
    interval_seconds: float | None = None
    deadline_seconds: float | None = None
    budget: float | None = None
    quality: str = ""
    first_hour: bool = False


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """Capacity at a price.

    Attributes:
        provider, instance, region, zone: where and what.
        accelerator: as the provider names it.
        accelerators: per machine.
        nodes: machines that the run needs.
        on_demand: price of one machine for an hour; None: not offered.
        spot: price of one interruptible machine for an hour; None: not offered.
        currency: of all prices.
        priced: the day of the price; None: not known, which is reported.
        billing: name of a billing rule.
        storage_month: price of one GB (10^9 bytes) kept for a month.
        transfer: price of one GB moved.
        thousand_requests: price of a thousand writing calls to the object store.
        source: file and row it was read from.
    """

    provider: str
    instance: str
    region: str = ""
    zone: str = ""
    accelerator: str = ""
    accelerators: float = 0.0
    nodes: Annotated[int, msgspec.Meta(ge=1)] = 1
    on_demand: NotNegative | None = None
    spot: NotNegative | None = None
    currency: str = "USD"
    priced: dt.date | None = None
    billing: str = "per-second"
    storage_month: NotNegative = 0.0
    transfer: NotNegative = 0.0
    thousand_requests: NotNegative = 0.0
    source: str = ""

    @property
    def name(self) -> str:
        """Short enough for a table, and different for each offer of a file."""
        return " ".join(part for part in (self.provider, self.instance, self.zone or self.region) if part)


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one prediction is made from.

    Attributes:
        seed: of every random draw.
        paths: lives of the run that are simulated.
    """

    work: Work
    measured: Measured
    risk: Risk
    policy: Policy = Policy()
    offers: list[Offer] = []
    seed: int = 0
    paths: Annotated[int, msgspec.Meta(ge=1)] = 10_000
