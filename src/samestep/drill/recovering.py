"""A second interruption: while a run that was interrupted in a save makes its first save after the restart."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from samestep.crash.choose import choose
from samestep.crash.materialise import materialise
from samestep.crash.models import COMPOUND
from samestep.crash.recording import Recording
from samestep.crash.states import compound_states
from samestep.crash.windows import save_windows
from samestep.drill.attempt import Attempt
from samestep.drill.crashing import RECORDING, SEED, TakenApart, generations_of

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
    resumed = crashes.main.wholeness(first).newest or 0
    following = min((save for save in ground.control.facts.save_steps if save > resumed), default=0)
    folder = ground.workshop.snapshots / LABEL
    materialise(first.image, folder)
    recording = _record_recovery(ground, folder, following - resumed + 1)
    windows = [window for window in save_windows(recording) if window.step == following - resumed]
    if not following or not windows:
        return None
    models = [model for model in ground.workshop.options.models if model != COMPOUND]
    enumeration = compound_states(first, recording, windows[:1], models)[0]
    own = generations_of(enumeration.end, windows[0], recording, following)
    earlier = crashes.main.generations
    return TakenApart(LABEL, recording, enumeration, [*earlier, *own], crashes.main.earlier + 1, resumed)


def _most_telling(save: TakenApart) -> CrashState | None:
    states = [
        state
        for state in save.enumeration.states
        if state.model == "kill" and not state.damage and save.wholeness(state).newest
    ]
    return next(iter(choose(states, 1, SEED)), None)


def _record_recovery(ground: Ground, state: Path, steps: int) -> Recording:
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
        shutil.move(machine.folder / RECORDING, kept)
    return Recording.open(kept)
