"""Whatever happens to a store: never a wrong bundle is chosen, and none is lost whose commit was acknowledged."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bundle_memory import Crash, MemoryStorage
from bundle_samples import REST, add_files, content_of, files
from samestep.bundle.errors import FencedError, StoreError
from samestep.bundle.retention import Policy
from samestep.bundle.storage.contents import BufferContent
from samestep.bundle.store import Store

if TYPE_CHECKING:
    from samestep.bundle.bundles import Bundle

FROZEN_ONES = st.sampled_from([b"", b"base" * 50, b"esab" * 50])


class Life:
    """What the model knows of one acknowledged bundle, or one that may have been committed."""

    def __init__(self, step: int, parts: dict[str, bytes], parent: str | None, *, certain: bool) -> None:
        self.step, self.parts, self.parent, self.certain = step, parts, parent, certain
        self.damaged = False
        self.pinned = False


class BundleStore(RuleBasedStateMachine):
    """A run with one living attempt, older ones that do not know they are fenced, and a place that fails."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.lives: dict[str, Life] = {}
        self.zombies: list = []
        self.step = 0
        self.number = 0

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @initialize(links=st.booleans())
    def begin(self, links: bool) -> None:
        self.storage = MemoryStorage(links=links)
        self.store = Store.create(self.storage)
        self.attempt = self.store.register(self.store.select(), "first")
        self.newest: str | None = None

    @rule(frozen=FROZEN_ONES)
    def save(self, frozen: bytes) -> None:
        saving, parts = self._filled(frozen)
        bundle = saving.commit(contract=REST)
        self._committed(bundle, parts)

    @rule(
        frozen=FROZEN_ONES,
        at=st.integers(1, 10),
        kind=st.sampled_from(["crash_before", "crash_after"]),
        power=st.booleans(),
    )
    def die_while_saving(self, frozen: bytes, at: int, kind: str, power: bool) -> None:
        self.storage.arm(**{kind: at})
        saving = None
        try:
            saving, parts = self._filled(frozen)
            bundle = saving.commit(contract=REST)
            self._committed(bundle, parts)
        except Crash:
            if saving is not None:
                self.lives[saving.id] = Life(self.step, parts, self.newest, certain=False)
        self._start_over(power)

    @rule(
        frozen=FROZEN_ONES,
        at=st.integers(1, 10),
        kind=st.sampled_from(["fail_before", "fail_after", "lose_reply"]),
    )
    def save_with_a_failure(self, frozen: bytes, at: int, kind: str) -> None:
        self.storage.arm(**{kind: at})
        saving = None
        for _ in range(3):
            try:
                if saving is None:
                    saving, parts = self._filled(frozen)
                bundle = saving.commit(contract=REST)
            except StoreError:
                continue
            self._committed(bundle, parts)
            break
        else:
            raise AssertionError("one failure made three tries fail")
        self.storage.arm()

    @rule(keep=st.integers(1, 3), every=st.sampled_from([None, 3]))
    def prune(self, keep: int, every: int | None) -> None:
        self.store.prune(Policy(keep_last=keep, keep_every=every))

    @rule(at=st.integers(1, 12), kind=st.sampled_from(["crash_before", "crash_after"]), power=st.booleans())
    def die_while_pruning(self, at: int, kind: str, power: bool) -> None:
        self.storage.arm(**{kind: at})
        with contextlib.suppress(Crash):
            self.store.prune(Policy(keep_last=1))
        self._start_over(power)

    @rule(data=st.data())
    def pin(self, data: st.DataObject) -> None:
        bundles = list(self.store.bundles())
        if bundles:
            bundle = data.draw(st.sampled_from(bundles))
            self.store.pin(bundle)
            self.lives[bundle.id].pinned = True

    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        for bundle in self.store.bundles():
            if self.lives[bundle.id].pinned and data.draw(st.booleans()):
                self.store.unpin(bundle)
                self.lives[bundle.id].pinned = False

    @rule(frozen=FROZEN_ONES)
    def be_replaced(self, frozen: bytes) -> None:
        self.zombies.append(self._filled(frozen)[0])
        self._register()

    @precondition(lambda self: self.zombies)
    @rule(data=st.data())
    def wake_up(self, data: st.DataObject) -> None:
        saving = self.zombies.pop(data.draw(st.integers(0, len(self.zombies) - 1)))
        try:
            saving.commit(contract=REST)
        except FencedError:
            return
        raise AssertionError("a fenced attempt has committed")

    @rule(data=st.data(), how=st.sampled_from(["flip", "cut", "lose"]))
    def damage(self, data: st.DataObject, how: str) -> None:
        """Damage a bundle, but never the last one that is whole."""
        whole = [bundle for bundle in self.store.bundles() if not self.lives[bundle.id].damaged]
        if len(whole) < 2:
            return
        bundle = data.draw(st.sampled_from(whole))
        part = data.draw(st.sampled_from([part for part in bundle.manifest.parts if part.size]))
        change = {"flip": lambda old: b"?" + old[1:], "cut": lambda old: old[:-1], "lose": lambda _: None}[
            how
        ]
        hit = [
            one.id
            for one in self.store.bundles()
            if any(one.key_of(each) == bundle.key_of(part) for each in one.manifest.parts)
        ]
        if any(one.id not in hit for one in whole):
            self.storage.damage(bundle.key_of(part), change)
            for id_ in hit:
                self.lives[id_].damaged = True

    @rule()
    def resume(self) -> None:
        """What is restored is the newest bundle of the lineage that is whole, byte for byte."""
        self.number += 1
        decision = self.store.resume(to=self.folder / str(self.number))
        expected = self._expected()
        assert decision.bundle == expected
        if expected is not None:
            assert content_of(self.folder / str(self.number)) == self.lives[expected].parts
            assert decision.step == self.lives[expected].step
        else:
            assert decision.outcome == ("damaged" if self._committed_ids() else "empty")

    @invariant()
    def nothing_acknowledged_is_lost(self) -> None:
        """Whatever was committed and neither given up nor damaged by us is whole; nothing else is there."""
        alive = {bundle.id: bundle for bundle in self.store.bundles()}
        assert alive.keys() <= self.lives.keys()
        for id_, bundle in alive.items():
            assert bundle.step == self.lives[id_].step
            assert self.store.verify(bundle).whole or self.lives[id_].damaged
        for id_, life in self.lives.items():
            assert id_ in alive or not (life.pinned and life.certain)
        if self._committed_ids():
            assert alive

    def _filled(self, frozen: bytes):
        self.step += 1
        saving = self.attempt.begin(step=self.step)
        parts = files(self.step) | {"frozen.bin": frozen}
        add_files(saving, self.step)
        saving.add("frozen.bin", BufferContent(frozen))
        return saving, parts

    def _committed(self, bundle: Bundle, parts: dict[str, bytes]) -> None:
        """Note an acknowledged bundle; it is as good as what it shares, up to the next full copy."""
        life = self.lives[bundle.id] = Life(self.step, parts, self.newest, certain=True)
        self.newest = bundle.id
        life.damaged = any(
            part.share_depth and self.storage.seen[bundle.key_of(part)] != parts[part.path]
            for part in bundle.manifest.parts
        )

    def _committed_ids(self) -> list[str]:
        return [id_ for id_, life in self.lives.items() if life.certain]

    def _start_over(self, power: bool) -> None:
        self.storage = self.storage.after_power_cut() if power else self.storage.revived()
        self.zombies.clear()
        self.store = Store.open(self.storage, writing=True)
        there = {bundle.id: bundle for bundle in self.store.bundles()}
        for id_, life in list(self.lives.items()):
            if not life.certain and id_ in there:
                self._committed(there[id_], life.parts)
                self.lives[id_].step = life.step
            elif not life.certain:
                del self.lives[id_]
        self._register()

    def _register(self) -> None:
        self.number += 1
        decision = self.store.resume(to=self.folder / str(self.number))
        assert decision.bundle == self._expected()
        nothing = decision.outcome in ("empty", "damaged")
        self.attempt = self.store.register(
            None if nothing else decision, "restart", begin_again="nothing can be used" if nothing else ""
        )
        self.newest = decision.bundle
        if decision.step is not None:
            self.step = max(self.step, decision.step)

    def _expected(self) -> str | None:
        """The first whole living bundle on the way back from the newest commit."""
        alive = [bundle.id for bundle in self.store.bundles()]
        at = next((id_ for id_ in reversed(self.lives) if self.lives[id_].certain), None)
        while at is not None and (at not in alive or self.lives[at].damaged):
            at = self.lives[at].parent
        return at


BundleStore.TestCase.settings = settings(stateful_step_count=30)
test_a_store_whatever_happens_to_it = BundleStore.TestCase
