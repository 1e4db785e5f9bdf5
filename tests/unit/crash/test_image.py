"""Images: contents put together from pieces, trees, digests, differences, and writing them to disk."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from crash_scripts import Script, carry_out, empty
from samestep.crash.contents import CHUNK_BYTES, Content, Piece, zeros
from samestep.crash.image import Image
from samestep.crash.materialise import materialise
from samestep.crash.operations import Kind
from samestep.crash.replay import apply, differences, replay
from samestep.errors import MachineError
from samestep.process.copying import tree_digest


class Letters:
    """A source of bytes."""

    def __init__(self, data):
        self.data = data

    def read(self, at, size):
        return self.data[at : at + size]


def letters(text):
    return Piece(Letters(text), 0, len(text))


def test_a_write_past_the_end_leaves_zeros_between():
    assert Content().written(0, letters(b"ab")).written(4, letters(b"cd")).read() == b"ab\0\0cd"


def test_a_write_in_the_middle_keeps_both_ends():
    assert Content().written(0, letters(b"abcdef")).written(2, letters(b"XY")).read() == b"abXYef"


def test_ranges_are_taken_out_and_put_in():
    content = Content().written(0, letters(b"abcdef"))
    assert content.without(1, 2).read() == b"adef"
    assert content.widened(2, 3).read() == b"ab\0\0\0cdef"
    assert content.truncated(2).truncated(3).read() == b"ab\0"
    assert content.until(4, Content().written(0, letters(b"UVWXYZ!"))).read() == b"abcdYZ!"


def test_appends_from_one_source_stay_one_piece():
    source = Letters(b"abcd")
    content = Content().written(0, Piece(source, 0, 2)).written(2, Piece(source, 2, 2))
    assert content.pieces == (Piece(source, 0, 4),)


def test_equal_bytes_have_equal_digests_however_they_are_cut():
    data = os.urandom(CHUNK_BYTES + 5000)
    parts = Content()
    for at in range(0, len(data), 77_777):
        parts = parts.written(at, letters(data[at : at + 77_777]))
    assert parts.digest == Content().written(0, letters(data)).digest
    assert Content.of([zeros(10)]).digest == Content().written(0, letters(bytes(10))).digest
    assert Content.of([zeros(10)]).digest != Content.of([zeros(11)]).digest


def furnish(folder):
    """A folder with everything that can be in one."""
    (folder / "empty").mkdir(parents=True)
    (folder / "with space" / "ünï\ncode").mkdir(parents=True)
    (folder / "with space" / "ünï\ncode" / "a.pt").write_bytes(os.urandom(70_000))
    (folder / "zero").write_bytes(b"")
    os.link(folder / "with space" / "ünï\ncode" / "a.pt", folder / "twin.pt")
    (folder / "latest").symlink_to("with space")
    (folder / "dangling").symlink_to("nowhere/at all")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o750)
    (folder / os.fsdecode(b"bad-\xff")).write_bytes(b"bytes")
    (folder / "read-only").mkdir()
    (folder / "read-only" / "f").write_bytes(b"x")
    (folder / "read-only").chmod(0o555)


def test_a_loaded_folder_is_written_as_it_was(tmp_path):
    furnish(tmp_path / "a")
    image = Image.load(tmp_path / "a")
    materialise(image, tmp_path / "b")
    assert tree_digest(tmp_path / "b") == tree_digest(tmp_path / "a")
    assert not differences(image, tmp_path / "b")
    assert (tmp_path / "b" / "twin.pt").stat().st_nlink == 1
    assert (tmp_path / "b" / "zero").stat().st_mtime_ns == (tmp_path / "a" / "zero").stat().st_mtime_ns


def test_a_cache_changes_nothing(tmp_path):
    furnish(tmp_path / "a")
    materialise(Image.load(tmp_path / "a"), tmp_path / "b", cache=tmp_path / "cache")
    assert tree_digest(tmp_path / "b") == tree_digest(tmp_path / "a")


def test_many_threads_share_one_cache(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "model.pt").write_bytes(bytes(100))
    image = Image.load(tmp_path / "a")
    with ThreadPoolExecutor(8) as pool:
        jobs = [
            pool.submit(materialise, image, tmp_path / f"b{job}", cache=tmp_path / "cache")
            for job in range(500)
        ]
        assert [job.exception() for job in jobs if job.exception()] == []


def test_a_state_is_not_written_over_another(tmp_path):
    (tmp_path / "x").write_bytes(b"")
    with pytest.raises(MachineError):
        materialise(empty(), tmp_path)


def test_changing_what_was_written_leaves_the_image_alone(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "f").write_bytes(bytes(200_000))
    image = Image.load(tmp_path / "a")
    materialise(image, tmp_path / "b")
    (tmp_path / "b" / "f").write_bytes(b"changed")
    assert image.file("f").read() == bytes(200_000)


def test_links_into_the_output_folder_lead_into_the_written_one(tmp_path):
    script = Script().mark(1).mkdir("step-1").symlink("latest", "/out/step-1").symlink("other", "/outside")
    materialise(replay(script.recording(), empty()), tmp_path / "b")
    assert str((tmp_path / "b" / "latest").readlink()) == str(tmp_path / "b" / "step-1")
    assert str((tmp_path / "b" / "other").readlink()) == "/outside"


def test_modification_times_follow_the_operations(tmp_path):
    script = (
        Script().mark(1).file_of("b", b"1").file_of("a", b"1").file_of("c", b"1").open("b").write("b", b"2")
    )
    materialise(replay(script.recording(), empty()), tmp_path / "x")
    assert sorted("abc", key=lambda name: (tmp_path / "x" / name).stat().st_mtime_ns) == ["a", "c", "b"]


def test_new_files_are_newer_than_what_was_there_before(tmp_path):
    (tmp_path / "old").write_bytes(b"")
    script = Script(str(tmp_path)).mark(1).file_of("new", b"1")
    materialise(replay(script.recording(), Image.load(tmp_path)), tmp_path / "x")
    assert (tmp_path / "x" / "new").stat().st_mtime_ns > (tmp_path / "x" / "old").stat().st_mtime_ns


def test_a_complete_recording_shows_no_difference_and_an_incomplete_one_names_the_file(tmp_path):
    script = Script().mark(1).mkdir("d").file_of("d/a", b"one").file_of("d/b", b"two").symlink("l", "d/a")
    recording = script.recording()
    carry_out(recording, tmp_path, recording.operations)
    image = replay(recording, empty())
    assert not differences(image, tmp_path)
    (tmp_path / "d" / "a").write_bytes(b"ONE")
    (tmp_path / "d" / "b").unlink()
    (tmp_path / "e").write_bytes(b"")
    (tmp_path / "l").unlink()
    (tmp_path / "l").mkdir()
    assert differences(image, tmp_path) == [
        "d/a: bytes differ (3 in all)",
        "d/b: recorded, but not on disk",
        "e: on disk, but not recorded",
        "l: recorded as a symbolic link, on disk a folder",
    ]


def test_images_do_not_change_when_others_are_made_from_them():
    script = Script().mark(1).file_of("a", b"1")
    before = empty()
    after = apply(before, script.operations[1], script.recording())
    assert (before.file("a"), after.file("a").read()) == (None, b"")


def test_folders_that_nobody_was_seen_making_are_there():
    script = Script().mark(1).file_of("deep/down/a", b"1")
    assert replay(script.recording(), empty()).file("deep/down/a").read() == b"1"


def test_a_file_from_elsewhere_arrives_with_its_imported_content():
    script = Script().mark(1).rename("/tmp/unseen", "a.pt").stored("a.pt", b"content")
    assert replay(script.recording(), empty()).file("a.pt").read() == b"content"


def test_stores_through_a_mapping_replace_the_content():
    script = (
        Script().mark(1).create("m").truncate("m", 8).add(Kind.MAP, "m", inode=1).stored("m", b"12345678")
    )
    assert replay(script.recording(), empty()).file("m").read() == b"12345678"


def test_a_digest_tells_names_kinds_and_contents_but_not_times(tmp_path):
    one = replay(Script().mark(1).file_of("a", b"1").file_of("b", b"2").recording(), empty())
    two = replay(Script().mark(1).file_of("b", b"2").file_of("a", b"1").recording(), empty())
    three = replay(Script().mark(1).file_of("a", b"2").file_of("b", b"1").recording(), empty())
    assert one.digest() == two.digest() != three.digest()
    assert one.digest("a") == three.digest("b") != one.digest("b")
    assert one.digest("missing") == "absent"
