"""Disk states of interrupted saves as scenarios: asked for by name, judged by the storage in use, failing disks."""

import pytest

from crash_scripts import Script, empty
from samestep.contract import Outcome
from samestep.crash.operations import Kind, Operation
from samestep.crash.states import enumerate_states
from samestep.drill.crashing import Crashes, TakenApart, window_record
from samestep.drill.result import CrashRecord
from samestep.drill.saves import saves_of
from samestep.errors import ExitCode, UsageError

STEPS = [1, 2]


def saved(script=None):
    """Two saves of a file each, written in place and never synced."""
    script = script or Script()
    for step in STEPS:
        script.mark(step).create(f"ckpt-{step}.pt").write(f"ckpt-{step}.pt", b"%d" % step * 9000)
        script.close(f"ckpt-{step}.pt")
    return script


def in_two_files():
    """Saves of two files each, so that the name of one can get lost while that of the other is kept."""
    script = Script()
    for step in STEPS:
        script.mark(step).file_of(f"ckpt-{step}.pt", b"%d" % step * 9000).file_of(
            f"optim-{step}.pt", b"o" * 9
        )
    return script


@pytest.fixture
def crashes(tmp_path):
    opened = []

    def of(script, *models, storage="ext4"):
        recording = script.recording()
        opened.append(recording)
        saves, apart = saves_of(recording, STEPS, tmp_path), []
        for number, save in enumerate(saves):
            earlier = [item for before in saves[:number] for item in before.generations]
            enumeration = enumerate_states(recording, save.window, empty(), models)
            apart.append(TakenApart(save.window.name, recording, save, enumeration, earlier))
        record = CrashRecord(
            tier="notify", operations=9, proven=True, models=list(models), storage=storage, seed=0
        )
        record.windows = [window_record(save) for save in apart]
        return Crashes(record, apart, tmp_path)

    yield of
    for recording in opened:
        recording.close()


def scenarios(crashes):
    """Scenario and point of every state of the last save, by the state's name."""
    save = crashes.main
    made = crashes.scenarios([(save, state) for state in save.enumeration.states], lambda _: 3)
    return {
        scenario.name.removeprefix("crash/"): (scenario, crashes.point(scenario.name)) for scenario in made
    }


def test_a_state_is_asked_for_by_each_of_its_names(crashes):
    of = crashes(saved(), "kill", "power-ext4")
    state = next(state for state in of.main.enumeration.states if state.also)
    for name in (state.name, *state.also):
        ((save, found),) = of.chosen(24, f"crash/{name}")
        assert (save, found.name, found.digest) == (of.main, name, state.digest)


def test_an_unknown_state_is_answered_with_the_nearest_ones(crashes):
    of = crashes(saved(), "kill", "power-ext4")
    with pytest.raises(UsageError, match="no disk state of an interrupted save") as raised:
        of.chosen(24, "crash/save-2/kill/op-01/ckpt-2.pt-torn-half")
    assert raised.value.hint.startswith("did you mean save-2/kill/op-001/ckpt-2.pt-torn-half")
    assert raised.value.exit_code is ExitCode.USAGE


def test_a_state_of_a_model_that_was_not_looked_at_is_answered_with_the_model(crashes):
    of = crashes(saved(), "kill", "power-ext4")
    for name, model in (
        ("save-2/posix-worst/op-001", "posix-worst"),
        ("save-2/kill/start/again/x", "compound"),
    ):
        with pytest.raises(UsageError) as raised:
            of.chosen(24, f"crash/{name}")
        assert raised.value.hint == f"its model was not looked at: --models kill,power-ext4,{model}"


def test_a_name_like_no_other_is_answered_with_the_saves(crashes):
    with pytest.raises(UsageError) as raised:
        crashes(saved(), "kill").chosen(24, "crash/xyz")
    assert raised.value.hint == (
        "saves that were taken apart: save-1, save-2; further scenarios: disk-full, io-error"
    )


@pytest.mark.parametrize("name", ["crash/disk-full", "crash/io-error", "cut/after-save"])
def test_scenarios_without_a_disk_state_are_no_unknown_states(crashes, name):
    assert crashes(saved(), "kill").chosen(24, name) == []


def test_what_only_a_stronger_model_leaves_may_have_any_outcome(crashes):
    found = scenarios(crashes(in_two_files(), "kill", "posix-worst"))
    lost = [pair for name, pair in found.items() if "/without-" in name]
    assert lost
    assert all(set(scenario.expected.outcomes) == set(Outcome) for scenario, _ in lost)
    assert not any(point.allowed for _, point in lost)


def test_where_the_storage_promises_no_more_it_must_be_resumed_from(crashes):
    found = scenarios(crashes(in_two_files(), "kill", "posix-worst", storage="posix"))
    assert any("/without-" in name for name in found)
    assert all(scenario.expected.outcomes == [Outcome.SAME] for scenario, _ in found.values())


@pytest.mark.parametrize("model", ["posix-worst", "power-xfs", "nfs"])
def test_a_state_in_which_nothing_got_lost_must_be_resumed_from_whatever_the_model(crashes, model):
    script = Script()
    for step in STEPS:
        script.mark(step).file_of(f"ckpt-{step}.pt", b"%d" % step * 9000, sync=True).sync("")
    found = scenarios(crashes(script, model, storage="tmpfs"))
    whole = [(scenario, point) for scenario, point in found.values() if not point.damage]
    assert len(whole) >= 3  # before the save, with an empty file, at its end
    assert all(scenario.expected.outcomes == [Outcome.SAME] and point.allowed for scenario, point in whole)
    assert max(scenario.expected.resume_step for scenario, _ in whole) == 2


def test_a_finished_save_is_told_from_one_of_which_something_is_missing(crashes):
    of = crashes(saved(), "kill", "power-ext4")
    found = scenarios(of)
    finished = {name for name in found if of.history(f"crash/{name}").finished}
    assert finished == {name for name, (_, point) in found.items() if point.whole == 2 and not point.damage}
    assert finished
    assert any(point.lasting for name, (_, point) in found.items() if name not in finished)


def faults(crashes):
    return {scenario.name: scenario.fault for scenario in crashes.fault_scenarios()}


def write_to(path, kind=Kind.WRITE):
    return Operation(index=0, kind=kind, path=path)


def test_a_disk_fails_in_the_middle_of_the_save_in_the_folder_that_is_written_to(crashes):
    of = faults(crashes(saved(), "kill"))
    full, error = of["crash/disk-full"], of["crash/io-error"]
    assert full.pattern == error.pattern == "/out/*"
    # create, write, close after step 1, create after step 2: then comes the write in the middle
    assert (full.first, full.count, error.count) == (4, None, 1)
    assert full.concerns(write_to("/out/ckpt-2.pt"), 4)
    assert not full.concerns(write_to("/out/ckpt-2.pt"), 3)
    assert not full.concerns(write_to("/scratch/ckpt-2.pt"), 4)


def test_what_is_staged_elsewhere_and_moved_in_fails_where_it_is_written(crashes):
    script = Script()
    for step in STEPS:
        script.mark(step).create(f"/scratch/run/x{step}").write(f"/scratch/run/x{step}", b"%d" % step * 9000)
        script.close(f"/scratch/run/x{step}").rename(f"/scratch/run/x{step}", f"ckpt-{step}.pt")
    for fault in faults(crashes(script, "kill")).values():
        assert fault.pattern == "/scratch/run/*"
        assert fault.concerns(write_to("/scratch/run/x2"), fault.first)
        # a random name is another one the next time
        assert fault.concerns(write_to("/scratch/run/x9f3"), fault.first)
        assert not fault.concerns(write_to("/out/ckpt-2.pt"), fault.first)
        # nothing grows by it: a full disk lets it happen
        move = Operation(index=0, kind=Kind.RENAME, path="/scratch/run/x2", target="/out/ckpt-2.pt")
        assert not fault.concerns(move, fault.first)


def test_only_writes_meet_an_io_error(crashes):
    fault = faults(crashes(saved(), "kill"))
    assert fault["crash/disk-full"].concerns(write_to("/out/new.pt", Kind.CREATE), 9)
    assert not fault["crash/io-error"].concerns(write_to("/out/new.pt", Kind.CREATE), 9)
