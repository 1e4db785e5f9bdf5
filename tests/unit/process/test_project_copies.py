"""Copies of a project that serve again: only ones that nobody can tell from a fresh copy."""

import os

import pytest

from samestep.process.copying import tree_digest
from samestep.process.project_copies import ProjectCopies


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    (folder / "package").mkdir(parents=True)
    (folder / "train.py").write_text("print(1)\n")
    (folder / "package" / "model.py").write_text("SIZE = 4\n")
    (folder / "latest").symlink_to("train.py")
    return folder


@pytest.fixture
def copies(project, tmp_path):
    return ProjectCopies(project, tmp_path / "shelf")


def given(copies, tmp_path, name="first"):
    target = tmp_path / "machines" / name
    target.parent.mkdir(exist_ok=True)
    copies.give(target)
    return target


def used_again(copies, tmp_path, first):
    """Take a copy back and return the next one, and whether it is the same."""
    inode = first.stat().st_ino
    copies.take_back(first)
    second = given(copies, tmp_path, "second")
    return second, second.stat().st_ino == inode


def test_an_untouched_copy_goes_to_the_next_machine_and_is_gone_from_the_first(copies, project, tmp_path):
    first = given(copies, tmp_path)
    second, same = used_again(copies, tmp_path, first)
    assert same
    assert not first.exists()
    assert tree_digest(second) == tree_digest(project)


def test_what_was_added_is_removed(copies, project, tmp_path):
    first = given(copies, tmp_path)
    (first / "package" / "__pycache__").mkdir()
    (first / "package" / "__pycache__" / "model.pyc").write_bytes(b"code")
    (first / "side.pt").write_bytes(b"state")
    (first / ".venv").symlink_to(project)
    second, same = used_again(copies, tmp_path, first)
    assert same
    assert tree_digest(second) == tree_digest(project)
    assert (project / "train.py").exists()


def overwrite_with_the_old_times(file):
    before = file.stat()
    file.write_text("print(2)\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace_by_a_twin(file):
    twin = file.with_name("twin")
    twin.write_text(file.read_text())
    os.utime(twin, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns))
    twin.replace(file)


@pytest.mark.parametrize(
    "touch",
    [
        overwrite_with_the_old_times,
        replace_by_a_twin,
        lambda file: file.unlink(),
        lambda file: file.chmod(0o755),
        lambda file: file.with_name("other").hardlink_to(file),
        lambda file: file.rename(file.with_name("moved.py")),
        lambda file: file.parent.chmod(0o700),
        lambda file: (file.unlink(), file.symlink_to("../train.py")),
    ],
    ids=["overwritten", "replaced", "removed", "mode", "linked", "moved", "folder-mode", "made-a-link"],
)
def test_a_touched_copy_is_never_given_again(copies, project, tmp_path, touch):
    first = given(copies, tmp_path)
    touch(first / "package" / "model.py")
    second, same = used_again(copies, tmp_path, first)
    assert not same
    assert first.exists()
    assert tree_digest(second) == tree_digest(project)


def test_copies_in_use_are_not_shared(copies, tmp_path):
    first, second = given(copies, tmp_path), given(copies, tmp_path, "beside")
    assert first.stat().st_ino != second.stat().st_ino
    assert (first / "train.py").stat().st_ino != (second / "train.py").stat().st_ino
