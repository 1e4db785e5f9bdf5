"""What the probe notices under the durable folder: changes by stat, reads by audit events."""

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from samestep.probe.durable import DurableWatch


@pytest.fixture
def out(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def installed(folder):
    watch = DurableWatch(str(folder))
    watch.install()
    return watch


def test_written_created_and_removed_files_are_changes_once(out):
    (out / "kept.txt").write_text("a")
    (out / "gone.txt").write_text("a")
    watch = installed(out)
    assert watch.changes() == []

    (out / "gone.txt").unlink()
    (out / "sub" / "deep").mkdir(parents=True)
    (out / "sub" / "deep" / "new.pt").write_bytes(b"1")

    assert watch.changes() == ["gone.txt", "sub/deep/new.pt"]
    assert watch.changes() == []

    (out / "kept.txt").write_text("longer")
    assert watch.changes() == ["kept.txt"]


def test_a_file_replaced_by_one_of_the_same_size_and_time_is_a_change(out):
    old = out / "model.pt"
    old.write_bytes(b"aaaa")
    facts = old.stat()
    watch = installed(out)

    new = out / ".model.pt.tmp"
    new.write_bytes(b"bbbb")
    os.utime(new, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    new.replace(old)

    assert watch.changes() == ["model.pt"]


def test_links_are_seen_and_not_followed(out, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").write_text("a")
    watch = installed(out)

    (out / "last").symlink_to(elsewhere)

    assert watch.changes() == ["last"]


def test_a_folder_that_comes_into_being_later_is_watched(tmp_path):
    watch = installed(tmp_path / "later")
    assert watch.changes() == []

    (tmp_path / "later").mkdir()
    (tmp_path / "later" / "a").write_text("1")

    assert watch.changes() == ["a"]


def test_without_a_folder_nothing_is_watched():
    watch = DurableWatch("")
    watch.install()

    assert watch.changes() == []
    assert watch.reads() == []


def test_a_few_hundred_files_are_scanned_in_milliseconds(out):
    for i in range(300):
        (out / f"{i}.bin").write_bytes(b"x")
    watch = installed(out)
    watch.changes()

    began = time.thread_time()
    for _ in range(10):
        watch.changes()

    assert (time.thread_time() - began) / 10 < 0.02


def test_reads_are_files_opened_for_reading_that_exist(out, monkeypatch):
    (out / "model.pt").write_bytes(b"1")
    (out / "log.txt").write_bytes(b"1")
    watch = installed(out)

    (out / "model.pt").read_bytes()
    with (out / "log.txt").open("a") as log:
        log.write("line")
    with pytest.raises(FileNotFoundError):
        (out / "missing.pt").read_bytes()
    os.close(os.open(out, os.O_RDONLY))

    assert watch.reads() == ["model.pt"]
    assert watch.reads() == []

    monkeypatch.chdir(out)
    with Path("log.txt").open("rb"):
        pass
    os.close(os.open("model.pt", os.O_RDWR))
    assert watch.reads() == ["log.txt", "model.pt"]


def test_files_outside_are_no_business_of_ours(out, tmp_path):
    (tmp_path / "out-not").mkdir()
    (tmp_path / "out-not" / "a").write_text("1")
    watch = installed(out)

    (tmp_path / "out-not" / "a").read_text()

    assert watch.reads() == []


def test_a_read_through_a_link_to_the_folder_counts(out, tmp_path):
    (out / "a").write_text("1")
    link = tmp_path / "link"
    link.symlink_to(out)
    watch = installed(link)

    (out / "a").read_text()
    (link / "a").read_text()

    assert watch.reads() == ["a"]


def test_reads_of_the_native_safetensors_reader_are_seen(out):
    """In a process of its own: the wrapping holds for a whole process."""
    pytest.importorskip("safetensors")
    script = textwrap.dedent(
        """
        import sys
        from samestep.probe.durable import DurableWatch
        watch = DurableWatch(sys.argv[1])
        watch.install()
        import numpy, safetensors
        from safetensors import safe_open
        from safetensors.numpy import save_file
        path = sys.argv[1] + "/model.safetensors"
        save_file({"a": numpy.zeros(2)}, path)
        assert watch.reads() == []
        with safe_open(path, framework="numpy") as opened:
            assert opened.keys() == ["a"] or list(opened.keys()) == ["a"]
            assert isinstance(opened, safe_open)
        assert watch.reads() == ["model.safetensors"]
        try:
            safe_open(sys.argv[1] + "/none.safetensors", framework="numpy")
        except FileNotFoundError:
            pass
        assert watch.reads() == []
        """
    )

    done = subprocess.run(
        [sys.executable, "-c", script, str(out)], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr


def test_a_module_that_is_already_imported_is_wrapped_where_it_is_used(out):
    pytest.importorskip("safetensors")
    script = textwrap.dedent(
        """
        import sys, numpy
        from safetensors import safe_open as early
        from safetensors.numpy import save_file
        import safetensors
        sys.modules["user"] = user = type(sys)("user")
        user.safe_open = early
        from samestep.probe.durable import DurableWatch
        watch = DurableWatch(sys.argv[1])
        watch.install()
        save_file({"a": numpy.zeros(2)}, sys.argv[1] + "/m.safetensors")
        user.safe_open(sys.argv[1] + "/m.safetensors", framework="numpy")
        assert watch.reads() == ["m.safetensors"]
        """
    )

    done = subprocess.run(
        [sys.executable, "-c", script, str(out)], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
