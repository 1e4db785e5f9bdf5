"""Trouble that a bundle store has to notice or refuse: hands from outside, damage, and others at the same moment.

    python -m crash.store_trouble WHERE SCENARIO...

works through these scenarios and through those of ``store_work``.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
from pathlib import Path

from bundle_samples import REST, content_of
from crash.store_forks import in_a_child
from crash.store_work import (
    CARRIED,
    SCENARIOS,
    STORE,
    Work,
    carry_out,
    files,
    refuse_links,
    write_checkpoint,
)
from samestep.bundle import holds, removal, sealing
from samestep.bundle.digests import digest_content
from samestep.bundle.errors import BundleRetired, CommitRefused, DamageError, DecisionOutdated, StoreError
from samestep.bundle.placing import put_back
from samestep.bundle.retention import Policy
from samestep.bundle.storage import system
from samestep.bundle.storage.base import AlreadyThere
from samestep.bundle.storage.contents import BufferContent
from samestep.bundle.storage.local import LocalStorage
from samestep.bundle.store import Store
from samestep.errors import SamestepError


def tampered(work):
    """Parts are cut off, or changed between being digested and being stored, before they are committed."""
    store = work.create()
    attempt = work.register(store)
    work.save(attempt, 10)
    saving = attempt.begin(step=20)
    work.add(saving, 20)
    replace(work.root / "bundles" / saving.id / "model.safetensors", lambda data: data[:-1])
    with work.refused(DamageError):
        work.commit(saving)
    saving.abandon()
    saving = attempt.begin(step=20)
    with work.refused(DamageError):
        for path, data in files("saves", 20).items():
            digest = digest_content(BufferContent(data)).digest
            saving.add(
                path, BufferContent(data[::-1]), components=CARRIED.get(path, ()), expected_digest=digest
            )
        work.commit(saving)


def rewritten(work):
    """A framework goes on writing to a folder while it is being sealed."""
    store = work.create()
    attempt = work.register(store)
    sealing.seal(attempt, write_checkpoint(work, work.folder / "written", 10))
    real = sealing._store_all

    def store_all(saving, found, *rest):
        real(saving, found, *rest)
        name = "scheduler.pt"
        replace(found.root / name, lambda _: files(work.scenario, 30)[name])

    sealing._store_all = store_all
    with work.refused(CommitRefused):
        work.committed(sealing.seal(attempt, write_checkpoint(work, work.folder / "written", 20)))


def rotten(work):
    """Bytes of the bundle before have rotted that the next one would share."""
    work.save(work.register(work.create()), 10)
    store = work.opened()
    attempt = work.register(store)
    work.tell("damaged", attempt.newest.number, attempt.newest.bundle.id)
    rot(work.root / "bundles" / attempt.newest.bundle.id / "frozen" / "tokenizer.json")
    work.save(attempt, 20)


def anew(work):
    """A shared part has to be stored again, under a name that by then leads to bytes of another bundle."""
    attempt = work.register(work.create())
    first = work.save(attempt, 10)
    saving = attempt.begin(step=20)
    work.add(saving, 20)
    top = work.root / "bundles"
    shared = top / saving.id / "frozen" / "tokenizer.json"
    shared.unlink()
    shared.hardlink_to(top / first.id / "model.safetensors")
    work.commit(saving)


def raced(work):
    """The same, and somebody puts the name back as soon as it is taken away."""
    attempt = work.register(work.create())
    first = work.save(attempt, 10)
    saving = attempt.begin(step=20)
    foreign = work.root / "bundles" / first.id / "model.safetensors"
    real = system.unlink

    def unlink(name, folder):
        real(name, folder)
        if name == "model.safetensors":
            os.link(foreign, name, dst_dir_fd=folder)

    system.unlink = unlink
    with work.refused(StoreError):
        work.add(saving, 20)
        work.commit(saving)
    system.unlink = real


def outdated(work):
    """Between a decision and the registration of who goes on from it, something newer is committed."""
    store = work.create()
    attempt = work.register(store)
    work.save(attempt, 10)
    late = work.opened()
    decision = late.select()
    work.save(attempt, 20)
    with work.refused(DecisionOutdated):
        attempt = late.register(decision, "late")
        work.tell("registered", attempt.number, attempt.id)
        work.save(attempt, 20)


def lost_reply(work):
    """A commit happens, and the answer to it gets lost."""
    store = work.create()
    attempt = work.register(store)
    real = store.storage.create

    def create(key, data):
        real(key, data)
        if key.startswith("chain/"):
            raise AlreadyThere(key)

    store.storage.create = create
    work.save(attempt, 10)
    work.save(attempt, 20)


def repeated(work):
    """A commit happens, the disk fails right after that, and the same commit is asked for again."""
    store = work.create()
    attempt = work.register(store)
    for step in (10, 20):
        saving = attempt.begin(step=step)
        work.add(saving, step)
        real, link = system.sync, system.link

        def fail(_descriptor):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        def linked(*arguments, link=link, fail=fail):
            link(*arguments)
            system.sync = fail

        system.link = linked
        with work.refused(StoreError):
            work.commit(saving)
        system.sync, system.link = real, link
        work.commit(saving)


def restarts_by_renames(work):
    """Restarts where the file system has no hard links."""
    refuse_links()
    SCENARIOS["restarts"](work)


def two_prunes(work):
    """A bundle is pinned in the middle of one prune, and another prune takes its retirement back."""
    store = work.create()
    attempt = work.register(store)
    first, *_ = (work.save(attempt, step) for step in (10, 20, 30))
    held, look = removal.Removal._held, holds._require_kept

    def pin_meanwhile(self, leftovers):
        found = held(self, leftovers)
        removal.Removal._held, holds._require_kept = held, look_late
        work.pin(work.opened(), first)
        return found

    def look_late(*arguments):
        holds._require_kept = look
        work.opened().prune(Policy(keep_last=1))
        look(*arguments)

    removal.Removal._held = pin_meanwhile
    work.prune(store, keep_last=1)


def placing(work):
    """A single file is put beside others, and a folder whose framework finds it by a pointer."""
    store = work.create()
    attempt = work.register(store)
    for step, framework, name in ((10, "", ""), (20, "deepspeed", "global_step20")):
        saving = attempt.begin(step=step)
        work.add(saving, step)
        bundle = work.committed(saving.commit(contract=REST, framework=framework, name=name))
        into = work.disk / "restored" / f"at-{step}"
        into.mkdir(parents=True)
        for words in ("placing", "placed"):
            work.tell(words, f"at-{step}", step)
            if words == "placing":
                put_back(store, bundle, into)


def contested(work):
    """Somebody pins a bundle between the plan to give it up and the retirement, another one after that."""
    store = work.create()
    attempt = work.register(store)
    first, second, _ = (work.save(attempt, step) for step in (10, 20, 30))
    retire, announce = removal.Removal._retire, removal.Removal._announce

    def retired(self):
        work.pin(work.opened(), first)
        retire(self)
        with work.refused(BundleRetired):
            work.pin(work.opened(), second)

    def announced(self, leftovers):
        announce(self, leftovers)
        with work.refused(BundleRetired):
            work.pin(work.opened(), second)

    removal.Removal._retire, removal.Removal._announce = retired, announced
    work.prune(store, keep_last=1)
    removal.Removal._retire, removal.Removal._announce = retire, announce


def damage(work):
    """Every kind of damage to the newest bundle and to its record: the one before it is taken instead."""
    attempt = work.register(work.create())
    for step in (10, 20, 30):
        work.save(attempt, step)
    number = attempt.newest.number
    other = Store.create(LocalStorage(work.folder / "other"))
    stranger = Work(work.folder, work.scenario)
    life = other.register(other.select(), "another run")
    for step in (10, 20, 30):
        saving = life.begin(step=step)
        stranger.add(saving, step)
        saving.commit(contract=REST)
    bundle = attempt.newest.bundle
    faults = dict(_faults_of_parts(work, bundle)) | dict(_faults_of_record(work, number))
    for name, fault in faults.items():
        _try(work, name, fault)


def _faults_of_parts(work, bundle):
    before = bundle.parent.id
    for part in bundle.parts:
        place = f"bundles/{bundle.id}/{part.path}"
        older = (work.root / "bundles" / before / part.path).read_bytes()
        yield f"missing {part.path}", lambda root, place=place: (root / place).unlink()
        for name, change in CHANGES.items():
            yield f"{name} {part.path}", lambda root, p=place, c=change: replace(root / p, c)
        if older != (work.root / place).read_bytes():
            yield f"stale {part.path}", lambda root, p=place, o=older: replace(root / p, lambda _: o)


def _faults_of_record(work, number):
    place, older = (f"chain/{one:010}.json" for one in (number, number - 2))
    for name, change in CHANGES.items():
        yield f"{name} record", lambda root, c=change: replace(root / place, c)
    yield "another step in the record", lambda root: replace(root / place, _other_step)
    yield "copied record", lambda root: replace(root / place, lambda _: (root / older).read_bytes())

    def foreign(root):
        other = work.folder / "other"
        replace(root / place, lambda _: (other / place).read_bytes())
        shutil.copytree(other / "bundles", root / "bundles", dirs_exist_ok=True)

    yield "foreign bundle and record", foreign


def _other_step(data):
    assert data.count(b'"step":30') == 1
    return data.replace(b'"step":30', b'"step":31')


CHANGES = {
    "first byte flipped": lambda data: bytes([data[0] ^ 1]) + data[1:],
    "middle byte flipped": lambda data: (
        data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 128]) + data[len(data) // 2 + 1 :]
    ),
    "last byte flipped": lambda data: data[:-1] + bytes([data[-1] ^ 16]),
    "cut off": lambda data: data[:-1],
    "grown": lambda data: data + b"\0",
    "emptied": lambda _: b"",
    "in zeros": lambda data: bytes(len(data)),
}
SEEN_BY_SIZE = ("missing", "cut off", "grown", "emptied")


def _try(work, name, fault):
    """Damage a copy of the store, go on from it in two ways, and tell what should not be."""
    copy = work.folder.parents[1] / f"{work.folder.parent.name}-copy"
    shutil.copytree(work.disk, copy)
    try:
        fault(copy / STORE)
        found = list(_broken(work, copy, name))
    except SamestepError as error:
        found = [f"{type(error).__name__}-{error.slug}"]
    for text in found:
        work.tell("broken", name.replace(" ", "-"), text)
    shutil.rmtree(copy)


def _broken(work, copy, name):
    """Yield what is wrong; a damaged shared part has harmed the older bundles just as little as the record of one."""
    store = Store.open(LocalStorage(copy / STORE), writing=True)
    if name.startswith(SEEN_BY_SIZE) and store.select().step != 20:
        yield "selected"
    decision = store.resume(to=copy / "first")
    if decision.step != 20 or content_of(copy / "first") != files(work.scenario, 20):
        yield f"resumed-{decision.step}"
    if not name.endswith("record"):
        if store.verify(store.bundle("latest")).whole:
            yield "verified"
        store.prune(Policy(keep_last=1))
        decision = store.resume(to=copy / "second")
        if decision.step != 20 or content_of(copy / "second") != files(work.scenario, 20):
            yield f"resumed-{decision.step}-after-pruning"


def replace(path, change):
    """Put a changed file in a file's place; other names of that file keep the old bytes."""
    data = change(Path(path).read_bytes())
    Path(path).unlink()
    Path(path).write_bytes(data)


def rot(path):
    """Change a byte in place, and durably: under every name of the file."""
    file = os.open(path, os.O_RDWR)
    byte = os.pread(file, 1, 100)
    os.pwrite(file, bytes([byte[0] ^ 4]), 100)
    os.fsync(file)
    os.close(file)


TROUBLE = {
    "tampered": tampered,
    "sealed-rewritten": rewritten,
    "rotten": rotten,
    "anew": anew,
    "raced": raced,
    "outdated": outdated,
    "lost-reply": lost_reply,
    "repeated": repeated,
    "restarts-by-renames": restarts_by_renames,
    "two-prunes": two_prunes,
    "placing": placing,
    "contested": contested,
    "damage": damage,
}
SCENARIOS |= TROUBLE


def main(where, *names):
    """Work through scenarios, see ``store_work.carry_out``, each in a child of its own."""
    for name in names:
        if in_a_child(lambda name=name: carry_out(where, name)):
            sys.exit(f"{name} failed")


if __name__ == "__main__":
    main(*sys.argv[1:])
