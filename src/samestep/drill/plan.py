"""Planning: from what the control showed to the scenarios, each with its expectation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from samestep.contract import Family, Outcome
from samestep.contract.redaction import redacted
from samestep.drill.damage import DamagePlan
from samestep.drill.judging.judgement import Case
from samestep.drill.result import Expectation
from samestep.drill.scenario import FINAL, Arrangement, DiskState, Scenario, followed_to_the_end
from samestep.trace import ParkPoint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from samestep.checkpoints import Unit
    from samestep.drill.observe import ControlFacts
    from samestep.drill.options import DrillOptions


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
        saves: steps complete in the saves that the reference really made, when they are not the first control's.
    """

    def __init__(
        self, facts: ControlFacts, options: DrillOptions, saves: Sequence[int] | None = None
    ) -> None:
        self.facts = facts
        self.options = options
        self.saves = list(facts.save_steps if saves is None else saves)

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
        """Return the place whose newest checkpoint is damaged."""
        return ParkPoint("boundary", self._some_steps_after(self.damaged_save()))

    def damaged_save(self) -> int:
        """Return the save that is damaged and taken apart: late, with enough steps to follow."""
        saves = self.facts.save_steps
        late = [save for save in saves[1:] if self.facts.steps - save >= self.options.verify_steps]
        return late[-1] if late else saves[max(0, len(saves) - 2)]

    def scenarios(self, units_at: dict[str, Sequence[tuple[Unit, int]]]) -> list[Scenario]:
        """Return everything that can be tried; see `choose`.

        Args:
            units_at: per snapshot the checkpoint units it holds, each with the steps complete in it.
        """
        point = self.damage_point()
        damage = DamagePlan(point.name, point.step, self.verify, to_end=not self.options.steps)
        return [
            *(self._cut_scenario(cut) for cut in self.cuts()),
            *self._twice(),
            *self._twice_at_epoch_ends(),
            *self._kill(),
            *self._notice(),
            *damage.scenarios(units_at.get(point.name, [])),
            *self._transfer(),
            *self._finished(),
        ]

    # Cuts of the control.

    def _some_steps_after(self, save: int) -> int:
        following = min((other for other in self.facts.save_steps if other > save), default=self.facts.steps)
        soon, done = min(save + 2, max(save, following - 1)), self.facts.done(save)
        return (
            soon if done == save else min(done + 1, max(save, self.facts.steps - 1))
        )  # a thread may be a step late

    def _first_save(self) -> int:
        """Return the first save that is followed by enough steps, else the first."""
        saves = self.facts.save_steps
        return next(
            (save for save in saves if self.facts.steps - save >= self.options.verify_steps), saves[0]
        )

    def verify(self, save: int, until: int = 0) -> int:
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
            self.verify(0),
        )

    def _after_save(self) -> Cut:
        save = self._first_save()
        complete = self._some_steps_after(save)
        title = f"after step {complete}, save {save} complete"
        return Cut("cut/after-save", title, ParkPoint("boundary", complete), complete, self.verify(save))

    def _inside_step(self) -> Cut | None:
        save = self._first_save()
        step = self._some_steps_after(save) + 1
        unreachable = step > self.facts.steps or not self.facts.followed
        if unreachable or self.facts.newest_save(step - 1) != save:
            return None
        title = f"inside step {step}, after backward, no warning"
        return Cut("cut/inside-step", title, ParkPoint("update", step), step - 1, self.verify(save))

    def _inside_accumulation(self) -> Cut | None:
        step = self._some_steps_after(self._first_save()) + 1
        if self.facts.accumulation < 2 or step > self.facts.steps:
            return None
        middle = self.facts.accumulation // 2 + 1
        title = f"inside step {step}, before micro-step {middle} of {self.facts.accumulation}"
        save = self.facts.newest_save(step - 1)
        point = ParkPoint("micro", step, middle)
        return Cut("cut/inside-accumulation", title, point, step - 1, self.verify(save))

    def _around_epoch_end(self) -> list[Cut]:
        ends = [
            end for end in self.facts.epoch_ends if self.facts.newest_save(end) and end < self.facts.steps
        ]
        if not ends:
            return []
        end = next(iter(self._saved_epoch_ends()), ends[0])
        cuts = []
        if end in self.facts.save_steps:
            title = f"right after save {end} on the last batch of an epoch"
            cuts.append(Cut("cut/epoch-end", title, ParkPoint("boundary", end), end, self.verify(end)))
        if end + 1 < self.facts.steps:
            save = self.facts.newest_save(end + 1)
            title = f"after step {end + 1}, the first of the next epoch"
            point = ParkPoint("boundary", end + 1)
            cuts.append(Cut("cut/epoch-start", title, point, end + 1, self.verify(save, end)))
        return cuts

    def _saved_epoch_ends(self) -> list[int]:
        return [
            end for end in self.facts.epoch_ends if end in self.facts.save_steps and end < self.facts.steps
        ]

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
        return Scenario(
            name=cut.name,
            family=Family.CUT,
            title=cut.title,
            disk=DiskState(cut.point.name),
            expected=Expectation(outcomes=[Outcome.SAME], resume_step=self._resume(cut.complete)),
            case=self._case(Family.CUT, cut.complete, to_end=cut.verify_steps == 0),
            verify_steps=cut.verify_steps,
        )

    def _case(self, family: Family, complete: int, *, to_end: bool = False) -> Case:
        return Case(
            family=str(family),
            cut_step=complete,
            whole_steps=self._written(complete),
            to_end=to_end,
        )

    def _resume(self, complete: int) -> int:
        return max(self._written(complete), default=0)

    def _written(self, complete: int) -> list[int]:
        """Return the saves whose last file was written when so many steps were complete."""
        return [save for save in self.saves if self.facts.done(save) <= complete]

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
        title = f"twice: {where}after step {begin} and again after step {complete}"
        scenario = self._two_cuts("cut/twice", title, begin, complete, first)
        return [replace(scenario, verify_steps=self.verify(second), case=self._case(Family.CUT, complete))]

    def _twice_at_epoch_ends(self) -> list[Scenario]:
        """Cut right after a save that ends an epoch, twice, then go to the end: counters of epochs may be one off."""
        ends = self._saved_epoch_ends()
        if len(ends) < 2:
            return []
        first, second = ends[:2]
        title = f"twice at epoch ends: after save {first} and after save {second}, then to the end"
        return [self._two_cuts("cut/twice-at-epoch-ends", title, first, second, first)]

    def _two_cuts(self, name: str, title: str, begin: int, complete: int, resumed: int) -> Scenario:
        """Return a scenario that is cut at ``begin``, resumes at ``resumed``, is cut at ``complete`` and runs on."""
        return Scenario(
            name=name,
            family=Family.CUT,
            title=title,
            arrangement=Arrangement.TWICE,
            disk=DiskState(ParkPoint("boundary", begin).name),
            point=ParkPoint("boundary", complete - resumed),
            expected=Expectation(outcomes=[Outcome.SAME], resume_step=self._resume(complete)),
            case=self._case(Family.CUT, complete, to_end=True),
            verify_steps=0,
        )

    def _kill(self) -> list[Scenario]:
        cut = self._after_save()
        return [
            Scenario(
                name="cut/real-kill",
                family=Family.CUT,
                title=f"killed for real (SIGKILL) after step {cut.complete}",
                arrangement=Arrangement.KILL,
                point=cut.point,
                expected=Expectation(outcomes=[Outcome.SAME], resume_step=self._resume(cut.complete)),
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

    def _transfer(self) -> list[Scenario]:
        cut = self._after_save()
        scenarios = [
            Scenario(
                name=_transfer_name(args),
                family=Family.TRANSFER,
                title=f"restarted with {' '.join(redacted(args))}",
                disk=DiskState(cut.point.name),
                expected=Expectation(
                    outcomes=[Outcome.SAME, Outcome.REFUSED], resume_step=self._resume(cut.complete)
                ),
                case=Case(
                    family=str(Family.TRANSFER),
                    cut_step=cut.complete,
                    whole_steps=self._written(cut.complete),
                    changed=" ".join(args),
                ),
                verify_steps=cut.verify_steps,
                extra_args=args,
            )
            for args in self.options.also
        ]
        return [*(followed_to_the_end(item) for item in scenarios[:1]), *scenarios[1:]]

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


def _transfer_name(args: Sequence[str]) -> str:
    """Return a name that may be a folder's: of the arguments, without their secrets."""
    return "transfer/" + "_".join(redacted(args)).replace("/", "_").replace("*", "x")


def choose(scenarios: Sequence[Scenario], options: DrillOptions) -> list[Scenario]:
    """Return the scenarios that were asked for."""
    chosen = [item for item in scenarios if options.wants(item.family)]
    return [item for item in chosen if item.name == options.replay] if options.replay else chosen


def _moment(point: ParkPoint) -> tuple[int, int, int]:
    """Order park points by when a run reaches them: a boundary comes after its step's inside."""
    inside = {"micro": 0, "update": 1}
    if point.where == "boundary":
        return (point.step + 1, -1, 0)
    return (point.step, inside[point.where], point.micro)
