"""Grouping the loose files of one folder into checkpoint units."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from samestep.contract import Component

from .containers import FileFacts, read_file
from .model import UNKNOWN, Unit
from .naming import base_of, is_sidecar, is_step_folder, number_in, stem_of, step_in
from .recognise import recognise_file
from .state import find_components
from .steps import file_step

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path, PurePath

_BURST_SECONDS = 2.0
_PART_NAME = re.compile(
    r"optim|sched|scaler|rng|random|sampler|loader"
    r"|(^|[-_])(model|weights|net|ema|generator|discriminator)([-_]|$)",
    re.IGNORECASE,
)
_NO_STATE_NAME = re.compile(
    r"config|(^|[-_.])(cfg|conf|args|arguments|options|settings|params|flags)([-_.]|$)|h(yper)?_?params"
    r"|tokenizer|vocab|merges|special_tokens|read_?me|requirements|license|environment|(^|[-_.])(env|git|commit|version)"
    r"([-_.]|$)|metric|result|histor|summary|notes?([-_.]|$)|(^|[-_.])logs?([-_.]|$)",
    re.IGNORECASE,
)
"""Names of small files that say how a run was set up or how it goes, not where it stands."""

_VARIANT_NAME = re.compile(r"(^|[-_])(best|final|ema|swa|averaged)([-_]|$)", re.IGNORECASE)


@dataclass(frozen=True)
class Loose:
    """One file that lies in a folder of no known layout.

    Attributes:
        name: its name.
        facts: what it holds.
        components: what state it holds; empty when it cannot be read.
        written: when, in seconds since the epoch.
    """

    name: str
    facts: FileFacts
    components: frozenset[Component]
    written: float

    @property
    def framework(self) -> str:
        """Return who wrote it, as far as its content shows."""
        return recognise_file(self.facts)

    @property
    def weights_only(self) -> bool:
        """Tell whether it holds a model and nothing to continue with."""
        return bool(self.components) and self.components <= {
            Component.WEIGHTS,
            Component.EMA,
            Component.CONFIG,
        }

    @property
    def self_sufficient(self) -> bool:
        """Tell whether it holds, or by its name would hold, a checkpoint of its own."""
        if self.framework != UNKNOWN or {Component.WEIGHTS, Component.OPTIMIZER} <= self.components:
            return True
        return not self.components and not _PART_NAME.search(self.name) and not is_sidecar(self.name)


@dataclass(frozen=True)
class Grouped:
    """The units of one folder.

    Attributes:
        units: those that a restart can pick.
        exports: those that hold nothing but final weights beside real checkpoints.
    """

    units: list[Unit]
    exports: list[Unit]


def read_loose(folder: Path, name: str) -> Loose:
    """Read one loose file of a folder."""
    path = folder / name
    facts = read_file(path)
    written = path.stat().st_mtime if path.exists() else 0.0
    return Loose(name, facts, frozenset(find_components(facts.value, stem_of(name))), written)


def group_loose_files(
    folder: Path,
    relative: PurePath,
    states: Sequence[str],
    sidecars: Sequence[str] = (),
    *,
    beside_checkpoints: bool = False,
) -> Grouped:
    """Group the loose files of one folder.

    Files whose names carry the same number belong together, and so do all files without one, unless several
    of them hold whole checkpoints of their own (``best.pt`` and ``last.pt``).

    Args:
        folder: where the files lie.
        relative: the same folder, relative to the searched root.
        states: names of files that hold state.
        sidecars: names of small files that may describe it.
        beside_checkpoints: whether checkpoints were found in folders below this one.
    """
    groups: dict[int | None, list[Loose]] = {}
    for name in states:
        groups.setdefault(number_in(name), []).append(read_loose(folder, name))
    parts = [part for files in groups.values() for part in _split(files)]
    beside = beside_checkpoints or not all(_weights_only(part) for part in parts)
    exports = [part for part in parts if beside and _is_export(part)]
    checkpoints = [part for part in parts if part not in exports]
    whole_folder = len(checkpoints) == 1 and not exports
    _attach(checkpoints or exports, [read_loose(folder, name) for name in sidecars])
    return Grouped(
        [_unit(part, folder, relative, whole_folder=whole_folder) for part in checkpoints],
        [_unit(part, folder, relative, whole_folder=False) for part in exports],
    )


def _split(files: list[Loose]) -> list[list[Loose]]:
    """Split files of the same number into checkpoints: one, unless several are sufficient on their own."""
    mains: dict[str, list[Loose]] = {}
    for file in files:
        if file.self_sufficient:
            mains.setdefault(base_of(file.name), []).append(file)
    others = [file for file in files if not file.self_sufficient]
    if not mains:
        variants = [
            [file] for file in others if file.weights_only and _VARIANT_NAME.search(stem_of(file.name))
        ]
        joint = [file for file in others if [file] not in variants]
        return [joint, *variants] if joint else variants
    exports = [[file] for file in others if file.weights_only]
    companions = [file for file in others if not file.weights_only]
    newest = max(mains.values(), key=lambda group: max(file.written for file in group))
    newest.extend(companions)
    return [*mains.values(), *exports]


def _weights_only(part: list[Loose]) -> bool:
    return all(file.weights_only for file in part)


def _is_export(part: list[Loose]) -> bool:
    return _weights_only(part) and all(number_in(file.name) is None for file in part)


def _attach(parts: list[list[Loose]], sidecars: list[Loose]) -> None:
    """Give each sidecar to the checkpoint of its number, or else to the one that was written with it."""
    if not parts:
        return
    newest = max(parts, key=lambda part: max(file.written for file in part))
    for sidecar in sidecars:
        number = number_in(sidecar.name)
        same = [part for part in parts if number is not None and number_in(part[0].name) == number]
        if same:
            same[0].append(sidecar)
        elif (
            number is None and not _NO_STATE_NAME.search(sidecar.name) and _written_together(sidecar, newest)
        ):
            newest.append(sidecar)


def _written_together(sidecar: Loose, part: list[Loose]) -> bool:
    return abs(sidecar.written - max(file.written for file in part)) <= _BURST_SECONDS


def _unit(part: list[Loose], folder: Path, relative: PurePath, *, whole_folder: bool) -> Unit:
    part = sorted(
        part, key=lambda file: (not file.self_sufficient, Component.WEIGHTS not in file.components, file.name)
    )
    framework = next((file.framework for file in part if file.framework != UNKNOWN), UNKNOWN)
    step = file_step(framework, [file.facts for file in part])
    in_step_folder = whole_folder and relative.parts and is_step_folder(folder.name)
    if step is None and in_step_folder:
        step = step_in(folder.name)
    states = [file for file in part if not is_sidecar(file.name)]
    joint = (
        whole_folder and len(states) > 1 and number_in(part[0].name) is None and not part[0].self_sufficient
    )
    path = relative if joint or in_step_folder else relative / part[0].name
    return Unit(path.as_posix(), framework, step, _relative(relative, part))


def _relative(relative: PurePath, part: Iterable[Loose]) -> tuple[str, ...]:
    return tuple(sorted((relative / file.name).as_posix() for file in part))
