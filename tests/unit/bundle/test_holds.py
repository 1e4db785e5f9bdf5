from __future__ import annotations

import time

import pytest

from bundle_memory import MemoryStorage
from bundle_samples import save, started
from samestep.bundle import holds
from samestep.bundle.errors import BundleRetired, StoreError
from samestep.bundle.holds import RESTORE_SECONDS, holds_on, pins_on
from samestep.bundle.retention import Policy


@pytest.fixture
def made():
    storage = MemoryStorage()
    store, attempt = started(storage)
    return storage, store, [save(attempt, step) for step in (1, 2, 3)]


def test_a_pinned_bundle_stays_until_every_pin_is_taken_away(made):
    storage, store, (one, two, three) = made
    store.pin(one, name="paper", because="table 2")
    store.pin(one, name="demo")
    store.pin(one, name="demo")
    assert pins_on(storage, one.id) == ["demo", "paper"]
    result = store.prune(Policy(keep_last=1))
    assert ([ref.id for ref in result.retired], result.reinstated) == ([two.id], ())
    assert store.unpin(one, name="demo")
    assert not store.unpin(one, name="demo")
    assert store.prune(Policy(keep_last=1)).retired == ()
    store.unpin(one, name="paper")
    assert [ref.id for ref in store.prune(Policy(keep_last=1)).retired] == [one.id]
    assert [bundle.id for bundle in store.bundles()] == [three.id]


def test_a_bundle_that_was_given_up_cannot_be_pinned_and_keeps_no_hold(made):
    storage, store, (one, _, _) = made
    store.prune(Policy(keep_last=1))
    with pytest.raises(BundleRetired, match=one.id):
        store.pin(one)
    assert not any(one.id in key for key in storage.seen)


@pytest.mark.parametrize("name", ["", "../x", "A", "x" * 65, "a/b", "-a"])
def test_a_pin_has_a_plain_name(made, name):
    storage, store, (one, _, _) = made
    before = dict(storage.seen)
    with pytest.raises(StoreError, match="name of a pin"):
        store.pin(one, name=name)
    assert storage.seen == before


def test_a_running_restore_holds_its_bundle_and_only_while_it_runs(made, tmp_path):
    storage, store, (one, two, _three) = made
    retired = []

    def prune_meanwhile(operation, _key):
        if operation == "read_into":
            storage.before = lambda *_: None
            assert [name.split("-")[0] for name in holds_on(storage, one.id, time.time())] == ["restore"]
            retired.extend(ref.id for ref in store.prune(Policy(keep_last=1)).retired)

    storage.before = prune_meanwhile
    store.restore(one, to=tmp_path / "to")
    assert retired == [two.id]
    assert holds_on(storage, one.id, time.time()) == []
    assert [ref.id for ref in store.prune(Policy(keep_last=1)).retired] == [one.id]


def test_the_hold_of_a_restore_that_died_long_ago_does_not_count(made):
    storage, store, (one, two, _) = made
    hold = holds.RestoreHold(store.chain, one.ref)
    assert [ref.id for ref in store.prune(Policy(keep_last=1)).retired] == [two.id]
    storage.modified |= dict.fromkeys(storage.modified, time.time() - RESTORE_SECONDS - 1)
    assert [ref.id for ref in store.prune(Policy(keep_last=1)).retired] == [one.id]
    hold.release()


def test_a_long_restore_renews_its_hold(made, monkeypatch):
    storage, store, (one, _, _) = made
    hold = holds.RestoreHold(store.chain, one.ref)
    first = holds_on(storage, one.id, time.time())
    hold.renew()
    assert holds_on(storage, one.id, time.time()) == first
    hold._placed -= RESTORE_SECONDS
    hold.renew()
    second = holds_on(storage, one.id, time.time())
    assert (len(second), second != first) == (1, True)
    hold.release()
    assert holds_on(storage, one.id, time.time()) == []


@pytest.mark.parametrize("place", ["before", "after"])
def test_a_hold_that_meets_a_retirement_ends_with_a_refusal_or_a_bundle_that_stays(made, place):
    """Whatever the order, never both: a hold that counts and parts that are gone."""
    storage, store, (one, _, _) = made

    def slip_in(operation, key):
        if operation == "create" and key.startswith("chain/"):
            storage.before = storage.after = lambda *_: None
            outcome.append(pinned())

    def pinned():
        try:
            store.pin(one)
        except BundleRetired:
            return "refused"
        return "pinned"

    outcome: list[str] = []
    setattr(storage, place, slip_in)
    result = store.prune(Policy(keep_last=1))
    gone = storage.size(one.key_of(one.manifest.parts[0])) is None
    assert (outcome, gone) == ((["pinned"], False) if place == "before" else (["refused"], True))
    if place == "before":
        assert result.reinstated == (one.ref,)
        assert one.id in [bundle.id for bundle in store.bundles()]
        assert store.verify(one).holds


def test_a_pin_that_counted_is_honoured_by_the_next_prune_when_the_first_died_in_between(made):
    storage, store, (one, two, three) = made

    class DiedError(Exception):
        pass

    def die(operation, key):
        if operation == "create" and key.startswith("chain/"):
            storage.before = lambda *_: None
            store.pin(one)
            storage.after = killed

    def killed(operation, key):
        if operation == "create" and key.startswith("chain/"):
            storage.after = lambda *_: None
            raise DiedError

    storage.before = die
    with pytest.raises(DiedError):
        store.prune(Policy(keep_last=1))
    assert [bundle.id for bundle in store.bundles()] == [three.id]
    with pytest.raises(BundleRetired):
        store.pin(one)
    assert pins_on(storage, one.id) == ["pin"]
    assert store.prune(Policy(keep_last=1)).reinstated == (one.ref,)
    assert {bundle.id for bundle in store.bundles()} == {one.id, three.id}
    assert store.verify(one).holds
    assert not any(two.id in key for key in storage.seen)


def test_a_renewal_that_fails_keeps_the_hold_and_leaves_none_behind(made, monkeypatch):
    storage, store, bundles = made
    monkeypatch.setattr(holds, "RESTORE_SECONDS", 0.0)

    def there():
        return [key for key in storage.seen if "/.holds/" in key]

    with holds.restoring(store.chain, bundles[0].ref) as hold:
        before = there()
        for fault in ("fail_before", "fail_after"):
            storage.arm(**{fault: 1})
            hold.renew()
            assert there() == before
        storage.arm()
        monkeypatch.setattr(holds, "RESTORE_SECONDS", -1.0)
        hold.renew()
        assert len(there()) == 1
        assert there() != before
    assert there() == []


def test_without_a_hold_a_bundle_that_was_given_up_is_refused_all_the_same(made):
    storage, store, bundles = made
    store.prune(Policy(keep_last=1))
    storage.arm(fail_before=1)
    with pytest.raises(BundleRetired), holds.restoring(store.chain, bundles[0].ref):
        pass
