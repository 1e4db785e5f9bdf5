"""The scenarios of the family ``damage``: the newest checkpoint with each of its files harmed in turn."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from samestep.contract import Family, Outcome
from samestep.drill.judging.judgement import Case
from samestep.drill.result import Expectation
from samestep.drill.scenario import DiskState, Edit, EditKind, Scenario, followed_to_the_end

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from samestep.checkpoints import Unit

FOREIGN_NUMBER = 90_000
"""Added to the number of a checkpoint that plays an older run's leftover."""

_FALL_BACK = [Outcome.SAME, Outcome.REFUSED, Outcome.LOST_WORK]
_ANY_BUT_A_RESTART = [*_FALL_BACK, Outcome.DIFFERENT, Outcome.CRASHED]
"""After one flipped byte: no framework of today claims to notice."""


@dataclass(frozen=True)
class DamagePlan:
    """Plans damage to the newest checkpoint of one snapshot.

    Attributes:
        snapshot: its name.
        complete: steps complete when it was taken.
        verify: how many steps to compare after a resume from a given step.
        to_end: follow one scenario to the end of the run, which must then have one.
    """

    snapshot: str
    complete: int
    verify: Callable[[int], int]
    to_end: bool = True

    def scenarios(self, units: Sequence[tuple[Unit, int]]) -> list[Scenario]:
        """Return all scenarios of the family.

        Args:
            units: the checkpoints that the snapshot holds, each with the steps complete in it.
        """
        if not units:
            return []
        newest, step = max(units, key=lambda pair: pair[1])
        older = sorted(held for unit, held in units if unit is not newest)
        scenarios = [
            scenario
            for path in newest.files
            for scenario in self._damaged_file(path, step, older, only_file=len(newest.files) == 1)
        ]
        if self.to_end:
            scenarios[:1] = [followed_to_the_end(scenario) for scenario in scenarios[:1]]
        return [*scenarios, *self._foreign(units), *self._weights_only(newest, step, older)]

    def _damaged_file(self, path: str, step: int, older: list[int], *, only_file: bool) -> list[Scenario]:
        kinds = [
            (EditKind.REMOVE, "missing"),
            (EditKind.TRUNCATE, "truncated"),
            (EditKind.FLIP, "byte flipped"),
        ]
        if only_file and not older:
            # without its only file there is no checkpoint: that is the cut before the first save
            del kinds[0]
        return [self._one_damage(path, kind, word, step, older) for kind, word in kinds]

    def _one_damage(self, path: str, kind: EditKind, word: str, step: int, older: list[int]) -> Scenario:
        flipped = kind is EditKind.FLIP
        return Scenario(
            name=f"damage/{path}/{word.replace(' ', '-')}",
            family=Family.DAMAGE,
            title=f"{path} {word}",
            disk=DiskState(self.snapshot, (Edit(kind, path),)),
            expected=Expectation(outcomes=_ANY_BUT_A_RESTART if flipped else _FALL_BACK, resume_step=None),
            case=Case(
                family=str(Family.DAMAGE),
                cut_step=self.complete,
                whole_steps=older,
                damaged=[path],
                damaged_step=step,
                flipped=flipped,
            ),
            verify_steps=self.verify(step),
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
                disk=DiskState(self.snapshot, (edit,)),
                expected=Expectation(outcomes=[Outcome.SAME, Outcome.REFUSED], resume_step=None),
                case=Case(
                    family=str(Family.DAMAGE),
                    cut_step=self.complete,
                    whole_steps=steps,
                    foreign_steps=[foreign],
                ),
                verify_steps=self.verify(steps[-1]),
            )
        ]

    def _weights_only(self, newest: Unit, step: int, older: list[int]) -> list[Scenario]:
        """Leave only weights and configuration in the newest folder."""
        dropped = [path for path in newest.files if not _is_weights(path) and not _is_config(path)]
        if not dropped or not any(_is_weights(path) for path in newest.files):
            return []
        edits = tuple(Edit(EditKind.REMOVE, path) for path in dropped)
        return [
            Scenario(
                name="damage/weights-only",
                family=Family.DAMAGE,
                title=f"{newest.path} holds only weights",
                disk=DiskState(self.snapshot, edits),
                expected=Expectation(outcomes=_FALL_BACK, resume_step=None),
                case=Case(
                    family=str(Family.DAMAGE),
                    cut_step=self.complete,
                    whole_steps=older,
                    damaged=dropped,
                    damaged_step=step,
                ),
                verify_steps=self.verify(step),
            )
        ]


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
    return name.startswith(("model", "pytorch_model", "adapter_model", "weights"))


def _is_config(path: str) -> bool:
    return PurePosixPath(path).name in {"config.json", "adapter_config.json", "generation_config.json"}
