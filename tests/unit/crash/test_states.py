"""States are different from each other, named, counted, and told in words."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from crash_scripts import Script, empty, holds, states_of
from samestep.crash.choose import choose
from samestep.crash.models import MODELS
from samestep.crash.states import compound_states, enumerate_states
from samestep.crash.windows import save_windows
from samestep.errors import UsageError

FILES = [
    "config.json",
    "model.safetensors",
    "args.bin",
    "optimizer.pt",
    "scheduler.pt",
    "rng.pth",
    "state.json",
]
SIZES = [700, 90_000, 5_300, 180_000, 1_400, 14_000, 900]


def trainer_save(script, step, old=None):
    """A save as a trainer makes it, and the removal of an old one."""
    folder = f"checkpoint-{step}"
    script.mkdir(folder)
    for name, size in zip(FILES, SIZES, strict=True):
        path = f"{folder}/{name}"
        script.create(path)
        for part in range(12):
            script.write(path, bytes([step * 16 + part]) * (size // 12))
        script.close(path)
    if old:
        for name in FILES:
            script.unlink(f"checkpoint-{old}/{name}")
        script.rmdir(f"checkpoint-{old}")
    return script


@pytest.fixture(scope="module")
def trainer():
    script = Script().mark(2)
    trainer_save(script, 2).mark(4)
    return trainer_save(script, 4, old=2)


@pytest.fixture(scope="module")
def enumeration(trainer):
    return states_of(trainer, *MODELS)


def test_a_save_with_rotation_has_hundreds_of_states_within_the_bounds(enumeration):
    assert len(enumeration.states) > 500
    assert [count.model for count in enumeration.counts] == list(MODELS)
    assert all(count.unique <= count.raw <= count.most for count in enumeration.counts)
    assert str(enumeration.counts[0]).startswith("kill: ")
    assert len(enumeration.states) == sum(count.unique for count in enumeration.counts)


def test_states_and_names_are_all_different(enumeration):
    names = [name for state in enumeration.states for name in (state.name, *state.also)]
    assert len(set(names)) == len(names) == sum(count.raw for count in enumeration.counts)
    assert len({state.digest for state in enumeration.states}) == len(enumeration.states)
    assert all(re.fullmatch(r"[A-Za-z0-9._+=@/-]+", name) for name in names)


def test_the_weakest_model_owns_a_state(enumeration):
    ranks = list(MODELS)
    for state in enumeration.states:
        others = [name.split("/")[1] for name in state.also]
        assert all(ranks.index(state.model) <= ranks.index(other) for other in others)


def test_the_same_recording_gives_the_same_names(trainer, enumeration):
    again = states_of(trainer, *reversed(MODELS))
    assert [state.name for state in again.states] == [state.name for state in enumeration.states]


def test_a_state_is_found_by_each_of_its_names(enumeration):
    state = next(state for state in enumeration.states if state.also)
    assert enumeration.state(state.also[-1]) is state
    assert enumeration.state("save-4/kill/op-998") is None


def test_damage_is_told_in_words(enumeration):
    state = next(s for s in enumeration.states if s.way == "empty" and s.file == "optimizer.pt")
    assert state.damage.startswith("checkpoint-4/optimizer.pt: its unsynced data never reached the disk")
    start = enumeration.states[0]
    assert (start.name, start.last, start.damage) == ("save-4/kill/start", "nothing of this save", "")


def test_a_trainer_that_never_syncs_may_lose_both_checkpoints_after_its_save_returned(enumeration):
    lost = [
        state
        for state in enumeration.states
        if "power-ext4" in state.lasting
        and state.image.find("/out/checkpoint-2") is None
        and state.way == "all-lost"
    ]
    assert [holds(state, "checkpoint-4/optimizer.pt") for state in lost] == [b""]


def test_bulk_writes_are_collapsed_whatever_their_number():
    few, many = (Script().mark(1).create("a.pt") for _ in range(2))
    for part in range(10):
        few.write("a.pt", bytes([part]) * 10)
    for part in range(2000):
        many.write("a.pt", bytes([part % 256]) * 10)
    assert len(states_of(few, "kill").states) == len(states_of(many, "kill").states) == 10


def test_hundreds_of_unsynced_files_do_not_explode():
    script = Script().mark(1)
    for shard in range(100):
        script.file_of(f"shard-{shard}.pt", bytes([shard % 256]) * 5000)
    found = states_of(script, "power-ext4")
    assert 100 * 16 < len(found.states) < 100 * 2 * 16 * 4


def test_only_logs_differing_is_no_other_state():
    script = (
        Script().mark(1).file_of("a.pt", b"a").file_of("x.log", b"one").open("a.pt").write("a.pt", b"b", 0)
    )
    assert [holds(s, "x.log") for s in states_of(script, "kill").states] == [None, None, None, b"one"]


def test_files_of_equal_name_are_told_apart_by_their_path():
    script = (
        Script()
        .mark(1)
        .mkdir("a")
        .mkdir("b")
        .file_of("a/x.pt", b"1")
        .file_of("b/x.pt", b"2")
        .file_of("y.pt", b"3")
    )
    files = {state.file for state in states_of(script, "power-ext4").states}
    assert files == {"", "a+x.pt", "b+x.pt", "y.pt"}


def test_odd_names_become_safe_ones():
    script = Script().mark(1).file_of("my model\n$(rm).pt", b"1" * 9000).mkdir("z")
    names = [state.name for state in states_of(script, "power-ext4").states]
    assert "save-1/power-ext4/op-001/my_model_rm_.pt-half" in names


def test_an_unknown_model_is_a_usage_error_that_lists_the_known_ones():
    with pytest.raises(UsageError) as caught:
        states_of(Script().mark(1).file_of("a", b"1"), "power-btrfs")
    assert "power-ext4" in caught.value.hint


def test_the_earlier_save_counts_as_durable(trainer):
    states = states_of(trainer, "power-ext4", window=1).states
    assert all(
        holds(state, "checkpoint-2/optimizer.pt") in {None, holds(states[0], "checkpoint-2/optimizer.pt")}
        for state in states
    )


def test_two_ranks_can_each_be_behind_or_ahead_in_the_middle_of_a_file_only():
    script = Script().mark(1).mkdir("step-1")
    for rank in (0, 1):
        script.rank = rank
        script.create(f"step-1/r{rank}")
    for part in range(2):
        for rank in (0, 1):
            script.rank = rank
            script.write(f"step-1/r{rank}", bytes([65 + part]))
    script.rank = 0
    script.file_of("step-1/.metadata", b"m")
    found = {
        (holds(s, "step-1/r0"), holds(s, "step-1/r1"), holds(s, "step-1/.metadata"))
        for s in states_of(script, "kill").states
    }
    assert (b"AB", b"", None) in found  # rank 1 wrote nothing yet
    assert (b"", b"AB", None) in found
    assert all(r0 == r1 == b"AB" for r0, r1, metadata in found if metadata is not None)
    assert all(count.raw <= count.most for count in states_of(script, *MODELS).counts)


def test_a_second_interruption_starts_from_what_the_first_one_left():
    script = Script().mark(1).file_of("a.pt", b"first").mark(2).file_of("b.pt", b"second")
    first = states_of(script, "kill").state("save-2/kill/op-001")
    again = Script("/other").mark(2).open("b.pt").truncate("b.pt").write("b.pt", b"again").close("b.pt")
    recording = again.recording()
    (enumeration,) = compound_states(first, recording, save_windows(recording), ["kill"])
    assert {(state.model, holds(state, "a.pt")) for state in enumeration.states} == {("compound", b"first")}
    assert enumeration.states[0].name == "save-2/kill/op-001/again/save-2/kill/start"
    assert [holds(state, "b.pt") for state in enumeration.states[:2]] == [b"second", b""]


def test_what_was_there_before_stays_where_it_was(tmp_path):
    (tmp_path / "base.pt").write_bytes(b"base")
    from samestep.crash.image import Image

    script = Script(str(tmp_path)).mark(1).file_of("a.pt", b"1").open("base.pt").write("base.pt", b"BA", 0)
    recording = script.recording()
    states = enumerate_states(
        recording, save_windows(recording)[0], Image.load(tmp_path), ["power-xfs"]
    ).states
    assert {holds(state, "base.pt") for state in states} == {b"base", b"BAse"}
    assert empty().find("/out") is not None


# choosing


def test_a_smaller_choice_is_the_beginning_of_a_larger_one(enumeration):
    chosen = [choose(enumeration.states, most, seed=7) for most in (0, 1, 50, 100, 10_000)]
    assert all(longer[: len(shorter)] == shorter for shorter, longer in pairwise(chosen))
    assert len(chosen[-1]) == len(enumeration.states)


def test_the_choice_begins_next_to_the_commit_and_spreads(enumeration):
    first = choose(enumeration.states, 40)
    assert first[0].weight == 0
    assert {state.model for state in first} >= {"kill", "power-ext4", "posix-worst"}
    assert len({state.way for state in first}) >= 6


def test_the_seed_changes_only_the_sample_of_the_rest(enumeration):
    one, other = (choose(enumeration.states, 10_000, seed) for seed in (1, 2))
    assert one != other
    assert sorted(state.name for state in one) == sorted(state.name for state in other)
    assert one[:20] == other[:20]
