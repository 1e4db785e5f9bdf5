"""A script's own files: what they hold is told from their structure and their keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samestep.checkpoints.naming import stem_of
from samestep.checkpoints.state import Found, find_components, is_empty_optimizer
from samestep.checkpoints.values import Built, walk
from samestep.contract import Component, Intent

from .weights import note_adapter, note_prefixes

if TYPE_CHECKING:
    from samestep.checkpoints.containers import FileFacts

    from .draft import Draft

_EXPECTED = {
    Component.WEIGHTS: "",
    Component.OPTIMIZER: "",
    Component.SCHEDULE: "right only if the learning rate is constant or computed from the step",
    Component.PROGRESS: "the script cannot know at which step it is",
    Component.RNG: "dropout, shuffling and augmentation differ after a restart",
    Component.DATA_POSITION: "right only if the script computes it from the step",
    Component.CONFIG: "",
}


def examine(draft: Draft) -> None:
    """Report what a script's own checkpoint holds."""
    note_adapter(draft)
    several = len(draft.contents) > 1
    for name, facts in draft.contents.items():
        found = _components(facts)
        for component, keys in found.items():
            draft.present(component, f"{name}: {keys[0]}" if several and keys[0] else keys[0] or name)
        if Component.WEIGHTS in found:
            draft.weights_files.add(facts.name)
        _note_details(draft, facts)
    if any(facts.problem for facts in draft.contents.values()):
        return
    for component, note in _EXPECTED.items():
        if component not in draft.components:
            draft.absent(component, note)
    if draft.unit.step is not None and draft.components[Component.PROGRESS].where == "":
        draft.present(Component.PROGRESS, "the file's name")


def _components(facts: FileFacts) -> Found:
    stem = stem_of(facts.name.rsplit("/", 1)[-1])
    if stem.lower().startswith("best"):
        stem = "checkpoint"  # the best so far: says which one it is, not what it holds
    found = find_components(facts.value, stem)
    prefix = f"{stem}."
    return {
        component: ["" if key == stem else key.removeprefix(prefix) for key in keys]
        for component, keys in found.items()
    }


def _note_details(draft: Draft, facts: FileFacts) -> None:
    for value in walk(facts.value, depth=4):
        if is_empty_optimizer(value):
            draft.caveats[Intent.RESUME].append(
                f"{facts.name} holds an optimizer without state for any parameter"
            )
    for state in (facts.mapping, *(inner for inner in facts.mapping.values() if isinstance(inner, dict))):
        note_prefixes(draft, state)
    if isinstance(facts.value, Built) and facts.foreign:
        draft.caveats[Intent.WEIGHTS].append(
            f"{facts.name} is a whole pickled object and needs the code that wrote it"
        )
