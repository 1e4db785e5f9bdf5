"""Power cuts after real writers: what they leave, beside the recording from which it should have been foretold."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from crash.disks import Disk, mount_alone, mounted
from crash.writers import WRITERS
from samestep.crash.image import Image
from samestep.crash.recorder.proof import prove
from samestep.crash.recorder.running import record
from samestep.crash.recording import OPERATIONS, Recording
from samestep.crash.replay import replay

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
WRITING = "while writing"
RECORDED_AT_ONCE = 4  # they mostly wait, too
MOST_CUTS_WHILE_WRITING = 12


@dataclass(frozen=True)
class Case:
    """A writer on a file system."""

    writer: str
    kind: str

    def __str__(self):
        return f"{self.writer} on {self.kind}"


@dataclass(frozen=True)
class Seen:
    """What one power cut left.

    Attributes:
        moment: ``while writing``, or seconds after the writer had ended.
        digest: of the tree.
        files: what became of each file, in a word.
    """

    moment: str
    digest: str
    files: dict[str, str]


@dataclass
class Observation:
    """A case that was tried: its recording and what the power cuts left."""

    case: Case
    recording: Recording
    base: Image
    end: Image
    seen: list[Seen] = field(default_factory=list)


def observe(cases, moments, pause, folder, stack):
    """Try all cases at once, since they mostly wait.

    Args:
        cases: the cases.
        moments: seconds after the end of a writer at which its disk is copied.
        pause: seconds a writer waits between its saves.
        folder: for images and recordings.
        stack: closes the recordings.
    """
    gate = threading.Semaphore(RECORDED_AT_ONCE)
    trials = [_Trial(case, folder / f"case-{number}", gate) for number, case in enumerate(cases)]
    with ThreadPoolExecutor(len(trials), initializer=mount_alone) as pool:
        found = list(pool.map(lambda trial: trial.run(moments, pause), trials))
    for observation in found:
        stack.enter_context(observation.recording)
    return {observation.case: observation for observation in found}


class _Trial:
    def __init__(self, case, folder, gate):
        self.case = case
        self.folder = folder
        self._gate = gate
        self._cuts = []

    def run(self, moments, pause):
        with Disk(self.case.kind, self.folder) as disk:
            out = disk.mount / "out"
            self._lay_base(out)
            disk.settle()
            recording = self._record(disk, out, pause)
            ended = time.monotonic()
            for moment in moments:
                time.sleep(max(0.0, ended + moment - time.monotonic()))
                self._cuts.append((f"+{moment} s", disk.cut()))
            self._require_exact(recording, out)
        base = Image.load(self.folder / "base", str(out))
        return self._examined(Observation(self.case, recording, base, replay(recording, base)))

    def _lay_base(self, out):
        """Put what is there beforehand on the disk, and a copy of it in a safe place."""
        for top in (out, self.folder / "base"):
            top.mkdir()
        for path, size in WRITERS[self.case.writer].base.items():
            content = os.urandom(size)
            for top in (out, self.folder / "base"):
                (top / path).parent.mkdir(exist_ok=True)
                (top / path).write_bytes(content)

    def _record(self, disk, out, pause):
        elsewhere, recording = self.folder / "elsewhere", self.folder / "recording"
        elsewhere.mkdir()
        script = WRITERS[self.case.writer].script
        argv = [sys.executable, "-c", script, str(out), str(elsewhere), str(pause)]
        options = {
            "roots": [out],
            "folder": recording,
            "cwd": elsewhere,
            "env": ENVIRONMENT,
            "timeout": 300.0,
        }
        with self._gate, ThreadPoolExecutor(1) as pool:
            writing = pool.submit(record, argv, log_path=self.folder / "log", **options)
            while not writing.done():
                time.sleep(max(pause / 4, 0.2))
                if _has_begun(recording) and len(self._cuts) < MOST_CUTS_WHILE_WRITING and not writing.done():
                    self._cuts.append((WRITING, disk.cut()))
        return writing.result()

    def _require_exact(self, recording, out):
        """Make sure that the writer did its work, and that the recording has all of it."""
        assert recording.header.exit_code == 0, (self.folder / "log").read_text()
        assert recording.header.complete, recording.header.notes
        assert prove(recording, out, self.folder / "base") == []

    def _examined(self, observation):
        """Look into every copy; mounting one replays its journal, as the first start after a power cut does."""
        for number, (moment, image) in enumerate(self._cuts):
            with mounted(image, self.case.kind, self.folder / f"after-{number}") as mount:
                tree = Image.load(mount / "out", observation.end.root)
                fates = _fates(tree, observation.base, observation.end)
                observation.seen.append(Seen(moment, tree.digest(logs=False), fates))
            image.unlink()
        return observation


def _has_begun(recording):
    """Tell whether a writer under the recorder has done anything to its folder yet."""
    operations = recording / OPERATIONS
    return operations.exists() and operations.stat().st_size > 0


def _fates(tree, base, end):
    """Say in a word what became of each file that was there before, is there now, or should be there at last."""
    found, old, new = (image.files() for image in (tree, base, end))
    return {
        path: _fate(found.get(path), old.get(path), new.get(path)) for path in sorted({*found, *old, *new})
    }


def _fate(found, old, new):
    if found is None:
        return "gone" if new is None else "absent"
    for word, content in (("whole", new), ("old", old)):
        if content is not None and found.digest == content.digest:
            return word
    if not found.size:
        return "empty"
    if not any(found.read()) and (new is None or found.size == new.size):
        return "zeros"
    return "there" if new is None else "partial"


def table(observations, moments):
    """Return a page's table: what became of the files of each case while it was written, and some seconds later."""
    columns = [WRITING, *(f"+{moment} s" for moment in moments)]
    rows = [["writer", "file system", *columns]]
    for observation in observations:
        told = {
            column: [_told(seen.files) for seen in observation.seen if seen.moment == column]
            for column in columns
        }
        cells = ["<br>or ".join(dict.fromkeys(told[column])) for column in columns]
        rows.append([observation.case.writer, observation.case.kind, *cells])
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]]) + "\n"


def _told(files):
    """Tell the fates of files, those in folders counted."""
    folders = {}
    for path, fate in files.items():
        folder, _, name = path.rpartition("/")
        folders.setdefault(folder or name, Counter())[fate] += 1
    told = [f"`{folder}` {_counted(fates)}" for folder, fates in folders.items()]
    return ", ".join(told)


def _counted(fates):
    if fates.total() == 1:
        return next(iter(fates))
    if len(fates) == 1:
        return f"all {next(iter(fates))}"
    return " + ".join(f"{number} {fate}" for fate, number in fates.most_common())
