"""``seal``, ``restore`` and ``copy``, killed before any of the operations that change a folder: whole or not at all."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from forging import Forge
from samestep.bundle.errors import StoreMissing
from samestep.bundle.sealing import seal
from samestep.bundle.storage.opening import open_storage
from samestep.bundle.store import Store

SLACK, POINTS = 8, 8
KILLED = """
import os, signal, sys
limit, folder = int(sys.argv[1]), sys.argv[2]
changes = {"os.rename", "os.link", "os.mkdir", "os.remove", "os.rmdir", "os.truncate", "ctypes.call_function"}
seen, armed = 0, False

def watch(event, arguments):
    global seen, armed
    opened = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
    armed = armed or (opened or event == "os.mkdir") and folder in os.fsdecode(arguments[0] or "")
    if armed and (opened or event in changes):
        seen += 1
        if seen == limit:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(watch)
from samestep.cli.main import _run
code = _run(sys.argv[3:])
print(seen, file=sys.stderr)
sys.exit(code)
"""


def run(folder, limit, *words):
    """Run ``samestep bundle`` and kill it before operation number ``limit``; 0 counts them."""
    return subprocess.run(
        [sys.executable, "-c", KILLED, str(limit), str(folder), "bundle", *map(str, words)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def operations(folder, *words):
    done = run(folder, 0, *words)
    assert done.returncode == 0, done.stderr
    return int(done.stderr.splitlines()[-1])


def points(total):
    """Return numbers spread over all operations but the last: how many varies, and the first run makes .samestep."""
    assert total > POINTS + SLACK
    return [1 + (total - SLACK) * point // (POINTS - 1) for point in range(POINTS)]


def killed(folder, limit, *words):
    assert run(folder, limit, *words).returncode == -signal.SIGKILL


@pytest.fixture
def forge():
    return Forge()


@pytest.fixture
def out(tmp_path, forge):
    for step in (1, 2):
        folder = forge.trainer_checkpoint(tmp_path / "out" / f"checkpoint-{step}", step)
        forge.safetensors(folder / "model.safetensors", f"layer.{step}", size=1 << 20)
    return tmp_path / "out"


def contents(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def sealed(root, folder):
    store = Store.create(open_storage(root))
    return store, seal(store.register(store.select(), "test"), folder)


def test_a_killed_seal_leaves_the_bundle_before_or_the_new_one(tmp_path, out):
    words = ("seal", out / "checkpoint-2", "--run")
    sealed(tmp_path / "counted", out / "checkpoint-1")
    for number, limit in enumerate(points(operations(tmp_path, *words, tmp_path / "counted"))):
        root = tmp_path / f"root-{number}"
        store, _ = sealed(root, out / "checkpoint-1")
        killed(tmp_path, limit, *words, root)
        decision = store.select()
        assert decision.outcome == "resume"
        back = store.restore(store.chosen(decision), to=tmp_path / f"back-{number}")
        assert contents(back) == contents(out / f"checkpoint-{decision.step}")
        assert run(tmp_path, 0, *words, root).returncode == 0
        assert store.select().step == 2


def test_a_killed_restore_leaves_the_whole_folder_or_none(tmp_path, out):
    store, _ = sealed(tmp_path / "root", out / "checkpoint-1")
    words = ("restore", tmp_path / "root", "--into")
    for number, limit in enumerate(points(operations(tmp_path, *words, tmp_path / "counted"))):
        into = tmp_path / f"into-{number}"
        killed(tmp_path, limit, *words, into)
        place = into / "checkpoint-1"
        if place.exists():
            assert contents(place) == contents(out / "checkpoint-1")
        else:
            assert run(tmp_path, 0, *words, into).returncode == 0
            assert [path.name for path in into.iterdir()] == ["checkpoint-1"]
    assert store.select().outcome == "resume"


def test_a_killed_copy_leaves_a_bundle_or_none_and_can_be_repeated(tmp_path, out):
    store, bundle = sealed(tmp_path / "root", out / "checkpoint-1")
    words = ("copy", tmp_path / "root")
    for number, limit in enumerate(points(operations(tmp_path, *words, tmp_path / "counted"))):
        target = tmp_path / f"target-{number}"
        killed(tmp_path, limit, *words, target)
        assert outcome_at(target) in ("missing", "empty", "resume")
        assert run(tmp_path, 0, *words, target).returncode == 0
        other = Store.open(open_storage(target), writing=False)
        back = other.restore(other.chosen(other.select()), to=tmp_path / f"back-{number}")
        assert contents(back) == contents(out / "checkpoint-1")
    assert store.verify(bundle).holds


def outcome_at(root):
    try:
        return Store.open(open_storage(root), writing=False).select().outcome
    except StoreMissing:
        return "missing"
