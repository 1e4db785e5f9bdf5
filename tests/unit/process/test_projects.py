import os
import subprocess
from pathlib import Path

import pytest

from samestep.errors import MachineError
from samestep.process.projects import copy_project, left_behind, project_files


def git(project, *arguments):
    identity = ["-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", *identity, *arguments], cwd=project, check=True, capture_output=True)


def write(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    write(
        folder,
        "train.py",
        "src/model.py",
        "notes.txt",
        "data/images.bin",
        ".venv/bin/python",
        ".samestep/latest",
    )
    (folder / ".gitignore").write_text("data/\n.venv/\n")
    return folder


@pytest.fixture
def repository(project):
    git(project, "init", "-q")
    git(project, "add", "train.py", "src", ".gitignore")
    git(project, "commit", "-qm", "first")
    return project


def names(files):
    return [str(file) for file in files]


def test_git_decides_tracked_and_new_files_but_nothing_ignored(repository):
    assert names(project_files(repository)) == [".gitignore", "notes.txt", "src/model.py", "train.py"]


def test_a_tracked_file_that_was_deleted_does_not_matter(repository):
    (repository / "src" / "model.py").unlink()
    assert "src/model.py" not in names(project_files(repository))


def test_unusual_names_survive(repository):
    write(repository, "sub dir/ünïcode\nname.py")
    assert "sub dir/ünïcode\nname.py" in names(project_files(repository))


def test_a_folder_inside_a_repository_is_a_project_of_its_own(repository):
    assert names(project_files(repository / "src")) == ["model.py"]


def test_submodules_and_nested_repositories_go_along(repository, tmp_path):
    library = tmp_path / "library"
    write(library, "layers.py")
    git(library, "init", "-q")
    git(library, "add", ".")
    git(library, "commit", "-qm", "first")
    git(repository, "submodule", "add", "-q", str(library), "vendored")
    write(repository, "nested/inner.py")
    git(repository / "nested", "init", "-q")
    assert {"vendored/layers.py", "nested/inner.py"} <= set(names(project_files(repository)))


def test_without_git_everything_goes_along_but_environments_and_caches(project):
    write(project, "__pycache__/x.pyc", "env/pyvenv.cfg", "env/lib/site.py")
    assert names(project_files(project)) == [
        ".gitignore",
        "data/images.bin",
        "notes.txt",
        "src/model.py",
        "train.py",
    ]


def test_a_configured_list_replaces_what_git_says(repository):
    assert names(project_files(repository, ["*.py", "data"])) == ["data/images.bin", "train.py"]


def test_a_pattern_that_matches_nothing_is_an_error(repository):
    with pytest.raises(MachineError, match=r"matches '\*\.yaml'"):
        project_files(repository, ["*.yaml"])


def test_what_machines_lack_is_known(repository):
    assert left_behind(repository) == ["data/"]


def test_a_copy_leaves_out_what_it_is_told_to(repository, tmp_path):
    (tmp_path / "copy").mkdir()
    copy_project(repository, tmp_path / "copy", without=[Path("src")])
    assert names(project_files(tmp_path / "copy")) == [".gitignore", "notes.txt", "train.py"]


def test_links_inside_stay_relative_and_links_outside_keep_their_target(repository, tmp_path):
    write(tmp_path, "shared/tokens.bin")
    (repository / "tokens").symlink_to("../shared")
    (repository / "model.py").symlink_to("src/model.py")
    (tmp_path / "far" / "away").mkdir(parents=True)
    copy_project(repository, tmp_path / "far" / "away")
    assert (tmp_path / "far" / "away" / "model.py").readlink() == Path("src/model.py")
    assert (tmp_path / "far" / "away" / "tokens" / "tokens.bin").read_text() == "shared/tokens.bin"


def test_a_project_too_large_to_copy_names_its_largest_folders(repository, tmp_path):
    write(repository, "corpus/part-1/a.bin", "corpus/part-1/b.bin")
    for name in ("a", "b"):
        os.truncate(repository / "corpus" / "part-1" / f"{name}.bin", 3 << 30)
    (tmp_path / "copy").mkdir()
    with pytest.raises(MachineError, match=r"copy of 6\.0 GiB .* corpus/part-1 \(6\.0 GiB\)") as caught:
        copy_project(repository, tmp_path / "copy")
    assert "inputs = " in caught.value.hint
    assert list((tmp_path / "copy").iterdir()) == []
    copy_project(repository, tmp_path / "copy", without=[Path("corpus")])
