"""Which saves a recording holds, what their checkpoints are, and when each is announced."""

import pytest

from crash_scripts import Script
from samestep.crash.image import Image
from samestep.crash.states import enumerate_states
from samestep.drill.saves import saves_of

STEPS = [1, 2]


@pytest.fixture
def saves(tmp_path):
    opened = []

    def of(script, seen=STEPS):
        recording = script.recording()
        opened.append(recording)
        return recording, saves_of(recording, seen, tmp_path)

    yield of
    for recording in opened:
        recording.close()


def whole(recording, all_saves, number=1):
    """For each state of a save: is its own checkpoint whole, and is the save announced."""
    save = all_saves[number]
    enumeration = enumerate_states(recording, save.window, Image(recording.header.roots[0]), ["kill"])
    (generation,) = save.generations
    found = []
    for state in enumeration.states:
        files = {path: content.digest for path, content in state.image.files().items()}
        is_whole = all(files.get(path) == digest for path, digest in generation.files.items())
        found.append((is_whole, save.is_announced(state.image)))
    return found


def test_a_folder_written_aside_and_renamed_is_one_checkpoint(saves):
    script = Script()
    for step in STEPS:
        script.mark(step).mkdir(f"tmp-{step}").file_of(f"tmp-{step}/model.pt", b"m%d" % step)
        script.file_of(f"tmp-{step}/optimizer.pt", b"o%d" % step).rename(f"tmp-{step}", f"step-{step}")
    _, found = saves(script)
    assert [generation.path for save in found for generation in save.generations] == ["step-1", "step-2"]
    assert sorted(found[1].generations[0].files) == ["step-2/model.pt", "step-2/optimizer.pt"]


def test_until_the_pointer_says_so_a_whole_checkpoint_is_not_announced(saves):
    script = Script()
    for step in STEPS:
        script.mark(step).file_of(f"ckpt-{step}.pt", b"m%d" % step).file_of(
            "latest.txt", b"ckpt-%d.pt" % step
        )
    recording, found = saves(script)
    states = whole(recording, found)
    assert (True, False) in states
    assert states[-1] == (True, True)
    assert (False, True) not in states


def test_a_link_to_the_newest_is_no_checkpoint_of_its_own(saves):
    script = Script()
    for step in STEPS:
        script.mark(step).file_of(f"ckpt-{step}.pt", b"m%d" % step)
        script.symlink("aside", f"ckpt-{step}.pt").rename("aside", "latest")
    recording, found = saves(script)
    assert [generation.path for save in found for generation in save.generations] == [
        "ckpt-1.pt",
        "ckpt-2.pt",
    ]
    assert (True, False) in whole(recording, found)


def test_what_changes_on_its_own_beside_a_checkpoint_is_no_part_of_it(saves):
    script = Script()
    for step in STEPS:
        script.mark(step).file_of("status.json", b'{"step": %d}' % step).file_of(
            f"ckpt-{step}.pt", b"m%d" % step
        )
    _, found = saves(script)
    assert [sorted(generation.files) for save in found for generation in save.generations] == [
        ["ckpt-1.pt"],
        ["ckpt-2.pt"],
    ]


def test_syncing_an_older_checkpoint_is_not_saving_it(saves):
    script = (
        Script().mark(1).file_of("ckpt-1.pt", b"m1").mark(2).sync("ckpt-1.pt").file_of("ckpt-2.pt", b"m2")
    )
    _, found = saves(script)
    assert [generation.path for generation in found[1].generations] == ["ckpt-2.pt"]


def steps_of(saves, script, seen):
    """The step that each save counts for, of a run that was seen to save after certain steps."""
    return [save.step for save in saves(script, seen)[1]]


def in_background(script, begun, name, *, end):
    """A save that begins after one step and is still being written after another."""
    script.mark(begun).create(name).write(name, b"m" * 10)
    return script.mark(end).write(name, b"m%d" % begun).close(name)


def test_a_background_save_of_one_step_that_is_seen_late_counts_for_the_step_it_began_after(saves):
    script = in_background(Script(), 4, "last.pt", end=5)
    in_background(script, 8, "best.pt", end=9)
    assert steps_of(saves, script, [5, 9]) == [4, 8]


def test_a_background_save_that_is_seen_at_each_step_is_one_save(saves):
    script = in_background(Script(), 4, "last.pt", end=7)
    assert steps_of(saves, script, [4, 5, 6, 7]) == [4]
    assert steps_of(saves, script, [5, 6, 7]) == [4]


def test_a_save_inside_a_step_counts_for_that_step(saves):
    script = Script().mark(4).file_of("last.pt", b"m4").mark(5)
    assert steps_of(saves, script, [5]) == [5]


def test_a_close_that_is_noticed_late_makes_no_background_save(saves):
    script = Script().mark(4).create("last.pt").write("last.pt", b"m4").mark(5).close("last.pt")
    assert steps_of(saves, script, [5]) == [5]


def test_a_rank_that_comes_later_to_the_same_step_makes_no_background_save(saves):
    script = Script().mark(3, 0).mark(3, 1).mark(4, 0)
    script.rank = 0
    script.mkdir("ckpt").file_of("ckpt/rank0.pt", b"m4")
    script.mark(4, 1)
    script.rank = 1
    script.file_of("ckpt/rank1.pt", b"m4")
    script.mark(5, 0).mark(5, 1)
    assert steps_of(saves, script, [5]) == [5]


def test_the_step_in_its_name_counts_where_a_save_goes_on_after_it(saves):
    assert steps_of(saves, in_background(Script(), 4, "ckpt-0005.pt", end=5), [5]) == [5]
