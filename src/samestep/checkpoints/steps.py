"""How many optimizer steps a checkpoint claims to hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .containers import FileFacts, read_file
from .naming import is_step_folder, step_in
from .recognise import ACCELERATE, ACCELERATE_FOLDER, DEEPSPEED, TIMM, TRANSFORMERS, ULTRALYTICS
from .state import find_step

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def folder_step(framework: str, folder: Path, files: Iterable[str]) -> int | None:
    """Return the step that a checkpoint folder claims, by its content or else by its name.

    Args:
        framework: who wrote it.
        folder: the checkpoint folder.
        files: names of its files relative to ``folder``.
    """
    if framework == TRANSFORMERS:
        stated = find_step(read_file(folder / "trainer_state.json").value)
    elif framework == DEEPSPEED:
        model_states = next((file for file in sorted(files) if file.endswith("model_states.pt")), None)
        stated = find_step(read_file(folder / model_states).value) if model_states else None
    else:
        stated = None
    if framework == ACCELERATE and ACCELERATE_FOLDER.match(folder.name):
        return None  # a counter of saves, not of steps
    if stated is None and is_step_folder(folder.name):
        return step_in(folder.name)
    return stated


def file_step(framework: str, contents: Iterable[FileFacts]) -> int | None:
    """Return the step that the files of one checkpoint claim, by content first and by name second."""
    if framework in (ULTRALYTICS, TIMM):
        return None  # both count epochs only
    contents = list(contents)
    stated = (find_step(facts.value) for facts in contents)
    named = (step_in(facts.name.rsplit("/", 1)[-1]) for facts in contents)
    return next((step for step in (*stated, *named) if step is not None), None)
