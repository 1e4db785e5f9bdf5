"""Planning turns what the control showed into scenarios with fixed expectations."""

from pathlib import Path

import pytest

from samestep.checkpoints import Unit
from samestep.contract import Family, Outcome
from samestep.drill.observe import Burst, ControlFacts
from samestep.drill.options import DrillOptions
from samestep.drill.plan import Planner, choose
from samestep.drill.scenario import Arrangement
from samestep.trace import ParkPoint


def options(**changes) -> DrillOptions:
    return DrillOptions(
        command=["python", "x.py", "{out}"], project=Path(), run_folder=Path("run"), **changes
    )


def facts(**changes) -> ControlFacts:
    return ControlFacts(**{"steps": 24, "save_steps": [6, 12, 18, 24], **changes})


def trainer_unit(step: int) -> Unit:
    names = ("model.safetensors", "optimizer.pt", "scheduler.pt", "trainer_state.json")
    folder = f"checkpoint-{step}"
    return Unit(folder, "transformers", step, tuple(f"{folder}/{name}" for name in names))


def plan(known=None, chosen=None, units=None):
    planner = Planner(known or facts(), chosen or options())
    held = units if units is not None else [(trainer_unit(step), step) for step in (6, 12, 18)]
    return choose(planner.scenarios({planner.damage_point().name: held}), planner.options)


def by_name(scenarios):
    return {scenario.name: scenario for scenario in scenarios}


def test_a_cut_after_a_save_must_resume_from_it():
    cut = by_name(plan())["cut/after-save"]
    assert (cut.case.cut_step, cut.expected.resume_step, cut.expected.outcomes) == (8, 6, [Outcome.SAME])


def test_a_cut_before_the_first_save_must_be_a_fresh_start():
    cut = by_name(plan())["cut/before-first-save"]
    assert (cut.case.cut_step, cut.expected.resume_step, cut.case.whole_steps) == (4, 0, [])


def test_a_cut_inside_a_step_leaves_that_step_undone():
    cut = by_name(plan())["cut/inside-step"]
    assert cut.disk.snapshot == "update-9"
    assert cut.case.cut_step == 8


def test_an_accumulation_window_is_cut_in_its_middle_only_when_there_is_one():
    assert "cut/inside-accumulation" not in by_name(plan())
    cut = by_name(plan(facts(accumulation=4)))["cut/inside-accumulation"]
    assert cut.disk.snapshot == "micro-9-3"


def test_epoch_ends_are_cut_on_both_sides_and_verified_beyond():
    scenarios = by_name(plan(facts(epoch_ends=[8, 12, 16])))
    assert scenarios["cut/epoch-end"].expected.resume_step == 12
    start = scenarios["cut/epoch-start"]
    assert start.case.cut_step == 13
    assert start.expected.resume_step + start.verify_steps > 13


def test_an_epoch_end_without_a_save_is_cut_on_the_first_step_of_the_next_epoch():
    scenarios = by_name(plan(facts(epoch_ends=[8, 16])))
    assert "cut/epoch-end" not in scenarios
    start = scenarios["cut/epoch-start"]
    assert (start.case.cut_step, start.expected.resume_step) == (9, 6)
    assert 6 + start.verify_steps > 9


def test_the_second_cut_is_counted_in_the_steps_of_the_restarted_process():
    twice = by_name(plan())["cut/twice"]
    assert twice.arrangement is Arrangement.TWICE
    assert twice.disk.snapshot == "boundary-8"
    assert twice.point == ParkPoint("boundary", 14 - 6)
    assert twice.expected.resume_step == 12


def test_one_cut_runs_to_the_end_of_the_control():
    assert by_name(plan())["cut/to-the-end"].verify_steps == 0


def test_every_file_of_the_newest_checkpoint_is_removed_truncated_and_flipped():
    names = [scenario.name for scenario in plan() if scenario.family is Family.DAMAGE]
    for file in trainer_unit(18).files:
        for word in ("missing", "truncated", "byte-flipped"):
            assert f"damage/{file}/{word}" in names
    assert len([name for name in names if "checkpoint-18/" in name]) == 12


def test_after_damage_an_older_whole_checkpoint_may_be_used_and_a_rebuild_may_not():
    damage = by_name(plan())["damage/checkpoint-18/optimizer.pt/missing"]
    assert set(damage.expected.outcomes) == {Outcome.SAME, Outcome.REFUSED, Outcome.LOST_WORK}
    assert damage.case.whole_steps == [6, 12]
    assert damage.case.damaged_step == 18


def test_the_damaged_checkpoint_is_late_and_yet_leaves_steps_to_compare():
    point = Planner(facts(), options()).damage_point()
    assert point == ParkPoint("boundary", 20)


def test_a_foreign_checkpoint_gets_a_higher_number_and_an_older_time():
    foreign = by_name(plan())["damage/foreign-checkpoint"]
    (edit,) = foreign.disk.edits
    assert (edit.path, edit.target, edit.older) == ("checkpoint-6", "checkpoint-90006", True)
    assert Outcome.LOST_WORK not in foreign.expected.outcomes


def test_numbered_files_keep_their_width_and_suffix_when_renumbered():
    units = [(Unit(f"ckpt-{n:06d}.pt", "unknown", n, (f"ckpt-{n:06d}.pt",)), n) for n in (6, 12, 18)]
    (edit,) = by_name(plan(units=units))["damage/foreign-checkpoint"].disk.edits
    assert edit.target == "ckpt-090006.pt"


def test_without_its_only_file_there_is_no_checkpoint_to_damage():
    names = by_name(plan(units=[(Unit("ckpt.pt", "unknown", 18, ("ckpt.pt",)), 18)]))
    assert "damage/ckpt.pt/missing" not in names
    assert "damage/ckpt.pt/truncated" in names
    assert "damage/foreign-checkpoint" not in names


def test_families_can_be_chosen():
    chosen = options(only=frozenset({Family.NOTICE, Family.RESTART}))
    assert [scenario.family for scenario in plan(chosen=chosen)] == [Family.NOTICE, Family.RESTART]


def test_a_scenario_can_be_replayed_by_its_name():
    chosen = options(replay="damage/checkpoint-18/optimizer.pt/missing")
    assert [scenario.name for scenario in plan(chosen=chosen)] == [chosen.replay]


def test_each_other_setting_is_one_transfer():
    names = [
        s.name
        for s in plan(chosen=options(also=[["--batch", "2"], ["--ranks=3"]]))
        if s.family is Family.TRANSFER
    ]
    assert names == ["transfer/--batch_2", "transfer/--ranks=3"]


@pytest.mark.parametrize("saves", [[1, 2, 3, 4], [2, 4], [23, 24], [10, 12]])
@pytest.mark.parametrize("verify", [1, 4, 30])
def test_any_two_saves_give_a_plan_inside_the_run(saves, verify):
    known = facts(save_steps=saves, accumulation=3, epoch_ends=[5, 10, 15, 20])
    planner = Planner(known, options(verify_steps=verify))
    scenarios = planner.scenarios({planner.damage_point().name: [(trainer_unit(s), s) for s in saves]})
    assert len({scenario.name for scenario in scenarios}) == len(scenarios)
    for scenario in scenarios:
        assert 0 <= scenario.case.cut_step <= known.steps
        assert scenario.verify_steps >= 0
    points = planner.park_points()
    assert len({point.name for point in points}) == len(points)
    assert all(
        scenario.disk.snapshot in {*(p.name for p in points), "final"}
        for scenario in scenarios
        if scenario.disk
    )
    moments = [
        (p.step + (p.where == "boundary"), {"boundary": -1, "micro": 0, "update": 1}[p.where]) for p in points
    ]
    assert moments == sorted(moments)


def test_a_finished_run_must_take_no_step():
    finished = by_name(plan())["restart/finished"]
    assert finished.case.finished
    assert finished.expected.resume_step == 24


def test_a_run_that_did_not_save_its_end_may_take_the_last_steps_again_and_no_more():
    finished = by_name(plan(facts(save_steps=[6, 12, 18])))["restart/finished"]
    assert not finished.case.finished
    assert (finished.expected.resume_step, finished.verify_steps) == (18, 10)


def test_a_run_that_the_drill_ended_is_not_finished():
    assert "restart/finished" not in by_name(plan(chosen=options(steps=24)))


def test_one_damage_is_followed_to_the_end():
    followed = [item for item in plan() if item.family is Family.DAMAGE and item.verify_steps == 0]
    assert [item.name for item in followed] == ["damage/checkpoint-18/model.safetensors/missing"]
    assert followed[0].case.to_end


def test_saves_at_epoch_ends_are_cut_twice_and_followed_to_the_end():
    twice = by_name(plan(facts(epoch_ends=[6, 12, 18])))["cut/twice-at-epoch-ends"]
    assert (twice.disk.snapshot, twice.point) == ("boundary-6", ParkPoint("boundary", 12 - 6))
    assert (twice.expected.resume_step, twice.case.to_end, twice.verify_steps) == (12, True, 0)
    assert "cut/twice-at-epoch-ends" not in by_name(plan(facts(epoch_ends=[8, 12, 20])))


def test_a_transfer_is_named_without_its_secrets():
    found = plan(chosen=options(also=[["--hub_token", "s3cr3t", "--lr", "1"]]))
    (transfer,) = [item for item in found if item.family is Family.TRANSFER]
    assert "s3cr3t" not in transfer.name + transfer.title
    assert transfer.extra_args == ["--hub_token", "s3cr3t", "--lr", "1"]


def test_a_run_that_saves_in_the_background_is_cut_when_the_save_is_done():
    bursts = [Burst(step, (), step + 4) for step in (6, 12, 18)]
    planner = Planner(facts(save_steps=[6, 12, 18], bursts=bursts), options())
    cut = next(cut for cut in planner.cuts() if cut.name == "cut/after-save")
    assert cut.complete == 11
    (scenario,) = [item for item in planner.scenarios({}) if item.name == "cut/after-save"]
    assert scenario.expected.resume_step == 6
