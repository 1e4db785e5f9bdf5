"""Edits change a copied disk state exactly as they say."""

import pytest

from samestep.drill.scenario import Edit, EditKind


@pytest.fixture
def root(tmp_path):
    (tmp_path / "checkpoint-6").mkdir()
    (tmp_path / "checkpoint-6" / "model.bin").write_bytes(bytes(range(100)))
    return tmp_path


def test_a_file_is_removed(root):
    Edit(EditKind.REMOVE, "checkpoint-6/model.bin").apply(root)
    assert list((root / "checkpoint-6").iterdir()) == []


def test_a_folder_is_removed(root):
    Edit(EditKind.REMOVE, "checkpoint-6").apply(root)
    assert list(root.iterdir()) == []


def test_half_of_a_file_stays_when_truncated(root):
    Edit(EditKind.TRUNCATE, "checkpoint-6/model.bin").apply(root)
    assert (root / "checkpoint-6/model.bin").read_bytes() == bytes(range(50))


def test_exactly_one_byte_is_flipped(root):
    Edit(EditKind.FLIP, "checkpoint-6/model.bin").apply(root)
    changed = (root / "checkpoint-6/model.bin").read_bytes()
    assert [i for i, (a, b) in enumerate(zip(changed, range(100), strict=True)) if a != b] == [50]


def test_flipping_an_empty_file_changes_nothing(root):
    (root / "empty").touch()
    Edit(EditKind.FLIP, "empty").apply(root)
    assert (root / "empty").read_bytes() == b""


def test_a_copy_can_be_made_to_look_older(root):
    Edit(EditKind.COPY, "checkpoint-6", "checkpoint-96", older=True).apply(root)
    original, copy = root / "checkpoint-6/model.bin", root / "checkpoint-96/model.bin"
    assert copy.read_bytes() == original.read_bytes()
    assert copy.stat().st_mtime < original.stat().st_mtime - 1000
