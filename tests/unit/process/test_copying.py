import errno
import os
import stat
from pathlib import Path

import pytest

from samestep.errors import MachineError
from samestep.process.copying import copy_tree, explained, fingerprint, remove_tree, tree_digest

DAY_NS = 86_400 * 10**9


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    (folder / "deep" / "empty").mkdir(parents=True)
    (folder / "deep" / "weights.bin").write_bytes(os.urandom(9 << 20))
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o750)
    (folder / "latest").symlink_to("deep")
    (folder / "nowhere").symlink_to("/does/not/exist")
    for path in (folder / "run.sh", folder / "deep" / "weights.bin", folder / "deep"):
        os.utime(path, ns=(5 * DAY_NS + 1, 7 * DAY_NS + 123))
    return folder


def test_a_copy_has_the_same_digest_modes_times_and_links(source, tmp_path):
    copy_tree(source, tmp_path / "copy")
    assert tree_digest(tmp_path / "copy") == tree_digest(source)
    for name in ("run.sh", "deep/weights.bin", "deep"):
        before, after = (source / name).stat(), (tmp_path / "copy" / name).stat()
        assert (after.st_mode, after.st_mtime_ns) == (before.st_mode, before.st_mtime_ns)
        assert after.st_ino != before.st_ino
    assert (tmp_path / "copy" / "latest").readlink() == Path("deep")
    assert (tmp_path / "copy" / "nowhere").readlink() == Path("/does/not/exist")


def test_writing_to_a_copy_leaves_the_source_alone(source, tmp_path):
    before = tree_digest(source)
    copy_tree(source, tmp_path / "copy")
    with (tmp_path / "copy" / "deep" / "weights.bin").open("r+b") as file:
        file.write(b"spoilt")
    assert tree_digest(source) == before != tree_digest(tmp_path / "copy")


def test_holes_stay_holes_and_data_between_them_arrives(tmp_path):
    (tmp_path / "source").mkdir()
    with (tmp_path / "source" / "sparse").open("wb") as file:
        file.seek(40 << 20)
        file.write(b"middle")
        file.truncate(100 << 20)
    copy_tree(tmp_path / "source", tmp_path / "copy")
    status = (tmp_path / "copy" / "sparse").stat()
    assert status.st_size == 100 << 20
    assert status.st_blocks * 512 < 1 << 20
    assert tree_digest(tmp_path / "copy") == tree_digest(tmp_path / "source")


def test_hard_links_among_the_files_are_kept_but_none_leads_to_the_source(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "step-4.pt").write_bytes(b"state")
    (source / "last.pt").hardlink_to(source / "step-4.pt")
    copy_tree(source, tmp_path / "copy")
    first, second = (tmp_path / "copy" / "step-4.pt").stat(), (tmp_path / "copy" / "last.pt").stat()
    assert first.st_ino == second.st_ino
    assert first.st_nlink == 2
    assert (source / "last.pt").stat().st_nlink == 2


def test_sockets_and_pipes_are_left_out(tmp_path):
    (tmp_path / "source").mkdir()
    os.mkfifo(tmp_path / "source" / "pipe")
    copy_tree(tmp_path / "source", tmp_path / "copy")
    assert list((tmp_path / "copy").iterdir()) == []


def test_a_missing_source_is_explained(tmp_path):
    with pytest.raises(MachineError, match=r"nothing-here.*No such file"):
        copy_tree(tmp_path / "nothing-here", tmp_path / "copy")


def test_a_full_disk_is_explained_with_what_to_do():
    with pytest.raises(MachineError, match="x: No space left") as caught, explained("x"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert "free some space" in caught.value.hint


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_device_that_is_really_full_gives_that_error(tmp_path):
    from samestep.process.copying import _copy_extents

    (tmp_path / "data").write_bytes(b"x" * 4096)
    with (
        pytest.raises(MachineError, match="No space left"),
        explained("copy"),
        (tmp_path / "data").open("rb") as reader,
        Path("/dev/full").open("wb") as writer,
    ):
        _copy_extents(reader.fileno(), writer.fileno())


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda folder: (folder / "run.sh").write_text("changed"), id="contents"),
        pytest.param(lambda folder: (folder / "run.sh").rename(folder / "walk.sh"), id="name"),
        pytest.param(lambda folder: (folder / "run.sh").chmod(0o700), id="permissions"),
        pytest.param(lambda folder: (folder / "deep" / "empty").rmdir(), id="empty-folder-gone"),
        pytest.param(lambda folder: (folder / "latest").unlink(), id="link-gone"),
        pytest.param(lambda folder: (folder / "latest").rename(folder / "nowhere"), id="link-target"),
        pytest.param(lambda folder: (folder / "new").touch(), id="empty-file-added"),
    ],
)
def test_the_digest_of_a_tree_sees_every_kind_of_change(source, change):
    before = tree_digest(source)
    change(source)
    assert tree_digest(source) != before


def test_the_digest_of_a_tree_ignores_times_and_place(source, tmp_path):
    before = tree_digest(source)
    os.utime(source / "run.sh", ns=(DAY_NS, DAY_NS))
    source.rename(tmp_path / "elsewhere")
    assert tree_digest(tmp_path / "elsewhere") == before
    assert before.startswith("xxh3-128:")


def test_moving_bytes_between_neighbouring_files_changes_the_digest(tmp_path):
    for name, (first, second) in {"a": ("xy", "z"), "b": ("x", "yz")}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "1").write_text(first)
        (tmp_path / name / "2").write_text(second)
    assert tree_digest(tmp_path / "a") != tree_digest(tmp_path / "b")


def test_a_fingerprint_names_what_was_written_even_with_the_old_time(source):
    before = fingerprint(source)
    weights = source / "deep" / "weights.bin"
    status = weights.stat()
    with weights.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))
    os.utime(weights, ns=(status.st_atime_ns, status.st_mtime_ns))
    after = fingerprint(source)
    assert [name for name in after if after[name] != before[name]] == [str(weights)]


def test_folders_without_write_permission_are_removed_too(tmp_path):
    (tmp_path / "machine" / "locked").mkdir(parents=True)
    (tmp_path / "machine" / "locked" / "file").touch()
    (tmp_path / "machine" / "locked").chmod(stat.S_IRUSR | stat.S_IXUSR)
    remove_tree(tmp_path / "machine")
    assert not (tmp_path / "machine").exists()


def test_removing_a_link_leaves_its_target(tmp_path):
    (tmp_path / "target").mkdir()
    (tmp_path / "link").symlink_to("target")
    remove_tree(tmp_path / "link")
    remove_tree(tmp_path / "link")
    assert (tmp_path / "target").exists()
