"""Parameter groups: the names of their parameters, and whether two lists of groups are the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from samestep.state import leaves
from samestep.state.errors import StateError
from samestep.state.tracked import poured

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from samestep.state.mismatches import Mismatches
    from samestep.state.naming import Names

_NOT_OPTIONS = ("params", "param_names")


def parameter_labels(name: str, groups: Sequence[dict[str, Any]], names: Names) -> list[list[str]]:
    """Return the names of the parameters of every group.

    A parameter has the canonical name of the model that owns it. When an optimizer has parameters of several models,
    the name of the model comes first.

    Args:
        name: of the optimizer, for messages.
        groups: its parameter groups.
        names: of the parameters of all tracked models.

    Raises:
        StateError: a parameter has no name; the message says which and how to give it one.
    """
    found = [[names.find(p) for p in group["params"]] for group in groups]
    if any(None in own for own in found):
        names.look_again()
        found = [[names.find(p) for p in group["params"]] for group in groups]
    models = {place[0] for own in found for place in own if place is not None and place[1]}
    several = len(models) > 1
    labels = [
        [
            _label(place, several) or _own_name(group, i) or _nameless(name, number, i, group["params"][i])
            for i, place in enumerate(own)
        ]
        for number, (group, own) in enumerate(zip(groups, found, strict=True))
    ]
    _check_once(name, labels)
    return labels


def check_groups(
    place: Callable[..., str],
    stored: Sequence[dict[str, Any]],
    labels: Sequence[Sequence[str]],
    mismatches: Mismatches,
) -> None:
    """Compare the stored groups with the present ones, and name every parameter that is not where it was."""
    before = {label: number for number, group in enumerate(stored) for label in group["params"]}
    now = {label: number for number, own in enumerate(labels) for label in own}
    if len(stored) != len(labels):
        mismatches.differs(place("groups"), f"{len(stored)} groups", f"{len(labels)}")
    for label in (label for label in before if label not in now):
        mismatches.surplus(place("state", label), because=f" (parameter of group {before[label]})")
    for label in (label for label in now if label not in before):
        mismatches.missing(place("state", label), because=f" (parameter of group {now[label]})")
    for label, number in before.items():
        if number != now.get(label, number):
            mismatches.differs(
                place("groups", label), f"a parameter of group {number}", f"of group {now[label]}"
            )
    for number, (group, own) in enumerate(zip(stored, labels, strict=False)):
        _check_order(place("groups", number), group["params"], own, mismatches)


def option_keys(group: dict[str, Any]) -> list[str]:
    """Return the keys of a group that are options (learning rate, decay, …)."""
    return [key for key in group if key not in _NOT_OPTIONS]


def set_options(groups: Sequence[dict[str, Any]], stored: Sequence[dict[str, Any]]) -> None:
    """Set the options of groups; a tensor (a learning rate that a captured graph reads) stays the same object."""
    taken: dict[int, int] = {}
    for group, options in zip(groups, stored, strict=False):
        for key in set(option_keys(group)) - options.keys():
            del group[key]
        for key in option_keys(options):
            group[key] = poured(options[key], group.get(key), taken)


def _check_order(place: str, stored: Sequence[str], own: Sequence[str], mismatches: Mismatches) -> None:
    common = set(stored) & set(own)
    before, now = ([label for label in labels if label in common] for labels in (stored, own))
    if before != now:
        at = next(i for i, (one, other) in enumerate(zip(before, now, strict=True)) if one != other)
        mismatches.differs(
            place, f"{before[at]} at position {at}", f"{now[at]} (the parameters are reordered)"
        )


def _label(place: tuple[str, str] | None, several: bool) -> str:
    if place is None:
        return ""
    model, name = place
    return leaves.joined(model, name) if several or not name else name


def _own_name(group: dict[str, Any], index: int) -> str:
    """Return the name that the optimizer was given with the parameter, if it was."""
    own: Sequence[str] = group.get("param_names") or ()
    return own[index] if index < len(own) else ""


def _nameless(name: str, group: int, index: int, parameter: torch.Tensor) -> str:
    raise StateError(
        f"the parameter {index} of group {group} of {name}, of shape {list(parameter.shape)}, "
        "belongs to no tracked model, so that it has no name",
        slug="optimizer-names",
        hint="Track the model that owns it, track the parameter itself under a name, or build the optimizer "
        "from named parameters: [('scale', scale), …].",
    )


def _check_once(name: str, labels: Sequence[Sequence[str]]) -> None:
    seen: set[str] = set()
    for label in (label for own in labels for label in own):
        if label in seen:
            raise StateError(
                f"two parameters of {name} are called {label}",
                slug="optimizer-names",
                hint="Track the models under different names.",
            )
        seen.add(label)
