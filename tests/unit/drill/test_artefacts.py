"""Tensor content is compared, whatever else is in a file."""

import io
import json
import struct
import zipfile

import pytest

from samestep.drill.artefacts import differing_artefacts, file_content, tensor_content


def torch_archive(path, storages, root="archive", when=(2026, 1, 1, 0, 0, 0)):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(zipfile.ZipInfo(f"{root}/data.pkl", when), b"pickled")
        for number, content in enumerate(storages):
            archive.writestr(zipfile.ZipInfo(f"{root}/data/{number}", when), content)


def safetensors(path, content, note="x"):
    header = json.dumps(
        {
            "__metadata__": {"note": note},
            "w": {"dtype": "U8", "shape": [len(content)], "data_offsets": [0, len(content)]},
        }
    )
    path.write_bytes(struct.pack("<Q", len(header)) + header.encode() + content)


def test_names_and_clocks_of_an_archive_do_not_count(tmp_path):
    torch_archive(tmp_path / "a", [b"one", b"two"])
    torch_archive(tmp_path / "b", [b"two", b"one"], root="other", when=(2027, 2, 2, 0, 0, 0))
    assert file_content(tmp_path / "a") == file_content(tmp_path / "b")


def test_a_changed_storage_counts(tmp_path):
    torch_archive(tmp_path / "a", [b"one", b"two"])
    torch_archive(tmp_path / "b", [b"one", b"twq"])
    assert file_content(tmp_path / "a") != file_content(tmp_path / "b")


def test_only_the_data_of_safetensors_counts(tmp_path):
    safetensors(tmp_path / "a", b"12345678", note="first")
    safetensors(tmp_path / "b", b"12345678", note="second")
    safetensors(tmp_path / "c", b"12345679", note="first")
    assert file_content(tmp_path / "a") == file_content(tmp_path / "b") != file_content(tmp_path / "c")


@pytest.mark.parametrize(
    "content", [b"", b"text", b"\x00" * 20, b"PK\x03\x04broken", struct.pack("<Q", 2**60) + b"{"]
)
def test_what_holds_no_tensors_has_no_content(tmp_path, content):
    (tmp_path / "a").write_bytes(content)
    assert file_content(tmp_path / "a") is None


def test_plain_archives_are_no_tensor_files(tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("notes.txt", "hello")
    (tmp_path / "a.zip").write_bytes(buffer.getvalue())
    assert tensor_content(tmp_path) == {}


@pytest.fixture
def folders(tmp_path):
    made = [tmp_path / name for name in ("control", "other", "resumed")]
    for folder in made:
        folder.mkdir()
        safetensors(folder / "model.safetensors", b"12345678")
        (folder / "best.json").write_text('{"best": 1}')
        (folder / "train.log").write_text("line")
        (folder / "clock.json").write_text(f'{{"folder": "{folder.name}"}}')
    return made


def is_log(path):
    return path.endswith(".log")


def test_equal_folders_do_not_differ(folders):
    assert differing_artefacts(*folders, is_log) == []


def test_a_best_metric_file_that_differs_is_named(folders):
    (folders[2] / "best.json").write_text('{"best": 2}')
    assert differing_artefacts(*folders, is_log) == ["best.json"]


def test_a_missing_file_is_named(folders):
    (folders[2] / "model.safetensors").unlink()
    assert differing_artefacts(*folders, is_log) == ["model.safetensors"]


def test_what_differs_between_the_controls_is_never_judged(folders):
    (folders[2] / "clock.json").write_text("anything")
    assert differing_artefacts(*folders, is_log) == []


def test_logs_are_never_judged(folders):
    (folders[2] / "train.log").write_text("twice")
    assert differing_artefacts(*folders, is_log) == []
