"""Two actors on one store: whatever one does at whichever request of the other, nothing that was promised is broken."""

from __future__ import annotations

import itertools

import pytest

from bundle_memory import MemoryStorage
from bundle_samples import again, content_of, files, save, started
from samestep.bundle.bundles import Bundle
from samestep.bundle.errors import BundleRetired, DecisionOutdated, FencedError
from samestep.bundle.retention import Policy
from samestep.bundle.store import Store

ACTORS = ("save", "prune", "pin", "restore", "register", "resume")
PAIRS = [pair for pair in itertools.permutations(ACTORS, 2) if {"save", "prune"} & set(pair)]
LINKED = [("save", "prune", True), ("prune", "save", True)]
ALLOWED = {
    "save": FencedError,
    "pin": BundleRetired,
    "restore": BundleRetired,
    "register": DecisionOutdated,
}


class Scene:
    """A run with three bundles."""

    def __init__(self, *, links: bool, folder) -> None:
        self.storage = MemoryStorage(links=links)
        self.store, self.attempt = started(self.storage)
        self.made = [save(self.attempt, step) for step in (1, 2, 3)]
        self.folder = folder
        self.done: dict[str, object] = {}
        self.number = 0

    def act(self, name: str) -> None:
        try:
            self.done[name] = getattr(self, name)()
        except ALLOWED.get(name, ()) as refusal:
            self.done[name] = refusal

    def save(self) -> Bundle:
        return save(self.attempt, 4)

    def prune(self):
        return Store.open(self.storage, writing=True).prune(Policy(keep_last=1))

    def pin(self) -> str:
        Store.open(self.storage, writing=True).pin(self.made[0])
        return "pinned"

    def restore(self) -> str:
        self.number += 1
        to = self.folder / f"restored-{self.number}"
        Store.open(self.storage, writing=True).restore(self.made[0], to=to)
        assert content_of(to) == files(1)
        return "restored"

    def register(self):
        return again(self.storage)[1]

    def resume(self):
        self.number += 1
        to = self.folder / f"resumed-{self.number}"
        decision = Store.open(self.storage, writing=True).resume(to=to)
        assert decision.step in (3, 4)
        assert content_of(to) == files(decision.step)
        assert [one.reason for one in decision.set_aside if one.reason not in ("retired", "abandoned")] == []
        return decision

    def check(self) -> None:
        alive = {bundle.id: bundle for bundle in self.store.bundles()}
        assert all(self.store.verify(bundle).whole for bundle in alive.values())
        saved = self.done.get("save")
        newest = saved if isinstance(saved, Bundle) else self.made[2]
        assert self.store.select().bundle == newest.id
        if "prune" not in self.done:
            assert {bundle.id for bundle in self.made} <= alive.keys()
        if self.done.get("pin") == "pinned":
            assert self.made[0].id in alive


@pytest.mark.parametrize(("first", "second", "links"), [(*pair, False) for pair in PAIRS] + LINKED)
def test_whatever_happens_at_any_request_of_another(first, second, links, tmp_path):
    for when in itertools.count(1):
        scene = Scene(links=links, folder=tmp_path / str(when))
        countdown = itertools.count(1)

        def interrupt(_operation, _key, scene=scene, countdown=countdown, when=when):
            if next(countdown) == when:
                scene.storage.before = lambda *_: None
                scene.act(second)

        scene.storage.before = interrupt
        scene.act(first)
        scene.storage.before = lambda *_: None
        if second not in scene.done:
            break
        scene.check()
        scene.act("prune")
        scene.check()
    assert when > 3
