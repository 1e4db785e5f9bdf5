"""Planning: from what the control showed to the scenarios, each with its expectation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from samestep.contract import Family, Outcome
from samestep.drill.judgement import Case
from samestep.drill.result import Expectation
from samestep.drill.scenario import FINAL, Arrangement, DiskState, Edit, EditKind, Scenario
from samestep.trace import ParkPoint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from samestep.checkpoints import Unit
    from samestep.drill.observe import ControlFacts
    from samestep.drill.options import DrillOptions

FOREIGN_NUMBER = 90_000
"""Added to the number of a checkpoint that plays an older run's leftover."""

_FALL_BACK = [Outcome.SAME, Outcome.REFUSED, Outcome.LOST_WORK]
_ANY_BUT_A_RESTART = [*_FALL_BACK, Outcome.DIFFERENT, Outcome.CRASHED]
"""After one flipped byte: no framework of today claims to notice."""


@dataclass(frozen=True)
class Cut:
    """A place in the control where the machine is lost.

    Attributes:
        name, title: of the scenario.
        point: park point of the control.
        complete: steps complete there.
        verify_steps: steps to compare after the restart; 0: to the end.
    """

    name: str
    title: str
    point: ParkPoint
    complete: int
    verify_steps: int


class Planner:
    """Turns the facts of a control into scenarios.

    Args:
        facts: what the control showed.
        options: what was asked for.
    """

    def __init__(self, facts: ControlFacts, options: DrillOptions) -> None:
        self.facts = facts
        self.options = options

    def cuts(self) -> list[Cut]:
        """Return all cuts of the control, in the order of their steps."""
        candidates = [
            self._before_first_save(),
            self._after_save(),
            self._inside_step(),
            self._inside_accumulation(),
            *self._around_epoch_end(),
            self._late(),
        ]
        return sorted((cut for cut in candidates if cut is not None), key=lambda cut: cut.complete)

    def park_points(self) -> list[ParkPoint]:
        """Return where the control must stand still, each once, in order."""
        points = {cut.point.name: cut.point for cut in self.cuts()}
        damaged = self.damage_point()
        points.setdefault(damaged.name, damaged)
        return sorted(points.values(), key=_moment)

    def damage_point(self) -> ParkPoint:
        """Return the place whose newest checkpoint is damaged: late, with enough steps to follow."""
        saves = self.facts.save_steps
        late = [save for save in saves[1:] if self.facts.steps - save >= self.options.verify_steps]
        save = late[-1] if late else saves[max(0, len(saves) - 2)]
        return ParkPoint("boundary", self._some_steps_after(save))

    def scenarios(self, units_at: dict[str, Sequence[tuple[Unit, int]]]) -> list[Scenario]:
        """Return the plan.

        Args:
            units_at: per snapshot the checkpoint units it holds, each with the steps complete in it.
        """
        planned = [
            *(self._cut_scenario(cut) for cut in self.cuts()),
            *self._twice(),
            *self._kill(),
            *self._notice(),
            *self._damage(units_at.get(self.damage_point().name, [])),
            *self._transfer(),
            *self._finished(),
        ]
        chosen = [item for item in planned if self.options.wants(item.family)]
        if self.options.replay:
            chosen = [item for item in chosen if item.name == self.options.replay]
        return chosen

    # Cuts of the control.

    def _some_steps_after(self, save: int) -> int:
        following = min((other for other in self.facts.save_steps if other > save), default=self.facts.steps)
        return min(save + 2, max(save, following - 1))

    def _first_save(self) -> int:
        """Return the first save that is followed by enough steps, else the first."""
        saves = self.facts.save_steps
        return next(
            (save for save in saves if self.facts.steps - save >= self.options.verify_steps), saves[0]
        )

    def _verify(self, save: int, until: int = 0) -> int:
        """Return how many steps to compare after a resume at ``save``, reaching beyond step ``until``."""
        wanted = max(self.options.verify_steps, until - save + 2)
        return min(wanted, max(1, self.facts.steps - save))

    def _before_first_save(self) -> Cut | None:
        first = self.facts.save_steps[0]
        if first < 2:
            return None
        complete = max(1, first - 2)
        return Cut(
            "cut/before-first-save",
            f"after step {complete}, before the first save",
            ParkPoint("boundary", complete),
            complete,
            self._verify(0),
        )

    def _after_save(self) -> Cut:
        save = self._first_save()
        complete = self._some_steps_after(save)
        title = f"after step {complete}, save {save} complete"
        return Cut("cut/after-save", title, ParkPoint("boundary", complete), complete, self._verify(save))

    def _inside_step(self) -> Cut | None:
        save = self._first_save()
        step = self._some_steps_after(save) + 1
        if step > self.facts.steps or self.facts.newest_save(step - 1) != save:
            return None
        title = f"inside step {step}, after backward, no warning"
        return Cut("cut/inside-step", title, ParkPoint("update", step), step - 1, self._verify(save))

    def _inside_accumulation(self) -> Cut | None:
        step = self._some_steps_after(self._first_save()) + 1
        if self.facts.accumulation < 2 or step > self.facts.steps:
            return None
        middle = self.facts.accumulation // 2 + 1
        title = f"inside step {step}, before micro-step {middle} of {self.facts.accumulation}"
        save = self.facts.newest_save(step - 1)
        point = ParkPoint("micro", step, middle)
        return Cut("cut/inside-accumulation", title, point, step - 1, self._verify(save))

    def _around_epoch_end(self) -> list[Cut]:
        ends = [
            end for end in self.facts.epoch_ends if self.facts.newest_save(end) and end < self.facts.steps
        ]
        if not ends:
            return []
        end = next((end for end in ends if end in self.facts.save_steps), ends[0])
        cuts = []
        if end in self.facts.save_steps:
            title = f"right after save {end} on the last batch of an epoch"
            cuts.append(Cut("cut/epoch-end", title, ParkPoint("boundary", end), end, self._verify(end)))
        if end + 1 < self.facts.steps:
            save = self.facts.newest_save(end + 1)
            title = f"after step {end + 1}, the first of the next epoch"
            point = ParkPoint("boundary", end + 1)
            cuts.append(Cut("cut/epoch-start", title, point, end + 1, self._verify(save, end)))
        return cuts

    def _late(self) -> Cut | None:
        """Cut after the last save that still has steps to follow; this one runs to the end."""
        saves = [save for save in self.facts.save_steps if save < self.facts.steps]
        if not saves:
            return None
        complete = self._some_steps_after(saves[-1])
        title = f"after step {complete}, save {saves[-1]} complete, then to the end"
        return Cut("cut/to-the-end", title, ParkPoint("boundary", complete), complete, 0)

    # Scenarios.

    def _cut_scenario(self, cut: Cut) -> Scenario:
        resume = self.facts.newest_save(cut.complete)
        return Scenario(
            name=cut.name,
            family=Family.CUT,
            title=cut.title,
            disk=DiskState(cut.point.name),
            expected=Expectation(outcomes=[Outcome.SAME], resume_step=resume),
            case=self._case(Family.CUT, cut.complete, to_end=cut.verify_steps == 0),
            verify_steps=cut.verify_steps,
        )

    def _case(self, family: Family, complete: int, *, to_end: bool = False) -> Case:
        return Case(
            family=str(family),
            cut_step=complete,
            whole_steps=[save for save in self.facts.save_steps if save <= complete],
            to_end=to_end,
        )

    def _twice(self) -> list[Scenario]:
        """Cut, restart, cut again after the next save: a wrong counter shows only now."""
        first = self._first_save()
        begin = self._some_steps_after(first)
        second = min((save for save in self.facts.save_steps if save > first), default=0)
        if not second or second >= self.facts.steps:
            return []
        complete = self._some_steps_after(second)
        same_epoch = not any(begin < end <= complete for end in self.facts.epoch_ends)
        where = "within one epoch, " if same_epoch and self.facts.epoch_ends else ""
        return [
            Scenario(
                name="cut/twice",
                family=Family.CUT,
                title=f"twice: {where}after step {begin} and again after step {complete}",
                arrangement=Arrangement.TWICE,
                disk=DiskState(ParkPoint("boundary", begin).name),
                point=ParkPoint("boundary", complete - first),
                expected=Expectation(outcomes=[Outcome.SAME], resume_step=second),
                case=self._case(Family.CUT, complete),
                verify_steps=self._verify(second),
            )
        ]

    def _kill(self) -> list[Scenario]:
        cut = self._after_save()
        return [
            Scenario(
                name="cut/real-kill",
                family=Family.CUT,
                title=f"SIGKILL after step {cut.complete}: the bytes left are the snapshot's",
                arrangement=Arrangement.KILL,
                point=cut.point,
                expected=Expectation(
                    outcomes=[Outcome.SAME], resume_step=self.facts.newest_save(cut.complete)
                ),
                case=self._case(Family.CUT, cut.complete),
                verify_steps=cut.verify_steps,
            )
        ]

    def _notice(self) -> list[Scenario]:
        cut = self._after_save()
        return [
            Scenario(
                name="notice/sigterm",
                family=Family.NOTICE,
                title=f"SIGTERM after step {cut.complete}, SIGKILL {self.options.grace_seconds:g} s later",
                arrangement=Arrangement.NOTICE,
                point=cut.point,
                # a save made on notice may move the resume point forward: it is known only afterwards
                expected=Expectation(outcomes=[Outcome.SAME], resume_step=None),
                case=self._case(Family.NOTICE, cut.complete, to_end=True),
                verify_steps=0,
            )
        ]

    def _damage(self, units: Sequence[tuple[Unit, int]]) -> list[Scenario]:
        if not units:
            return []
        newest, step = max(units, key=lambda pair: pair[1])
        older = sorted(held for unit, held in units if unit is not newest)
        scenarios = [
            scenario
            for path in newest.files
            for scenario in self._damaged_file(path, step, older, only_file=len(newest.files) == 1)
        ]
        return [*scenarios, *self._foreign(units), *self._weights_only(newest, step, older)]

    def _damaged_file(self, path: str, step: int, older: list[int], *, only_file: bool) -> list[Scenario]:
        kinds = [
            (EditKind.REMOVE, "missing"),
            (EditKind.TRUNCATE, "truncated"),
            (EditKind.FLIP, "byte flipped"),
        ]
        if only_file and not older:
            kinds = kinds[
                1:
            ]  # without its only file there is no checkpoint: that is the cut before the first save
        return [self._one_damage(path, kind, word, step, older) for kind, word in kinds]

    def _one_damage(self, path: str, kind: EditKind, word: str, step: int, older: list[int]) -> Scenario:
        flipped = kind is EditKind.FLIP
        return Scenario(
            name=f"damage/{path}/{word.replace(' ', '-')}",
            family=Family.DAMAGE,
            title=f"{path} {word}",
            disk=DiskState(self.damage_point().name, (Edit(kind, path),)),
            expected=Expectation(outcomes=_ANY_BUT_A_RESTART if flipped else _FALL_BACK, resume_step=None),
            case=Case(
                family=str(Family.DAMAGE),
                cut_step=self.damage_point().step,
                whole_steps=older,
                damaged=[path],
                damaged_step=step,
                flipped=flipped,
            ),
            verify_steps=self._verify(step),
        )

    def _foreign(self, units: Sequence[tuple[Unit, int]]) -> list[Scenario]:
        """Lay an older run's higher-numbered checkpoint beside the current ones: the oldest one, renamed."""
        oldest, foreign = min(units, key=lambda pair: pair[1])
        steps = sorted(step for _, step in units)
        renamed = _renumbered(oldest.path)
        if renamed is None or len(units) < 2:
            return []
        edit = Edit(EditKind.COPY, oldest.path, renamed, older=True)
        return [
            Scenario(
                name="damage/foreign-checkpoint",
                family=Family.DAMAGE,
                title=f"an older run's {renamed} beside the current ones",
                disk=DiskState(self.damage_point().name, (edit,)),
                expected=Expectation(outcomes=[Outcome.SAME, Outcome.REFUSED], resume_step=None),
                case=Case(
                    family=str(Family.DAMAGE),
                    cut_step=self.damage_point().step,
                    whole_steps=steps,
                    foreign_steps=[foreign],
                ),
                verify_steps=self._verify(steps[-1]),
            )
        ]

    def _weights_only(self, newest: Unit, step: int, older: list[int]) -> list[Scenario]:
        """Leave only weights and configuration in the newest folder."""
        kept = [path for path in newest.files if _is_weights(path)]
        dropped = [path for path in newest.files if not _is_weights(path)]
        if not kept or not dropped:
            return []
        edits = tuple(Edit(EditKind.REMOVE, path) for path in dropped)
        return [
            Scenario(
                name="damage/weights-only",
                family=Family.DAMAGE,
                title=f"{newest.path} holds only weights",
                disk=DiskState(self.damage_point().name, edits),
                expected=Expectation(outcomes=_FALL_BACK, resume_step=None),
                case=Case(
                    family=str(Family.DAMAGE),
                    cut_step=self.damage_point().step,
                    whole_steps=older,
                    damaged=dropped,
                    damaged_step=step,
                ),
                verify_steps=self._verify(step),
            )
        ]

    def _transfer(self) -> list[Scenario]:
        cut = self._after_save()
        return [
            Scenario(
                name=f"transfer/{'_'.join(args).replace('/', '_')}",
                family=Family.TRANSFER,
                title=f"restarted with {' '.join(args)}",
                disk=DiskState(cut.point.name),
                expected=Expectation(
                    outcomes=[Outcome.SAME, Outcome.REFUSED], resume_step=self.facts.newest_save(cut.complete)
                ),
                case=Case(
                    family=str(Family.TRANSFER),
                    cut_step=cut.complete,
                    whole_steps=[save for save in self.facts.save_steps if save <= cut.complete],
                    changed=" ".join(args),
                ),
                verify_steps=cut.verify_steps,
                extra_args=args,
            )
            for args in self.options.also
        ]

    def _finished(self) -> list[Scenario]:
        """Start the finished run once more; a run that the drill itself ended has not finished."""
        if self.options.steps:
            return []
        steps, save = self.facts.steps, self.facts.save_steps[-1]
        done = save == steps
        return [
            Scenario(
                name="restart/finished",
                family=Family.RESTART,
                title="the finished run started once more",
                disk=DiskState(FINAL),
                expected=Expectation(outcomes=[Outcome.SAME, Outcome.REFUSED], resume_step=save),
                case=Case(
                    family=str(Family.RESTART),
                    cut_step=steps,
                    whole_steps=list(self.facts.save_steps),
                    finished=done,
                ),
                # beyond the end of the control, so that a run that does not stop there shows
                verify_steps=steps - save + self.options.verify_steps,
            )
        ]


def _moment(point: ParkPoint) -> tuple[int, int, int]:
    """Order park points by when a run reaches them: a boundary comes after its step's inside."""
    inside = {"micro": 0, "update": 1}
    if point.where == "boundary":
        return (point.step + 1, -1, 0)
    return (point.step, inside[point.where], point.micro)


def _renumbered(path: str) -> str | None:
    """Return ``path`` with the last number in its name raised; None when the name holds no number."""
    pure = PurePosixPath(path)
    head = pure.name.rstrip("0123456789")
    digits = pure.name[len(head) :]
    suffix = ""
    if not digits:
        stem = PurePosixPath(pure.name).stem
        head = stem.rstrip("0123456789")
        digits = stem[len(head) :]
        suffix = pure.name[len(stem) :]
    if not digits:
        return None
    raised = str(int(digits) + FOREIGN_NUMBER).zfill(len(digits))
    return pure.with_name(f"{head}{raised}{suffix}").as_posix()


def _is_weights(path: str) -> bool:
    name = PurePosixPath(path).name
    known = name.startswith(("model", "pytorch_model", "adapter_model", "weights"))
    return known or name in {"config.json", "adapter_config.json", "generation_config.json"}
