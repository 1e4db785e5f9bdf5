"""Real trees of real processes, really stopped and really killed."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from samestep.errors import MachineError
from samestep.process import ProcessTree, kill_all_trees

PATIENCE_SECONDS = 20.0


def wait_until(condition, seconds=PATIENCE_SECONDS):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.01)


def alive(pid):
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


@pytest.fixture
def start(tmp_path):
    """Start a Python program (or another command) and clean up whatever happens."""
    trees = []

    def begin(program, *arguments, command=None):
        script = tmp_path / f"program-{len(trees)}.py"
        script.write_text(textwrap.dedent(program))
        argv = command or [sys.executable, str(script), *map(str, arguments)]
        tree = ProcessTree.start(argv, env=dict(os.environ), cwd=tmp_path, log_path=tmp_path / "log")
        trees.append(tree)
        return tree

    yield begin
    for tree in trees:
        tree.kill()


COUNTER = """
    import sys, time
    file = open(sys.argv[1], "a", buffering=1)
    while True:
        file.write("x")
        file.flush()
        time.sleep(0.001)
"""

DAEMON = """
    import os, sys, time
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            open(sys.argv[1], "w").write(str(os.getpid()))
            if sys.argv[2] == "scrubbed":
                os.execve("/bin/sleep", ["sleep", "1000"], {})
            time.sleep(1000)
        os._exit(0)
    time.sleep(float(sys.argv[3]))
"""

FORK_STORM = """
    import os, sys, time
    def orphan(life, then):
        if os.fork() == 0:
            if os.fork():
                os._exit(0)              # the grandchild is an orphan at once
            os.setsid()
            then()
            end = time.monotonic() + life
            while time.monotonic() < end:
                open(sys.argv[1], "a").write("x")
                time.sleep(0.05)
            os._exit(0)
        os.wait()
    while True:
        orphan(2, lambda: orphan(2, lambda: None))
        time.sleep(0.05)
"""


def test_the_exit_code_of_the_command_is_reported(start):
    assert start("raise SystemExit(75)").wait(PATIENCE_SECONDS) == 75


def test_a_command_ended_by_a_signal_reports_128_and_its_number(start):
    tree = start("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert tree.wait(PATIENCE_SECONDS) == 128 + signal.SIGSEGV


def test_output_and_errors_go_to_the_log_and_input_is_empty(start):
    tree = start("import sys; print('out', sys.stdin.read() == ''); print('err', file=sys.stderr)")
    assert tree.wait(PATIENCE_SECONDS) == 0
    assert set(tree.log_path.read_text().splitlines()) == {"out True", "err"}


def test_waiting_ends_in_time_and_the_command_runs_on(start):
    tree = start("import time; time.sleep(1000)")
    begin = time.monotonic()
    assert tree.wait(0.2) is None
    assert tree.poll() is None
    assert 0.2 <= time.monotonic() - begin < 5


@pytest.mark.parametrize("command", [["no-such-command-here"], ["/etc/passwd"], ["./missing"]], ids=str)
def test_a_command_that_cannot_be_started_is_an_error_and_leaves_nothing(start, command):
    with pytest.raises(MachineError, match=f"'{command[0]}' could not be started"):
        start("", command=command)
    assert not [child for child in psutil.Process().children() if "keeper" in " ".join(child.cmdline())]


def test_a_missing_working_directory_is_named(tmp_path):
    with pytest.raises(MachineError, match=r"working directory .*gone could not be entered"):
        ProcessTree.start(["true"], env=dict(os.environ), cwd=tmp_path / "gone", log_path=tmp_path / "log")


def test_an_unwritable_log_is_an_error(tmp_path):
    with pytest.raises(MachineError, match="log at"):
        ProcessTree.start(["true"], env=dict(os.environ), cwd=tmp_path, log_path=tmp_path / "no" / "log")


@pytest.mark.parametrize("environment", ["marked", "scrubbed"])
def test_a_daemon_in_its_own_session_outlives_the_command_and_not_the_kill(start, tmp_path, environment):
    tree = start(DAEMON, tmp_path / "pid", environment, 0.3)
    assert tree.wait(PATIENCE_SECONDS) == 0
    wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    daemon = int((tmp_path / "pid").read_text())
    assert [process.pid for process in tree.members()] == [daemon]
    assert not tree.wait_gone(0.2)
    tree.kill()
    assert not alive(daemon)
    assert tree.members() == []
    assert tree.poll() == 0


def test_killing_takes_everything_and_reports_the_signal(start, tmp_path):
    tree = start(DAEMON, tmp_path / "pid", "marked", 1000)
    wait_until(lambda: len(tree.members()) == 2)
    pids = [process.pid for process in tree.members()]
    assert tree.root_pid in pids
    tree.kill()
    assert not any(map(alive, pids))
    assert tree.poll() == 128 + signal.SIGKILL
    tree.kill()


def test_nothing_is_written_while_frozen_and_everything_goes_on_when_thawed(start, tmp_path):
    file = tmp_path / "count"
    tree = start(COUNTER, file)
    wait_until(lambda: file.exists() and file.stat().st_size > 3)
    tree.freeze()
    size = file.stat().st_size
    time.sleep(0.3)
    assert file.stat().st_size == size
    assert tree.poll() is None
    tree.thaw()
    wait_until(lambda: file.stat().st_size > size)


def test_threads_that_write_are_frozen_too(start, tmp_path):
    program = """
        import sys, threading, time
        def write(number):
            file = open(f"{sys.argv[1]}/{number}", "wb", buffering=0)
            while True:
                file.write(bytes(1 << 16))
                if file.tell() > 1 << 22: file.truncate(0); file.seek(0)
        for number in range(8): threading.Thread(target=write, args=(number,), daemon=True).start()
        time.sleep(1000)
    """
    (tmp_path / "files").mkdir()
    tree = start(program, tmp_path / "files")
    wait_until(lambda: len(list((tmp_path / "files").iterdir())) == 8)
    for _ in range(5):
        tree.freeze()
        first = {
            path.name: (path.stat().st_size, path.stat().st_mtime_ns)
            for path in (tmp_path / "files").iterdir()
        }
        time.sleep(0.1)
        assert first == {
            path.name: (path.stat().st_size, path.stat().st_mtime_ns)
            for path in (tmp_path / "files").iterdir()
        }
        tree.thaw()
        time.sleep(0.02)


def test_a_parent_that_waits_for_its_child_to_become_another_program_can_be_frozen(start):
    program = """
        import ctypes, os, platform, signal, time
        clone, CLONE_VFORK = {"x86_64": 56, "aarch64": 220}[platform.machine()], 0x4000
        print("ready", flush=True)
        if ctypes.CDLL(None).syscall(clone, CLONE_VFORK | signal.SIGCHLD, 0, 0, 0, 0) == 0:
            time.sleep(0.5)  # the parent cannot be stopped until the child has gone on from here
            os.execvp("sleep", ["sleep", "1000"])
        time.sleep(1000)
    """
    tree = start(program)
    wait_until(lambda: len(tree.members()) == 2)
    tree.freeze(10)
    assert {process.status() for process in tree.members()} == {psutil.STATUS_STOPPED}


def test_what_had_stopped_by_itself_stays_stopped_after_a_thaw(start):
    tree = start("import os, signal; os.kill(os.getpid(), signal.SIGSTOP)")
    wait_until(lambda: tree.members()[0].status() == psutil.STATUS_STOPPED)
    tree.freeze()
    tree.thaw()
    time.sleep(0.1)
    assert tree.members()[0].status() == psutil.STATUS_STOPPED


@pytest.mark.parametrize("attempt", range(3))
def test_processes_that_keep_forking_orphans_are_frozen_and_killed(start, tmp_path, attempt):
    file = tmp_path / "count"
    tree = start(FORK_STORM, file)
    wait_until(lambda: len(tree.members()) > 10 + 5 * attempt)
    tree.freeze()
    members, size = tree.members(), file.stat().st_size
    time.sleep(0.3)
    assert tree.members() == members
    assert file.stat().st_size == size
    tree.thaw()
    time.sleep(0.05)
    tree.kill()
    assert not any(alive(process.pid) for process in members)
    size = file.stat().st_size
    time.sleep(0.2)
    assert file.stat().st_size == size


def test_a_notice_reaches_the_command_and_one_that_ignores_it_is_killed(start):
    program = """
        import signal, time
        signal.signal(signal.SIGTERM, lambda *_: print("ignored", flush=True))
        print("ready", flush=True)
        while True: time.sleep(0.1)
    """
    tree = start(program)
    wait_until(lambda: "ready" in tree.log_path.read_text())
    tree.terminate()
    wait_until(lambda: "ignored" in tree.log_path.read_text())
    assert tree.wait(0.2) is None
    tree.kill()
    assert tree.poll() == 128 + signal.SIGKILL


def test_a_notice_goes_to_the_command_alone_or_to_everyone(start):
    program = """
        import os, signal, time
        name = "parent" if os.fork() else "child"
        signal.signal(signal.SIGTERM, lambda *_: print(name, "noticed", flush=True))
        print(name, "ready", flush=True)
        while True: time.sleep(0.1)
    """
    tree = start(program)
    wait_until(lambda: tree.log_path.read_text().count("ready") == 2)
    tree.terminate()
    wait_until(lambda: "parent noticed" in tree.log_path.read_text())
    time.sleep(0.2)
    assert "child noticed" not in tree.log_path.read_text()
    tree.terminate(everyone=True)
    wait_until(lambda: "child noticed" in tree.log_path.read_text())


def test_a_command_that_leaves_on_notice_is_gone(start):
    tree = start("import time; time.sleep(1000)")
    tree.terminate()
    assert tree.wait(PATIENCE_SECONDS) == 128 + signal.SIGTERM
    assert tree.wait_gone(PATIENCE_SECONDS)


def test_leaving_the_block_by_an_exception_leaves_no_process(tmp_path):
    def interrupted():
        with ProcessTree.start(
            ["sleep", "1000"], env=dict(os.environ), cwd=tmp_path, log_path=tmp_path / "log"
        ) as tree:
            pids.append(tree.root_pid)
            raise KeyboardInterrupt

    pids = []
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not alive(pids[0])


def test_all_trees_can_be_killed_at_once(start):
    trees = [start("import time; time.sleep(1000)") for _ in range(3)]
    kill_all_trees()
    assert [tree.poll() for tree in trees] == [137, 137, 137]


def test_two_trees_do_not_touch_each_other(start, tmp_path):
    one = start(DAEMON, tmp_path / "one", "scrubbed", 1000)
    two = start(DAEMON, tmp_path / "two", "scrubbed", 1000)
    wait_until(lambda: len(one.members()) == len(two.members()) == 2)
    one.kill()
    assert len(two.members()) == 2


def test_a_reused_mark_is_not_enough_for_a_process_that_only_mentions_it(start):
    tree = start("import time; time.sleep(1000)")
    other = subprocess.Popen(["sleep", "1000"], env={"NOTE": f"SAMESTEP_TREE={tree.mark}"})
    try:
        assert [process.pid for process in tree.members()] == [tree.root_pid]
    finally:
        other.kill()
        other.wait()


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
def test_the_tree_ends_with_the_process_that_started_it(tmp_path, signum):
    driver = f"""
import os, time
from pathlib import Path
from samestep.process import ProcessTree
here = Path({str(tmp_path)!r})
with ProcessTree.start(["sh", "-c", "setsid sleep 1000 & echo $! > daemon; exec sleep 1000"],
                       env=dict(os.environ), cwd=here, log_path=here / "log") as tree:
    (here / "root").write_text(str(tree.root_pid))
    time.sleep(1000)
"""
    process = subprocess.Popen([sys.executable, "-c", driver], stderr=subprocess.DEVNULL)
    files = [tmp_path / "daemon", tmp_path / "root"]
    wait_until(lambda: all(file.exists() and file.read_text().strip() for file in files))
    pids = [int(file.read_text()) for file in files]
    assert all(map(alive, pids))
    process.send_signal(signum)
    process.wait(PATIENCE_SECONDS)
    wait_until(lambda: not any(map(alive, pids)))


def test_trees_started_in_threads_outlive_their_threads(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    def begin(number):
        log = tmp_path / f"log-{number}"
        return ProcessTree.start(["sleep", "1000"], env=dict(os.environ), cwd=tmp_path, log_path=log)

    with ThreadPoolExecutor(4) as pool:
        trees = list(pool.map(begin, range(4)))
    try:
        time.sleep(0.2)
        assert [tree.poll() for tree in trees] == [None] * 4
        trees[0].kill()
        assert [tree.poll() for tree in trees] == [137, None, None, None]
    finally:
        kill_all_trees()


def test_both_ranks_of_a_torchrun_job_are_found_frozen_and_killed(start, tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "rank.py").write_text(
        textwrap.dedent("""
        import os, time
        from pathlib import Path
        import torch, torch.distributed as dist
        dist.init_process_group("gloo")
        here = Path(__file__).parent / f"rank-{dist.get_rank()}"
        while True:
            dist.all_reduce(torch.ones(1))
            with here.open("a") as file: file.write("x")
    """)
    )
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    tree = start("", command=[*torchrun, str(tmp_path / "rank.py")])
    files = [tmp_path / "rank-0", tmp_path / "rank-1"]
    wait_until(lambda: all(file.exists() and file.stat().st_size > 3 for file in files), 120)
    members = tree.members()
    assert len({os.getsid(process.pid) for process in members}) >= 2, "workers are in sessions of their own"
    assert len(members) >= 3
    tree.freeze()
    sizes = [file.stat().st_size for file in files]
    time.sleep(0.3)
    assert [file.stat().st_size for file in files] == sizes
    tree.thaw()
    wait_until(lambda: all(file.stat().st_size > size for file, size in zip(files, sizes, strict=True)))
    tree.kill()
    assert not any(alive(process.pid) for process in members)
    assert "Traceback" not in Path(tree.log_path).read_text(), "nobody lived to see another one end"
