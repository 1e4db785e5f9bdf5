"""Real commands on real machines: what they see, what they cannot reach, what they leave behind."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest

import samestep
from samestep.errors import MachineError
from samestep.process import ProcessTree, Site, capabilities, tree_digest
from samestep.process.isolation import probe_isolation

PATIENCE_SECONDS = 30.0
NOBODY = 65534

namespaces = pytest.mark.skipif(probe_isolation().mode != "namespace", reason="no mount namespaces here")
both_modes = pytest.mark.parametrize(
    "sequential", [pytest.param(False, marks=namespaces, id="namespace"), True], ids=str
)


def wait_until(condition, seconds=PATIENCE_SECONDS):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.01)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project in the home folder of a user, with data that is not copied."""
    home = tmp_path / "user"
    monkeypatch.setenv("HOME", str(home))
    folder = home / "project"
    (folder / "data").mkdir(parents=True)
    (folder / ".samestep").mkdir()
    (folder / "train.py").write_text("pass\n")
    (folder / "data" / "tokens.bin").write_bytes(b"tokens")
    return folder


def start(machine, command, *, env=None, **log):
    argv = ["sh", "-c", textwrap.dedent(command)] if isinstance(command, str) else command
    log_path = machine.site.base / f"{machine.name}.log"
    env = machine.environment(os.environ | (env or {}))
    return ProcessTree.start(argv, env=env, cwd=machine.seat_project, log_path=log_path, enter=machine.enter)


def run(machine, command, **options):
    """Run a command to its end; its exit code and its output."""
    with start(machine, command, **options) as tree:
        code = tree.wait(PATIENCE_SECONDS)
        return code, tree.log_path.read_text()


@both_modes
def test_every_machine_sees_the_same_paths_and_is_fresh(project, sequential):
    with Site.create(project, sequential=sequential) as site:
        seen = []
        for name in ("first", "second"):
            machine = site.machine(name)
            seen.append(
                run(machine, "pwd; echo $HOME $TMPDIR; ls -A . $HOME $TMPDIR; touch $HOME/h $TMPDIR/t ./p")
            )
            machine.destroy()
        assert seen[0] == seen[1]
        assert seen[0][0] == 0
        assert str(site.seat / "project") in seen[0][1]


@both_modes
def test_a_path_stored_in_the_state_holds_on_the_next_machine(project, tmp_path, sequential):
    with Site.create(project, sequential=sequential) as site:
        first = site.machine("first")
        out = first.seat_out
        assert run(first, f"echo best > {out}/best.pt && echo {out}/best.pt > {out}/state")[0] == 0
        first.snapshot(tmp_path / "cut")
        first.destroy()
        second = site.machine("second")
        second.place(tmp_path / "cut")
        assert run(second, f"cat $(cat {out}/state)") == (0, "best\n")


@both_modes
def test_a_way_back_into_a_lost_machine_fails_visibly(project, tmp_path, sequential):
    with Site.create(project, sequential=sequential) as site:
        first = site.machine("first")
        write = f"echo moments > $HOME/moments.pt; ln -s $HOME/moments.pt {first.seat_out}/moments.pt"
        assert run(first, write)[0] == 0
        first.snapshot(tmp_path / "cut")
        first.destroy()
        second = site.machine("second")
        second.place(tmp_path / "cut")
        code, text = run(second, f"cat {second.seat_out}/moments.pt")
        assert code != 0
        assert "No such file" in text


@both_modes
def test_a_fixed_output_folder_is_written_inside_the_copy(project, sequential):
    (project / "outputs").mkdir()
    with Site.create(project, durable="outputs", sequential=sequential) as site:
        machine = site.machine("first")
        assert run(machine, "echo state > outputs/last.pt")[0] == 0
        assert (machine.out / "last.pt").read_text() == "state\n"
        assert list((project / "outputs").iterdir()) == []


@both_modes
def test_absolute_paths_into_the_project_can_be_read(project, sequential):
    (project / "tool").mkdir()
    (project / "tool" / "say").write_text("#!/bin/sh\necho said\n")
    (project / "tool" / "say").chmod(0o755)
    with Site.create(project, sequential=sequential) as site:
        assert run(site.machine("first"), [str(project / "tool" / "say")]) == (0, "said\n")


@both_modes
def test_the_python_of_the_project_can_be_named_either_way(project, sequential):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(project / ".venv")], check=True)
    with Site.create(project, sequential=sequential) as site:
        machine = site.machine("first")
        for python in (str(project / ".venv" / "bin" / "python"), ".venv/bin/python"):
            code, text = run(machine, [python, "-c", "import sys; print(sys.prefix != sys.base_prefix)"])
            assert (code, text.splitlines()[-1]) == (0, "True")


@both_modes
def test_a_command_that_does_not_exist_on_the_machine_is_an_error(project, sequential):
    with (
        Site.create(project, sequential=sequential) as site,
        pytest.raises(MachineError, match=r"\./gone.*No such file"),
    ):
        run(site.machine("first"), ["./gone"])


@namespaces
def test_project_home_and_inputs_cannot_be_written_but_the_run_folder_can(project, tmp_path):
    data = tmp_path / "datasets"
    data.mkdir()
    (data / "set.bin").write_bytes(b"set")
    traces = tmp_path / "traces"
    traces.mkdir()
    before = {folder: tree_digest(folder) for folder in (project, data)}
    with Site.create(project, inputs=["data", data], writable=[traces]) as site:
        machine = site.machine("first")
        targets = [
            project / "new",
            project.parent / "new",
            data / "new",
            Path("data/new"),
            project / "train.py",
        ]
        for target in targets:
            code, text = run(machine, f"echo spoilt >> {target}")
            assert code != 0, target
            assert "Read-only file system" in text
        assert run(machine, f"cat data/tokens.bin {data}/set.bin")[1].endswith("tokensset")
        assert {folder: tree_digest(folder) for folder in before} == before
        assert run(machine, f"echo 1 > {traces}/trace && echo 1 > {project}/.samestep/trace")[0] == 0
        assert site.changed_inputs() == []
    assert (traces / "trace").exists()
    assert not (project.parent / "new").exists()


@namespaces
def test_parallel_machines_write_the_same_path_and_see_only_their_own(project):
    with Site.create(project) as site:
        machines = [site.machine(f"machine-{number}") for number in range(4)]
        write = "echo $NUMBER > {0}/mine; sleep 0.3; ls {0}; cat {0}/mine; cat $HOME/it 2>/dev/null; touch $HOME/it"
        trees = [start(m, write.format(m.seat_out), env={"NUMBER": str(n)}) for n, m in enumerate(machines)]
        for number, tree in enumerate(trees):
            with tree:
                assert tree.wait(PATIENCE_SECONDS) == 0
                assert tree.log_path.read_text() == f"mine\n{number}\n"
        assert [(machine.out / "mine").read_text() for machine in machines] == ["0\n", "1\n", "2\n", "3\n"]
        assert not (site.seat / "out").exists()


@pytest.mark.skipif(not probe_isolation().private_network, reason="no network namespaces here")
def test_parallel_machines_can_listen_on_the_same_port_and_reach_nothing_else(project):
    listen = """
import socket, time
server = socket.create_server(("127.0.0.1", 29500))
socket.create_connection(("127.0.0.1", 29500)).close()
time.sleep(0.5)
print("listening")
"""
    with Site.create(project) as site:
        assert site.parallel
        trees = [
            start(site.machine(f"machine-{number}"), [sys.executable, "-c", listen]) for number in range(2)
        ]
        for tree in trees:
            with tree:
                assert (tree.wait(PATIENCE_SECONDS), tree.log_path.read_text()) == (0, "listening\n")
        with socket.create_server(("127.0.0.1", 0)) as server:
            reach = f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), timeout=5)"
            machine = site.machine("curious")
            assert "Connection refused" in run(machine, [sys.executable, "-c", reach])[1]
            beyond = "import socket; socket.create_connection(('192.0.2.1', 443), timeout=5)"
            assert "Network is unreachable" in run(machine, [sys.executable, "-c", beyond])[1]


@pytest.mark.skipif(not probe_isolation().private_network, reason="no network namespaces here")
def test_the_name_of_this_computer_resolves_without_a_name_server(project):
    resolve = """
import socket
print(socket.gethostbyname(socket.gethostname()), socket.getnameinfo(("::1", 80), socket.NI_NUMERICSERV)[0])
"""
    with Site.create(project) as site:
        code, text = run(site.machine("first"), [sys.executable, "-c", resolve])
        assert code == 0, text
        assert text.startswith("127."), text
        assert text.endswith("localhost\n"), text


@namespaces
def test_an_allowed_network_is_the_network_of_this_computer(project):
    with socket.create_server(("127.0.0.1", 0)) as server, Site.create(project, offline=False) as site:
        reach = (
            f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), timeout=5)"
        )
        assert run(site.machine("first"), [sys.executable, "-c", reach]) == (0, "")
        assert not site.parallel


@namespaces
def test_an_absolute_output_folder_is_each_machines_own(project, tmp_path):
    fixed = project / "runs"
    fixed.mkdir()
    with Site.create(project, durable=str(fixed)) as site:
        machine = site.machine("first")
        assert run(machine, f"echo state > {fixed}/last.pt")[0] == 0
        assert machine.seat_out == fixed
        machine.snapshot(tmp_path / "cut")
    assert (tmp_path / "cut" / "last.pt").read_text() == "state\n"
    assert list(fixed.iterdir()) == []


@both_modes
def test_a_snapshot_of_a_frozen_writer_equals_what_a_kill_leaves(project, tmp_path, sequential):
    program = """
import os, sys
from pathlib import Path
out = Path(sys.argv[1])
(out / "latest").symlink_to("state")
step = 0
while True:
    step += 1
    (out / "state.tmp").write_bytes(os.urandom(1 << 16))
    os.replace(out / "state.tmp", out / "state")
    with (out / "log").open("a") as log: log.write(f"{step}\\n")
"""
    with Site.create(project, sequential=sequential) as site:
        machine = site.machine("first")
        with start(machine, [sys.executable, "-c", program, str(machine.seat_out)]) as tree:
            wait_until(lambda: (machine.out / "log").exists() and (machine.out / "log").stat().st_size > 100)
            tree.freeze()
            machine.snapshot(tmp_path / "cut")
            tree.kill()
        assert tree_digest(machine.out) == tree_digest(tmp_path / "cut")
        times = [(machine.out / "state").stat().st_mtime_ns, (tmp_path / "cut" / "state").stat().st_mtime_ns]
        assert times[0] == times[1]
        assert (tmp_path / "cut" / "latest").readlink() == Path("state")


def test_without_namespaces_a_write_into_a_shared_input_is_noticed(project):
    with Site.create(project, inputs=["data"], sequential=True) as site:
        assert run(site.machine("first"), "echo leaned > data/moments.pt")[0] == 0
        assert site.changed_inputs() == [str(project / "data" / "moments.pt")]


def test_without_namespaces_importing_from_the_project_leaves_it_alone(project):
    (project / "model.py").write_text("width = 3\n")
    before = tree_digest(project)
    with Site.create(project, sequential=True) as site:
        assert (
            run(
                site.machine("first"),
                [sys.executable, "-c", "import model"],
                env={"PYTHONPATH": str(project)},
            )[0]
            == 0
        )
    assert tree_digest(project) == before


@pytest.fixture
def strangers_project():
    """A project that belongs to nobody in particular, where everybody can reach it."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        project = Path(name) / "project"
        project.mkdir()
        (project / "train.py").write_text("pass\n")
        for path in (Path(name), project, project / "train.py"):
            os.chown(path, NOBODY, NOBODY)
        yield project


# Reading everything (and nothing else) is allowed, so that the interpreter of the tests can be started.
WITHOUT_PRIVILEGES = (
    f"setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups --bounding-set=-all,+dac_read_search"
)
WITHOUT_PRIVILEGES += " --inh-caps=-all,+dac_read_search --ambient-caps=+dac_read_search"

AS_A_STRANGER = """
import os, sys
from pathlib import Path
sys.path[:0] = [sys.argv[2]]
from samestep.process import ProcessTree, Site, capabilities
from samestep.process.isolation import probe_isolation

isolation = probe_isolation()
found = {one.name: one.available for one in capabilities()}
assert found["user namespace"] == (isolation.mode == "namespace") == isolation.user_namespace, isolation
assert isolation.mode == "namespace" or isolation.reason
project = Path(sys.argv[1])
with Site.create(project) as site:
    machine = site.machine("first")
    out, env = machine.seat_out, machine.environment(os.environ)
    command = ["sh", "-c", f"id -u; echo state > {out}/last.pt; cat {project}/train.py; echo no > {project}/train.py"]
    with ProcessTree.start(
        command, env=env, cwd=machine.seat_project, log_path=site.base / "log", enter=machine.enter
    ) as tree:
        print("code", tree.wait(30), (site.base / "log").read_text())
    assert (machine.out / "last.pt").read_text() == "state\\n"
    assert isolation.mode == "sequential" or (project / "train.py").read_text() == "pass\\n"
"""


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root to become somebody else"
)
def test_a_user_without_privileges_gets_namespaces_or_the_reason_why_not(strangers_project):
    source = str(Path(samestep.__file__).parents[1])
    command = [
        *WITHOUT_PRIVILEGES.split(),
        sys.executable,
        "-c",
        AS_A_STRANGER,
        str(strangers_project),
        source,
    ]
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f" {NOBODY}\npass\n" in done.stdout


def test_without_any_namespace_machines_take_turns_and_say_why(monkeypatch, project):
    from samestep.process import isolation

    monkeypatch.setattr(isolation, "_try_namespaces", lambda **_: "unshare: Operation not permitted")
    probe_isolation.cache_clear()
    try:
        assert probe_isolation().mode == "sequential"
        assert "Operation not permitted" in probe_isolation().reason
        assert "one after the other" in capabilities()[0].reason
        with Site.create(project) as site:
            assert not site.parallel
            assert run(site.machine("first"), "pwd") == (0, f"{site.seat}/project\n")
    finally:
        probe_isolation.cache_clear()


@namespaces
def test_a_machine_that_cannot_be_entered_says_which_mount_failed(project):
    with Site.create(project) as site:
        machine = site.machine("first")
        site.inputs = (Path("/does/not/exist"),)
        with pytest.raises(MachineError, match=r"machine could not be entered.*/does/not/exist"):
            run(machine, "true")


@namespaces
def test_no_mount_is_left_on_this_computer(project):
    before = Path("/proc/self/mountinfo").read_text()
    with Site.create(project, inputs=["data"]) as site, start(site.machine("first"), "sleep 1000"):
        assert Path("/proc/self/mountinfo").read_text() == before
    assert Path("/proc/self/mountinfo").read_text() == before


def test_capabilities_are_tried_and_give_reasons(tmp_path):
    found = capabilities(tmp_path)
    assert [c.name for c in found][:3] == ["parallel machines", "mount namespace", "user namespace"]
    assert all(c.reason for c in found)
    assert capabilities(tmp_path / "missing")[-1].available is False
