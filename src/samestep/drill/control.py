"""The uninterrupted runs: two controls, and one that nobody watches."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from samestep.checkpoints import FRAMEWORKS, find_units, framework_hint, is_log, saved_steps
from samestep.drill.artefacts import tensor_content
from samestep.drill.attempt import Attempt, AttemptRecord
from samestep.drill.ground import ControlRun, Workshop
from samestep.drill.judging.diagnosis.records import finding
from samestep.drill.observe import facts_of
from samestep.drill.recording import keep_recording, recorded_by
from samestep.drill.scenario import FINAL
from samestep.drill.units import resume_points
from samestep.errors import DrillError, ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from samestep.drill.options import DrillOptions
    from samestep.drill.result import FindingRecord
    from samestep.process import Machine
    from samestep.trace import ParkPoint

_OFFLINE_SIGNS = (
    "LocalEntryNotFoundError",
    "OfflineModeIsEnabled",
    "Temporary failure in name resolution",
    "Network is unreachable",
)


def run_first_control(workshop: Workshop) -> ControlRun:
    """Run the command once from start to end and read what it shows.

    Raises:
        DrillError: it crashed, did not end, or took no step that could be watched.
        OSError: there was no room for what it was to leave.
    """
    with workshop.machine("control-1") as machine:
        plan = workshop.plan(
            "control-1",
            workshop.start_command(machine),
            step_limit=workshop.options.steps,
            list_modules=True,
        )
        with Attempt(machine, plan, workshop.options.run_folder) as attempt:
            attempt.wait()
        _check_room(workshop.options.run_folder)
        record = attempt.record()
        check_control(record, workshop.options, workshop.site.left_behind())
        strays = _strays(machine)
        machine.snapshot(workshop.snapshot("control-1"))
    run = _control_run(record, workshop.snapshot("control-1"), strays)
    _check_saves(run, workshop.options)
    return run


def run_reference(
    workshop: Workshop, points: Sequence[ParkPoint], ranks: int, steps: int, *, recorder: str = ""
) -> ControlRun:
    """Run the control whose durable folder is copied at every park point, and which then goes on to its end.

    Args:
        workshop: where to work.
        points: in the order they are reached.
        ranks: processes that train.
        steps: of the first control, for messages.
        recorder: how what it does to files is recorded into ``workshop.recording``, see `Header.tier`; empty: not.

    Raises:
        DrillError: it did not reach a park point, or did not end as the first control did.
    """
    with workshop.machine("control-2") as machine:
        plan = workshop.plan(
            "control-2",
            workshop.start_command(machine),
            step_limit=workshop.options.steps,
            park=list(points),
            ranks=ranks,
            **recorded_by(recorder, workshop),
        )
        with Attempt(machine, plan, workshop.options.run_folder) as attempt:
            for point in points:
                if not attempt.wait_parked(point):
                    raise DrillError(
                        f"the second control did not come to {point.name} next, as the first one did ({steps} steps)",
                        hint=f"two runs of this script take different ways; its log: {attempt.log}",
                    )
                with attempt.frozen():
                    machine.snapshot(workshop.snapshot(point.name))
                attempt.release(point)
            attempt.wait()
        record = attempt.record()
        check_control(record, workshop.options, workshop.site.left_behind())
        machine.snapshot(workshop.snapshot(FINAL))
        if recorder:
            keep_recording(recorder, workshop, machine, plan.command, record.steps)
        strays = _strays(machine)
    return _control_run(record, workshop.snapshot(FINAL), strays)


def run_unwatched(workshop: Workshop) -> dict[str, str]:
    """Run the command without watching (only counting steps when it must be ended) and digest its tensors.

    Returns:
        Digests by path; nothing when the run failed, so that nothing is proven.
    """
    with workshop.machine("unwatched") as machine:
        plan = workshop.plan(
            "unwatched",
            workshop.start_command(machine),
            step_limit=workshop.options.steps,
            watch=False,
        )
        with Attempt(machine, plan, workshop.options.run_folder) as attempt:
            attempt.wait()
        ending = attempt.record().ending
        return tensor_content(machine.out) if ending.exit_code == 0 or ending.hit_step_limit else {}


def check_control(record: AttemptRecord, options: DrillOptions, left_behind: Sequence[str]) -> None:
    """Refuse a control that cannot serve as a reference.

    Args:
        record: of the attempt.
        options: of the drill.
        left_behind: folders of the project that machines lack because git ignores them.

    Raises:
        DrillError: with what happened and what to do.
    """
    ending = record.ending
    if ending.timed_out:
        raise DrillError(
            f"the command was still running after {options.timeout_seconds:g} s ({record.steps} steps)",
            hint="end it with --steps N, or allow more time with --timeout SECONDS",
        )
    if ending.exit_code not in {0, None}:
        last = _last_line(ending.log_tail)
        raise DrillError(
            f"the uninterrupted run failed with exit code {ending.exit_code} after {record.steps} steps: {last}",
            hint=f"{_failure_hint(ending.log_tail, left_behind)}; its log: {record.log}",
        )
    if not record.traces:
        raise _unwatched_error(record)


def _check_room(folder: Path) -> None:
    """See that traces and logs could be written: without them nothing can be said of a run."""
    if os.statvfs(folder).f_bavail == 0:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))


def _failure_hint(log: str, left_behind: Sequence[str]) -> str:
    """Say what usually helps when a command works by hand and not on a fresh machine."""
    if "Read-only file system" in log:
        return "on a machine only the working folder, TMPDIR and {out} can be written: write below them"
    if any(sign in log for sign in _OFFLINE_SIGNS):
        return "machines are offline: share a filled cache (--input ~/.cache/huggingface), or --allow-network"
    missing = [name for name in left_behind if name.rstrip("/") in log]
    if missing or (left_behind and "No such file or directory" in log):
        named = ", ".join(list(missing or left_behind)[:3])
        return f"git ignores {named}, so machines lack it: share it with --input PATH"
    return "make the command work once by itself"


def _unwatched_error(record: AttemptRecord) -> DrillError:
    if record.ending.booted:
        message = "the command ended well, but no optimizer step was seen in any of its processes"
        hint = "does it train with torch? An optimizer outside torch.optim is not followed"
        if record.ending.not_followed:
            hint = f"not followed: {'; '.join(record.ending.not_followed[:2])}"
    else:
        message = "not-watched: no process of the command came up under the probe"
        hint = "start Python without -I and -S, or call samestep.probe.install() at the top of the script"
    error = DrillError(message, hint=f"{hint} (log: {record.log}; samestep explain not-watched)")
    error.exit_code = ExitCode.INCONCLUSIVE  # type: ignore[misc]
    return error


def _control_run(record: AttemptRecord, final: Path, strays: list[str]) -> ControlRun:
    units = resume_points(final, find_units(final))
    return ControlRun(record, facts_of(record.traces, units, is_log, saved_steps(final)), final, strays)


def _check_saves(run: ControlRun, options: DrillOptions) -> None:
    """Refuse a control with a single save; none at all is a finding of its own.

    Raises:
        DrillError: nothing can be cut after a save and compared with what follows.
    """
    saves, steps = run.facts.save_steps, run.facts.steps
    if len(saves) == 1:
        raise DrillError(
            f"only one save was seen in {steps} steps (after step {saves[0]}); at least two are needed",
            hint=f"{save_setting(run)}, or run longer" + (" (--steps)" if options.steps else ""),
        )


def never_saved(run: ControlRun) -> FindingRecord:
    """Return the finding of a control that left no checkpoint in the durable folder."""
    evidence = f"{run.facts.steps} steps, and no checkpoint under the durable folder"
    if not run.strays:
        return finding("never-saved", evidence, details=[save_setting(run)])
    return finding(
        "leaned-on-lost-machine",
        f"{evidence}, but {', '.join(run.strays[:3])}",
        details=["put {out} where its output folder goes, or name a fixed one with --durable PATH"],
    )


def save_setting(run: ControlRun) -> str:
    """Say what to change in the script's framework so that it saves more often."""
    name = framework_hint(run.final)
    if name is None:
        imported = run.record.traces[0].header.versions
        name = next((known for known in FRAMEWORKS if known in imported), None)
    return f"save more often: {FRAMEWORKS[name].save_setting}" if name else "save more often"


def _strays(machine: Machine) -> list[str]:
    """Return checkpoints that a run left on its machine outside the durable folder."""
    places = {"the project folder": machine.project, "HOME": machine.folder / "home"}
    if machine.site.durable is not None:
        del places["the project folder"]  # the durable folder lies inside it
    return [
        f"{unit.path} in {name}"
        for name, place in places.items()
        if place.is_dir()
        for unit in find_units(place)
        if not (machine.site.project / unit.path).exists()
    ]


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "(no output)"
