"""Making the disk state that a scenario restarts from."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from samestep.checkpoints import find_units, inspect_unit, is_log, saved_steps
from samestep.contract import Severity
from samestep.crash.recording import Recording
from samestep.drill.artefacts import tensor_content
from samestep.drill.attempt import Attempt
from samestep.drill.crashing import point_after_fault
from samestep.drill.judging.diagnosis.records import finding
from samestep.drill.observe import last_words_save, save_bursts
from samestep.drill.recording import RECORDING
from samestep.drill.saves import left_after
from samestep.drill.scenario import Arrangement
from samestep.drill.units import resume_points
from samestep.process import copy_tree

if TYPE_CHECKING:
    from pathlib import Path

    from samestep.checkpoints import Unit
    from samestep.drill.attempt import AttemptPlan, AttemptRecord, NoticeRecord
    from samestep.drill.ground import Ground
    from samestep.drill.result import CrashPoint, FindingRecord
    from samestep.drill.scenario import Scenario
    from samestep.process import Machine, Preloaded
    from samestep.trace import ParkPoint


_DISK_ERROR = re.compile(
    r"no space|errno (5|28)\b|enospc|input/output error|i/o error|disk (is )?full", re.IGNORECASE
)


@dataclass
class DiskStateMade:
    """A disk state, and what came of making it.

    Attributes:
        folder: the durable folder left behind.
        records: the attempts it took; empty when it is a snapshot of the control.
        findings: what showed while it was made.
        reached: the cut was reached.
        steps: steps that the attempt took before the cut, counted from its own start.
        saves: saves that it made, counted so too.
        crash: what a failing disk has left of the saves.
    """

    folder: Path
    records: list[AttemptRecord] = field(default_factory=list)
    findings: list[FindingRecord] = field(default_factory=list)
    reached: bool = True
    steps: int = 0
    saves: list[int] = field(default_factory=list)
    crash: CrashPoint | None = None


def make_disk_state(
    ground: Ground, scenario: Scenario, folder: Path, label: str, preloaded: Preloaded | None = None
) -> DiskStateMade:
    """Lay out the disk state of ``scenario`` in ``folder``.

    Args:
        ground: what it is taken from.
        scenario: whose state.
        folder: to be made.
        label: names the attempts that it takes.
        preloaded: process to fork a run from that is killed at its cut; None: fresh ones. What takes a notice or
            meets a failing disk is always fresh.
    """
    arrangement = scenario.arrangement
    if arrangement is Arrangement.KILL:
        return _from_killed_run(ground, scenario, folder, label, preloaded)
    if arrangement is Arrangement.TWICE:
        return _from_second_cut(ground, scenario, folder, label, preloaded)
    if arrangement is Arrangement.NOTICE:
        return _from_noticed_run(ground, scenario, folder, label)
    if arrangement is Arrangement.FAULT:
        return _from_failing_disk(ground, scenario, folder, label)
    _lay_out(ground, scenario, folder)
    return DiskStateMade(folder)


def _lay_out(ground: Ground, scenario: Scenario, folder: Path) -> None:
    if scenario.disk is None:
        raise ValueError(f"{scenario.name} starts from no disk state")
    if scenario.disk.crash and ground.crashes is not None:
        ground.crashes.lay_out(scenario.disk.crash, folder)
        return
    copy_tree(ground.workshop.snapshot(scenario.disk.snapshot), folder)
    for edit in scenario.disk.edits:
        edit.apply(folder)


def _from_killed_run(
    ground: Ground, scenario: Scenario, folder: Path, label: str, preloaded: Preloaded | None
) -> DiskStateMade:
    """Run from the start, kill for real at the cut, and compare what is left with the control's snapshot."""
    with ground.workshop.machine(label) as machine:
        command = ground.workshop.start_command(machine)
        plan = _to_the_cut(ground, scenario, command, f"{label}-cut")
        record, reached = _run_and_kill(ground, scenario, machine, plan, preloaded)
        machine.snapshot(folder)
    findings = _bytes_left(ground, scenario, folder) if reached else []
    return _made(folder, record, findings, reached=reached)


def _bytes_left(ground: Ground, scenario: Scenario, folder: Path) -> list[FindingRecord]:
    expected = tensor_content(ground.workshop.snapshot(_point(scenario).name))
    left = tensor_content(folder)
    if left == expected or not ground.exact:
        return []
    names = sorted(name for name in {*left, *expected} if left.get(name) != expected.get(name))
    evidence = f"a real SIGKILL left other tensors than the frozen snapshot: {', '.join(names[:3])}"
    return [finding("noisy-control", evidence)]


def _from_noticed_run(ground: Ground, scenario: Scenario, folder: Path, label: str) -> DiskStateMade:
    """Run from the start, send the notice at the cut, and kill what is left after the grace."""
    point = _point(scenario)
    with ground.workshop.machine(label) as machine:
        plan = ground.workshop.plan(
            f"{label}-cut",
            ground.workshop.start_command(machine),
            step_limit=ground.workshop.options.steps,
            park=[point],
            ranks=ground.control.facts.ranks,
        )
        with Attempt(machine, plan, ground.workshop.options.run_folder) as attempt:
            reached = attempt.wait_parked(point)
            before = tensor_content(machine.out)
            notice = attempt.notify(point, ground.workshop.options.grace_seconds) if reached else None
        saved = tensor_content(machine.out) != before
        machine.snapshot(folder)
    record = attempt.record()
    ignored = record.steps >= ground.control.facts.steps
    findings = [] if notice is None else notice_findings(notice, saved=saved, ignored=ignored)
    return _made(folder, record, findings, reached=reached)


def notice_findings(notice: NoticeRecord, *, saved: bool, ignored: bool = False) -> list[FindingRecord]:
    """Judge how a run took its notice.

    Args:
        notice: how it ended.
        saved: tensors in the durable folder changed after the notice.
        ignored: it went on to the end of the training.

    A run that has no handler ends at once and leans on its periodic saves: that is a note. A run that handles the
    notice must save and leave within the grace.
    """
    if not notice.left_in_time:
        evidence = f"still running {notice.grace_seconds:g} s after SIGTERM"
        return [
            finding("notice-overran", evidence + (", a save was written" if saved else ", nothing saved"))
        ]
    if ignored:
        return [finding("notice-overran", "took no notice of SIGTERM and trained on to its end")]
    if saved:
        return []
    if not notice.handled:
        evidence = "SIGTERM ended it at once: only periodic saves carry this run"
        return [finding("no-checkpoint-on-notice", evidence, severity=Severity.NOTE)]
    evidence = f"left {notice.seconds:.1f} s after SIGTERM (exit code {notice.exit_code}) without a save"
    return [finding("no-checkpoint-on-notice", evidence)]


def _from_second_cut(
    ground: Ground, scenario: Scenario, folder: Path, label: str, preloaded: Preloaded | None
) -> DiskStateMade:
    """Restart from the laid-out state and cut that run in its turn."""
    _lay_out(ground, scenario, folder)
    with ground.workshop.machine(f"{label}-first") as machine:
        machine.place(folder)
        shutil.rmtree(folder)
        command = ground.workshop.restart_command(machine)
        plan = _to_the_cut(ground, scenario, command, f"{label}-first")
        record, reached = _run_and_kill(ground, scenario, machine, plan, preloaded)
        machine.snapshot(folder)
    return _made(folder, record, [], reached=reached)


def _from_failing_disk(ground: Ground, scenario: Scenario, folder: Path, label: str) -> DiskStateMade:
    """Run from the start on a disk that fails while a save is written, to whatever end that leads to."""
    with ground.workshop.machine(label) as machine:
        plan = ground.workshop.plan(
            f"{label}-failing",
            ground.workshop.start_command(machine),
            step_limit=ground.workshop.options.steps,
            ranks=ground.control.facts.ranks,
            recording=str(machine.site.seat / RECORDING),
            faults=() if scenario.fault is None else (scenario.fault,),
        )
        with Attempt(machine, plan, ground.workshop.options.run_folder) as attempt:
            attempt.wait()
        machine.snapshot(folder)
        record = attempt.record()
        with Recording.open(machine.folder / RECORDING) as recording:
            left = left_after(recording, ground.control.facts.save_steps, ground.workshop.snapshots)
            met = any(operation.injected for operation in recording.operations)
    return DiskStateMade(
        folder,
        records=[record],
        findings=fault_findings(record),
        reached=met,
        steps=record.steps,
        saves=sorted({step for _, step in left.whole}),
        crash=point_after_fault(left, scenario.title),
    )


def fault_findings(record: AttemptRecord) -> list[FindingRecord]:
    """Note a run that went on to a good end and said nothing of the error it met."""
    ending = record.ending
    if ending.exit_code not in {0, None} or _DISK_ERROR.search(ending.log_tail):
        return []
    return [
        finding("save-failed-silently", f"{record.steps} steps to a good end, and no word about the disk")
    ]


def _to_the_cut(ground: Ground, scenario: Scenario, command: list[str], name: str) -> AttemptPlan:
    return ground.workshop.plan(name, command, park=[_point(scenario)], ranks=ground.control.facts.ranks)


def _run_and_kill(
    ground: Ground, scenario: Scenario, machine: Machine, plan: AttemptPlan, preloaded: Preloaded | None
) -> tuple[AttemptRecord, bool]:
    with Attempt(machine, plan, ground.workshop.options.run_folder, preloaded) as attempt:
        reached = attempt.wait_parked(_point(scenario))
    return attempt.record(), reached


def _made(
    folder: Path, record: AttemptRecord, findings: list[FindingRecord], *, reached: bool
) -> DiskStateMade:
    return DiskStateMade(
        folder,
        records=[record],
        findings=findings,
        reached=reached,
        steps=record.steps,
        saves=_saves(record, folder) if record.traces else [],
    )


def _saves(record: AttemptRecord, folder: Path) -> list[int]:
    """Return after which steps the attempt saved, a save behind its last record included."""
    units = resume_points(folder, find_units(folder))
    bursts = save_bursts(record.traces, units, is_log, saved_steps(folder))
    whole = [_written(folder, unit) for unit in units if inspect_unit(folder, unit).whole]
    late = last_words_save(record.traces, bursts, max(whole, default=0.0))
    return [*(burst.step for burst in bursts), *([] if late is None else [late])]


def _written(folder: Path, unit: Unit) -> float:
    return max(((folder / name).stat().st_mtime for name in unit.files), default=0.0)


def _point(scenario: Scenario) -> ParkPoint:
    if scenario.point is None:
        raise ValueError(f"{scenario.name} has no point to cut at")
    return scenario.point
