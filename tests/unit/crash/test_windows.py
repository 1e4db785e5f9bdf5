"""Operations are grouped into saves."""

from __future__ import annotations

from crash_scripts import Script, empty, holds, states_of
from samestep.crash.operations import Kind
from samestep.crash.windows import save_windows


def names(script):
    return [window.name for window in save_windows(script.recording())]


def test_each_step_that_saves_is_a_window_of_its_own():
    script = Script().mark(1).file_of("a.pt", b"1").mark(2).mark(3).file_of("b.pt", b"2")
    windows = save_windows(script.recording())
    assert [(window.name, window.first, window.last) for window in windows] == [
        ("save-1", 1, 3),
        ("save-3", 6, 8),
    ]


def test_logs_belong_to_no_save():
    script = (
        Script().mark(1).file_of("train.log", b"x").mkdir("runs").file_of("runs/events.out.tfevents.1", b"x")
    )
    assert names(script.mark(2).file_of("a.pt", b"1")) == ["save-1", "save-2"]
    assert len(save_windows(script.recording())[0].operations) == 1


def test_the_same_file_overwritten_after_every_step_is_many_saves():
    script = Script()
    for step in (1, 2, 3):
        script.mark(step).create(f"tmp{step}").write(f"tmp{step}", b"x").close(f"tmp{step}")
        script.rename(f"tmp{step}", "last.pt")
    assert names(script) == ["save-1", "save-2", "save-3"]


def test_a_folder_overwritten_after_every_step_is_many_saves():
    script = Script().mark(1).mkdir("state")
    for step in (1, 2, 3):
        script.mark(step)
        for name in ("model.bin", "optimizer.bin"):
            script.add(
                Kind.CREATE if step == 1 else Kind.TRUNCATE,
                f"state/{name}",
                inode=script.inode(f"state/{name}"),
            )
            script.write(f"state/{name}", b"x").close(f"state/{name}")
    assert names(script) == ["save-1", "save-2", "save-3"]


def test_numbered_files_in_one_folder_are_many_saves():
    script = Script().mark(1).mkdir("checkpoints")
    for step in (1, 2, 3):
        script.mark(step).file_of(f"checkpoints/ck-step={step}.ckpt", b"x")
    assert names(script) == ["save-1", "save-2", "save-3"]


def test_a_save_in_the_background_goes_on_after_later_steps():
    script = (
        Script().mark(4).mkdir("checkpoint-4").create("checkpoint-4/a.bin").write("checkpoint-4/a.bin", b"1")
    )
    script.mark(5).write("checkpoint-4/a.bin", b"2").close("checkpoint-4/a.bin")
    script.mark(6).file_of("checkpoint-4/.metadata", b"m").mark(7)
    windows = save_windows(script.recording())
    assert [(window.name, window.step, window.last_step) for window in windows] == [("save-4", 4, 6)]


def test_background_saves_after_every_step_are_kept_apart():
    script = Script()
    for step in range(1, 5):
        script.mark(step)
        if step > 1:
            script.file_of(f"step-{step - 1}/b.pt", b"b").file_of(f"step-{step - 1}/.metadata", b"m")
        script.mkdir(f"step-{step}").file_of(f"step-{step}/a.pt", b"a")
    windows = save_windows(script.recording())
    assert [window.name for window in windows] == ["save-1", "save-2", "save-3", "save-4"]
    assert {operation for window in windows for operation in window.operations} == {
        operation.index for operation in script.operations if operation.kind is not Kind.MARK
    }
    assert all(script.operations[at].path.startswith("/out/step-2") for at in windows[1].operations)


def test_removing_old_checkpoints_belongs_to_the_save_that_does_it():
    script = Script().mark(1).mkdir("step-1").file_of("step-1/a.pt", b"1")
    script.mark(2).mkdir("step-2").file_of("step-2/a.pt", b"2").unlink("step-1/a.pt").rmdir("step-1")
    windows = save_windows(script.recording())
    assert [len(window.operations) for window in windows] == [4, 6]


def test_what_is_staged_elsewhere_and_moved_in_belongs_to_the_save():
    script = Script().mark(1).file_of("/tmp/x1", b"1").rename("/tmp/x1", "a.pt").file_of("/tmp/other", b"no")
    window = save_windows(script.recording())[0]
    assert window.operations == (1, 2, 3, 4)
    assert {holds(state, "a.pt") for state in states_of(script, "power-ext4").states} == {
        None,
        b"",
        b"1",
        b"\0",
    }


def test_a_staged_folder_belongs_to_the_save_with_all_that_is_in_it():
    script = Script().mark(1).mkdir("/tmp/s").file_of("/tmp/s/a.pt", b"1").rename("/tmp/s", "step-1")
    assert save_windows(script.recording())[0].operations == (1, 2, 3, 4, 5)
    assert holds(states_of(script, "kill").states[-1], "step-1/a.pt") == b"1"


def test_a_rank_that_runs_ahead_saves_after_its_own_step():
    script = Script().mark(1, 0).mark(1, 1).mark(2, 1)
    script.rank = 0
    script.file_of("a.pt", b"1")
    script.rank = 1
    script.file_of("b.pt", b"1")
    assert names(script) == ["save-1", "save-2"]


def test_failed_operations_and_bare_opens_are_no_save():
    script = Script().mark(1).open("a.pt").close("a.pt").add(Kind.CREATE, "b.pt", errno=28)
    assert not save_windows(script.recording())
    assert empty().digest() == empty().digest()


def test_without_marks_everything_is_one_save():
    assert names(Script().file_of("a.pt", b"1").file_of("b.pt", b"1")) == ["save-0"]
