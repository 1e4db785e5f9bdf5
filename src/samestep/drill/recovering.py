"""A second interruption: while a run that was interrupted in a save makes its first save after the restart."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from samestep.crash.choose import choose
from samestep.crash.materialise import materialise
from samestep.crash.models import COMPOUND
from samestep.crash.recorder.proof import prove
from samestep.crash.recording import Recording
from samestep.crash.states import compound_states
from samestep.crash.windows import save_windows
from samestep.drill.attempt import Attempt
from samestep.drill.crashing import SEED, TakenApart
from samestep.drill.recording import RECORDING
from samestep.drill.saves import save_of

if TYPE_CHECKING:
    from pathlib import Path

    from samestep.crash.states import CrashState
    from samestep.drill.crashing import Crashes
    from samestep.drill.ground import Ground

LABEL = "recovery"


def second_interruption(ground: Ground, crashes: Crashes) -> TakenApart | None:
    """Restart from the most telling interrupted save, record the recovery, and take its first save apart.

    Returns:
        None when no interrupted save leaves a whole checkpoint, or the recovery made no save.
    """
    first = _most_telling(crashes.main)
    if first is None:
        return None
    resumed = max(crashes.main.due(first))
    following = min((save for save in ground.control.facts.save_steps if save > resumed), default=0)
    folder = ground.workshop.snapshots / LABEL
    materialise(first.image, folder)
    recording = _record_recovery(ground, folder, following - resumed + 1) if following else None
    if recording is None:
        return None
    windows = [window for window in save_windows(recording) if window.step == following - resumed]
    if not windows:
        recording.close()
        return None
    models = [model for model in ground.workshop.options.models if model != COMPOUND] or ["kill"]
    enumeration = compound_states(first, recording, windows[:1], models)[0]
    before = first.image.placed(recording.header.roots[0])
    save = save_of(windows[0], following, before, enumeration.end, ground.workshop.snapshots)
    whole = crashes.main.wholeness(first).whole
    known = [*crashes.main.earlier, *crashes.main.save.generations]
    earlier = [item for item in known if (item.path, item.step) in whole]
    return TakenApart(LABEL, recording, save, enumeration, earlier, resumed)


def _most_telling(save: TakenApart) -> CrashState | None:
    states = [
        state
        for state in save.enumeration.states
        if not state.damage and save.due(state) and save.wholeness(state).torn
    ]
    return next(iter(choose(states, 1, SEED)), None)


def _record_recovery(ground: Ground, state: Path, steps: int) -> Recording | None:
    """Return the recording; None when there is none, or it does not account for what is on disk."""
    workshop = ground.workshop
    with workshop.machine(LABEL) as machine:
        machine.place(state)
        plan = workshop.plan(
            LABEL,
            workshop.restart_command(machine),
            step_limit=steps,
            ranks=ground.control.facts.ranks,
            recording=str(workshop.site.seat / RECORDING),
        )
        with Attempt(machine, plan, workshop.options.run_folder) as attempt:
            attempt.wait()
        kept = workshop.recording.with_name(f"{RECORDING}-{LABEL}")
        if not (machine.folder / RECORDING).is_dir():
            return None
        shutil.move(machine.folder / RECORDING, kept)
        recording = Recording.open(kept)
        if recording.header.complete and not prove(recording, machine.out, state):
            return recording
        recording.close()
        return None
