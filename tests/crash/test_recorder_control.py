"""The recorder can stop the world, put errors in, pass signals on, and fail without disturbing what it watches."""

from __future__ import annotations

import errno
import os
import signal
import sys
import time

import psutil
import pytest

from samestep.crash.operations import Kind
from samestep.crash.recorder import Fault, Order, StopAt, supervisor_command
from samestep.crash.recorder.proof import prove
from samestep.crash.recorder.running import wait_for_recorder
from samestep.crash.recording import Recording
from samestep.process import ProcessTree

COUNTING = """
import os, sys, time
os.makedirs("out", exist_ok=True)
for i in range(10_000):
    with open("out/new", "w") as file: file.write(str(i) * 50)
    os.replace("out/new", "out/now")
    time.sleep(0.002)
"""


class Recorded:
    """A command under the recorder, in a tree that can be frozen and killed."""

    def __init__(self, bench, argv, **options):
        self.folder = bench.folder / "recording"
        order = Order(roots=(str(bench.out),), folder=str(self.folder), **options)
        self.tree = ProcessTree.start(
            argv,
            env=dict(os.environ),
            cwd=bench.folder,
            log_path=bench.log,
            supervisor=supervisor_command(order),
        )

    def wait_for(self, path, seconds=30.0):
        deadline = time.monotonic() + seconds
        while not path.exists():
            assert time.monotonic() < deadline, f"{path} did not appear"
            time.sleep(0.005)

    def command(self):
        (child,) = psutil.Process(self.tree.root_pid).children()
        return child


@pytest.mark.parametrize("operation", [0, 1, 4, 7])
def test_the_world_stops_before_an_operation(bench, told, operation):
    script = "import os\nos.mkdir('out')\nfor n in 'abcd':\n  open(f'out/{n}', 'w').write(n)\n"
    began = time.monotonic()
    recording = bench.start([sys.executable, "-c", script], stop_at=StopAt(operation))
    assert time.monotonic() - began < 10
    assert not recording.header.complete
    done = [op for op in recording.operations if not op.derived]
    assert len(done) == operation
    assert prove(recording, bench.out) == []


def test_the_world_stops_for_all_ranks_when_one_reaches_its_operation(bench):
    script = """
import os, subprocess, sys
if "RANK" not in os.environ:
    os.mkdir("out")
    start = lambda rank: subprocess.Popen([sys.executable, __file__], env={**os.environ, "RANK": rank})
    sys.exit(max(child.wait() for child in [start("0"), start("1")]))
for i in range(1000):
    with open(f"out/{os.environ['RANK']}-{i}", "w") as file: file.write("x")
"""
    (bench.folder / "ranks.py").write_text(script)
    recorded = Recorded(bench, [sys.executable, "ranks.py"], stop_at=StopAt(41, rank=1))
    with recorded.tree:
        assert wait_for_recorder(recorded.tree, recorded.folder, 60)
        before = sorted(bench.out.iterdir())
        time.sleep(0.3)
        assert sorted(bench.out.iterdir()) == before
    with Recording.open(recorded.folder) as recording:
        assert sum(op.rank == 1 and not op.derived for op in recording.operations) == 41
        assert prove(recording, bench.out) == []


def test_errors_are_put_in_where_they_were_ordered(bench, told):
    script = """
import errno, os, sys
os.mkdir("out")
for name in ("a.txt", "b.bin", "c.bin", "d.bin"):
    try:
        with open("out/" + name, "wb") as file: file.write(b"data")
    except OSError as error:
        print(name, errno.errorcode[error.errno])
"""
    recording = bench.run(
        [sys.executable, "-c", script],
        faults=[Fault("ENOSPC", (Kind.WRITE,), "*.bin", count=1), Fault("EIO", (Kind.CREATE,), "*/d.*")],
    )
    assert bench.log.read_text().split("\n")[:2] == ["b.bin ENOSPC", "d.bin EIO"]
    failed = [op for op in recording.operations if op.errno]
    assert [(op.kind, op.errno, op.injected) for op in failed] == [
        (Kind.WRITE, errno.ENOSPC, True),
        (Kind.CREATE, errno.EIO, True),
    ]


def test_a_disk_can_be_full_from_an_operation_on(bench):
    script = "import os\nos.mkdir('out')\nfor n in 'abc':\n  open(f'out/{n}', 'w').write(n)\n"
    recording = bench.run([sys.executable, "-c", script], faults=[Fault("ENOSPC", first=3)], exit_code=1)
    assert "No space left on device" in bench.log.read_text()
    assert [op.kind for op in recording.operations if op.errno] == [Kind.CREATE]


def test_a_recorded_tree_can_be_frozen_and_thawed(bench):
    recorded = Recorded(bench, [sys.executable, "-c", COUNTING])
    with recorded.tree as tree:
        for _ in range(5):
            recorded.wait_for(bench.out / "now")
            time.sleep(0.1)
            tree.freeze(10)
            first = (bench.out / "now").read_text(), (bench.out / "now").stat().st_ino
            time.sleep(0.1)
            assert ((bench.out / "now").read_text(), (bench.out / "now").stat().st_ino) == first
            tree.thaw()
        time.sleep(0.1)
        assert (bench.out / "now").stat().st_ino != first[1] or (bench.out / "now").read_text() != first[0]
    with Recording.open(recorded.folder) as recording:
        assert len(recording.operations) > 50


@pytest.mark.parametrize("everyone", [False, True])
def test_a_notice_reaches_the_command_once(bench, everyone):
    script = """
import os, signal, sys, time
seen = []
signal.signal(signal.SIGTERM, lambda *_: seen.append(1))
os.makedirs("out"); open("out/ready", "w").close()
while not seen: time.sleep(0.01)
time.sleep(0.5)
sys.exit(40 + len(seen))
"""
    recorded = Recorded(bench, [sys.executable, "-c", script])
    with recorded.tree as tree:
        recorded.wait_for(bench.out / "ready")
        tree.terminate(everyone=everyone)
        assert tree.wait(20) == 41


def test_a_signal_without_a_handler_ends_the_command_as_usual(bench):
    recorded = Recorded(bench, [sys.executable, "-c", COUNTING])
    with recorded.tree as tree:
        recorded.wait_for(bench.out / "now")
        tree.terminate(signal.SIGINT)
        assert tree.wait(20) == 130 or tree.poll() == 1


def test_a_killed_recorder_leaves_a_readable_recording(bench):
    recorded = Recorded(bench, [sys.executable, "-c", COUNTING])
    with recorded.tree as tree:
        recorded.wait_for(bench.out / "now")
        time.sleep(0.3)
        psutil.Process(tree.root_pid).kill()
        assert tree.wait_gone(20)
    with Recording.open(recorded.folder) as recording:
        assert not recording.header.complete
        writes = [op for op in recording.operations if op.kind is Kind.WRITE]
        assert len(writes) > 10
        assert recording.read(writes[7].at, writes[7].size) == b"7" * 50


@pytest.mark.parametrize("seconds", [0.1, 0.17, 0.23])
def test_a_killed_tree_leaves_a_recording_that_is_exact(bench, seconds):
    recorded = Recorded(bench, [sys.executable, "-c", COUNTING])
    with recorded.tree:
        recorded.wait_for(bench.out / "now")
        time.sleep(seconds)
    with Recording.open(recorded.folder) as recording:
        assert prove(recording, bench.out) == []


def test_the_training_goes_on_when_the_recording_is_too_large(bench):
    script = (
        "import os\nos.mkdir('out')\nfor n in range(5): open(f'out/{n}', 'wb').write(os.urandom(100_000))\n"
    )
    recording = bench.start([sys.executable, "-c", script], spill_bytes=250_000)
    assert recording.header.exit_code == 0
    assert not recording.header.complete
    assert "exceed" in recording.header.notes[0]
    assert [path.stat().st_size for path in bench.out.iterdir()] == [100_000] * 5


def test_large_writes_are_kept_in_bounded_memory(bench):
    size = 96 * 2**20
    script = f"""
import os
os.mkdir("out")
for name in ("one", "twin"): open("out/" + name, "wb", buffering=0).write(b"x" * {size})
open("out/small", "w").write("y")
"""
    recorded = Recorded(bench, [sys.executable, "-c", script])
    with recorded.tree as tree:
        supervisor, most = psutil.Process(tree.root_pid), 0
        while tree.wait(0.01) is None:
            try:
                most = max(most, supervisor.memory_info().rss)
            except psutil.Error:
                break
        assert tree.wait(20) == 0
    assert most < 80 * 2**20
    assert (recorded.folder / "bytes.bin").stat().st_size == size + 1
    with Recording.open(recorded.folder) as recording:
        assert prove(recording, bench.out) == []


def test_children_that_outlive_the_command_are_recorded(bench, told):
    recording = bench.run(["sh", "-c", "mkdir out; (sleep 0.5; echo late > out/late) & exit 3"], exit_code=3)
    assert "write late 5" in told(recording)


def test_a_disk_that_is_really_full_leaves_an_exact_recording(bench):
    if os.geteuid() != 0 or os.system("unshare -m true 2>/dev/null"):
        pytest.skip("no small file system can be mounted here")
    script = """
import os
os.makedirs("out/kept", exist_ok=True)
with open("out/kept/small", "wb") as file: file.write(b"s" * 1000)
with open("out/large", "wb", buffering=0) as file:
    try:
        for _ in range(40): file.write(b"l" * 100_000)
    except OSError as error: print("full", error.errno)
with open("out/after", "wb") as file: pass
"""
    bench.out.mkdir()
    mount = f'mount -t tmpfs -o size=1m none {bench.out} && exec "$@" && true'
    copy = f"'{sys.executable}' -c \"$0\" && cp -r out inside"
    order = Order(roots=(str(bench.out),), folder=str(bench.folder / "recording"))
    recorder = supervisor_command(order)
    argv = ["unshare", "-m", "sh", "-c", mount, "sh", *recorder, "sh", "-c", copy, script]
    with ProcessTree.start(argv, env=dict(os.environ), cwd=bench.folder, log_path=bench.log) as tree:
        assert tree.wait(60) == 0, bench.log.read_text()
    with Recording.open(bench.folder / "recording") as recording:
        assert "full 28" in bench.log.read_text()
        assert any("did not take place in full" in note for note in recording.header.notes)
        assert prove(recording, bench.folder / "inside") == []


def test_threads_that_write_one_file_in_parallel_are_exact(bench):
    script = """
import os, threading
os.mkdir("out"); file = os.open("out/f", os.O_WRONLY | os.O_CREAT)
def work(n):
    for i in range(20): os.pwrite(file, bytes([65 + n]) * 200_000, (i * 4 + n) * 200_000)
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
for t in threads: t.start()
for t in threads: t.join()
os.fsync(file)
"""
    recording = bench.python(script)
    assert recording.header.notes == []
