"""What a bundle store promises, tried on one disk state: the next start selects, works on, and tidies up."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import NamedTuple
from unittest import mock

from bundle_samples import REST, content_of
from crash.store_work import CARRIED, STORE, files
from samestep.bundle.bundles import Bundle
from samestep.bundle.carrying import read_carried
from samestep.bundle.chain import living
from samestep.bundle.decisions import PASSED_OVER
from samestep.bundle.errors import StoreError, StoreMissing
from samestep.bundle.manifest import Data
from samestep.bundle.records import AttemptRecord, CommitRecord
from samestep.bundle.retention import Policy
from samestep.bundle.storage.base import Absent
from samestep.bundle.storage.beneath import UNFINISHED
from samestep.bundle.storage.contents import BufferContent
from samestep.bundle.storage.local import LocalStorage
from samestep.bundle.store import Store
from samestep.errors import SamestepError

PUT_BACK = "put-back"
TWO_DAYS = 2 * 24 * 3600.0


class Problem(NamedTuple):
    """A promise that was broken.

    Attributes:
        kind: ``lost`` (something acknowledged is not there), ``mixed`` (bytes of another save), ``wrong`` (damage that
            nobody notices), ``stuck`` (the next start cannot go on) or ``garbage`` (what nothing removes).
        text: what was found.
    """

    kind: str
    text: str


@dataclass
class Trial:
    """A disk state on which the next start is tried.

    Attributes:
        scenario: whose files bundles hold.
        disk: the folder.
        needs: what was promised, for each moment at which the interruption may have come.
        thorough: also restore what is selected, and prune again a day later.
        ordered: names and the removal of names become durable in their order.
        problems: what was found.
    """

    scenario: str
    disk: object
    needs: list
    thorough: bool
    ordered: bool
    problems: list[Problem] = field(default_factory=list)

    def found(self, kind, text):
        self.problems.append(Problem(kind, text))


def problems_of(case, disk, *, thorough=False):
    """Try the next start on a case that is laid out in a folder; return the promises that it finds broken.

    Args:
        case: the disk state.
        disk: the folder; is changed.
        thorough: also restore the bundle that is selected and compare every byte, and prune again a day later.
    """
    trial = Trial(case.worked.scenario, disk, case.needs(), thorough, case.ordered)
    _look_at_restored(trial)
    _look_at_placed(trial)
    for needs in trial.needs:
        trial.problems += [Problem("wrong", text) for text in needs.broken]
    try:
        store = _opened(trial)
        decision = _selected(trial, store)
        if thorough and decision.bundle:
            _restore(trial, store, decision.bundle)
        _go_on(trial, store, decision)
    except SamestepError as error:
        trial.found("stuck", f"{type(error).__name__}: {error.message}")
    return trial.problems


def _opened(trial):
    storage = LocalStorage(trial.disk / STORE)
    promised = {needs.run for needs in trial.needs} - {""}
    try:
        store = Store.open(storage, writing=True)
    except StoreMissing:
        if promised:
            trial.found("lost", f"the run {promised} is gone")
        return Store.create(storage)
    if not promised <= {store.run.id}:
        trial.found("lost", f"the run is {store.run.id}, and was {promised}")
    return store


def _selected(trial, store):
    """Select, and compare with what was acknowledged and with what the bundle was made of."""
    decision = store.select()
    newest = max(needs.newest for needs in trial.needs)
    if (decision.number or 0) < newest:
        trial.found("lost", f"commit {newest} was acknowledged; selected was {decision}")
    _look_at_chain(trial, store, decision.head)
    for one in decision.set_aside:
        if one.reason not in PASSED_OVER:
            trial.found(
                "wrong", f"{one.bundle} counts as committed and is not whole: {one.reason}, {one.text}"
            )
    if decision.outcome not in {"resume", "empty"}:
        trial.found("wrong", f"the store counts as {decision.outcome}")
    _look_at_living(trial, store, decision.head)
    return decision


def _look_at_chain(trial, store, head):
    """Every record that was acknowledged is where it was, and numbers have no holes."""
    for number, id_ in {item for needs in trial.needs for item in needs.records.items()}:
        found = store.chain.look(number) if number <= head else None
        there = found.attempt if isinstance(found, AttemptRecord) else None
        there = found.bundle.id if isinstance(found, CommitRecord) else there
        if there != id_:
            trial.found("lost", f"record {number} was {id_}, and is {there} in a chain of {head}")
    names = (path.stem for path in (trial.disk / STORE / "chain").glob("*") if head)
    numbers = sorted(int(name) for name in names if not name.startswith(UNFINISHED))
    if numbers != list(range(1, head + 1)):
        trial.found("lost", f"the chain consists of {numbers}, its head is {head}")


def _look_at_living(trial, store, head, *, tidied=False):
    """Every bundle that was committed and not given up is what its save wrote; pinned ones are among them."""
    alive = living(store.chain, head)
    for ref in alive.values():
        if not any(ref.id in needs.damaged for needs in trial.needs):
            _require_whole(trial, store, Bundle(store.chain.read(ref.number)))
    if tidied:
        for id_ in {id_ for needs in trial.needs for id_ in needs.pinned} - alive.keys():
            trial.found("lost", f"{id_} was pinned and is given up")


def _require_whole(trial, store, bundle):
    expected = files(trial.scenario, bundle.step)
    if {part.path for part in bundle.manifest.parts} != set(expected):
        trial.found("mixed", f"{bundle.id} has the parts {[part.path for part in bundle.manifest.parts]}")
    for part in bundle.manifest.parts:
        if _read(store.storage, bundle.key_of(part), part.size) != expected.get(part.path):
            trial.found("mixed", f"{part.path} of {bundle.id} is not what was saved at step {bundle.step}")
    for key in bundle.manifest.journal:
        if store.storage.size(key) is None:
            trial.found("lost", f"{key} was carried with {bundle.id}")
    if bundle.manifest.journal:
        read_carried(store.storage, bundle.manifest.attempt)


def _read(storage, key, size):
    target = bytearray(size)
    try:
        storage.read_into(key, 0, memoryview(target))
    except (Absent, StoreError) as error:
        return repr(error)
    return target


def _go_on(trial, store, decision):
    """Register, save and prune as the next life of the run does, and look again."""
    attempt = store.register(decision, "restart")
    step = (decision.step or 0) + 1
    saving = attempt.begin(step=step)
    for path, data in files(trial.scenario, step).items():
        saving.add(path, BufferContent(data), components=CARRIED.get(path, ()))
    made = saving.commit(contract=REST, data=Data(version="v1"))
    _prune(trial, store)
    after = store.select()
    if after.bundle != made.id:
        trial.found("lost", f"{made.id} was committed just now, and {after.bundle} is selected")
    found = store.verify(made)
    if not found.holds:
        trial.found("wrong", f"{made.id}: {found.faults}")
    _look_at_living(trial, store, after.head, tidied=True)


def _prune(trial, store):
    """Nothing is left of what no bundle needs, but what may still be being written by somebody; after a day nothing."""
    policy = Policy(keep_last=1)
    store.prune(policy)
    now = [name for name in _garbage(trial, store) if UNFINISHED not in name]
    if now and trial.ordered:
        trial.found("garbage", f"{now} belong to no bundle")
    if not (now or trial.thorough):
        return
    tomorrow = time.time() + TWO_DAYS
    with mock.patch("time.time", return_value=tomorrow):
        store.prune(policy)
    if later := _garbage(trial, store):
        trial.found("garbage", f"{later} belong to no bundle, also after a day")


def _garbage(trial, store):
    """Return the files below ``bundles/`` that belong to none of the bundles."""
    kept, found = living(store.chain, store.chain.head()), []
    top = trial.disk / STORE / "bundles"
    for place, _, names in os.walk(top):
        bundle = os.path.relpath(place, top).partition("/")[0]
        found += [f"{place}/{name}" for name in names if bundle not in kept or name.startswith(UNFINISHED)]
    return found


def _look_at_restored(trial):
    """What was put back is there as a whole or not at all, and stays when it was said to be there."""
    for needs in trial.needs:
        for name, step in {**needs.restoring, **needs.restored}.items():
            folder = trial.disk / "restored" / name
            if folder.exists() and content_of(folder) != files(trial.scenario, step):
                trial.found("mixed", f"{folder} does not hold what was saved at step {step}")
            if name in needs.restored and not folder.exists():
                trial.found("lost", f"{folder} was restored and is gone")


def _look_at_placed(trial):
    """What was put beside other things is whole under its name, and a pointer to it is whole and comes after it."""
    for needs in trial.needs:
        for name, step in {**needs.placing, **needs.placed}.items():
            expected = files(trial.scenario, step)
            pointed = {f"global_step{step}/{path}": data for path, data in expected.items()}
            pointed["latest"] = f"global_step{step}".encode()
            found = content_of(trial.disk / "restored" / name)
            found = {path: data for path, data in found.items() if not path.startswith(".")}
            whole = pointed if step == 20 else expected
            if any(whole.get(path) != data for path, data in found.items()):
                trial.found("mixed", f"{name} holds {sorted(found)}, not as they were saved")
            if name in needs.placed and found != whole:
                trial.found("lost", f"{name} holds {sorted(found)} of {sorted(whole)}")


def _restore(trial, store, chosen):
    """Put the bundle that was selected into a folder; one that rotted meanwhile is no longer to be had."""
    into = trial.disk / PUT_BACK
    decision = store.resume(to=into)
    if any(chosen in needs.damaged for needs in trial.needs):
        return
    if decision.bundle != chosen:
        trial.found("lost", f"{chosen} was selected, and {decision} restored")
    elif content_of(into) != files(trial.scenario, decision.step):
        trial.found("mixed", f"{decision.bundle} was restored, and is not what was saved")
