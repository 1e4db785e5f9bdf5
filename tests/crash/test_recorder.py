"""The recorder sees what real programs do to files: everything, in order, with outcomes and bytes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from samestep.crash.operations import Kind
from samestep.errors import UsageError

SHELL = """mkdir out; echo one > out/a; echo two >> out/a; cat out/a > out/b; (exec 3>out/c; echo x >&3)
dd if=/dev/zero of=out/d bs=1000 count=3 2>/dev/null; cp -r out copy; mv copy out/copy; ln -s a out/l
truncate -s 10 out/d; rm -r out/copy; tar cf - out/a | cat > out/tar"""
PREAMBLE = "import os, sys\nos.makedirs('out', exist_ok=True)\n"


def of_kind(recording, kind):
    return [operation for operation in recording.operations if operation.kind is kind]


def test_a_careful_writer_is_logged_call_by_call(bench, told):
    recording = bench.python(
        """
import os
os.mkdir("out")
with open("out/state.tmp", "wb") as file:
    file.write(b"first")
    file.flush()
    os.fsync(file.fileno())
os.replace("out/state.tmp", "out/state")
folder = os.open("out", os.O_RDONLY)
os.fsync(folder)
os.truncate("out/state", 3)
os.unlink("out/state")
os.rmdir("out")
"""
    )
    root = recording.header.roots[0]
    assert told(recording) == [
        f"mkdir {root}",
        "create state.tmp",
        "write state.tmp 5",
        "sync state.tmp",
        "rename state.tmp state",
        f"sync {root}",
        "truncate state 3",
        "unlink state",
        f"rmdir {root}",
    ]
    write = of_kind(recording, Kind.WRITE)[0]
    assert recording.read(write.at, write.size) == b"first"
    assert write.inode == of_kind(recording, Kind.UNLINK)[0].inode


def test_positions_follow_seeks_appends_and_explicit_offsets(bench):
    recording = bench.python(
        PREAMBLE
        + """
file = os.open("out/f", os.O_RDWR | os.O_CREAT)
os.write(file, b"0123456789"); os.lseek(file, 4, 0); os.write(file, b"ab")
os.pwrite(file, b"XY", 20); os.pwritev(file, [b"u", b"vw"], 30); os.writev(file, [b"1", b"23"])
more = os.open("out/f", os.O_WRONLY | os.O_APPEND)
os.write(more, b"end"); os.pwrite(more, b"also at the end", 0)
os.ftruncate(file, 40)
os.posix_fallocate(file, 0, 64)
"""
    )
    writes = [(write.offset, write.size) for write in of_kind(recording, Kind.WRITE)]
    assert writes == [(0, 10), (4, 2), (20, 2), (30, 3), (6, 3), (33, 3), (36, 15)]


def test_opening_an_existing_file_is_not_making_one(bench, told):
    bench.out.mkdir()
    (bench.out / "old").write_text("before")
    bench.keep_base()
    recording = bench.python(
        """
open("out/old", "r+").write("AF")
open("out/old", "w").write("new")
open("out/old").read()
"""
    )
    assert told(recording) == ["open old", "write old 2", "open old", "truncate old 0", "write old 3"]
    assert len({operation.inode for operation in recording.operations}) == 1


def test_failures_are_logged_as_such_and_reach_the_program(bench, told):
    recording = bench.python(
        PREAMBLE
        + """
def fails(error, act):
    try: act()
    except error: return
    sys.exit("no error")
open("out/a", "x").close(); os.mkdir("out/d"); open("out/d/x", "x").close()
fails(FileExistsError, lambda: open("out/a", "x"))
fails(FileNotFoundError, lambda: open("out/none/b", "w"))
fails(FileNotFoundError, lambda: os.rename("out/none", "out/b"))
fails(NotADirectoryError, lambda: os.rename("out/d", "out/a"))
fails(FileExistsError, lambda: os.mkdir("out/d"))
fails(OSError, lambda: os.rmdir("out/d"))
fails(IsADirectoryError, lambda: open("out/d", "w"))
fails(FileExistsError, lambda: os.link("out/a", "out/d"))
fails(FileNotFoundError, lambda: os.unlink("out/none"))
"""
    )
    assert told(recording)[4:] == [
        "open a !File exists",
        "rename none b !No such file or directory",
        "rename d a !Not a directory",
        "mkdir d !File exists",
        "rmdir d !Directory not empty",
        "link a d !File exists",
        "unlink none !No such file or directory",
    ]


def test_modes_respect_the_mask_of_the_process(bench):
    bench.python(
        PREAMBLE
        + """
for mask in (0o077, 0o002):
    os.umask(mask)
    open(f"out/f{mask}", "w").close(); os.mkdir(f"out/d{mask}")
    assert os.stat(f"out/f{mask}").st_mode & 0o777 == 0o666 & ~mask
    assert os.stat(f"out/d{mask}").st_mode & 0o777 == 0o777 & ~mask
file = os.open("out/inherited", os.O_CREAT | os.O_WRONLY)
assert not os.get_inheritable(file)
"""
    )


def test_paths_are_resolved_as_the_process_sees_them(bench, told):
    recording = bench.python(
        """
import os
os.mkdir("out"); os.symlink("out", "other")
os.chdir("other"); open("relative", "w").close(); os.mkdir("sub")
folder = os.open("sub", os.O_RDONLY)
os.close(os.open("below", os.O_CREAT | os.O_WRONLY, dir_fd=folder))
os.rename("below", "moved", src_dir_fd=folder)
os.symlink("sub/target", "alias"); open("alias", "w").write("x")
os.unlink("alias")
os.chdir("sub"); open("../relative", "a").close()
open("/proc/self/cwd/through-proc", "w").close()
"""
    )
    assert told(recording)[1:] == [
        "create relative",
        "mkdir sub",
        "create sub/below",
        "rename sub/below moved",
        "symlink alias sub/target",
        "create sub/target",
        "write sub/target 1",
        "unlink alias",
        "open relative",
        "create sub/through-proc",
    ]


def test_sendfile_and_copy_file_range_are_writes_with_bytes(bench):
    recording = bench.python(
        PREAMBLE
        + """
import shutil
open("source", "wb").write(os.urandom(300_000))
shutil.copyfile("source", "out/a")
source, target = os.open("source", 0), os.open("out/b", os.O_WRONLY | os.O_CREAT)
os.lseek(source, 1000, 0)
while os.copy_file_range(source, target, 100_000): pass
os.copy_file_range(source, target, 50, offset_src=0, offset_dst=7)
"""
    )
    assert {"copy_file_range"} <= {write.call for write in of_kind(recording, Kind.WRITE)}


def test_a_file_that_is_renamed_in_brings_its_content(bench, told):
    recording = bench.python(
        PREAMBLE
        + """
open("staged", "w").write("made outside"); os.rename("staged", "out/arrived")
os.makedirs("folder/deep"); open("folder/deep/x", "w").write("y"); os.symlink("deep", "folder/l")
os.rename("folder", "out/tree")
open("twin", "w").write("two names"); os.link("twin", "out/twin")
os.rename("out/arrived", "left")
"""
    )
    assert [line.split()[0] for line in told(recording)][1:] == [
        *["create", "stored", "rename"],
        *["mkdir", "mkdir", "create", "stored", "symlink", "rename"],
        *["create", "stored", "link"],
        "rename",
    ]


def test_a_nameless_file_gets_its_name_later(bench, told):
    recording = bench.python(
        PREAMBLE
        + """
for way in (1, 2):
    file = os.open("out", os.O_TMPFILE | os.O_WRONLY)
    os.write(file, b"nameless")
    os.link(f"/proc/self/fd/{file}", f"out/named{way}", follow_symlinks=True, src_dir_fd=0)
"""
    )
    assert told(recording)[1:] == ["create", "write 8", "link named1", "create", "write 8", "link named2"]


def test_a_name_that_is_used_again_is_another_file(bench):
    recording = bench.python(
        PREAMBLE
        + """
for _ in range(5):
    open("out/x", "w").write("again")
    os.unlink("out/x")
"""
    )
    inodes = [operation.inode for operation in of_kind(recording, Kind.CREATE)]
    assert len(set(inodes)) == 5


def test_a_rename_to_another_file_system_did_not_happen(bench, told):
    if not Path("/dev/shm").is_dir() or Path("/dev/shm").stat().st_dev == bench.folder.stat().st_dev:
        pytest.skip("no second file system at /dev/shm")
    recording = bench.python(
        PREAMBLE
        + """
import shutil, tempfile
file, name = tempfile.mkstemp(dir="/dev/shm"); os.write(file, b"far away")
shutil.move(name, "out/moved")
"""
    )
    lines = told(recording)
    assert lines[1].endswith("!Invalid cross-device link")
    assert lines[2] == "create moved"


def test_mapped_files_are_looked_at(bench, told):
    recording = bench.python(
        PREAMBLE
        + """
import numpy as np
array = np.memmap("out/a", dtype="u1", mode="w+", shape=(5000,))
array[:10] = 1
array.flush()
array[:10] = 2
del array
open("out/b", "w").close()
kept = np.memmap("out/a", dtype="u1", mode="r+")
kept[:10] = 3
"""
    )
    assert recording.header.opaque == [str(bench.out / "a")]
    contents = [recording.read(op.at, 1) for op in of_kind(recording, Kind.STORED)]
    assert contents == [b"\1", b"\2", b"\3"]
    assert of_kind(recording, Kind.SYNC_DATA)[0].call == "msync"


def test_shells_and_small_programs_are_followed(bench, told):
    recording = bench.run(["sh", "-c", SHELL])
    assert len(of_kind(recording, Kind.WRITE)) >= 8


def test_programs_without_a_dynamic_loader_are_followed(bench, told):
    if not shutil.which("gcc"):
        pytest.skip("gcc is not installed")
    (bench.folder / "writer.c").write_text(
        """
#include <stdio.h>
#include <unistd.h>
int main(void) {
  FILE *file = fopen("out/tmp", "w"); fprintf(file, "static"); fflush(file); fsync(fileno(file)); fclose(file);
  return rename("out/tmp", "out/final");
}"""
    )
    built = subprocess.run(["gcc", "-static", "-o", "writer", "writer.c"], cwd=bench.folder, check=False)
    if built.returncode:
        pytest.skip("no static C library")
    bench.out.mkdir()
    recording = bench.run(["./writer"])
    assert told(recording) == ["create tmp", "write tmp 6", "sync tmp", "rename tmp final"]


def test_processes_at_once_share_one_order(bench):
    recording = bench.python(
        PREAMBLE
        + """
import subprocess
code = '''
import os, sys
for i in range(50):
    with open(f"out/{sys.argv[1]}.tmp", "w") as f: f.write(str(i) * 100)
    os.replace(f"out/{sys.argv[1]}.tmp", f"out/{sys.argv[1]}")
    with open("out/both", "a") as f: f.write(sys.argv[1])
'''
children = [subprocess.Popen([sys.executable, "-c", code, str(n)], env={**os.environ, "RANK": str(n)}) for n in (0, 1)]
sys.exit(sum(child.wait() for child in children))
"""
    )
    assert {operation.rank for operation in recording.operations} == {None, 0, 1}
    assert (bench.out / "both").read_text().count("1") == 50


def test_steps_are_marked_between_operations(bench, told):
    recording = bench.python(
        PREAMBLE
        + """
from samestep.trace.marks import mark_path
for step in (1, 2):
    open(f"out/{step}", "w").close()
    try: os.open(mark_path(3, step), os.O_WRONLY | os.O_CREAT)
    except FileNotFoundError: continue
    sys.exit("the mark exists")
"""
    )
    assert told(recording)[1:] == ["create 1", "mark", "create 2", "mark"]
    assert [(mark.rank, mark.step) for mark in of_kind(recording, Kind.MARK)] == [(3, 1), (3, 2)]
    assert recording.operations[-1].rank == 3


def test_closing_is_seen_at_the_next_operation(bench):
    recording = bench.python(
        PREAMBLE
        + """
a = open("out/a", "w"); copy = os.dup(a.fileno()); a.close()
open("out/b", "w").close()
os.close(copy)
open("out/c", "w").close()
"""
    )
    steps = [(operation.kind, operation.path[-1]) for operation in recording.operations[1:]]
    assert steps == [
        (Kind.CREATE, "a"),
        (Kind.CREATE, "b"),
        (Kind.CLOSE, "a"),
        (Kind.CLOSE, "b"),
        (Kind.CREATE, "c"),
        (Kind.CLOSE, "c"),
    ]


def test_synchronous_descriptors_sync_every_write(bench, told):
    recording = bench.python(
        PREAMBLE + "os.write(os.open('out/a', os.O_CREAT | os.O_WRONLY | os.O_DSYNC), b'x')"
    )
    assert told(recording)[1:] == ["create a", "write a 1", "sync-data a"]


def test_asynchronous_rings_are_refused_so_that_writers_write(bench):
    bench.python(
        """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
assert libc.syscall(425, 8, None) == -1
assert ctypes.get_errno() == 38
"""
    )


@pytest.mark.parametrize(
    ("code", "expected"), [("sys.exit(7)", 7), ("os.kill(os.getpid(), 9)", 137), ("os.abort()", 134)]
)
def test_the_end_of_the_command_is_passed_on(bench, code, expected):
    bench.python("import os, sys\n" + code, exit_code=expected)


def test_a_command_that_does_not_exist_is_named(bench):
    with pytest.raises(UsageError, match="'/no/such/command' cannot be executed"):
        bench.run(["/no/such/command"], exit_code=127)


def test_unwatched_files_are_not_logged(bench):
    recording = bench.run([sys.executable, "-c", "open('elsewhere', 'w').write('x'); print('hello')"])
    assert recording.operations == []
