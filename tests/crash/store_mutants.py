"""A bundle store with one of its precautions taken out, at work in a process of its own.

    python -m crash.store_mutants WHERE SCENARIO[@MUTANT]...

A mutant is a change of the source text, made while the module is imported. The children of this process import the
store each for itself, so this module imports nothing of it.
"""

from __future__ import annotations

import concurrent.futures  # noqa: F401 - this and more is imported once for all children
import importlib.abc
import importlib.machinery
import sys
import unittest.mock  # noqa: F401
from dataclasses import dataclass
from pathlib import Path

import blake3  # noqa: F401
import msgspec  # noqa: F401
import xxhash  # noqa: F401

import forging  # noqa: F401
import samestep.checkpoints  # noqa: F401
from crash.store_forks import in_a_child
from samestep.errors import SamestepError


@dataclass(frozen=True)
class Mutant:
    """A precaution less.

    Attributes:
        scenario: the work in which it is missed.
        edits: module below ``samestep``, text that occurs there once, and what takes its place.
    """

    scenario: str
    edits: tuple[tuple[str, str, str], ...]


def _less(scenario, *edits):
    return Mutant(scenario, edits)


LOCAL, BENEATH, SYSTEM = "bundle.storage.local", "bundle.storage.beneath", "bundle.storage.system"
DIRECT, CHAIN, SAVING = "bundle.storage.direct", "bundle.chain", "bundle.saving"
PARTS, REMOVAL, VERIFYING = "bundle.parts", "bundle.removal", "bundle.verifying"
RESTORING, PLACING, DURABLE = "bundle.restoring", "bundle.placing", "journal.durable"

_SYNC_WHEN_TAKEN = (
    LOCAL,
    "            self._sync_folders({tuple(folders)})",
    "            if free:\n                self._sync_folders({tuple(folders)})",
)
_NOT_EXCLUSIVE = (SYSTEM, "os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW", "os.O_CREAT | os.O_NOFOLLOW")
_HELD_NOW = (
    REMOVAL,
    "return [ref for ref in leftovers.held() if not removal_begun(self._chain, ref, self._head)]",
    "return []",
)
_WRITE_LATER = """T = TypeVar("T")
LATER = []

def write_later(descriptor, content, ring):
    from samestep.bundle.digests import digest_content
    data = bytearray(content.size)
    content.read_into(0, memoryview(data))
    os.ftruncate(descriptor, content.size)
    LATER.append((os.dup(descriptor), data))
    return digest_content(content)

def write_now():
    while LATER:
        descriptor, data = LATER.pop()
        os.pwrite(descriptor, data, 0)
        os.fsync(descriptor)
        os.close(descriptor)
"""
_THEN_WRITE = """        from samestep.bundle.storage import local
        local.write_now()
"""
_REMOVE_FIRST = """            for ref in self._plan.retired:
                place = self._chain.storage
                place.remove([entry.key for entry in place.entries(f"bundles/{ref.id}/")])
"""

SYNCS = {
    "sync of a part": _less("saves", (DIRECT, "    system.sync(descriptor)\n    return", "    return")),
    "sync of a record": _less(
        "saves", (LOCAL, "memoryview(data), 0)\n            system.sync(descriptor)", "memoryview(data), 0)")
    ),
    "sync of a record's folder": _less("saves", (LOCAL, "self._sync_folders({tuple(folders)})", "pass")),
    "sync of the parts' folders": _less("saves", (LOCAL, "self._sync_folders(folders)", "pass")),
    "sync of the folder itself": _less(
        "saves",
        (LOCAL, "if names[:depth] not in done:", "if names[:depth] not in done and depth < len(names):"),
    ),
    "sync of the folders on the way": _less(
        "saves", (LOCAL, "if names[:depth] not in done:", "if depth == len(names):")
    ),
    "settling of what was stored": _less(
        "saves", (PARTS, "                self._unsettled.add(key)\n", "                pass\n")
    ),
    "settling of what was shared": _less(
        "saves", (PARTS, "                self._unsettled.add(target)\n", "                pass\n")
    ),
    "sync above a root that was made": _less(
        "saves", (BENEATH, "(str(place))\n        _sync_above(place)", "(str(place))")
    ),
    "sync above a root that was found": _less(
        "unsynced",
        (
            BENEATH,
            "        system.make_folder(str(place))\n        _sync_above(place)",
            "        if not place.exists():\n            place.mkdir()\n            _sync_above(place)",
        ),
    ),
    "sync of the folders above a root": _less(
        "unsynced",
        (BENEATH, "        _sync_above(place)\n        place = place.parent", "        place = place.parent"),
    ),
    "sync when the name is taken": _less("unsynced", _SYNC_WHEN_TAKEN),
    "sync of the record before": _less("takeover", (CHAIN, "            self._settle_before(number)\n", "")),
    "sync of a run that was found": _less(
        "takeover", ("bundle.store", "        if writing:  # who made", "        if False:  # who made")
    ),
    "both syncs of a record found to be one's own": _less(
        "repeated",
        _SYNC_WHEN_TAKEN,
        (CHAIN, "self.storage.settle([record_key(found.number)])", "pass"),
    ),
    "sync of what was restored": _less("restoring", (RESTORING, "            _make_durable(beside)\n", "")),
    "sync of the folders that were restored": _less("restoring", (RESTORING, '(*names, "")', "names")),
    "sync of the restored name": _less("restoring", (RESTORING, "            sync(to.parent)\n", "")),
    "sync of the folders made for a restore": _less(
        "restoring", (DURABLE, "reversed(made):\n        sync(place.parent)", "reversed(made):\n        pass")
    ),
    "sync of the folders found for a restore": _less(
        "restoring",
        (DURABLE, "            sync(place.parent)\n        place", "            pass\n        place"),
    ),
    "sync of a file put beside others": _less("placing", (PLACING, "        sync(into)\n", "")),
    "sync of a pointer": _less("placing", (PLACING, "            os.fsync(file.fileno())\n", "")),
    "sync of a pointer's name": _less("placing", (PLACING, "        sync(path.parent)\n", "")),
}

CONDITIONS = {
    "link only to a free name": _less(
        "restarts",
        (
            LOCAL,
            "        system.link(temporary, name, folder, folder)",
            "        system.unlink(name, folder)\n        system.link(temporary, name, folder, folder)",
        ),
    ),
    "rename only to a free name": _less(
        "restarts-by-renames", (SYSTEM, "_RENAME_NOREPLACE: Final = 1", "_RENAME_NOREPLACE: Final = 0")
    ),
    "whose record a taken name leads to": _less(
        "restarts",
        (
            LOCAL,
            "return os.path.samestat(system.look(temporary, folder), system.look(name, folder))",
            "return True",
        ),
    ),
    "a part is a new file": _less("raced", _NOT_EXCLUSIVE),
    "a part is never written over another": _less(
        "anew",
        _NOT_EXCLUSIVE,
        (
            LOCAL,
            "    system.unlink(name, folder)\n    return system.open_file",
            "    return system.open_file",
        ),
    ),
    "records of others are met": _less("restarts", (CHAIN, "                    meet(found)\n", "")),
    "one's own record is known": _less("lost-reply", (CHAIN, "if found.nonce == nonce:", "if False:")),
    "a newer attempt fences": _less(
        "restarts",
        (
            "bundle.attempts",
            "        if isinstance(found, AttemptRecord):\n            raise FencedError(",
            "        if False:\n            raise FencedError(",
        ),
    ),
    "a decision is not older than the newest commit": _less(
        "outdated",
        (
            "bundle.attempts",
            "        if isinstance(found, CommitRecord):\n            raise _outdated(",
            "        if False:\n            raise _outdated(",
        ),
    ),
    "what others share stays": _less(
        "without-links",
        (
            "bundle.leftovers",
            "self._needed = self._needed_elsewhere() if folders.keys() - alive.keys() else set()",
            "self._needed = set()",
        ),
    ),
    "holds are looked for after a retirement": _less("contested", _HELD_NOW),
    "holds are looked for at all": _less(
        "rotation", _HELD_NOW, ("bundle.retention", "        self._keep_held()\n", "")
    ),
    "a hold that came too late is refused": _less(
        "contested",
        ("bundle.holds", "    try:\n        _require_kept(chain, ref)\n", "    try:\n        pass\n"),
    ),
}

ORDERS = {
    "parts durable, then the commit": _less(
        "saves",
        (SAVING, "        self._parts.settle()\n        durable", "        durable"),
        (SAVING, '= "was committed"\n', '= "was committed"\n        self._parts.settle()\n'),
    ),
    "parts written, then the commit": _less(
        "saves",
        (LOCAL, 'T = TypeVar("T")\n', _WRITE_LATER),
        (
            LOCAL,
            "return write_content(descriptor, content, self._ring)",
            "return write_later(descriptor, content, self._ring)",
        ),
        (
            SAVING,
            '        self._closed = "was committed"\n',
            _THEN_WRITE + '        self._closed = "was committed"\n',
        ),
    ),
    "given up, then removed": _less(
        "rotation",
        (
            REMOVAL,
            "            self._retire()\n",
            _REMOVE_FIRST + "            self._retire()\n",
        ),
    ),
    "removal announced, then begun": _less(
        "two-prunes",
        (
            REMOVAL,
            "            self._announce(leftovers)\n            self._remove(leftovers)\n",
            "            self._remove(leftovers)\n            self._announce(leftovers)\n",
        ),
    ),
    "parts removed, then the note of whose they are": _less(
        "rotation", ("bundle.leftovers", "return [parts, markers]", "return [markers, parts]")
    ),
    "the note of whose they are, then parts": _less(
        "restarts",
        (SAVING, "self._storage.create(marker_key(self.id), canonical.encode(self._marker()))", "pass"),
    ),
    "abandoned parts removed, then their note": _less(
        "abandons",
        (
            SAVING,
            "self._storage.remove(sorted(entries - {marker}))\n            self._storage.remove([marker])",
            "self._storage.remove([marker])\n            self._storage.remove(sorted(entries - {marker}))",
        ),
    ),
    "restored as a whole, then named": _less(
        "restoring",
        (RESTORING, 'beside = to.parent / f".{to.name}{_MARK}{new_nonce()}"', "beside = to"),
        (RESTORING, "    finally:\n        shutil.rmtree(beside, ignore_errors=True)\n", "    finally:\n"),
    ),
}

CHECKS = {
    "sizes at commit": _less(
        "tampered",
        (
            SAVING,
            "return {part: sizes[key] for key, part in expected.items() if sizes[key] != part.size}",
            "return {}",
        ),
    ),
    "the expected digest": _less(
        "tampered", (PARTS, "if expected and part.digest != expected:", "if False:")
    ),
    "bytes that are shared": _less(
        "rotten",
        (PARTS, 'check_stored(self._storage, key, part, what=f"{part.path} under {key}")', "pass"),
    ),
    "size of what seems unchanged": _less("saves", (PARTS, "old.size != content.size or ", "")),
    "first chunk of what seems unchanged": _less(
        "saves",
        (
            PARTS,
            "if read_and_digest(content, 0, buffer[:length]) != (part.chunks or (part.digest,))[0]:",
            "if False:",
        ),
    ),
    "later chunks of what seems unchanged": _less(
        "large", (PARTS, "return not part.chunks or _digest_of(content) == part.digest", "return True")
    ),
    "the end of a direct write is cut off": _less(
        "large", (DIRECT, "    if task.padded:\n", "    if False:\n")
    ),
    "a sealed folder stands still": _less(
        "sealed-rewritten", ("bundle.sealing", "        found.require_unchanged()\n", "")
    ),
    "digests at load": _less("damage", ("bundle.digests", "    if found != expected:", "    if False:")),
    "sizes at selection": _less("damage", (VERIFYING, "    if size != part.size:", "    if False:")),
    "bytes at verification": _less(
        "damage",
        (VERIFYING, "faults += _content_faults(storage, bundle, known, lend)", "pass"),
    ),
    "bytes before pruning": _less(
        "damage",
        (
            "bundle.retention",
            "plan.verified = _verified(chain, plan, damaged)",
            "plan.verified = plan.trusted[0].bundle.id",
        ),
    ),
    "checksum and spelling of a record": _less(
        "damage",
        ("bundle.records", "    require_sealed(data, what)\n", ""),
        ("bundle.records", "    canonical.check_spelling(data, _written(record, what), what)\n", ""),
    ),
    "number of a record": _less(
        "damage", ("bundle.records", "require(record.number == number,", "require(True,")
    ),
    "run of a record": _less("damage", (CHAIN, "if record.run != self.run:", "if False:")),
}

MUTANTS = {**SYNCS, **CONDITIONS, **ORDERS, **CHECKS}


def task_of(name):
    """Return what a mutant is recorded as: its scenario, and its name as a detail."""
    return f"{MUTANTS[name].scenario}@{name.replace(' ', '_')}"


class Outdated(Exception):  # noqa: N818
    """The source of the store has changed: the mutant has to be written anew."""


class _Mutating(importlib.abc.MetaPathFinder):
    """Changes the source of modules while they are imported."""

    def __init__(self, mutant):
        self._edits = {}
        for module, old, new in mutant.edits:
            self._edits.setdefault(f"samestep.{module}", []).append((old, new))

    def find_spec(self, fullname, path, target=None):
        if fullname not in self._edits:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        spec.loader = _Mutated(fullname, spec.origin, self._edits[fullname])
        return spec


class _Mutated(importlib.machinery.SourceFileLoader):
    """Loads a module whose text was changed; nothing of it is kept for the next process."""

    def __init__(self, name, path, edits):
        super().__init__(name, path)
        self._edits = edits

    def get_code(self, fullname):
        text = self.get_source(fullname)
        for old, new in self._edits:
            if text.count(old) != 1:
                raise Outdated(f"{fullname} holds {text.count(old)} times: {old}")
            text = text.replace(old, new)
        return compile(text, self.path, "exec", dont_inherit=True)


def carry_out(where, name):
    """Work through a scenario, with the mutant in place that the name tells; what fails is told."""
    known = {task_of(mutant): MUTANTS[mutant] for mutant in MUTANTS}
    if name in known:
        sys.meta_path.insert(0, _Mutating(known[name]))
    try:
        from crash import store_trouble, store_work  # noqa: F401
    except Outdated:
        Path(where, name, "told", "0000 outdated").touch()
        raise
    work = store_work.Work(f"{where}/{name}", name.partition("@")[0])
    try:
        store_work.SCENARIOS[work.scenario](work)
    except (SamestepError, OSError) as error:  # any other is a mistake in the mutant
        work.tell("broken", type(error).__name__)
        raise


def main(where, *names):
    for name in names:
        in_a_child(lambda name=name: carry_out(where, name))


if __name__ == "__main__":
    main(*sys.argv[1:])
