"""What a training process sees of its own saves: never a state that the supervisor's recording rules out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from samestep.crash.image import Image
from samestep.crash.looks import recording_of_looks
from samestep.crash.operations import Kind
from samestep.crash.recorder.proof import prove
from samestep.crash.recorder.running import record
from samestep.crash.states import enumerate_states
from samestep.crash.windows import save_windows
from samestep.probe.looks import CONTENT, LINES, Keeper, Looks

SOURCE = Path(__file__).parents[2] / "src"

START = """
import json, os, pathlib, pickle, shutil, sys, threading, types
sys.path.insert(0, {source!r})
{torch}
from samestep.probe import looks
from samestep.trace.marks import set_mark
looks.Looks("looks", "out").install(torch)
base = pathlib.Path("out")
base.mkdir()
def go_on():
    pass
"""

FAKE = """
def write(state, path):
    with open(path, "wb") as file:
        pickle.dump(state, file)
torch = types.SimpleNamespace(save=write, serialization=types.SimpleNamespace())
"""
"""Stands in for torch where what it writes does not matter."""

WRITERS = {
    "in place": """
        def save(step, state):
            torch.save(state, out / "state.pt")
    """,
    "file object": """
        def save(step, state):
            with open(out / f"step-{step}.pt", "wb") as file:
                torch.save(state, file)
    """,
    "careful": """
        def save(step, state):
            torch.save(state, out / "writing")
            with open(out / "writing", "rb+") as file:
                os.fsync(file.fileno())
            os.replace(out / "writing", out / "state.pt")
    """,
    "folder renamed": """
        def save(step, state):
            aside = out / f"tmp-{step}"
            aside.mkdir()
            torch.save(state, aside / "model.pt")
            (aside / "progress.json").write_text(json.dumps({"step": step}))
            aside.rename(out / f"checkpoint-{step}")
    """,
    "rotation": """
        def save(step, state):
            old = list(out.glob("checkpoint-*"))
            folder = out / f"checkpoint-{step}"
            folder.mkdir()
            torch.save(state, folder / "model.pt")
            torch.save(state, folder / "optimizer.pt")
            for path in old:
                shutil.rmtree(path)
    """,
    "pointer": """
        def save(step, state):
            torch.save(state, out / f"step-{step}.pt")
            (out / "latest.new").write_text(f"step-{step}.pt")
            os.replace(out / "latest.new", out / "latest")
            os.symlink(f"step-{step}.pt", out / "newest.new")
            os.replace(out / "newest.new", out / "newest")
    """,
    "safetensors": """
        from safetensors.torch import save_file
        def save(step, state):
            folder = out / f"checkpoint-{step}"
            folder.mkdir()
            save_file({"weight": state["weight"]}, folder / "model.safetensors")
            (folder / "progress.json").write_text(json.dumps({"step": step}))
    """,
    "in a thread": """
        def save(step, state):
            writer = threading.Thread(target=torch.save, args=(state, out / f"step-{step}.pt"))
            writer.start()
            writer.join()
    """,
    "piece by piece": """
        file, rest = None, []
        def save(step, state):
            global file, rest
            file, rest = open(out / f"step-{step}.pt", "wb", buffering=0), [bytes([step]) * 5000] * 3
            file.write(rest.pop())
        def go_on():
            if rest:
                file.write(rest.pop())
            elif file and not file.closed:
                os.fsync(file.fileno())
                file.close()
    """,
    "moved in from elsewhere": """
        def save(step, state):
            torch.save(state, "staged.pt")
            shutil.move("staged.pt", out / f"step-{step}.pt")
    """,
}


SAVES = {name: (6 * at + 3, 6 * at + 6) for at, name in enumerate(WRITERS)}
"""After which steps each of the writers saves."""


def all_writers():
    """A script in which one writer after the other saves twice."""
    text = START.format(source=str(SOURCE), torch="import torch\nweight = torch.arange(5000.0)")
    text += f"for name in {list(WRITERS)}:\n    (base / name).mkdir()\n"
    for name, writer in WRITERS.items():
        text += f"out = base / {name!r}\n{textwrap.dedent(writer)}"
        for step in SAVES[name]:
            text += f"for done in range({step - 2}, {step + 1}):\n    go_on()\n    set_mark(0, done)\n"
            text += f'save({step}, {{"step": {step}, "weight": weight + {step}}})\n'
    return text + "go_on()\n" * 4


def one_writer(more="", rank=0):
    """A script that saves twice without torch."""
    text = START.format(source=str(SOURCE), torch=FAKE) + "out = base\n" + more
    for step in (3, 6):
        text += f"for done in range({step - 2}, {step + 1}):\n    set_mark({rank}, done)\n"
        text += f'torch.save(bytes([{step}]) * 20_000, out / "state.bin")\n'
    return text


def seen(folder, steps=6):
    """The recording that the looks of a script in ``folder`` make."""
    out = folder / "out"
    return recording_of_looks(
        folder / "looks", folder / "seen", final=out, root=str(out), command=["python"], steps=steps
    )


def whole_states(recording):
    """Digests of what a kill can leave without a torn write, by save."""
    base = Image(recording.header.roots[0])
    return {
        window.name: {
            state.digest
            for state in enumerate_states(recording, window, base, ["kill"]).states
            if not state.damage
        }
        for window in save_windows(recording)
    }


def ran(tmp_path, text, steps=6):
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return seen(tmp_path, steps)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """What a supervisor recorded of all writers, and what their own process saw."""
    folder = tmp_path_factory.mktemp("writers")
    command = [sys.executable, "-c", all_writers()]
    log = folder / "log"
    recorded = record(command, roots=[folder / "out"], folder=folder / "recorded", cwd=folder, log_path=log)
    with recorded, seen(folder, 6 * len(WRITERS)) as looked:
        assert recorded.header.exit_code == 0, log.read_text()
        assert looked.header.complete
        assert prove(looked, folder / "out") == []
        yield recorded, looked


of_all_writers = pytest.mark.xdist_group("looks")


@of_all_writers
@pytest.mark.parametrize("name", WRITERS)
def test_what_is_seen_are_states_that_were_there(name, both):
    there, told = map(whole_states, both)
    for step in SAVES[name]:
        states = told[f"save-{step}"]
        assert states <= there[f"save-{step}"]
        assert len(states) >= 2


@of_all_writers
def test_saves_end_one_after_the_other_as_they_did(both):
    there, told = (sorted(save_windows(recording), key=lambda window: window.last) for recording in both)
    assert [window.name for window in told] == [window.name for window in there]


def torn_files(recording, step):
    (window,) = [window for window in save_windows(recording) if window.step == step]
    base = Image(recording.header.roots[0])
    states = enumerate_states(recording, window, base, ["kill"]).states
    return {state.file for state in states if state.way == "torn-half"}


@of_all_writers
@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("in place", {"state.pt"}),
        ("careful", {"state.pt"}),
        ("folder renamed", {"model.pt", "progress.json"}),
        ("safetensors", {"progress.json"}),  # nobody saw where the weights were written
        ("moved in from elsewhere", set()),
    ],
)
def test_only_a_file_that_was_seen_to_be_opened_was_there_in_part(name, files, both):
    assert torn_files(both[1], SAVES[name][1]) == files


def test_what_comes_after_the_last_step_is_found_in_what_was_left(tmp_path):
    text = one_writer() + 'torch.save(b"end", out / "final.bin")\nos._exit(0)'
    with ran(tmp_path, text) as recording:
        assert recording.header.complete
        assert prove(recording, tmp_path / "out") == []


def test_a_pointer_that_changes_last_points_to_what_was_left(tmp_path):
    pointers = """
for step in (3, 6):
    os.symlink(f"s{step}.bin", out / "newest.new")
    os.replace(out / "newest.new", out / "newest")
"""
    with ran(tmp_path, one_writer() + pointers) as recording:
        assert recording.header.complete
        assert prove(recording, tmp_path / "out") == []


OVERWRITTEN = """
set_mark(0, 7)
with open(out / "state.bin", "r+b") as file:
    file.write(b"x" * 20_000)
set_mark(0, 8)
"""
REPLACED_UNSEEN = """
set_mark(0, 7)
(out / "steps.txt").write_text("3")
set_mark(0, 8)
import subprocess
subprocess.run("printf 3%020d 0 > other; mv other out/steps.txt", shell=True, check=True)
"""


@pytest.mark.parametrize(
    ("more", "sizes"),
    [(OVERWRITTEN, {"state.bin": {20_018}}), (REPLACED_UNSEEN, {"steps.txt": {1, 21}})],
    ids=["overwritten", "replaced at the end"],
)
def test_what_was_never_there_in_part_is_not_torn(more, sizes, tmp_path):
    with ran(tmp_path, one_writer() + more, steps=8) as recording:
        assert prove(recording, tmp_path / "out") == []
        (*_, last) = save_windows(recording)
        states = enumerate_states(recording, last, Image(recording.header.roots[0]), ["kill"]).states
        for name, allowed in sizes.items():
            assert {state.image.file(name).size for state in states if state.image.file(name)} <= allowed


def test_a_child_that_trains_looks_where_its_parent_does_not(tmp_path):
    child = "if os.fork():\n    os._exit(os.waitstatus_to_exitcode(os.wait()[1]))\n"
    with ran(tmp_path, one_writer(child)) as recording:
        assert recording.header.complete


@pytest.fixture
def watched(tmp_path):
    """An empty folder, and a keeper that looks at it."""
    root, folder = tmp_path / "out", tmp_path / "looks"
    root.mkdir()
    folder.mkdir()
    return root, Keeper(str(folder), str(root))


def lines_of(tmp_path):
    return [json.loads(line) for line in (tmp_path / "looks" / LINES).read_text().splitlines()]


def test_what_goes_on_while_files_are_read_is_no_moment(watched, tmp_path, monkeypatch):
    (root, keeper), keep = watched, Keeper._keep
    (root / "a").write_text("1")

    def beside(self, path):
        if path.endswith("/a"):
            (root / "b").write_text("2")
        return keep(self, path)

    monkeypatch.setattr(Keeper, "_keep", beside)
    keeper.look("")
    (root / "c").write_text("3")
    keeper.look("")
    keeper.write({"mark": 6})
    with seen(tmp_path) as recording:
        writes = [op for op in recording.operations if op.kind is Kind.WRITE]
        assert {Path(op.path).name: op.together for op in writes} == {"a": True, "b": False, "c": False}


def test_two_writes_within_a_tick_of_the_clock_are_told_apart(watched, tmp_path):
    root, keeper = watched
    second = time.time_ns() // 10**9 * 10**9
    for text in ("one", "two"):
        (root / "a").write_text(text)
        os.utime(root / "a", ns=(second, second))
        keeper.look("")
    kept, places = (
        (tmp_path / "looks" / CONTENT).read_bytes(),
        [line["changed"]["a"] for line in lines_of(tmp_path)],
    )
    assert [kept[at : at + size] for _, _, at, size in places] == [b"one", b"two"]


def test_looks_that_cannot_be_read_cost_the_recording_only(watched, tmp_path):
    (tmp_path / "looks" / LINES).write_text('{"changed"\n')
    with seen(tmp_path) as recording:
        assert not recording.header.complete
        assert "cannot be read" in recording.header.notes[0]


def test_a_forked_child_leaves_the_looks_to_its_parent(tmp_path):
    child = """
if os.fork() == 0:
    open(out / "child", "w").write("x")
    set_mark(0, 100)
    os._exit(0)
os.wait()
"""
    with ran(tmp_path, one_writer() + child) as recording:
        assert prove(recording, tmp_path / "out") == []
        assert [op.step for op in recording.operations if op.kind is Kind.MARK] == list(range(1, 7))


def test_another_rank_does_not_look(tmp_path):
    with ran(tmp_path, one_writer(rank=1)) as recording:
        assert not recording.header.complete
        assert recording.header.notes == ["the probe looked until step 0 of 6"]


def test_looks_that_outgrow_their_limit_end_and_the_training_goes_on(tmp_path):
    with ran(tmp_path, one_writer("looks.LIMIT_BYTES = 15_000\n")) as recording:
        assert not recording.header.complete
        assert "exceeds" in recording.header.notes[0]
        assert (tmp_path / "out/state.bin").read_bytes().count(6) >= 20_000


def test_a_place_that_cannot_be_written_to_costs_the_looks_only(tmp_path):
    (tmp_path / "looks").write_text("in the way")
    with ran(tmp_path, one_writer()) as recording:
        assert not recording.header.complete


def test_a_file_that_vanishes_during_a_look_is_told_as_gone_by_the_next(watched, tmp_path, monkeypatch):
    root, keeper = watched
    file = root / "a"
    file.write_text("1")
    keeper.look("")
    file.write_text("1, then more")

    def too_late(self, path):
        Path(path).unlink()
        raise FileNotFoundError(path)

    monkeypatch.setattr(Keeper, "_keep", too_late)
    keeper.look("")
    told = [(sorted(line["changed"]), line["gone"]) for line in lines_of(tmp_path)]
    assert told == [(["a"], []), ([], []), ([], ["a"])]


@pytest.mark.parametrize(("mode", "held"), [("r+b", True), ("rb", False)])
def test_only_a_file_that_is_open_for_writing_is_still_being_written(watched, tmp_path, mode, held):
    root, keeper = watched
    (root / "a").write_text("1")
    with (root / "a").open(mode):
        keeper.look("")
    (line,) = lines_of(tmp_path)
    assert line["held"] == ([(root / "a").stat().st_ino] if held else [])


def test_names_in_an_open_folder_concern_the_folder_that_is_open(tmp_path):
    looks = Looks(str(tmp_path / "looks"), str(tmp_path / "out"))
    (tmp_path / "out").mkdir()
    (tmp_path / "cache").mkdir()
    found = {}
    for name in ("out", "cache"):
        folder = os.open(tmp_path / name, os.O_RDONLY)
        found[name] = looks._is_inside(("file", folder), 0, 1)
        os.close(folder)
    assert found == {"out": True, "cache": False}
