"""Whatever a process does to files: replaying it gives what is on disk, and every state is one that can be."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from crash_scripts import carry_out, do, empty
from samestep.crash.choose import choose
from samestep.crash.contents import PAGE_BYTES
from samestep.crash.image import Image
from samestep.crash.materialise import materialise
from samestep.crash.models import MODELS
from samestep.crash.operations import Header, Kind, Operation
from samestep.crash.recording import Recording
from samestep.crash.replay import differences, replay
from samestep.crash.states import enumerate_states
from samestep.crash.windows import save_windows

ROOT = "/out"
PATHS = ["a", "b", "d", "d/a", "d/b", "e", "e/c", "f\n é"]
BLOCK = PAGE_BYTES
NAMED = [Kind.CREATE, Kind.OPEN, Kind.RENAME, Kind.LINK, Kind.SYMLINK, Kind.UNLINK, Kind.MKDIR, Kind.RMDIR]
HELD = [Kind.WRITE, Kind.WRITE, Kind.TRUNCATE, Kind.ALLOCATE, Kind.CLOSE, Kind.SYNC, Kind.SYNC_DATA]
MODES = [0, 0x01, 0x03, 0x10, 0x11, 0x08, 0x20]

PRELUDE = [(Kind.CREATE, 0, "a"), (Kind.MKDIR, 0, "d"), (Kind.CREATE, 0, "d/a"), (Kind.WRITE, 1, 3, 0)]

named = st.tuples(st.sampled_from(NAMED), st.integers(0, 8), st.sampled_from(PATHS))
held = st.tuples(st.sampled_from(HELD), st.integers(0, 5), st.integers(0, 5), st.sampled_from(MODES))
scripts = st.lists(named | held, min_size=4, max_size=30)


class Process:
    """Does things to a real folder and records them, failures included."""

    def __init__(self, folder):
        self.folder = folder
        self.bytes = os.memfd_create("bytes")
        self.end = 0
        self.operations = []
        self.files = {}
        self.paths = {}
        self.numbers = {}
        self.header = Header(roots=[ROOT], command=["process"], tier="notify", complete=True)

    def read(self, at, size):
        return os.pread(self.bytes, size, at)

    def real(self, path):
        return f"{self.folder}{path[len(ROOT) :]}" if path.startswith(ROOT) else path

    def number(self, path, *, new=False):
        with contextlib.suppress(OSError):
            inode = os.lstat(self.real(path)).st_ino
            if new:
                self.numbers[inode] = len(self.operations) + 1
            return self.numbers.setdefault(inode, len(self.operations) + 1)
        return len(self.operations) + 1

    def act(self, kind, *rest):
        if kind in NAMED:
            self._named(kind, *rest)
        elif self.files:
            self._held(kind, *rest)

    def _named(self, kind, which, name):
        makes = kind in {Kind.CREATE, Kind.MKDIR, Kind.SYMLINK}
        there = sorted(str(path.relative_to(self.folder)) for path in Path(self.folder).rglob("*"))
        other = f"{ROOT}/{name}"
        path = other if makes or not there else f"{ROOT}/{there[which % len(there)]}"
        target = {Kind.SYMLINK: "text", Kind.RENAME: other, Kind.LINK: other}.get(kind, "")
        inode = len(self.operations) + 1 if makes else self.number(path)
        self.record(Operation(index=0, kind=kind, path=path, target=target, inode=inode))
        if not self.operations or self.operations[-1].inode != inode:
            return
        if makes and self.operations[-1].done:
            self.numbers[os.lstat(self.real(path)).st_ino] = inode
        if kind in {Kind.CREATE, Kind.OPEN} and self.operations[-1].done:
            self.paths[inode] = path

    def _held(self, kind, which, amount, mode):
        inode = sorted(self.files)[which % len(self.files)]
        operation = Operation(index=0, kind=kind, path=self.paths[inode], inode=inode)
        if kind is Kind.WRITE:
            data = bytes([65 + len(self.operations)]) * (amount * 3000 + 1)
            operation.offset, operation.size, operation.at = which * 2500, len(data), self.end
            self.end += os.pwrite(self.bytes, data, self.end)
        elif kind is Kind.TRUNCATE:
            operation.size = amount * 2000
        elif kind is Kind.ALLOCATE:
            operation.offset, operation.size, operation.mode = which * BLOCK, (amount + 1) * BLOCK, mode
        self.record(operation)

    def record(self, operation):
        operation.index = len(self.operations)
        if operation.kind is Kind.OPEN and operation.inode in self.files:
            return
        try:
            do(operation, operation.size, self.files, self, self.real)
        except OSError as error:
            operation.errno = error.errno
        self.operations.append(operation)

    def recording(self):
        for file in self.files.values():
            os.close(file)
        return Recording(self.header, self.operations, self.bytes)


@contextlib.contextmanager
def ran(script):
    """A real folder after a script, and the recording of it."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "real").mkdir()
        process = Process(f"{folder}/real")
        for action in [*PRELUDE, *script]:
            process.act(*action)
        with process.recording() as recording:
            yield Path(folder), recording


def states(recording, *models):
    return [enumerate_states(recording, window, empty(), models) for window in save_windows(recording)]


@given(scripts)
def test_replaying_everything_gives_what_is_on_disk(script):
    with ran(script) as (folder, recording):
        assert differences(replay(recording, empty()), folder / "real") == []


@given(scripts)
def test_every_kill_state_is_what_a_real_process_leaves_that_stops_there(script):
    with ran(script) as (folder, recording):
        for enumeration in states(recording, "kill"):
            for state in enumeration.states:
                real = folder / state.name.replace("/", "-")
                real.mkdir()
                upto, torn = stopped(state, enumeration.window)
                carry_out(recording, real, [o for o in recording.operations[:upto] if o.done], torn)
                assert Image.load(real).digest() == state.digest, state.name


def stopped(state, window):
    """How many operations were begun, and how many bytes of the last one were written."""
    if not state.way:
        return state.after + 1, None
    begun = window.operations[int(re.search(r"/op-(\d+)/", state.name)[1])]
    return begun + 1, int(re.search(r"\((\d+) of", state.damage)[1])


@given(scripts)
def test_states_after_power_loss_are_made_of_pages_that_were_there(script):
    with ran(script) as (_, recording):
        prefixes = [
            state.image for each in states(recording, "kill") for state in each.states if not state.way
        ]
        every = [Image.load(Path("/nonexistent"))]
        for count in range(len(recording.operations) + 1):
            part = Recording(recording.header, recording.operations[:count], -1)
            part.read = recording.read
            every.append(replay(part, empty()))
        known = {
            page for image in every for content in image.files().values() for page in pages(content.read())
        }
        trees = {frozenset(name for name, _ in image.below()) for image in [*every, *prefixes]}
        for enumeration in states(recording, "nfs", "power-ext4", "power-xfs"):
            for state in enumeration.states:
                assert frozenset(name for name, _ in state.image.below()) in trees
                for content in state.image.files().values():
                    assert all(legal(page, known) for page in pages(content.read())), state.name


def pages(data):
    return [data[at : at + PAGE_BYTES] for at in range(0, len(data), PAGE_BYTES)]


def legal(page, known):
    """A page as some prefix had it, in its whole length or up to where the file was cut, or zeros."""
    return not any(page) or any(
        page == other[: len(page)] or not any(zip_rest(page, other)) for other in known
    )


def zip_rest(page, other):
    """What is left of a page that begins like another one: zeros, when the size was set and the data came later."""
    return page[len(other) :] if page.startswith(other) else b"\1"


@given(scripts, st.integers(0, 3))
def test_names_are_unique_counts_are_bounded_and_all_is_repeatable(script, seed):
    with ran(script) as (_, recording):
        first, second = states(recording, *MODELS), states(recording, *MODELS)
        found = [state for enumeration in first for state in enumeration.states]
        names = [name for state in found for name in (state.name, *state.also)]
        assert len(names) == len(set(names))
        assert all(count.raw <= count.most for enumeration in first for count in enumeration.counts)
        assert [s.name for s in found] == [s.name for each in second for s in each.states]
        chosen = choose(found, 5, seed)
        assert choose(list(found), 9, seed)[: len(chosen)] == chosen


@given(scripts)
def test_a_written_state_holds_what_its_image_says(script):
    with ran(script) as (folder, recording):
        for enumeration in states(recording, *MODELS):
            for state in choose(enumeration.states, 5):
                target = folder / state.name.replace("/", "-")
                materialise(state.image, target)
                assert Image.load(target).digest(logs=False) == state.digest
                assert not differences(state.image, target)
