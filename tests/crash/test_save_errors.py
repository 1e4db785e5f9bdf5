"""The kernel's own answers to a save: errors and interruptions at every operation that its recording shows."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from pathlib import Path

import pytest

from samestep.crash.operations import Kind
from samestep.crash.recorder import Fault

TESTS = Path(__file__).parents[1]
SAVE = """
import concurrent.futures, json, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from bundle_samples import REST, again, files, save, started
from samestep.bundle.storage.contents import BufferContent
from samestep.bundle.storage.local import LocalStorage
from samestep.errors import SamestepError

PARTS = files(2) | {{"large.bin": bytes(range(256)) * ((16 << 12) + 17)}}
CARRIED = {{"model.safetensors": ["weights"], "state/optimizer.bin": ["optimizer"]}}

def attempt_on(folder):
    _, attempt = started(LocalStorage(folder))
    save(attempt, 1)
    return again(LocalStorage(folder))

def tried(case):
    store, attempt = attempt_on(Path("before") / case)
    # The watched name begins to exist only now, so that nothing before the save is answered for.
    Path("before", case).rename(Path("out", case))
    store.storage.root = Path("out", case).absolute()
    told = made = ""
    try:
        with attempt.begin(step=2) as saving:
            add = lambda path: saving.add(path, BufferContent(PARTS[path]), components=CARRIED.get(path, ()))
            with concurrent.futures.ThreadPoolExecutor(3) as pool:
                list(pool.map(add, PARTS))
            made = saving.commit(contract=REST).id
    except SamestepError as error:
        told = error.message
    steps = [one.step for one in store.bundles()]
    after = save(attempt, 3)
    whole = all(store.verify(one).holds for one in store.bundles())
    print(json.dumps([case, told, made, steps, whole, store.select().bundle == after.id]), flush=True)

Path("out").mkdir(exist_ok=True)
for case in sys.argv[1:]:
    tried(case)
"""
RANDOM = re.compile(r"b-\w{18}-\w{10}|(?<=unfinished-)[0-9a-f]{16}")


def role(operation):
    """What an operation did to what, without what differs between runs; as in ``fnmatch``."""
    name = operation.path.split("/out/", 1)[-1].partition("/")[2]
    return operation.kind, RANDOM.sub(lambda found: "?" * len(found[0]), name)


def roles_of(recording, case):
    """The roles of the operations of a save, up to its commit, in order and each once."""
    counted = [op for op in recording.operations if f"/out/{case}" in op.path and not op.derived]
    commits = [at for at, op in enumerate(counted) if op.kind is Kind.LINK and "/chain/" in op.target]
    settled = next(at for at, op in enumerate(counted) if at > commits[0] and op.path.endswith("/chain"))
    ends = [op for op in counted[: settled + 1] if op.kind not in (Kind.CLOSE, Kind.OPEN, Kind.RENAME)]
    return list(dict.fromkeys(map(role, ends)))


def faults_on(case, kind, name, error, count):
    path = f"*/out/{case}/{name}" if name else f"*/out/{case}"
    return Fault(error, (kind,), path, count=count)


def run(bench, cases, faults=()):
    argv = [sys.executable, "-c", SAVE.format(tests=str(TESTS)), *cases]
    recording = bench.start(argv, faults=tuple(faults), timeout=240)
    assert recording.header.exit_code == 0, bench.log.read_text()
    lines = [json.loads(line) for line in bench.log.read_text().splitlines() if line.startswith("[")]
    return recording, {line[0]: line[1:] for line in lines if line[0] in cases}


@pytest.fixture
def roles(bench):
    recording, outcomes = run(bench, ["plain"])
    assert outcomes["plain"][0] == ""
    found = roles_of(recording, "plain")
    kinds = {kind for kind, _ in found}
    assert {Kind.CREATE, Kind.WRITE, Kind.SYNC, Kind.LINK, Kind.MKDIR, Kind.UNLINK, Kind.ALLOCATE} <= kinds
    return found


@pytest.mark.full  # tests/unit/bundle/test_save_faults.py does the like above the kernel, in a fraction of the time
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
def test_every_recorded_operation_that_fails_leaves_no_bundle_and_is_told(bench, roles, error):
    cases = {f"case-{number:02}": role for number, role in enumerate(roles)}
    faults = [faults_on(case, *role, error, 1) for case, role in cases.items()]
    recording, outcomes = run(bench, cases, faults)
    injected = [op for op in recording.operations if op.injected]
    assert {op.path.split("/out/", 1)[1].split("/")[0]: role(op) for op in injected} == cases
    for case, (told, made, steps, whole, selected) in outcomes.items():
        kind, name = cases[case]
        assert whole, cases[case]
        assert selected, cases[case]
        if kind is Kind.UNLINK and "unfinished" in name:
            assert made, name  # the temporary name stays, and the next prune takes it
            continue
        assert os.strerror(getattr(errno, error)) in told, cases[case]
        assert f"/out/{case}" in told
        assert steps == [1] or (kind, name) == (Kind.SYNC, "chain"), cases[case]


def test_every_recorded_operation_may_be_interrupted(bench, roles):
    faults = [faults_on("case", *role, "EINTR", 2) for role in roles]
    recording, outcomes = run(bench, ["case"], faults)
    told, made, steps, whole, selected = outcomes["case"]
    assert (told, steps, whole, selected) == ("", [2, 1], True, True)
    assert made
    assert {role(op) for op in recording.operations if op.injected} >= set(roles)
