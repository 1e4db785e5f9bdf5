"""The recorder in places that allow less: older kernels, containers, other users, fresh machines."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from pathlib import Path

import pytest

from samestep.crash.operations import Kind
from samestep.crash.recorder import Order, abi, capability, running, supervisor_command
from samestep.crash.recorder.proof import prove
from samestep.crash.recording import Recording
from samestep.process import ProcessTree
from sealing import SOURCE, sealed

PROCESS_VM_READV = {"x86_64": 310, "aarch64": 270}
WORK = """
import os
os.makedirs("out", exist_ok=True)
for i in range({rounds}):
    with open("out/new", "xb") as file: file.write(b"x" * 5000); file.flush(); os.fsync(file.fileno())
    os.rename("out/new", "out/now")
    os.mkdir("out/d"); os.rmdir("out/d")
"""


@pytest.fixture
def behind(monkeypatch):
    """Let every recorder that is started run behind a seal."""

    def put(prefix):
        monkeypatch.setattr(
            running, "supervisor_command", lambda order: [*prefix, *supervisor_command(order)]
        )

    return put


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (1, "forbid seccomp filters"),
        (22, "no seccomp user notification"),
        (16, "listens to the system calls"),
    ],
)
def test_a_refusal_is_explained(behind, error, expected):
    behind(sealed(number=abi.here().seccomp, error=error))
    found = capability.capability()
    assert not found.available
    assert expected in found.reason


def test_a_recorder_inside_a_recorder_is_refused_with_the_reason(bench):
    script = f"""
import sys
sys.path.insert(0, {str(SOURCE)!r})
from samestep.crash.recorder.capability import capability
print(capability())
"""
    bench.start([sys.executable, "-c", script])
    assert "another supervisor listens" in bench.log.read_text()


def test_a_folder_that_cannot_be_written_is_named(bench):
    (bench.folder / "file").touch()
    with pytest.raises(running.MachineError, match="nothing can be written"):
        running.record(["true"], roots=[bench.out], folder=bench.folder / "file" / "recording")


def test_memory_is_read_through_proc_where_the_direct_way_is_closed(behind, bench):
    behind(sealed(number=PROCESS_VM_READV[os.uname().machine], error=1))
    recording = bench.python(WORK.format(rounds=3))
    assert sum(operation.kind is Kind.WRITE for operation in recording.operations) == 3


@pytest.mark.parametrize("kernel", ["new", "old"])
def test_signals_do_not_repeat_or_lose_operations(behind, bench, kernel):
    if kernel == "old":  # as before 5.19: calls that are being worked on can be interrupted
        behind(sealed(number=abi.here().seccomp, mask=abi.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, error=22))
    storm = """
import signal
signal.signal(signal.SIGALRM, lambda *_: None); signal.siginterrupt(signal.SIGALRM, False)
signal.setitimer(signal.ITIMER_REAL, 0.0007, 0.0007)
"""
    recording = bench.python(storm + WORK.format(rounds=150) + "signal.setitimer(signal.ITIMER_REAL, 0)")
    assert bool(recording.header.notes) == (kernel == "old")
    made = [operation for operation in recording.operations if operation.kind is Kind.CREATE]
    assert [operation.errno for operation in made] == [0] * 150


NOBODY = """
import ctypes, os, sys
sys.path.insert(0, {source!r})
from samestep.crash.recorder import Order
from samestep.crash.recorder.supervisor import supervise
os.setgroups([]); os.setgid(65534); os.setuid(65534)
ctypes.CDLL(None).prctl(4, 1)  # readable by its own user again
status = open("/proc/self/status").read()
assert "CapEff:\\t0000000000000000" in status
sys.exit(supervise(Order(({out!r},), {folder!r}), ["sh", "-c", {script!r}]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_no_privileges_are_needed(bench):
    script = "mkdir out; echo one > out/tmp; sync out/tmp; mv out/tmp out/final; cp out/final out/copy; rm out/copy"
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        place = Path(name)
        place.chmod(0o755)
        work = place / "work"
        work.mkdir()
        os.chown(work, 65534, 65534)
        places = {"out": str(work / "out"), "folder": str(work / "recording")}
        argv = [sys.executable, "-c", NOBODY.format(source=str(SOURCE), script=script, **places)]
        with ProcessTree.start(argv, env=dict(os.environ), cwd=work, log_path=bench.log) as tree:
            assert tree.wait(60) == 0, bench.log.read_text()
        with Recording.open(work / "recording") as recording:
            assert recording.header.complete, recording.header.notes
            assert recording.header.notes == []
            kinds = [operation.kind for operation in recording.operations if not operation.derived]
            assert [str(kind) for kind in kinds] == [
                "mkdir",
                "create",
                "write",
                "sync",
                "rename",
                "create",
                "write",
                "unlink",
            ]
            assert prove(recording, work / "out") == []


@pytest.mark.parametrize("user_namespace", [False, True])
def test_a_machine_of_its_own_makes_no_difference(bench, user_namespace):
    from samestep.process.isolation import _try_namespaces
    from samestep.process.layout import Layout

    if complaint := _try_namespaces(user_namespace=user_namespace):
        pytest.skip(complaint)
    inside, seat = bench.folder / "machine", bench.folder / "seat"
    inside.mkdir()
    seat.mkdir()
    layout = Layout(user_namespace=user_namespace)
    layout.show(inside, seat)
    order = Order((str(seat / "out"),), str(bench.folder / "recording"))
    with ProcessTree.start(
        [sys.executable, "-c", WORK.format(rounds=3)],
        env=dict(os.environ),
        cwd=seat,
        log_path=bench.log,
        enter=layout.enter,
        supervisor=supervisor_command(order),
    ) as tree:
        assert tree.wait(60) == 0, bench.log.read_text()
    with Recording.open(bench.folder / "recording") as recording:
        assert recording.header.complete, recording.header.notes
        assert recording.header.notes == []
        assert prove(recording, inside / "out") == []


def test_a_process_in_other_mounts_is_said_to_be_followed_in_part(bench):
    if os.geteuid() != 0 or os.system("unshare -m true"):
        pytest.skip("no mount namespaces")
    bench.out.mkdir()
    recording = bench.start(["unshare", "-m", "sh", "-c", "echo x > out/a"])
    assert (bench.out / "a").read_text() == "x\n"
    assert any("followed in part only" in note for note in recording.header.notes)


def test_a_process_that_hides_its_memory_is_not_disturbed(bench):
    script = (
        "import ctypes, os; ctypes.CDLL(None).prctl(4, 0); os.mkdir('out'); open('out/a', 'w').write('x')"
    )
    recording = bench.start([sys.executable, "-c", script])
    assert recording.header.exit_code == 0
    assert (bench.out / "a").read_text() == "x"


def test_json_of_an_order_is_one_argument():
    order = Order(("/a b",), "/c")
    assert json.loads(supervisor_command(order)[-1])["roots"] == ["/a b"]


def test_a_group_signal_of_the_command_leaves_the_recorder_alone(bench):
    script = WORK.format(rounds=1) + "import signal; os.killpg(0, signal.SIGKILL)"
    recording = bench.run([sys.executable, "-c", script], exit_code=128 + signal.SIGKILL)
    assert sum(operation.kind is Kind.RENAME for operation in recording.operations) == 1
