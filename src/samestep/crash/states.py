"""Every disk state that an interruption of one save can leave."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from samestep.crash.models import COMPOUND, MODELS
from samestep.crash.scene import Scene
from samestep.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from samestep.crash.image import Image
    from samestep.crash.models import Found, Model
    from samestep.crash.recording import Recording
    from samestep.crash.windows import Window


@dataclass(frozen=True)
class CrashState:
    """One disk state.

    Attributes:
        name: stable, safe for shells, such as ``save-12/power-ext4/op-045/optimizer.pt-empty``.
        window: name of the save window.
        step: steps complete when the window began.
        model: the weakest model that allows it.
        after: index of the last operation that took effect whole.
        last: the operation at which the interruption came, in words.
        damage: what got lost or torn, in words; empty when nothing did.
        way: the kind of damage, a key of `samestep.crash.wording.WAYS`; empty when there is none.
        file: label of the damaged file, where it is one.
        image: what is on disk.
        digest: of the durable folder's content without logs.
        also: names of further states with the same content.
        lasting: models under which it may also be found after the whole save has returned.
        weight: 0 next to a commit (rename, link, end of the save), 1 next to the end of a file, else 2.
    """

    name: str
    window: str
    step: int
    model: str
    after: int
    last: str
    damage: str
    way: str
    file: str
    image: Image
    digest: str
    also: tuple[str, ...] = ()
    lasting: tuple[str, ...] = ()
    weight: int = 2


@dataclass(frozen=True)
class Count:
    """How many states a model gave.

    Attributes:
        model: the model.
        raw: with repetitions.
        unique: that no weaker model allows and no earlier cut has.
        most: the bound that is known beforehand.
        formula: of the bound: m moments, f runs of writes to a file, r ranks.
    """

    model: str
    raw: int
    unique: int
    most: int
    formula: str

    def __str__(self) -> str:
        return (
            f"{self.model}: {self.unique} unique of {self.raw} states (at most {self.formula} = {self.most})"
        )


@dataclass(frozen=True)
class Enumeration:
    """All states of a window.

    Attributes:
        window: the window.
        states: different ones only, in a fixed order.
        counts: per model.
        end: what was there after the whole save, as the process saw it.
    """

    window: Window
    states: list[CrashState]
    counts: list[Count]
    end: Image

    def state(self, name: str) -> CrashState | None:
        """Return the state with a name, also by the name of one with the same content."""
        return next((state for state in self.states if name == state.name or name in state.also), None)


def nearest_names(name: str, enumerations: Iterable[Enumeration], most: int = 3) -> list[str]:
    """Return the names of states that come nearest to one that is none, the nearest first; none may be near."""
    states = [state for enumeration in enumerations for state in enumeration.states]
    return difflib.get_close_matches(
        name, [known for state in states for known in (state.name, *state.also)], n=most
    )


def enumerate_states(
    recording: Recording, window: Window, base: Image, models: Sequence[str] = ("kill", "power-ext4")
) -> Enumeration:
    """Return every different disk state that an interruption of a save can leave.

    Args:
        recording: all operations.
        window: the save; what came before it counts as durable.
        base: what was there before the recording.
        models: names of persistence models; each adds its own states.

    Raises:
        UsageError: there is no model of that name.
    """
    scene = Scene.of(recording, window, base)
    gathered = _Gathered(scene)
    counts = [gathered.add(model) for model in _chosen(models)]
    return Enumeration(window, list(gathered.states.values()), counts, gathered.end())


def compound_states(
    state: CrashState,
    recording: Recording,
    windows: Iterable[Window],
    models: Sequence[str] = ("kill", "power-ext4"),
) -> list[Enumeration]:
    """Return what a second interruption can leave while a run recovers from a first one.

    Args:
        state: what the first interruption left.
        recording: of the recovery, made from that state.
        windows: of this recording.
        models: of the second interruption.
    """
    base = state.image.placed(recording.header.roots[0])
    found = [enumerate_states(recording, window, base, models) for window in windows]
    return [_renamed(state, enumeration) for enumeration in found]


def _renamed(first: CrashState, enumeration: Enumeration) -> Enumeration:
    states = [
        replace(
            state,
            name=f"{first.name}/again/{state.name}",
            model=COMPOUND,
            also=tuple(f"{first.name}/again/{name}" for name in state.also),
        )
        for state in enumeration.states
    ]
    return replace(enumeration, states=states)


def _chosen(names: Sequence[str]) -> list[Model]:
    unknown = [name for name in names if name not in MODELS]
    if unknown:
        raise UsageError(
            f"there is no persistence model {', '.join(unknown)}", hint=f"models: {', '.join(MODELS)}"
        )
    return [model for name, model in MODELS.items() if name in names]


@dataclass
class _Gathered:
    """States by content, the weakest model's first."""

    scene: Scene
    states: dict[str, CrashState] = field(default_factory=dict)

    def add(self, model: Model) -> Count:
        raw, before = 0, len(self.states)
        for raw, found in enumerate(model.states(self.scene), start=1):  # noqa: B007
            self._keep(model, found)
        most, formula = model.bound(self.scene)
        return Count(model.name, raw, len(self.states) - before, most, formula)

    def _keep(self, model: Model, found: Found) -> None:
        state = _state(self.scene.window, model, found)
        known = self.states.setdefault(state.digest, state)
        if known is not state:
            self.states[state.digest] = _merged(known, state)

    def end(self) -> Image:
        in_order = [cut for cut in self.scene.cuts if cut.done is None]
        return in_order[-1].image


def _state(window: Window, model: Model, found: Found) -> CrashState:
    cut = found.cut
    parts = (window.name, model.name, cut.label, found.suffix)
    return CrashState(
        name="/".join(part for part in parts if part),
        window=window.name,
        step=window.step,
        model=model.name,
        after=cut.after if found.after is None else found.after,
        last=cut.last,
        damage=found.damage,
        way=found.way,
        file=found.file,
        image=found.image,
        digest=found.image.digest(logs=False),
        lasting=(model.name,) if found.lasting else (),
        weight=cut.weight,
    )


def _merged(known: CrashState, other: CrashState) -> CrashState:
    lasting = (*known.lasting, *(model for model in other.lasting if model not in known.lasting))
    weight = min(known.weight, other.weight)
    return replace(known, also=(*known.also, other.name), lasting=lasting, weight=weight)
