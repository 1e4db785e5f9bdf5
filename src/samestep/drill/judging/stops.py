"""Restarts that took no step: refused, crashed, finished, or not watched at all. Pure."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from samestep.contract import Component, Family, Outcome, Severity
from samestep.drill.judging.diagnosis.records import finding
from samestep.drill.judging.judgement import Judgement
from samestep.drill.result import Observation

if TYPE_CHECKING:
    from samestep.drill.judging.judgement import Case, Ending, Reference
    from samestep.drill.result import Expectation, FindingRecord

FRAME = re.compile(r'^\s*(File ".*", line \d+|~*\^+~*$)')
"""Lines of a traceback that show where, not what."""

PLACE = re.compile(r'^\s*File ".*", line \d+')
"""The line of a traceback that the source line follows."""

PROGRESS_BAR = re.compile(r"\d+%\|")
"""A bar whose label may hold any word."""

FUNCTION = re.compile(r'^\s*File ".*", line \d+, in (\w+)', re.MULTILINE)
"""The functions that a traceback went through."""

TELLING_LETTERS = 6
"""Shorter names (``model``, ``state``, ``data``) stand in too many functions to point at a file."""

RANK = re.compile(r"^\[?rank\d+\]?:\s?")
"""What torchrun puts before the lines of a traceback."""

RAISED = re.compile(r"^([A-Za-z_][\w.]*\.)?[A-Z]\w*(Error|Exception|Exit|Warning|Interrupt)\b")
"""A line that says what went wrong, by the usual name of an exception: also where its traceback is not shown."""

COMPLAINT = re.compile(
    r"error|fail|damag|corrupt|missing|invalid|cannot|can't|could not|unable|not found|no such|truncat|incomplete|"
    r"refus|mismatch|unexpected|broken|not a valid|does not exist",
    re.IGNORECASE,
)
"""Words of a line that complains."""

CHANGED = re.compile(
    r"mismatch|incompatib|does ?n.t match|different|differ|changed|world.?size|number of (ranks|processes|workers)|"
    r"batch.?size|accumulation|shape|size of|data ?set|\branks?\b|\bworld\b|trained with",
    re.IGNORECASE,
)
"""Words that name what a transfer may have changed."""


NAMED = (
    (
        Component.OPTIMIZER,
        re.compile(r"optimi[sz]er|param_groups|parameter group|exp_avg|momentum", re.IGNORECASE),
    ),
    (Component.ACCESS, re.compile(r"weights.only|unsupported global|unsafe", re.IGNORECASE)),
    (Component.SCHEDULE, re.compile(r"schedul", re.IGNORECASE)),
    (Component.SCALER, re.compile(r"scaler|growth_tracker", re.IGNORECASE)),
    (Component.RNG, re.compile(r"rng|random_state|setstate|ByteTensor", re.IGNORECASE)),
    (
        Component.WEIGHTS,
        re.compile(r"size mismatch|in loading state_dict|missing key|unexpected key", re.IGNORECASE),
    ),
)
"""What a failing restart was loading, by the words of its messages and of the script's lines that failed."""


def judge_stop(reference: Reference, ending: Ending, case: Case, expected: Expectation) -> Judgement:
    """Judge a restart that took no step."""
    total = max((len(trace.steps) for trace in reference.traces), default=0)
    due = expected.resume_step if expected.resume_step is not None else max(case.whole_steps, default=0)
    if ending.timed_out:
        return _told(Outcome.INCONCLUSIVE, ending, "took no step and did not end in time")
    if ending.exit_code:
        return _failed(ending, case)
    if ending.booted == 0:
        record = finding("not-watched", "the restarted command left no sign of a probe and no trace")
        return _told(Outcome.INCONCLUSIVE, ending, "not watched", record)
    if case.finished or (total and due >= total):
        done = _told(Outcome.SAME, ending, "took no step: the run was finished")
        done.observation.resume_step, done.observation.ran_to_end = total, True
        return done
    if ending.not_followed or ending.exit_code is None or not total:
        why = f" that could be followed: {ending.not_followed[0]}" if ending.not_followed else ""
        return _told(Outcome.INCONCLUSIVE, ending, f"took no step{why}")
    return _ended_early(reference, ending, due, total)


def _told(outcome: Outcome, ending: Ending, summary: str, *findings: FindingRecord) -> Judgement:
    observation = Observation(outcome=outcome, exit_code=ending.exit_code, summary=summary)
    return Judgement(observation, list(findings))


def _failed(ending: Ending, case: Case) -> Judgement:
    fallback = (
        f"; a whole checkpoint at {max(case.whole_steps)} was there"
        if case.whole_steps and case.damaged
        else ""
    )
    if case.damaged and names_damage(ending.log_tail, case.damaged):
        return _told(Outcome.REFUSED, ending, f"names the damaged part{fallback}")
    if case.changed and any(CHANGED.search(line) for line in _last_words(ending.log_tail)):
        return _told(Outcome.REFUSED, ending, "names what does not fit")
    if case.damaged and not case.whole_steps:
        return _told(Outcome.REFUSED, ending, "stops; no whole checkpoint was there")
    last = next(iter(reversed(complaints(ending.log_tail))), "no message")
    record = finding(
        "crash-on-resume",
        f"exit code {ending.exit_code} before any step: {last[:160]}",
        severity=Severity.NOTE if case.flipped else None,
        components=_loaded(ending.log_tail, case),
    )
    return _told(
        Outcome.CRASHED,
        ending,
        f"exit code {ending.exit_code}, {_unnamed(case)}{fallback}",
        record,
    )


def _last_words(log: str) -> list[str]:
    """Return the complaints of a log and, of one without a traceback, its last line: what ``sys.exit`` was given."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return complaints(log) + ([] if "Traceback" in log else lines[-1:])


def _unnamed(case: Case) -> str:
    return "does not name what is wrong" if case.whole_steps else "cannot start anew"


def _loaded(log: str, case: Case) -> list[Component]:
    """Return the components that a failed restart was loading; where the log tells none, what the table says."""
    if case.family == Family.CRASH:
        return [Component.SELECTION, Component.COMPLETENESS]
    failed = (
        log[log.rfind("Traceback (most recent call last)") :]
        if "Traceback" in log
        else "\n".join(complaints(log))
    )
    said = "\n".join(complaints(failed))
    return _components(said) or _components("\n".join(_echoes(failed)))


def _components(text: str) -> list[Component]:
    return [component for component, pattern in NAMED if pattern.search(text)]


def _echoes(log: str) -> list[str]:
    """Return the source lines that a traceback shows."""
    lines = log.splitlines()
    return [line for before, line in pairwise(lines) if PLACE.match(before)]


def _ended_early(reference: Reference, ending: Ending, due: int, total: int) -> Judgement:
    components = [Component.PROGRESS]
    if due in reference.epoch_ends:
        components.append(Component.DATA_POSITION)
    record = finding(
        "run-length-changed",
        f"exit code 0 without a step; the control went on from step {due} to {total}",
        step=due + 1,
        components=components,
    )
    told = _told(Outcome.DIFFERENT, ending, f"ended without a step, {total - due} were left", record)
    told.observation.first_divergent_step = due + 1
    return told


def complaints(log: str) -> list[str]:
    """Return the lines of a log that say what went wrong: messages of exceptions and lines that complain.

    Source lines inside a traceback do not count: they name every file the loader knows.
    """
    found: list[str] = []
    lines = [RANK.sub("", line) for line in log.splitlines()]
    raised = shown = False  # shown: frames of a traceback, whose message comes next
    for place, line in enumerate(lines):
        echo = place > 0 and PLACE.match(lines[place - 1]) is not None
        if echo or FRAME.match(line) or PROGRESS_BAR.search(line) or not line.strip():
            continue
        if line.startswith("Traceback"):
            raised, shown = False, True
            continue
        raised = raised or (shown and not line[0].isspace()) or RAISED.match(line.strip()) is not None
        shown = shown and not raised
        if raised or COMPLAINT.search(line):
            found.append(line.strip())
    return found


def names_damage(log: str, damaged: list[str]) -> bool:
    """Tell whether the log names a damaged part: its file, its folder, or the component that its file holds.

    The functions that a traceback went through count too: an error raised in ``_load_optimizer_and_scheduler``
    names the optimizer's file to whoever reads it.
    """
    text = "\n".join(complaints(log)).lower()
    functions = " ".join(name.lower() for name in FUNCTION.findall(log))
    return any(
        re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text) or _in_function(name, functions)
        for part in damaged
        for name in _names(part)
    )


def _in_function(name: str, functions: str) -> bool:
    return len(name) >= TELLING_LETTERS and re.search(rf"_{re.escape(name)}(_|\b)", functions) is not None


def _names(part: str) -> set[str]:
    """Return what a message may call a damaged part, in lower case."""
    path = PurePosixPath(part.lower())
    stem = path.name.partition(".")[0]
    folder = {path.parent.name} - {""}
    return {path.name, *folder, *({stem} if len(stem) > 2 else set())}
