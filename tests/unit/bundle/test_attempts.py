from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from bundle_memory import MemoryStorage
from bundle_samples import REST, add_files, again, save, started
from samestep.bundle.attempts import Attempt
from samestep.bundle.errors import (
    AllDamaged,
    CommitRefused,
    DecisionOutdated,
    FencedError,
    FormatError,
    StepBehind,
    StoreError,
)
from samestep.bundle.manifest import COMPONENTS, Row
from samestep.bundle.records import AttemptRecord, record_key
from samestep.bundle.retention import Policy
from samestep.bundle.storage.local import LocalStorage
from samestep.bundle.store import Store
from samestep.contract import Intent


def test_an_attempt_records_what_it_saw_and_from_where_it_goes_on():
    storage = MemoryStorage()
    store, first = started(storage)
    bundle = save(first, 7)
    _, second = again(storage)
    record = store.chain.read(second.number)
    assert isinstance(record, AttemptRecord)
    assert (record.attempt, record.attempt_ordinal, record.saw) == (second.id, 2, 2)
    assert (record.resumed, record.reason) == (bundle.ref, "restart")
    assert second.newest == bundle.record
    assert first.newest == bundle.record


def test_an_older_attempt_may_not_commit_any_more_and_is_told_by_whom_it_was_replaced():
    storage = MemoryStorage()
    store, first = started(storage)
    kept = save(first, 1)
    _, second = again(storage)
    with pytest.raises(FencedError, match=second.id):
        save(first, 2)
    with pytest.raises(FencedError):
        save(first, 3)
    assert [bundle.id for bundle in store.bundles()] == [kept.id]
    assert save(second, 2).manifest.parent.id == kept.id


def test_a_fenced_attempt_learns_of_it_before_it_stores_anything():
    storage = MemoryStorage()
    _, first = started(storage)
    first.catch_up()
    again(storage)
    before = dict(storage.seen)
    with pytest.raises(FencedError):
        first.begin(step=1)
    assert storage.seen == before


def test_a_fenced_attempt_whose_parts_were_removed_is_told_that_it_is_fenced():
    storage = MemoryStorage()
    _, first = started(storage)
    saving = first.begin(step=1)
    add_files(saving, 1)
    store, second = again(storage)
    store.prune(Policy())
    with pytest.raises(FencedError, match=second.id):
        saving.commit(contract=REST)


def test_an_attempt_that_was_paused_right_before_its_commit_wakes_up_fenced():
    storage = MemoryStorage()
    store, sleeper = started(storage)
    saving = sleeper.begin(step=5)
    add_files(saving, 5)
    reached, replaced = threading.Event(), threading.Event()

    def pause(operation, key):
        if operation == "create" and key == record_key(2) and threading.current_thread() is thread:
            reached.set()
            assert replaced.wait(10)

    outcome = []

    def finish():
        try:
            outcome.append(saving.commit(contract=REST))
        except FencedError as error:
            outcome.append(error)

    thread = threading.Thread(target=finish)
    storage.before = pause
    thread.start()
    assert reached.wait(10)
    other = Store.open(storage, writing=True)
    replacement = other.register(other.select(), "the first one does not answer")
    replaced.set()
    thread.join(10)
    assert isinstance(outcome[0], FencedError)
    assert replacement.id in outcome[0].message
    assert list(store.bundles()) == []
    storage.before = lambda *_: None
    assert save(replacement, 1).id == store.select().bundle


def at_once(*calls):
    """Run ``calls`` in threads that start together; return what each gave or raised."""
    barrier = threading.Barrier(len(calls))

    def run(call):
        barrier.wait(10)
        try:
            return call()
        except StoreError as error:
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result(20) for future in [pool.submit(run, call) for call in calls]]


def place_for(name, folder):
    return MemoryStorage() if name == "memory" else LocalStorage(folder)


@pytest.mark.parametrize(("place", "times"), [("memory", 100), ("local", 30)])
def test_of_two_attempts_that_race_exactly_one_commits_and_the_other_is_told(place, times, tmp_path):
    for number in range(times):
        store = Store.create(place_for(place, tmp_path / str(number)))
        registered = at_once(*[lambda store=store: store.register(None, "race")] * 2)
        outcomes = at_once(*[lambda attempt=attempt: save(attempt, 1) for attempt in registered])
        (won,) = (outcome for outcome in outcomes if not isinstance(outcome, StoreError))
        (lost,) = (outcome for outcome in outcomes if isinstance(outcome, FencedError))
        assert store.select().bundle == won.id
        assert won.manifest.attempt in lost.message
        assert [bundle.id for bundle in store.bundles()] == [won.id]


@pytest.mark.parametrize(("place", "times"), [("memory", 100), ("local", 30)])
def test_of_a_commit_and_a_registration_that_race_exactly_one_comes_first_and_the_other_is_told(
    place, times, tmp_path
):
    for number in range(times):
        storage = place_for(place, tmp_path / str(number))
        store, old = started(storage)
        saving = old.begin(step=1)
        add_files(saving, 1)
        decision = store.select()
        committed, registered = at_once(
            lambda saving=saving: saving.commit(contract=REST),
            lambda store=store, decision=decision: store.register(decision, "race"),
        )
        if isinstance(registered, DecisionOutdated):
            assert store.select().bundle == committed.id
        else:
            assert isinstance(committed, FencedError)
            assert registered.id in committed.message
            assert store.select().outcome == "empty"


def test_a_second_process_that_commits_as_the_same_attempt_is_noticed():
    storage = MemoryStorage()
    store, attempt = started(storage)
    twin = Attempt(store.chain, store.chain.read(attempt.number), None)
    bundle = save(attempt, 1)
    with pytest.raises(FencedError, match="in its name"):
        save(twin, 1)
    assert [one.id for one in store.bundles()] == [bundle.id]


def test_saves_from_several_threads_make_one_lineage():
    storage = MemoryStorage()
    store, attempt = started(storage)
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: save(attempt, 1), range(8)))
    bundles = list(store.bundles())
    assert {bundle.id for bundle in bundles} == {bundle.id for bundle in made}
    for newer, older in itertools.pairwise(bundles):
        assert newer.manifest.parent.id == older.id


def test_a_decision_that_a_commit_has_overtaken_is_refused():
    storage = MemoryStorage()
    store, first = started(storage)
    save(first, 1)
    decision = store.select()
    newest = save(first, 2)
    with pytest.raises(DecisionOutdated, match=newest.id):
        store.register(decision, "restart")
    assert store.chain.head() == 3
    assert store.register(store.select(), "restart").newest.bundle.id == newest.id


def test_a_commit_that_lands_while_an_attempt_registers_is_not_passed_over():
    storage = MemoryStorage()
    store, first = started(storage)
    decision = store.select()
    saving = first.begin(step=1)
    add_files(saving, 1)

    def slip_in(operation, key):
        if operation == "create" and key == record_key(2):
            storage.before = lambda *_: None
            saving.commit(contract=REST)

    storage.before = slip_in
    with pytest.raises(DecisionOutdated):
        Store.open(storage, writing=True).register(decision, "restart")
    assert store.select().step == 1


def test_a_decision_whose_bundle_was_retired_is_refused():
    storage = MemoryStorage()
    store, first = started(storage)
    chosen = save(first, 1)
    save(first, 2)
    decision = msgspec.structs.replace(store.select(), bundle=chosen.id, number=2, step=1)
    store.prune(Policy(keep_last=1))
    with pytest.raises(DecisionOutdated, match=f"{chosen.id} was retired"):
        store.register(decision, "restart")


def test_a_decision_stays_valid_when_only_other_attempts_registered():
    storage = MemoryStorage()
    store, first = started(storage)
    save(first, 1)
    decision = store.select()
    store.register(decision, "one")
    assert store.register(decision, "two").ordinal == 3


def test_a_store_with_bundles_is_begun_again_only_when_that_is_said():
    storage = MemoryStorage()
    store, first = started(storage)
    bundle = save(first, 1)
    with pytest.raises(StoreError, match=bundle.id):
        store.register(None, "any reason")
    fresh = store.register(None, "", begin_again="the first week used wrong labels")
    assert save(fresh, 1).manifest.parent is None


def test_an_empty_store_needs_no_reason():
    assert Store.create(MemoryStorage()).register(None, "").ordinal == 1


def test_nothing_is_registered_on_a_decision_that_names_nothing_to_go_on_from():
    storage = MemoryStorage()
    store, first = started(storage)
    bundle = save(first, 1)
    storage.damage(bundle.key_of(bundle.manifest.parts[0]), lambda _: None)
    with pytest.raises(AllDamaged, match="part-missing"):
        store.register(store.select(), "restart")
    assert store.chain.head() == 2


def test_a_new_run_does_not_register_in_the_root_of_the_old_one():
    storage = MemoryStorage()
    store, first = started(storage)
    save(first, 1)
    with pytest.raises(StoreError, match="does not continue"):
        store.register(store.select(intent=Intent.NEW_RUN), "experiment")


def test_a_record_that_cannot_be_read_may_have_been_an_attempt():
    storage = MemoryStorage()
    store, first = started(storage)
    save(first, 1)
    storage.create(record_key(3), b"from the future\n")
    _, second = again(storage)
    assert (second.number, second.ordinal) == (4, 3)
    with pytest.raises(FormatError):
        save(first, 2)
    assert store.chain.head() == 4


def test_a_lost_reply_to_a_registration_makes_one_attempt():
    storage = MemoryStorage()
    store = Store.create(storage)
    storage.arm(lose_reply=1)
    assert store.register(None, "").number == 1
    assert store.chain.head() == 1


def test_going_back_within_a_run_is_refused():
    _, attempt = started(MemoryStorage())
    save(attempt, 5)
    with pytest.raises(StepBehind, match="step 4 was asked for"):
        attempt.begin(step=4)
    save(attempt, 5)


OPEN = REST | {COMPONENTS[-1]: Row(state="open", because="nobody has said")}


def test_a_run_of_open_bundles_goes_on_though_none_can_be_resumed():
    storage = MemoryStorage()
    store, first = started(storage)
    older = save(first, 5, contract=OPEN, allow_open_rows=True)
    assert store.select().outcome == "damaged"
    second = store.register(None, "seals", begin_again="its rows are open")
    assert second.newest == older.record
    with pytest.raises(StepBehind, match="step 4 was asked for"):
        second.begin(step=4)
    newer = save(second, 6, contract=OPEN, allow_open_rows=True)
    assert newer.manifest.parent.id == older.id
    assert {part.path for part in newer.manifest.parts if part.share_depth} == {"tokenizer.json"}
    record = store.chain.read(second.number)
    assert (record.resumed, record.reason) == (older.ref, "seals; its rows are open")


def test_a_damaged_bundle_with_open_rows_is_not_continued():
    storage = MemoryStorage()
    store, first = started(storage)
    bundle = save(first, 5, contract=OPEN, allow_open_rows=True)
    storage.damage(bundle.key_of(bundle.manifest.parts[0]), lambda data: data[:-1])
    assert store.register(None, "", begin_again="all is lost").newest is None


def test_a_commit_that_lands_while_a_run_is_begun_again_is_not_passed_over():
    storage = MemoryStorage()
    _, first = started(storage)
    save(first, 1)

    def slip_in(operation, key):
        if operation == "create" and key == record_key(3):
            storage.before = lambda *_: None
            save(first, 2)

    storage.before = slip_in
    with pytest.raises(DecisionOutdated, match="of step 2 was committed"):
        Store.open(storage, writing=True).register(None, "", begin_again="wrong labels")


def test_bundles_without_a_chain_are_never_begun_again():
    storage = MemoryStorage()
    store, first = started(storage)
    save(first, 1)
    for key in [key for key in storage.seen if key.startswith("chain/")]:
        del storage.seen[key]
    with pytest.raises(FormatError, match=r"the chain of .* is gone"):
        store.register(None, "", begin_again="it looks empty")
    assert store.chain.head() == 0


def test_saves_are_committed_in_the_order_of_their_steps():
    storage = MemoryStorage()
    store, attempt = started(storage)
    earlier, later = attempt.begin(step=10), attempt.begin(step=20)
    add_files(later, 20)
    later.commit(contract=REST)
    add_files(earlier, 10)
    with pytest.raises(CommitRefused, match="of step 20 was committed meanwhile"):
        earlier.commit(contract=REST)
    earlier.abandon()
    assert [bundle.step for bundle in store.bundles()] == [20]
    assert not [key for key in storage.seen if earlier.id in key]


@pytest.mark.parametrize("links", [True, False], ids=["links", "references"])
def test_a_long_attempt_remembers_only_what_its_newest_commit_needs(links):
    _, attempt = started(MemoryStorage(links=links))
    for step in range(1, 30):
        newest = save(attempt, step)
    saving = attempt.begin(step=30)
    add_files(saving, 30)
    saving.abandon()
    assert attempt.sound == {newest.key_of(part) for part in newest.manifest.parts}
    assert not attempt._committed
    assert not attempt._tried
