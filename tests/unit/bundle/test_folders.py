"""A checkpoint on disk is looked at before it is sealed, and again afterwards."""

from __future__ import annotations

import os

import pytest

from forging import Forge
from samestep.bundle.errors import CommitRefused
from samestep.bundle.folders import look_at
from samestep.errors import CheckpointError, UsageError


@pytest.fixture
def forge():
    return Forge()


@pytest.fixture
def trained(forge, tmp_path):
    return forge.trainer_checkpoint(tmp_path / "checkpoint-240", 240)


def test_a_folder_is_known_by_name_step_and_files(trained):
    (trained / "README.md").write_text("a card")
    (trained / "global").mkdir()
    (trained / "global" / "note.txt").write_text("x")
    found = look_at(trained)
    assert (found.name, found.step, found.root) == ("checkpoint-240", 240, trained)
    assert {"model.safetensors", "README.md", "global/note.txt"} <= set(found.files)


def test_the_only_checkpoint_in_an_output_folder_is_meant(trained):
    assert look_at(trained.parent).root == trained


def test_a_link_to_a_folder_means_the_folder(trained):
    (trained.parent / "latest").symlink_to("checkpoint-240")
    assert look_at(trained.parent / "latest").name == "checkpoint-240"


def test_of_several_checkpoints_one_must_be_named(forge, trained):
    forge.trainer_checkpoint(trained.parent / "checkpoint-480", 480)
    with pytest.raises(UsageError, match="2 checkpoints: checkpoint-240, checkpoint-480"):
        look_at(trained.parent)


def test_a_file_beside_others_has_no_folder_of_its_own(forge, tmp_path):
    forge.torch_file(tmp_path / "out" / "a.pt", forge.checkpoint(4))
    forge.torch_file(tmp_path / "out" / "b.pt", forge.checkpoint(8))
    found = look_at(tmp_path / "out" / "b.pt")
    assert (found.name, found.step, list(found.files)) == ("", 8, ["b.pt"])


def test_a_step_folder_with_one_file_keeps_its_name(forge, tmp_path):
    forge.torch_file(tmp_path / "step-4" / "ckpt.pt", forge.checkpoint(4))
    assert look_at(tmp_path / "step-4").name == "step-4"


def test_the_step_must_be_said_where_the_files_do_not(forge, tmp_path):
    value = forge.checkpoint(4)
    del value["step"]
    path = forge.torch_file(tmp_path / "ckpt.pt", value)
    with pytest.raises(UsageError, match="nothing says how many steps"):
        look_at(path)
    assert look_at(path, step=7).step == 7


def test_a_step_that_contradicts_the_files_is_refused(trained):
    with pytest.raises(UsageError, match="holds step 240, and 300 was given"):
        look_at(trained, step=300)


def test_a_checkpoint_that_is_not_whole_is_refused_with_what_is_missing(trained):
    (trained / "optimizer.pt").unlink()
    with pytest.raises(CommitRefused, match=r"is not whole: .*optimizer.pt is missing"):
        look_at(trained)


def test_a_torn_file_is_refused(trained):
    with (trained / "optimizer.pt").open("r+b") as file:
        file.truncate(100)
    with pytest.raises(CommitRefused, match=r"is not whole: .*optimizer.pt"):
        look_at(trained)


def test_a_folder_without_a_checkpoint_is_named(tmp_path):
    with pytest.raises(CheckpointError, match="is not a checkpoint"):
        look_at(tmp_path)


@pytest.mark.parametrize("target", ["/etc/hostname", "model.safetensors", "nowhere"])
def test_a_symbolic_link_inside_is_refused_wherever_it_leads(trained, target):
    (trained / "vocab.json").symlink_to(target)
    with pytest.raises(CommitRefused, match=r"vocab.json is a symbolic link"):
        look_at(trained)


def test_a_linked_folder_inside_is_refused(trained, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (trained / "extra").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CommitRefused, match=r"extra is a symbolic link"):
        look_at(trained)


def test_a_pipe_inside_is_refused(trained):
    os.mkfifo(trained / "pipe")
    with pytest.raises(CommitRefused, match="no regular file"):
        look_at(trained)


def test_leftovers_of_a_write_are_left_out(trained):
    (trained / "model.safetensors.tmp").write_bytes(b"x")
    assert "model.safetensors.tmp" not in look_at(trained).files


def rewrite(folder):
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def replace(folder):
    path = folder / "model.safetensors"
    new = folder.parent / "new"
    new.write_bytes(path.read_bytes())
    os.utime(new, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    new.replace(path)


def rewrite_and_set_the_clock_back(folder):
    path = folder / "model.safetensors"
    before = path.stat()
    rewrite(folder)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize(
    "change",
    [
        rewrite,
        replace,
        rewrite_and_set_the_clock_back,
        lambda folder: (folder / "model.safetensors").unlink(),
        lambda folder: (folder / "more.json").write_text("{}"),
    ],
    ids=["rewritten", "replaced", "rewritten, clock set back", "removed", "added"],
)
def test_any_change_after_the_look_is_noticed(trained, change):
    found = look_at(trained)
    found.require_unchanged()
    change(trained)
    with pytest.raises(CommitRefused, match="was changed while"):
        found.require_unchanged()


def test_a_file_written_just_now_is_given_time_so_that_any_change_leaves_another_time_stamp(
    trained, monkeypatch
):
    waited = []
    monkeypatch.setattr("samestep.bundle.folders.time.sleep", waited.append)
    (trained / "model.safetensors").touch()
    look_at(trained)
    assert len(waited) == 1
    assert 0 < waited[0] <= 0.05
