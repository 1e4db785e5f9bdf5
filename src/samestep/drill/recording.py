"""How an attempt's file operations come to be recorded: by a supervisor, or as its training process saw them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from samestep.crash.looks import recording_of_looks
from samestep.crash.operations import SEEN, SUPERVISED
from samestep.crash.recorder.capability import capability
from samestep.drill.scenario import FINAL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from samestep.drill.ground import Workshop
    from samestep.process import Machine

RECORDING = "recording"
"""Folder on a machine that the file operations of an attempt are recorded in."""

LOOKS = "looks"
"""Folder on a machine for what its training process sees of saves."""


def choose_recorder(ranks: int) -> tuple[str, str]:
    """Return how saves are recorded, as well as this machine can, and what that leaves open.

    Args:
        ranks: processes that train.

    Returns:
        A tier, see `Header.tier`, or nothing; and a sentence, empty where nothing is left open.
    """
    able = capability()
    if able.available:
        return SUPERVISED, ""
    if ranks > 1:
        return (
            "",
            f"{able.reason}; not where several ranks save, of which none sees in what order the others do",
        )
    return SEEN, able.reason


def recorded_by(recorder: str, workshop: Workshop) -> dict[str, Any]:
    """Return what the plan of an attempt must hold for its file operations to be recorded.

    Args:
        recorder: see `Header.tier`; empty: they are not.
        workshop: where it works.
    """
    places = {SUPERVISED: {"recording": RECORDING}, SEEN: {"looks": LOOKS}}.get(recorder, {})
    return {name: str(workshop.site.seat / place) for name, place in places.items()}


def keep_recording(
    recorder: str, workshop: Workshop, machine: Machine, command: Sequence[str], steps: int
) -> None:
    """Keep the recording of a control that has ended as ``workshop.recording``.

    Args:
        recorder: how it was recorded.
        workshop: where to work; holds what the control has left.
        machine: that it ran on.
        command: of the control.
        steps: that it took.
    """
    if recorder == SUPERVISED:
        (machine.folder / RECORDING).replace(workshop.recording)
        return
    recording_of_looks(
        machine.folder / LOOKS,
        workshop.recording,
        final=workshop.snapshot(FINAL),
        root=str(machine.seat_out),
        command=command,
        steps=steps,
    ).close()
