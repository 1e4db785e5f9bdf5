"""Disk states that interruptions of work on a bundle store can leave."""

from __future__ import annotations

import bisect
import contextlib
import json
import os
import random
import re
import shutil
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import xxhash

from crash.store_needs import Needs, Said
from crash.store_work import prepared
from samestep.crash.image import File, Folder, Image
from samestep.crash.materialise import write_content
from samestep.crash.models import COMPOUND, MODELS
from samestep.crash.operations import Kind
from samestep.crash.recorder.running import record
from samestep.crash.recording import Recording
from samestep.crash.replay import differences, replay
from samestep.crash.scene import Scene
from samestep.crash.windows import Window

TESTS = Path(__file__).parents[1]
SMALL_BYTES = 1 << 16
_VARYING = re.compile(
    rb"[abr]-\d{8}t\d{9}-[0-9a-f]{10}"  # ids
    rb"|\d{4}-\d\d-\d\dT[0-9:.]+Z?|\b\d{10}\.\d+"  # times
    rb"|(?<=seconds\":)[\d.e-]+"
    rb"|\.(?:unfinished|restoring)-[0-9a-f]+|\b[0-9a-f]{16,64}\b"  # nonces and digests
)


@dataclass
class Worked:
    """What was recorded of one scenario.

    Attributes:
        name: of the scenario, with a detail after ``@``.
        recording: of its disk alone.
        base: what was there before.
        said: everything that callers were told, in order.
        before: what they had been told before the recording began.
        ordered: in what was there before, names and the removal of names had become durable in their order.
    """

    name: str
    recording: Recording
    base: Image
    said: list[Said]
    before: tuple[Said, ...] = ()
    ordered: bool = True
    _known: dict[bytes, bytes] = field(default_factory=dict)
    _leveled: dict[bytes, bytes] = field(default_factory=dict)

    @property
    def scenario(self):
        return self.name.partition("@")[0]

    @property
    def second(self):
        """Index of the first operation after an interruption within the recording."""
        return next((said.after + 1 for said in self.said if said.word == "killed"), None)

    def shape(self, image):
        """Digest an image without what differs between two runs of the same work: ids, nonces and times."""
        terms = sorted(self._term(name, node) for name, node in image.below())
        return xxhash.xxh3_128_digest(b"\0".join(terms))

    def _term(self, name, node):
        content = self._level_content(node.content) if isinstance(node, File) else b"folder"
        content = b"the last step, and when" if name.endswith(".step") else content
        return self._level(name.encode()) + b"\0" + content

    def _level_content(self, content):
        if content.digest not in self._leveled:
            small = content.size <= SMALL_BYTES
            data = self._level(content.read()) if small else content.digest
            self._leveled[content.digest] = b"%d " % content.size + xxhash.xxh3_128_digest(data)
        return self._leveled[content.digest]

    def _level(self, data):
        return _VARYING.sub(lambda found: self._known.setdefault(found[0], b"#%d" % len(self._known)), data)


@dataclass
class Case:
    """One disk state.

    Attributes:
        worked: where it is from.
        image: what is on the disk.
        name: of the first way to get there.
        models: that allow it, the weakest first.
        second: it is what a second interruption leaves.
        told: how many things may have been said when the interruption came.
    """

    worked: Worked
    image: Image
    name: str
    models: list[str] = field(default_factory=list)
    second: bool = False
    told: set[int] = field(default_factory=set)

    @property
    def kinds(self):
        """The models as they are counted: a second interruption is one of its own."""
        return [COMPOUND] if self.second else self.models

    @property
    def ordered(self):
        """Whether names and the removal of names became durable in their order."""
        return self.worked.ordered and self.models != ["posix-worst"]

    def needs(self):
        """Return what must hold for each of the moments at which the interruption may have come."""
        return [Needs.of((*self.worked.before, *self.worked.said[:count])) for count in sorted(self.told)]

    def shape(self):
        """Digest of what is on the disk, the same for the same work in another run."""
        return self.worked.shape(self.image)


def record_work(names, where, *, bases=None, driver="crash.store_trouble"):
    """Let a process work through scenarios while it is recorded.

    Args:
        names: of scenarios, see ``store_work``; each works in a folder of its own.
        where: an empty folder on a fast file system.
        bases: cases to begin with instead of an empty disk, by name.
        driver: module to run.

    Returns:
        What was recorded of each, by name; every recording accounts for every byte on the disk.
    """
    bases = bases or {}
    for name in names:
        folder = prepared(where, name)
        if name in bases:
            lay_out(bases[name].image, folder / "disk", where / "contents")
    done = record(
        [sys.executable, "-m", driver, str(where), *names],
        roots=[where],
        folder=where / "recording",
        cwd=where,
        env={**os.environ, "PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1"},
        log_path=where / "log",
        timeout=300,
    )
    assert done.header.exit_code == 0, (where / "log").read_text()
    assert done.header.complete, done.header.notes
    parts = _split(done, names, os.path.realpath(where))
    for name, worked in parts.items():
        if name in bases:
            _put_on(worked, bases[name])
        disk = where / name / "disk"
        assert differences(replay(worked.recording, worked.base), disk) == [], name
        shutil.rmtree(disk)
    return parts


def _put_on(worked, case):
    """Let what was recorded begin with a state, and with all that may have been said before it was left."""
    worked.base = case.image.placed(worked.recording.header.roots[0])
    worked.ordered = case.ordered
    worked.before = (*case.worked.before, *case.worked.said[: max(case.told)])


def _split(done, names, where):
    """Take the recording of several scenarios apart."""
    operations = {name: [] for name in names}
    said = {name: [] for name in names}
    for operation in done.operations:
        name, _, inside = operation.path.removeprefix(f"{where}/").partition("/")
        kind, _, rest = inside.partition("/")
        if not operation.done or name not in operations:
            continue
        if kind == "told" and operation.kind is Kind.CREATE:
            _, word, *details = rest.split(" ")
            said[name].append(Said(len(operations[name]) - 1, word, tuple(details)))
        elif kind == "disk":
            operations[name].append(msgspec.structs.replace(operation, index=len(operations[name])))
    parts = {}
    for name in names:
        root = f"{where}/{name}/disk"
        header = msgspec.structs.replace(done.header, roots=[root])
        recording = Recording(header, operations[name], done._file)
        parts[name] = Worked(name, recording, _empty(root), said[name])
    return parts


def _empty(root):
    """Return an image in which the disk is there, and nothing is on it."""
    image = Image(root)
    number = image.next_number()
    image.put(number, Folder())
    image.graft(root, number)
    return image.settled()


def cases_of(worked, models=tuple(MODELS)):
    """Return every different state that an interruption at any moment can leave.

    States count as one when all bytes and names are equal; what must hold is what must hold for any of them. Of
    work that goes on after an interruption, only what a second interruption leaves is returned.

    Args:
        worked: what was recorded.
        models: persistence models, the weakest first.
    """
    window = Window(worked.name, 0, 0, tuple(range(len(worked.recording.operations))))
    scene = Scene.of(worked.recording, window, worked.base)
    moments = [said.after for said in worked.said]
    compound = bool(worked.before) or worked.second is not None
    cases = {}
    for model in models:
        for found in MODELS[model].states(scene):
            after = found.cut.after if found.after is None else found.after
            if after < (worked.second or -1):
                continue
            name = "/".join(filter(None, (worked.name, model, found.cut.label, found.suffix)))
            case = cases.setdefault(found.image.digest(), Case(worked, found.image, name))
            if model not in case.models:
                case.models.append(model)
            case.second = compound
            case.told.add(bisect.bisect_right(moments, after))
    return list(cases.values())


def different(cases):
    """Return the cases whose disks differ in more than ids and times; of equal ones that of which most was said."""
    kept = {}
    for case in cases:
        shape = case.shape()
        known = kept.setdefault(shape, case)
        if max(known.told) + len(known.worked.before) < max(case.told) + len(case.worked.before):
            kept[shape] = case
    return list(kept.values())


def sampled(cases, most, seed):
    """Return a seeded sample that takes turns among scenarios and models."""
    chosen = random.Random(seed)
    groups = {}
    for case in cases:
        groups.setdefault((case.worked.scenario, case.models[0]), []).append(case)
    for group in groups.values():
        chosen.shuffle(group)
    longest = max(map(len, groups.values()), default=0)
    turns = [case for turn in range(longest) for group in groups.values() for case in group[turn : turn + 1]]
    return turns[:most]


def counted(cases):
    """Return how many of the cases each model adds to what weaker ones allow, and how many it allows in all."""
    added = Counter(case.kinds[0] for case in cases)
    allowed = Counter(kind for case in cases for kind in set(case.kinds))
    return {model: (added[model], allowed[model]) for model in (*MODELS, COMPOUND)}


def told(cases, of, restored, seconds, seed):
    """Print how many states of each model were checked; return the same as a row."""
    counts = counted(cases)
    print(f"seed {seed}: {len(cases)} of {of} different states checked, {restored} restored, {seconds:.0f} s")
    for model, (added, allowed) in counts.items():
        print(f"{model:>12}: {allowed} states, {added} that no weaker model allows")
    return {"seed": seed, "checked": len(cases), "restored": restored, "models": counts}


def keep_row(name, row):
    """Keep a row for ``scripts/write_store_states.py``, where the environment says in which file."""
    file = Path(os.environ.get("STORE_STATES_ROWS") or os.devnull)
    rows = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    file.write_text(json.dumps(rows | {name: row}), encoding="utf-8")


def lay_out(image, folder, contents):
    """Write the disk of an image as hard links to its contents: nothing that a store keeps is ever written to.

    Args:
        image: what to write.
        folder: missing or empty.
        contents: folder of whole files by content, on the same file system.
    """
    contents.mkdir(exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    for name, node in image.below():
        path = folder / name
        if isinstance(node, File):
            whole = contents / node.content.digest.hex()
            if not whole.exists():
                _write(node.content, whole)
            path.hardlink_to(whole)
        elif name:
            path.mkdir()


def _write(content, path):
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444)
    try:
        write_content(content, file)
    finally:
        os.close(file)


def changed_contents(where):
    """Return the contents that somebody has written to, though a store may only ever make new files."""
    found = Image.load(where / "contents").files()
    return [name for name, content in found.items() if content.digest.hex() != name]


@contextlib.contextmanager
def laid_out(case, where):
    """Lend the disk of a case."""
    folder = where / "state"
    lay_out(case.image, folder, where / "contents")
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def fast_folder(fallback):
    """Lend a folder in memory, where the machine has a file system there."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK) or shutil.disk_usage(memory).free < 4 << 30:
        yield fallback
        return
    folder = memory / f"samestep-states-{os.getpid()}-{fallback.name}"
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
