"""The uninterrupted runs: two controls, and one that nobody watches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samestep.checkpoints import FRAMEWORKS, find_units, framework_hint, is_log
from samestep.drill.artefacts import tensor_content
from samestep.drill.attempt import Attempt, AttemptRecord
from samestep.drill.ground import ControlRun, Workshop
from samestep.drill.observe import facts_of
from samestep.drill.scenario import FINAL
from samestep.errors import DrillError, ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from samestep.drill.options import DrillOptions
    from samestep.process import Machine
    from samestep.trace import ParkPoint


def run_first_control(workshop: Workshop) -> ControlRun:
    """Run the command once from start to end and read what it shows.

    Raises:
        DrillError: it crashed, did not end, or took no step that could be watched.
    """
    with workshop.machine("control-1") as machine:
        plan = workshop.plan("control-1", workshop.start_command(machine), step_limit=workshop.options.steps)
        with Attempt(machine, plan, workshop.options.run_folder) as attempt:
            attempt.wait()
        record = attempt.record()
        check_control(record, workshop.options)
        strayed = [] if any(machine.out.iterdir()) else _checkpoints_elsewhere(machine)
        machine.snapshot(workshop.snapshot("control-1"))
    return _checked_saves(_control_run(record, workshop.snapshot("control-1")), strayed, workshop.options)


def run_reference(workshop: Workshop, points: Sequence[ParkPoint], ranks: int, steps: int) -> ControlRun:
    """Run the control whose durable folder is copied at every park point, and which then goes on to its end.

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
        )
        with Attempt(machine, plan, workshop.options.run_folder) as attempt:
            for point in points:
                if not attempt.wait_parked(point):
                    raise DrillError(
                        f"the second control ended before {point.name}, which the first one reached ({steps} steps)",
                        hint=f"two runs of this script take different ways; its log: {attempt.log}",
                    )
                with attempt.frozen():
                    machine.snapshot(workshop.snapshot(point.name))
                attempt.release(point)
            attempt.wait()
        record = attempt.record()
        check_control(record, workshop.options)
        machine.snapshot(workshop.snapshot(FINAL))
    return _control_run(record, workshop.snapshot(FINAL))


def run_unwatched(workshop: Workshop) -> dict[str, str]:
    """Run the command without watching (only counting steps when it must be ended) and digest its tensors."""
    with workshop.machine("unwatched") as machine:
        plan = workshop.plan(
            "unwatched",
            workshop.start_command(machine),
            step_limit=workshop.options.steps,
            watch=False,
        )
        with Attempt(machine, plan, workshop.options.run_folder) as attempt:
            attempt.wait()
        return tensor_content(machine.out)


def check_control(record: AttemptRecord, options: DrillOptions) -> None:
    """Refuse a control that cannot serve as a reference.

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
            hint=f"make the command work once by itself; its log: {record.log}",
        )
    if not record.traces:
        raise _unwatched_error(record)


def _unwatched_error(record: AttemptRecord) -> DrillError:
    if record.ending.booted:
        message = "the command ended well, but no optimizer step was seen in any of its processes"
        hint = "does it train with torch? An optimizer outside torch.optim is not followed"
    else:
        message = "not-watched: no process of the command came up under the probe"
        hint = "start Python without -I and -S, or call samestep.probe.install() at the top of the script"
    error = DrillError(message, hint=f"{hint} (log: {record.log}; samestep explain not-watched)")
    error.exit_code = ExitCode.INCONCLUSIVE  # type: ignore[misc]
    return error


def _control_run(record: AttemptRecord, final: Path) -> ControlRun:
    return ControlRun(record, facts_of(record.traces, find_units(final), is_log), final)


def _checked_saves(run: ControlRun, strayed: list[str], options: DrillOptions) -> ControlRun:
    """Refuse a control with a single save, or one that saved elsewhere; none at all is a finding of its own.

    Raises:
        DrillError: nothing can be cut.
    """
    if strayed:
        raise DrillError(
            f"nothing was written under the durable folder, but the run left {', '.join(strayed[:3])} elsewhere",
            hint="put {out} where the output folder goes, or name a fixed folder of the project with --durable PATH",
        )
    if len(run.facts.save_steps) == 1:
        wanted = save_setting(run)
        raise DrillError(
            f"only one save was seen in {run.facts.steps} steps (after step {run.facts.save_steps[0]}); at least two are needed",
            hint=f"{wanted}, or run longer" + (" (--steps)" if options.steps else ""),
        )
    return run


def save_setting(run: ControlRun) -> str:
    """Say what to change in the script's framework so that it saves more often."""
    name = framework_hint(run.final)
    if name is None:
        imported = run.record.traces[0].header.versions
        name = next((known for known in FRAMEWORKS if known in imported), None)
    return f"save more often: {FRAMEWORKS[name].save_setting}" if name else "save more often"


def _checkpoints_elsewhere(machine: Machine) -> list[str]:
    """Return checkpoints that a run left on its machine outside the durable folder."""
    places = {"the project folder": machine.project, "HOME": machine.folder / "home"}
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
