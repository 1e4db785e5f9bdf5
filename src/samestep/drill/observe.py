"""What a control run shows: its saves, where its epochs end, how it accumulates. Pure functions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from samestep.checkpoints import Unit
    from samestep.trace import StepRecord, Trace
    from samestep.trace.records import MicroStep

_DIGITS = re.compile(r"\d+")

_GOES_ON = 4
"""A file that is seen to change so often is written in the background; less often, it was also marked or deleted."""

_GAP = 3
"""Most steps between two such changes."""


@dataclass(frozen=True)
class Burst:
    """The paths under the durable folder that changed after ``step`` steps were complete.

    Attributes:
        step: steps complete in what was saved.
        paths: relative to the durable folder.
        done: steps complete when the last of it was written, where that went on in the background.
    """

    step: int
    paths: tuple[str, ...]
    done: int = 0


@dataclass(frozen=True)
class ControlFacts:
    """What planning needs to know of the control.

    Attributes:
        steps: optimizer steps.
        save_steps: steps complete at each save, ascending.
        bursts: what each save wrote.
        epoch_ends: steps that ended an epoch.
        accumulation: most micro-steps of a step.
        ranks: world size.
        followed: optimizers were seen being called; False when steps only show by their effect.
        steps_each: steps that were seen for each one that checkpoints tell of: two for a GAN that counts its batches.
    """

    steps: int
    save_steps: list[int]
    bursts: list[Burst] = field(default_factory=list)
    epoch_ends: list[int] = field(default_factory=list)
    accumulation: int = 1
    ranks: int = 1
    followed: bool = True
    steps_each: int = 1

    def newest_save(self, step: int) -> int:
        """Return the newest save that was written when ``step`` steps were complete; 0 when there is none."""
        return max((save for save in self.save_steps if self.done(save) <= step), default=0)

    def done(self, save: int) -> int:
        """Return the steps complete when the last file of a save was written."""
        return max([save, *(burst.done for burst in self.bursts if burst.step == save)])


def facts_of(
    traces: list[Trace],
    units: Sequence[Unit],
    is_log: Callable[[str], bool],
    said: Mapping[str, int] | None = None,
) -> ControlFacts:
    """Read the facts of a control from its traces (one per rank, at least one) and its final checkpoints."""
    first = traces[0]
    each = _steps_each(traces, said or {})
    bursts = save_bursts(traces, units, is_log, {path: step * each for path, step in (said or {}).items()})
    return ControlFacts(
        steps=min(len(trace.steps) for trace in traces),
        save_steps=[burst.step for burst in bursts],
        bursts=bursts,
        epoch_ends=epoch_ends(first.steps),
        accumulation=max((len(gathered(step)) for step in first.steps), default=1) or 1,
        ranks=len(traces),
        followed=any(update.optimizer >= 0 for step in first.steps for update in step.updates),
        steps_each=each,
    )


def _steps_each(traces: list[Trace], said: Mapping[str, int]) -> int:
    """Return how many steps were seen for each one that checkpoints tell of.

    It is more than one only where optimizers take turns, with a step each, and the script counts the rounds.
    """
    turns = {frozenset(update.optimizer for update in step.updates) for step in traces[0].steps}
    if len(turns) < 2:
        return 1
    pairs = [(step, seen) for _, step, seen in _told(_sightings(traces), said) if step]
    return max(1, min((seen // step for step, seen in pairs), default=1))


def gathered(step: StepRecord) -> list[MicroStep]:
    """Return the micro-steps that gather gradients for a step; what a closure of the optimizer does is none."""
    return [micro for micro in step.micro_steps if not micro.within_update]


def save_bursts(
    traces: list[Trace],
    units: Sequence[Unit],
    is_log: Callable[[str], bool],
    said: Mapping[str, int] | None = None,
) -> list[Burst]:
    """Return the saves: changes under the durable folder that touch a checkpoint.

    A path belongs to a checkpoint when it is a file of a unit that is there in the end, or differs from one only in its
    numbers (it was rotated away). A temporary name under which a file was written does not count, for another rank may
    see it a step later. Without any unit, everything but logs counts.

    Args:
        traces: of all ranks.
        units: the checkpoints that are there in the end.
        is_log: whether a path is none of a checkpoint's.
        said: the step of files and folders that say it themselves, see ``samestep.checkpoints.saved_steps``.
    """
    shapes = {_shape(name) for unit in units for name in (*unit.files, *unit.pointers)}
    bursts: dict[int, set[str]] = {}
    done: dict[int, int] = {}
    sightings = _sightings(traces)
    for path, step, seen in _told(sightings, said or {}):
        bursts.setdefault(step, set()).add(path)
        done[step] = max(done.get(step, 0), seen)
    sightings = {path: steps for path, steps in sightings.items() if not _tells(path, said or {})}
    background = _in_background(sightings)
    for path, steps in sightings.items():
        if not is_log(path) and (not shapes or _shape(path) in shapes):
            begun = next((background[part] for part in _parts(path) if part in background), None)
            if begun is not None:
                done[begun] = max(done.get(begun, 0), *_in_a_row(steps))
            for step in steps if begun is None else [begun]:
                bursts.setdefault(step, set()).add(path)
    return [Burst(step, tuple(sorted(bursts[step])), done.get(step, 0)) for step in sorted(bursts)]


def _told(sightings: Mapping[str, Sequence[int]], said: Mapping[str, int]) -> Iterator[tuple[str, int, int]]:
    """Yield the paths of saves that say their step, with that step and the one after which they were first seen.

    What is seen of them later is their removal.
    """
    for path, steps in sightings.items():
        step = next((said[part] for part in _parts(path) if part in said), -1)
        if step >= 0:
            yield path, step, max(step, steps[0])


def _tells(path: str, said: Mapping[str, int]) -> bool:
    return any(part in said for part in _parts(path))


def _in_background(sightings: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Return the files and folders that are named after a step and changed again and again after it, with that step.

    A save in the background is seen at many steps; what it saves is the state of the step it began after, which may
    be the one before it is first seen.
    """
    seen: dict[str, set[int]] = {}
    for path, steps in sightings.items():
        for part in _parts(path):
            seen.setdefault(part, set()).update(steps)
    found = {}
    for part, all_steps in seen.items():
        steps = _in_a_row(sorted(all_steps))
        numbers = {int(digits) for digits in _DIGITS.findall(PurePosixPath(part).name)}
        begun = [step for step in (steps[0], steps[0] - 1) if step in numbers]
        if begun and len(steps) >= _GOES_ON:
            found[part] = begun[0]
    return found


def _parts(path: str) -> list[str]:
    """Return a path and the folders that it lies in."""
    return [path, *map(str, PurePosixPath(path).parents)]


def _in_a_row(steps: Sequence[int]) -> Sequence[int]:
    """Return the first steps that follow one another closely; after a gap the file is deleted, or another one."""
    gaps = (place for place, (before, after) in enumerate(pairwise(steps), start=1) if after - before > _GAP)
    return steps[: next(gaps, len(steps))]


def last_words_save(traces: Sequence[Trace], bursts: Sequence[Burst], written: float) -> int | None:
    """Return the steps complete at a save that no record tells of, if there was one.

    A handler that saves and leaves at once (``os._exit``) writes neither its step's record nor an end.

    Args:
        traces: of all ranks, with at least one step each.
        bursts: the saves that are recorded.
        written: when a whole checkpoint was last written, in seconds since the epoch.
    """
    if not traces or any(trace.end is not None for trace in traces):
        return None
    complete = min(len(trace.steps) for trace in traces)
    known = max((burst.step for burst in bursts), default=0)
    return complete if known < complete and written > max(map(_last_record, traces)) else None


def _last_record(trace: Trace) -> float:
    """Return when the last recorded step ended, in seconds since the epoch."""
    header = trace.header
    return header.started_unix + max((step.ended for step in trace.steps), default=0.0) - header.started


def _sightings(traces: list[Trace]) -> dict[str, list[int]]:
    """Return after which steps each path changed.

    Every rank sees every change, and a rank that runs ahead of the writer sees one write twice, the second
    time a step late: the rank with the fewest and earliest sightings of a path is its writer or as good.
    """
    seen: dict[str, list[list[int]]] = {}
    for trace in traces:
        by_path: dict[str, list[int]] = {}
        for step, changed in _changes(trace):
            for path in changed:
                by_path.setdefault(path, []).append(step)
        for path, steps in by_path.items():
            seen.setdefault(path, []).append(steps)
    return {path: min(ranks, key=lambda steps: (len(steps), steps)) for path, ranks in seen.items()}


def _changes(trace: Trace) -> Iterable[tuple[int, list[str]]]:
    for step in trace.steps:
        yield step.index, step.durable
    if trace.end is not None:
        yield trace.end.steps, trace.end.durable


def _shape(path: str) -> str:
    return _DIGITS.sub("#", path)


def epoch_ends(steps: Sequence[StepRecord]) -> list[int]:
    """Return the steps that ended an epoch: the next step uses a sample that this epoch already used.

    Samples are the sampler's indices where they could be followed, else the digest of the batch. Sampling with
    replacement repeats samples too, and has no epochs: its stretches without a repetition differ in length.
    """
    seen: set[Any] = set()
    ends: list[int] = []
    for step in steps:
        identities = sample_identities(step)
        if seen & identities:
            ends.append(step.index - 1)
            seen = set()
        seen |= identities
    lengths = {end - begin for begin, end in pairwise([0, *ends])}
    return ends if max(lengths, default=0) - min(lengths, default=0) <= 1 else []


def sample_identities(step: StepRecord) -> set[Any]:
    """Return what identifies the samples of a step: indices, or digests of its batches."""
    found: set[Any] = set()
    for micro in step.micro_steps:
        samples = micro.samples
        found |= {_hashable(sample) for sample in samples} if samples else {micro.inputs}
    return found


def _hashable(sample: Any) -> Any:
    return tuple(sample) if isinstance(sample, list) else sample


def loss_of(step: StepRecord) -> float | None:
    """Return the mean loss of a step's micro-steps; None when none was seen."""
    losses = [micro.loss for micro in step.micro_steps if micro.loss is not None]
    return sum(losses) / len(losses) if losses else None


def learning_rate_of(step: StepRecord) -> float | None:
    """Return the learning rate of the first group of the step's first update."""
    for update in step.updates:
        for group in update.groups:
            rate = group.get("lr")
            if isinstance(rate, int | float):
                return float(rate)
    return None


def samples_of(step: StepRecord) -> list[Any]:
    """Return sample indices of a step, or short digests of its batches where they are unknown."""
    shown: list[Any] = []
    for micro in step.micro_steps:
        shown += micro.samples if micro.samples is not None else [micro.inputs.split(":")[-1][:8]]
    return shown
