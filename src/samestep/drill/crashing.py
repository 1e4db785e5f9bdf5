"""The family ``crash``: from one recorded control, every disk state that an interruption of a save can leave."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from samestep.contract import Family, Outcome
from samestep.crash.choose import choose
from samestep.crash.image import Image
from samestep.crash.materialise import materialise
from samestep.crash.models import COMPOUND, MODELS
from samestep.crash.operations import SUPERVISED, Kind
from samestep.crash.recorder import Fault, counted
from samestep.crash.recorder.proof import prove
from samestep.crash.recording import Recording
from samestep.crash.states import enumerate_states, nearest_names
from samestep.crash.whole import wholeness
from samestep.crash.windows import relative
from samestep.crash.wording import described, final_names
from samestep.drill.judging.crash import FAULT, SaveHistory
from samestep.drill.judging.judgement import Case
from samestep.drill.result import CrashOperation, CrashPoint, CrashRecord, CrashWindow, Expectation
from samestep.drill.saves import saves_of
from samestep.drill.scenario import Arrangement, DiskState, Scenario
from samestep.errors import UsageError
from samestep.process.storage import allowed_models, storage_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from samestep.crash.operations import Operation
    from samestep.crash.states import CrashState, Enumeration
    from samestep.crash.whole import Generation, Wholeness
    from samestep.crash.windows import Window
    from samestep.drill.ground import ControlRun, Workshop
    from samestep.drill.saves import Save

SHARE = 4
"""One in so many of the states tried is one of the first save, before which nothing can be resumed, and one of a
recovery."""

SEED = 0

FAULTS = ("disk-full", "io-error")
"""Names of the scenarios in which the disk fails."""


@dataclass(frozen=True)
class TakenApart:
    """A save with every disk state that an interruption of it can leave.

    Attributes:
        label: its name in results.
        recording: of the run that made it.
        save: what it wrote; steps are those of the whole run.
        enumeration: its disk states.
        earlier: what every checkpoint held after each save before it.
        begun: steps complete when the recorded process began.
    """

    label: str
    recording: Recording
    save: Save
    enumeration: Enumeration
    earlier: list[Generation]
    begun: int = 0

    @property
    def history(self) -> SaveHistory:
        """What it found on the disk, and whether it writes over that."""
        own = {item.path for item in self.save.generations}
        return SaveHistory(
            had_whole=bool(self.earlier), overwrites=any(item.path in own for item in self.earlier)
        )

    def complete(self, state: CrashState) -> int:
        """Return the steps complete when the machine was lost."""
        marks = [
            operation.step or 0
            for operation in self.recording.operations[: state.after + 1]
            if operation.kind is Kind.MARK
        ]
        return self.begun + max([state.step, *marks])

    def wholeness(self, state: CrashState) -> Wholeness:
        """Return which checkpoints a state holds whole, torn or mixed."""
        return wholeness(state.image, [*self.earlier, *self.save.generations])

    def unfinished(self, state: CrashState) -> int | None:
        """Return the save's own step until it has written everything: its checkpoint need not be picked till then."""
        return None if self.save.is_announced(state.image) else self.save.step

    def due(self, state: CrashState) -> list[int]:
        """Return the steps of the whole checkpoints of finished saves: the newest must not be passed over."""
        whole = {step for _, step in self.wholeness(state).whole}
        return sorted(whole - {self.unfinished(state)})


@dataclass(frozen=True)
class Crashes:
    """The recorded saves of a control and the disk states that interruptions of them leave.

    Attributes:
        record: what goes into the result.
        saves: the saves that are taken apart.
        places: folder for what is shared between states.
    """

    record: CrashRecord
    saves: list[TakenApart]
    places: Path
    _states: dict[str, tuple[TakenApart, CrashState]] = field(default_factory=dict)

    def add(self, save: TakenApart) -> None:
        """Take up one more save, of another recording."""
        self.saves.append(save)
        self.record.windows.append(window_record(save))

    @property
    def main(self) -> TakenApart:
        """The save that faults are put into: late, with steps to follow."""
        return next(save for save in reversed(self.saves) if not save.begun)

    def chosen(self, most: int, named: str = "") -> list[tuple[TakenApart, CrashState]]:
        """Return the states to restart from: the most telling ones, or the one that is to be repeated.

        Raises:
            UsageError: the one that is to be repeated is unknown.
        """
        if named:
            return self._named(named) if named.startswith(f"{Family.CRASH}/") else []
        chosen = []
        small = most // SHARE if len(self.saves) > 1 else 0
        for save in self.saves:
            share = most - small * (len(self.saves) - 1) if save is self.main else small
            states = choose(save.enumeration.states, share, SEED)
            chosen += [(save, state) for state in sorted(states, key=lambda state: state.after)]
        return chosen

    def _named(self, scenario: str) -> list[tuple[TakenApart, CrashState]]:
        name = scenario.removeprefix(f"{Family.CRASH}/")
        if name in FAULTS:
            return []
        found = [(save, save.enumeration.state(name)) for save in self.saves]
        # a state may be asked for by the name of another one with the same content
        named = [(save, replace(state, name=name)) for save, state in found if state is not None]
        if not named:
            raise UsageError(
                f"no disk state of an interrupted save is called {name!r}", hint=self._near(name)
            )
        return named

    def _near(self, name: str) -> str:
        """Say what a name that no state has may have been meant for."""
        signs = {f"/{model}/": model for model in MODELS} | {"/again/": COMPOUND}
        asked = [model for sign, model in signs.items() if sign in name and model not in self.record.models]
        if asked and self.main.recording.header.tier != SUPERVISED:
            return "this machine lets nobody supervise system calls, so only kills are tried: samestep doctor"
        if asked:
            return f"its model was not looked at: --models {','.join([*self.record.models, *asked])}"
        near = nearest_names(name, [save.enumeration for save in self.saves])
        if near:
            return f"did you mean {' or '.join(near)}?"
        saves = ", ".join(save.label for save in self.saves)
        return f"saves that were taken apart: {saves}; further scenarios: {', '.join(FAULTS)}"

    def scenarios(
        self, chosen: Sequence[tuple[TakenApart, CrashState]], verify: Callable[[int], int]
    ) -> list[Scenario]:
        """Return a scenario for each of the chosen states, with what must happen.

        Args:
            chosen: disk states, see `chosen`.
            verify: how many steps to compare after a resume from a given step.
        """
        names = {state.name for _, state in chosen}
        for window, save in zip(self.record.windows, self.saves, strict=True):
            window.tried = sum(of is save for of, _ in chosen)
            window.untried = _cuts(state for state in save.enumeration.states if state.name not in names)
        self._states.update({f"{Family.CRASH}/{state.name}": (save, state) for save, state in chosen})
        return [self._scenario(save, state, verify) for save, state in chosen]

    def _scenario(self, save: TakenApart, state: CrashState, verify: Callable[[int], int]) -> Scenario:
        found, due = save.wholeness(state), save.due(state)
        torn = max(found.torn, key=lambda unit: unit.step, default=None)
        lost = [] if torn is None else [*torn.damaged, *torn.missing]
        mixed = [name for unit in found.mixed for names in list(unit.files.values())[:-1] for name in names]
        return Scenario(
            name=f"{Family.CRASH}/{state.name}",
            family=Family.CRASH,
            title=f"{save.label}: {state.last}" + (f"; {state.damage}" if state.damage else ""),
            disk=DiskState("", crash=f"{Family.CRASH}/{state.name}"),
            expected=Expectation(
                outcomes=[Outcome.SAME] if self._allows(state) else list(Outcome),
                resume_step=max(due, default=0),
            ),
            case=Case(
                family=str(Family.CRASH),
                cut_step=save.complete(state),
                whole_steps=sorted({step for _, step in found.whole}),
                unfinished_step=save.unfinished(state),
                damaged=(lost or mixed) if torn else [],
                damaged_step=torn.step if torn else None,
            ),
            verify_steps=verify(max(due, default=0)),
        )

    def _allows(self, state: CrashState) -> bool:
        """Say whether the storage in use allows a state, under any of the models that give it.

        Where nothing got lost a kill leaves the same, which every storage allows whatever models were asked for.
        """
        return not state.damage or bool(models_of(state) & allowed_models(self.record.storage))

    def close(self) -> None:
        """Close the recordings."""
        for save in self.saves:
            save.recording.close()

    def fault_scenarios(self) -> list[Scenario]:
        """Return a run whose disk is full in the middle of a save and stays so, and one that meets an error once."""
        recording, window = self.main.recording, self.main.enumeration.window
        if recording.header.tier != SUPERVISED:
            return []  # nobody is there to put an error in
        operations = [recording.operations[index] for index in window.operations]
        writes = [operation for operation in operations if operation.kind is Kind.WRITE]
        if not writes:
            return []
        middle = writes[len(writes) // 2]
        before = sum(counted(operation) for operation in recording.operations[: middle.index])
        root = recording.header.roots[0]
        # what is written elsewhere and moved in fails where it is written
        place = root if relative(middle.path, root) is not None else str(PurePath(middle.path).parent)
        pattern = f"{place}/*"
        return [
            _failing_disk(FAULTS[0], "the disk is full", window, Fault("ENOSPC", (), pattern, before)),
            _failing_disk(
                FAULTS[1], "the disk answers EIO", window, Fault("EIO", (Kind.WRITE,), pattern, before, 1)
            ),
        ]

    def point(self, name: str) -> CrashPoint:
        """Return what the result says about the state of scenario ``name``."""
        save, state = self._states[name]
        found = save.wholeness(state)
        return point_of(
            state,
            window=save.label,
            whole=found.newest,
            torn=[unit.path for unit in found.torn],
            mixed=[unit.path for unit in found.mixed],
            allowed=self._allows(state),
            also=len(state.also),
        )

    def lay_out(self, name: str, folder: Path) -> None:
        """Write the disk state of scenario ``name`` into ``folder``."""
        materialise(self._states[name][1].image, folder, self.places / "contents")

    def history(self, name: str) -> SaveHistory:
        """Return what the save of scenario ``name`` found on the disk, and whether all it did is there."""
        if name not in self._states:
            return self.main.history
        save, state = self._states[name]
        return replace(save.history, finished=save.save.is_announced(state.image))


def _failing_disk(name: str, what: str, window: Window, fault: Fault) -> Scenario:
    return Scenario(
        name=f"{Family.CRASH}/{name}",
        family=Family.CRASH,
        title=f"{what} in the middle of the save after step {window.step}",
        arrangement=Arrangement.FAULT,
        # what is whole depends on how the run takes the error: it is known only afterwards
        expected=Expectation(outcomes=[Outcome.SAME], resume_step=None),
        case=Case(family=str(Family.CRASH)),
        fault=fault,
    )


def models_of(state: CrashState) -> set[str]:
    """Return every persistence model that gives a state; of a second interruption the one of that."""
    names = [name.rpartition("/again/")[2] for name in (state.name, *state.also)]
    return {name.split("/")[1] for name in names}


def point_of(state: CrashState, *, window: str, **judged: Any) -> CrashPoint:
    """Return what the result says about a state, with what was judged of it."""
    return CrashPoint(
        window=window,
        model=state.model,
        after=state.after,
        last=state.last,
        damage=state.damage,
        way=state.way,
        file=state.file,
        lasting=bool(state.lasting),
        **judged,
    )


def point_after_fault(left: Wholeness, title: str) -> CrashPoint:
    """Return what a run on a failing disk has left, as the state of an interrupted save."""
    return CrashPoint(
        window="",
        model=FAULT,
        after=0,
        last=title,
        whole=left.newest,
        torn=[unit.path for unit in left.torn],
        mixed=[unit.path for unit in left.mixed],
    )


def prepare(workshop: Workshop, control: ControlRun, around: int) -> Crashes:
    """Read the recording of a control and take apart its first save and the one after step ``around``.

    Raises:
        MachineError: there is no recording, or it cannot be read.
        UsageError: a persistence model is unknown.
    """
    recording = Recording.open(workshop.recording)
    options = workshop.options
    place = Path(options.durable) if Path(options.durable).is_absolute() else options.project
    differences = prove(recording, control.final)
    supervised = recording.header.tier == SUPERVISED
    models = list(options.models) if supervised else ["kill"]
    record = CrashRecord(
        tier=recording.header.tier,
        operations=sum(operation.kind is not Kind.MARK for operation in recording.operations),
        proven=recording.header.complete and not differences,
        models=models,
        storage=options.storage or storage_type(place),
        seed=SEED,
        notes=[*recording.header.notes, *differences[:3]],
    )
    saves = saves_of(recording, control.facts.save_steps, workshop.snapshots)
    base = Image(recording.header.roots[0])
    # a second interruption needs a first one
    alone = [model for model in models if model != COMPOUND] or ["kill"]
    apart = []
    for number in _telling(saves, around):
        save = saves[number]
        earlier = [item for before in saves[:number] for item in before.generations]
        enumeration = enumerate_states(recording, save.window, base, alone)
        apart.append(TakenApart(save.window.name, recording, save, enumeration, earlier))
    record.windows = [window_record(save) for save in apart]
    return Crashes(record, apart, workshop.snapshots / "crash")


def _telling(saves: Sequence[Save], around: int) -> list[int]:
    """Return the numbers of the saves to take apart: the first, and the one after step ``around`` or next to it."""
    if len(saves) < 2:
        return list(range(len(saves)))
    return [0, min(range(1, len(saves)), key=lambda number: (abs(saves[number].step - around), -number))]


def _cuts(states: Iterable[CrashState]) -> dict[str, list[int]]:
    """Return per model the operations after which states were cut."""
    found: dict[str, list[int]] = {}
    for state in states:
        found.setdefault(state.model, []).append(state.after)
    return found


def window_record(save: TakenApart) -> CrashWindow:
    """Return what the result says about a save."""
    window, root = save.enumeration.window, save.recording.header.roots[0]
    operations = [save.recording.operations[index] for index in window.operations]
    return CrashWindow(
        name=save.label,
        step=save.save.step,
        operations=operation_records(operations, root),
        counts=[str(count) for count in save.enumeration.counts],
        states=len(save.enumeration.states),
    )


def operation_records(operations: Sequence[Operation], root: str) -> list[CrashOperation]:
    """Return what the result says about the operations of a save into the durable folder ``root``."""
    final = final_names(operations)
    return [
        CrashOperation(
            index=operation.index,
            kind=str(operation.kind),
            text=described(operation, root, final),
            path=_below(operation.target or operation.path, root),
            file=_below(final.get(operation.path, ""), root),
        )
        for operation in operations
    ]


def _below(path: str, root: str) -> str:
    inside = relative(path, root)
    return path if inside is None else inside or "."
