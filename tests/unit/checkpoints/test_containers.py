"""Files are read by their headers, whatever their size, and damage is named."""

import json
import os
import pickle
import struct
import time
import zipfile

import pytest

from samestep.checkpoints.containers import read_file

HUNDRED_GIGABYTES = 100_000_000_000


def test_a_torch_archive_shows_its_keys_and_tensors(forge, tmp_path):
    facts = read_file(forge.torch_file(tmp_path / "c.pt", forge.checkpoint(6)))
    assert (facts.kind, facts.problem, facts.tensors) == ("torch-zip", "", 6)
    assert facts.mapping["step"] == 6
    assert facts.dangers == facts.foreign == ()


def test_a_torch_archive_without_the_data_of_a_tensor_is_not_whole(forge, tmp_path):
    path = forge.torch_file(tmp_path / "c.pt", forge.checkpoint(6))
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(tmp_path / "d.pt", "w") as other:
        for entry in archive.infolist():
            if entry.filename != "archive/data/1":
                other.writestr(entry.filename, archive.read(entry.filename))
    assert read_file(tmp_path / "d.pt").problem == "lacks the tensor data 1 that it refers to"


def test_a_torch_archive_with_too_little_data_for_a_tensor_is_not_whole(forge, tmp_path):
    path = forge.torch_file(tmp_path / "c.pt", {"w": forge.Tensor(2, 2)})
    with zipfile.ZipFile(path) as archive:
        parts = {entry: archive.read(entry) for entry in archive.namelist()}
    parts["archive/data/0"] = parts["archive/data/0"][:8]
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    assert read_file(path).problem == "has 8 of the 16 bytes of tensor data 0"


def test_every_way_of_cutting_off_a_torch_archive_is_noticed(forge, tmp_path):
    whole = forge.torch_file(tmp_path / "c.pt", forge.checkpoint(6)).read_bytes()
    cut = tmp_path / "cut.pt"
    for keep in range(0, len(whole), 997):
        cut.write_bytes(whole[:keep])
        assert read_file(cut).problem, f"{keep} of {len(whole)} bytes"


def test_the_format_before_zip_is_read_and_its_length_checked(forge, tmp_path):
    path = tmp_path / "old.pt"
    parts = [pickle.dumps(part, 2) for part in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})]
    pickled = b"".join([*parts, forge.pickled({"step": 6, "w": forge.Tensor(2, 2)}), pickle.dumps(["0"], 2)])
    data = pickled + struct.pack("<q", 4) + b"\0" * 16
    path.write_bytes(data)
    facts = read_file(path)
    assert (facts.kind, facts.problem, facts.mapping["step"], facts.tensors) == ("torch-legacy", "", 6, 1)
    path.write_bytes(data[:-1])
    assert read_file(path).problem == f"has {len(data) - 1} bytes, its tensors need {len(data)}"


def test_safetensors_must_be_exactly_as_long_as_their_header_says(forge, tmp_path):
    path = forge.safetensors(tmp_path / "m.safetensors", "a.weight", "a.bias")
    whole = path.read_bytes()
    assert (read_file(path).problem, read_file(path).tensors) == ("", 2)
    for data in (whole[:-1], whole + b"\0"):
        path.write_bytes(data)
        assert read_file(path).problem == f"has {len(data)} bytes, its header describes {len(whole)}"


@pytest.mark.parametrize(
    "data", [b"\1", struct.pack("<Q", 1 << 60), struct.pack("<Q", 4) + b"nope", struct.pack("<Q", 2) + b"[]"]
)
def test_a_safetensors_header_that_cannot_be_read_is_a_problem(tmp_path, data):
    path = tmp_path / "m.safetensors"
    path.write_bytes(data)
    assert read_file(path).problem


@pytest.mark.parametrize("offsets", [[], [0], [0, "8"], [8, 0], [-8, 0], [0, 1e400], None])
def test_safetensors_offsets_that_make_no_sense_are_a_problem(tmp_path, offsets):
    text = json.dumps({"a.weight": {"dtype": "F32", "shape": [2], "data_offsets": offsets}}).encode()
    path = tmp_path / "m.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"\0" * 8)
    assert read_file(path).problem == "has a header that does not say where its tensors lie"


def test_empty_and_unreadable_files_are_problems(tmp_path):
    (tmp_path / "a.pt").touch()
    (tmp_path / "b.pt").write_bytes(b"hello world")
    (tmp_path / "c.json").write_text('{"step": ')
    assert read_file(tmp_path / "a.pt").problem == "is empty"
    assert read_file(tmp_path / "b.pt").problem == "does not begin like any checkpoint format"
    assert read_file(tmp_path / "c.json").problem.startswith("is not whole JSON")
    assert read_file(tmp_path / "d.pt").problem == "cannot be read (No such file or directory)"


def test_text_of_a_pointer_is_read(tmp_path):
    (tmp_path / "latest").write_text("global_step40\n")
    assert read_file(tmp_path / "latest").value == "global_step40"


def sparse_safetensors(path):
    entry = {"dtype": "U8", "shape": [HUNDRED_GIGABYTES], "data_offsets": [0, HUNDRED_GIGABYTES]}
    text = json.dumps({"big.weight": entry}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    os.truncate(path, 8 + len(text) + HUNDRED_GIGABYTES)


def sparse_archive(path, forge):
    tensor = forge.Tensor(HUNDRED_GIGABYTES, kind="ByteStorage")
    tensor.key = "0"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", forge.pickled({"model": {"big.weight": tensor}, "step": 9}))
        part = zipfile.ZipInfo("archive/data/0")
        part.file_size = part.compress_size = HUNDRED_GIGABYTES
        part.CRC, part.header_offset = 0, archive.fp.tell()
        archive.fp.write(part.FileHeader(zip64=True))
        archive.fp.seek(HUNDRED_GIGABYTES, 1)
        archive.filelist.append(part)
        archive.start_dir = archive.fp.tell()


def sparse_legacy(path, forge):
    tensor = forge.Tensor(HUNDRED_GIGABYTES, kind="ByteStorage")
    parts = [pickle.dumps(part, 2) for part in (0x1950A86A20F9469CFC6C, 1001, {})]
    pickled = b"".join([*parts, forge.pickled({"step": 9, "big.weight": tensor}), pickle.dumps(["0"], 2)])
    path.write_bytes(pickled)
    os.truncate(path, len(pickled) + 8 + HUNDRED_GIGABYTES)


def test_a_file_of_100_gb_answers_in_well_under_a_second(forge, tmp_path):
    sparse_safetensors(tmp_path / "m.safetensors")
    sparse_archive(tmp_path / "new.pt", forge)
    sparse_legacy(tmp_path / "old.pt", forge)
    for name in ("m.safetensors", "new.pt", "old.pt"):
        begun = time.perf_counter()
        facts = read_file(tmp_path / name)
        assert time.perf_counter() - begun < 0.5
        assert facts.size_bytes > HUNDRED_GIGABYTES
        assert (facts.problem, facts.tensors) == ("", 1)
