from __future__ import annotations

import msgspec
import pytest

from bundle_memory import MemoryStorage
from bundle_samples import REST, add_files, again, save, started
from samestep.bundle.errors import AllDamaged, NothingToResume, StoreError, UnreadableError
from samestep.bundle.identity import new_nonce, new_run_id
from samestep.bundle.manifest import Row, World
from samestep.bundle.records import encode_record, record_key
from samestep.bundle.retention import Policy
from samestep.bundle.store import Store
from samestep.contract import Intent


def reasons(decision):
    return [(one.bundle, one.reason) for one in decision.set_aside]


def lose(storage, bundle, path="model.safetensors", how=lambda _: None):
    part = next(part for part in bundle.manifest.parts if part.path == path)
    storage.damage(bundle.key_of(part), how)


def forge(storage, forged, **fields):
    """Append a commit record that no writer of ours would."""
    store = Store.open(storage, writing=True)
    number = store.chain.head() + 1
    record = msgspec.structs.replace(forged.record, **{"number": number, "nonce": new_nonce()} | fields)
    storage.create(record_key(number), encode_record(record))
    return number


def test_the_newest_bundle_is_chosen_and_what_comes_next_is_said():
    store, attempt = started(MemoryStorage())
    save(attempt, 200)
    bundle = save(attempt, 240, environment={"torch": "2.9.1"})
    decision = store.select(cut_step=300)
    assert (decision.outcome, decision.bundle, decision.number) == ("resume", bundle.id, bundle.number)
    assert (decision.step, decision.next_step, decision.steps_lost) == (240, 241, 60)
    assert (decision.data_version, decision.environment) == ("v1", {"torch": "2.9.1"})
    assert decision.set_aside == ()
    assert store.select().steps_lost is None


def test_a_save_that_was_cut_off_is_not_seen():
    """The acceptance example: 240 complete, 280 half written, cut at 300."""
    storage = MemoryStorage()
    _, attempt = started(storage)
    kept = save(attempt, 240)
    add_files(attempt.begin(step=280), 280)
    decision = Store.open(storage.revived(), writing=False).select(cut_step=300)
    assert (decision.bundle, decision.next_step, decision.steps_lost) == (kept.id, 241, 60)


def test_a_person_reads_everything_before_any_work_starts():
    storage = MemoryStorage()
    store, attempt = started(storage)
    save(attempt, 240, environment={"torch": "2.9.1", "gpu": "H200"})
    broken = save(attempt, 280)
    lose(storage, broken)
    decision = store.select(cut_step=300)
    text = decision.text()
    for said in (
        store.run.id,
        decision.bundle,
        "step 240",
        "next step   241",
        "steps lost  60",
        "data        v1",
        "gpu H200, torch 2.9.1",
        f"{broken.id} (step 280): part-missing: model.safetensors is missing",
    ):
        assert said in text


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        (lambda _: None, "part-missing"),
        (lambda data: data[:-1], "size-differs"),
        (lambda data: data + b"!", "size-differs"),
    ],
    ids=["missing", "shorter", "longer"],
)
def test_a_bundle_with_a_damaged_part_is_set_aside_for_an_older_whole_one(how, reason):
    storage = MemoryStorage()
    store, attempt = started(storage)
    older, newer = save(attempt, 1), save(attempt, 2)
    lose(storage, newer, "state/optimizer.bin", how)
    decision = store.select()
    assert decision.bundle == older.id
    assert reasons(decision) == [(newer.id, reason)]
    assert "state/optimizer.bin" in decision.set_aside[0].text


def test_a_part_that_cannot_even_be_looked_at_is_damage_of_its_bundle_alone(monkeypatch):
    storage = MemoryStorage()
    store, attempt = started(storage)
    older, newest = save(attempt, 1), save(attempt, 2)
    spoilt = newest.key_of(newest.manifest.parts[1])
    size = storage.size

    def look(key):
        if key == spoilt:
            raise UnreadableError(f"cannot look at {key}: Input/output error (EIO)")
        return size(key)

    monkeypatch.setattr(storage, "size", look)
    monkeypatch.setattr(storage, "sizes", lambda keys: {key: look(key) for key in keys})
    decision = store.select()
    assert decision.bundle == older.id
    assert reasons(decision) == [(newest.id, "part-unreadable")]
    assert spoilt in decision.text()
    assert [fault.reason for fault in store.verify(newest).faults] == ["part-unreadable"]
    assert store.verify(older).holds


def test_the_policy_strict_refuses_to_go_past_a_damaged_bundle():
    storage = MemoryStorage()
    store, attempt = started(storage)
    older, newer = save(attempt, 1), save(attempt, 2)
    lose(storage, newer)
    decision = store.select(policy="strict")
    assert (decision.outcome, decision.bundle) == ("refused", None)
    assert reasons(decision) == [(newer.id, "part-missing")]
    with pytest.raises(AllDamaged, match="strict"):
        decision.required()
    assert store.select().bundle == older.id


def test_the_policy_strict_has_nothing_against_bundles_that_are_no_candidates():
    storage = MemoryStorage()
    store, attempt = started(storage)
    older, newer = save(attempt, 1), save(attempt, 2)
    forge(storage, newer, attempt_ordinal=0)
    assert reasons(store.select(policy="strict"))[0][1] == "zombie-attempt"
    assert store.select(policy="strict").bundle == newer.id
    assert older.id not in store.select().text()


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (lambda _: None, "state/optimizer.bin is missing"),
        (lambda data: data[:-1], "state/optimizer.bin is truncated"),
        (lambda data: data + b"!", "state/optimizer.bin is too long"),
    ],
    ids=["missing", "shorter", "longer"],
)
@pytest.mark.parametrize("policy", ["fallback", "strict"])
def test_the_first_line_of_a_refusal_names_the_damaged_part(how, said, policy):
    storage = MemoryStorage()
    store, attempt = started(storage)
    bundle = save(attempt, 1)
    lose(storage, bundle, "state/optimizer.bin", how)
    with pytest.raises(AllDamaged) as raised:
        store.select(policy=policy).required()
    assert f"{bundle.id}: {said}" in raised.value.message.splitlines()[0]


def test_empty_is_another_answer_than_all_damaged():
    storage = MemoryStorage()
    store, attempt = started(storage)
    empty = store.select()
    assert (empty.outcome, empty.set_aside) == ("empty", ())
    with pytest.raises(NothingToResume):
        empty.required()
    bundle = save(attempt, 1)
    lose(storage, bundle)
    damaged = store.select()
    assert (damaged.outcome, damaged.bundle) == ("damaged", None)
    with pytest.raises(AllDamaged):
        damaged.required()
    assert NothingToResume.exit_code != AllDamaged.exit_code


def test_a_store_whose_chain_is_gone_is_not_empty():
    storage = MemoryStorage()
    store, attempt = started(storage)
    save(attempt, 1)
    for key in [key for key in storage.seen if key.startswith("chain/")]:
        storage.damage(key, lambda _: None)
    assert store.select().outcome == "damaged"


def test_a_record_that_cannot_be_read_is_set_aside_and_does_not_end_the_search():
    storage = MemoryStorage()
    store, attempt = started(storage)
    older, newer = save(attempt, 1), save(attempt, 2)
    storage.damage(record_key(newer.number), lambda data: data.replace(b"bundle/1", b"bundle/2"))
    decision = store.select()
    assert (decision.bundle, decision.set_aside[0].reason) == (older.id, "unknown-format")
    assert decision.set_aside[0].number == newer.number
    assert store.select(policy="strict").outcome == "refused"


def test_a_record_of_another_run_is_set_aside():
    storage = MemoryStorage()
    store, attempt = started(storage)
    bundle = save(attempt, 1)
    forge(storage, bundle, run=new_run_id())
    assert (store.select().bundle, store.select().set_aside[0].reason) == (bundle.id, "wrong-run")


def test_a_missing_record_between_others_is_set_aside():
    storage = MemoryStorage()
    store, attempt = started(storage)
    save(attempt, 1)
    middle, newest = save(attempt, 2), save(attempt, 3)
    storage.damage(record_key(middle.number), lambda _: None)
    lose(storage, newest)
    decision = store.select()
    assert [one.reason for one in decision.set_aside] == ["part-missing", "no-manifest"]
    assert decision.step == 1


def test_the_root_of_another_run_is_refused():
    store, attempt = started(MemoryStorage())
    save(attempt, 1)
    assert store.select(run=store.run.id).step == 1
    with pytest.raises(StoreError, match="was asked for"):
        store.select(run=new_run_id())


def test_an_unknown_policy_is_refused():
    with pytest.raises(StoreError, match="hopeful"):
        started(MemoryStorage())[0].select(policy="hopeful")


def test_an_open_row_is_not_resumed_from_and_its_weights_may_be_used():
    store, attempt = started(MemoryStorage())
    whole = save(attempt, 240)
    without = {name: row for name, row in REST.items() if name != "rng"}
    partial = save(attempt, 280, contract=without, allow_open_rows=True)
    decision = store.select()
    assert (decision.bundle, reasons(decision)) == (whole.id, [(partial.id, "row-open")])
    assert "rng" in decision.set_aside[0].text
    for intent in (Intent.WEIGHTS, Intent.NEW_RUN):
        assert store.select(intent=intent).bundle == partial.id
    assert "weights of" in store.select(intent=Intent.WEIGHTS).text()


def test_weights_come_from_a_bundle_that_holds_them():
    store, attempt = started(MemoryStorage())
    whole = save(attempt, 1)
    save(attempt, 2, contract=REST | {"weights": Row(state="irrelevant", because="frozen")})
    assert store.select(intent=Intent.WEIGHTS).bundle == whole.id


def test_a_bundle_from_another_environment_is_set_aside_with_what_differs():
    store, attempt = started(MemoryStorage())
    fitting = save(attempt, 1, environment={"torch": "2.9", "gpu": "H200"})
    other = save(attempt, 2, environment={"torch": "2.10", "gpu": "H200"})
    silent = save(attempt, 3)
    decision = store.select(expected_environment={"torch": "2.9"})
    assert decision.bundle == fitting.id
    assert reasons(decision) == [(silent.id, "environment-differs"), (other.id, "environment-differs")]
    assert "with torch 2.10, and here is torch 2.9" in decision.set_aside[1].text
    assert store.select(expected_environment={"torch": "2.9"}, policy="strict").outcome == "refused"
    assert store.select(expected_environment={"torch": "2.9"}, intent=Intent.WEIGHTS).bundle == silent.id


def test_a_bundle_of_another_world_is_set_aside():
    store, attempt = started(MemoryStorage())
    fitting = save(attempt, 1, world=World(size=4, layout={"dp": 4}))
    laid_out = save(attempt, 2, world=World(size=4, layout={"dp": 2, "tp": 2}))
    larger = save(attempt, 3, world=World(size=8))
    decision = store.select(expected_world=World(size=4, layout={"dp": 4}))
    assert decision.bundle == fitting.id
    assert reasons(decision) == [(larger.id, "world-differs"), (laid_out.id, "world-differs")]
    assert "8 ranks, and here are 4" in decision.set_aside[0].text


def test_what_the_lineage_went_past_is_abandoned():
    storage = MemoryStorage()
    store, first = started(storage)
    base, passed = save(first, 100), save(first, 200)
    decision = store.select(damaged={passed.id: "its bytes differ"})
    assert (decision.bundle, reasons(decision)) == (base.id, [(passed.id, "digest-differs")])
    second = store.register(decision, "restart")
    newer = save(second, 150)
    assert store.select().bundle == newer.id
    lose(storage, newer)
    decision = store.select()
    assert decision.bundle == base.id
    assert reasons(decision) == [(newer.id, "part-missing"), (passed.id, "abandoned")]


def test_a_run_that_was_begun_afresh_does_not_fall_back_to_what_it_gave_up():
    storage = MemoryStorage()
    store, first = started(storage)
    old = save(first, 100)
    fresh = save(store.register(None, "", begin_again="wrong labels"), 10)
    assert store.select().bundle == fresh.id
    lose(storage, fresh)
    decision = store.select()
    assert (decision.outcome, decision.set_aside[1].bundle) == ("damaged", old.id)
    assert decision.set_aside[1].reason == "abandoned"


def test_an_attempt_that_committed_nothing_does_not_hide_the_newest_bundle():
    storage = MemoryStorage()
    store, first = started(storage)
    bundle = save(first, 1)
    for _ in range(3):
        again(storage)
    assert store.select().bundle == bundle.id


def test_behind_an_unreadable_record_the_lineage_is_taken_from_the_attempt():
    storage = MemoryStorage()
    store, first = started(storage)
    base, passed = save(first, 100), save(first, 200)
    second = store.register(store.select(damaged={passed.id: "differs"}), "restart")
    unreadable = save(second, 150)
    storage.damage(record_key(unreadable.number), lambda _: b"?")
    decision = store.select()
    assert decision.bundle == base.id
    assert [one.reason for one in decision.set_aside] == ["unknown-format", "abandoned"]


def test_the_commit_of_a_fenced_attempt_is_never_chosen():
    storage = MemoryStorage()
    store, first = started(storage)
    bundle = save(first, 1)
    again(storage)
    zombie = forge(storage, bundle, bundle=msgspec.structs.replace(bundle.manifest, step=9))
    decision = store.select()
    assert (decision.bundle, decision.step) == (bundle.id, 1)
    assert (decision.set_aside[0].number, decision.set_aside[0].reason) == (zombie, "zombie-attempt")


def test_what_a_retirement_gave_up_is_said_and_the_lineage_goes_on_behind_it():
    storage = MemoryStorage()
    store, attempt = started(storage)
    kept = save(attempt, 10)
    for step in (11, 12, 13, 14):
        last = save(attempt, step)
    store.prune(Policy(keep_last=1, keep_every=10))
    lose(storage, last)
    decision = store.select()
    assert decision.bundle == kept.id
    assert [one.reason for one in decision.set_aside] == ["part-missing", "retired", "retired", "retired"]


def test_selecting_among_ten_thousand_bundles_reads_a_handful_of_records():
    storage = MemoryStorage()
    store, attempt = started(storage)
    bundle = save(attempt, 1)
    record = bundle.record
    for number in range(3, 10_001):
        copy = msgspec.structs.replace(record, number=number, nonce=new_nonce())
        storage.seen[record_key(number)] = encode_record(copy) if number > 9990 else b"not read"
    storage.calls.clear()
    assert store.select().number == 10_000
    assert storage.calls["read"] <= 4
    assert storage.calls["size"] <= 100
    assert storage.calls["entries"] == 0
    assert storage.calls["read_into"] == 0


def test_selecting_changes_nothing():
    storage = MemoryStorage()
    store, attempt = started(storage)
    save(attempt, 1)
    before, log = dict(storage.seen), list(storage.log)
    store.select()
    list(store.bundles())
    assert (storage.seen, storage.log) == (before, log)


@pytest.mark.parametrize("where", ["summed up", "after it"])
def test_behind_an_unreadable_record_a_retirement_does_not_make_a_pinned_bundle_of_the_past_the_newest(where):
    storage = MemoryStorage()
    store, first = started(storage)
    base, passed = save(first, 100), save(first, 200)
    store.pin(passed)
    second = store.register(store.select(damaged={passed.id: "differs"}), "restart")
    save(second, 120)
    newer = save(second, 150)
    store.pin(base)
    save(second, 160)
    assert [ref.step for ref in store.prune(Policy(keep_last=2)).retired] == [120]
    if where == "after it":
        newest = save(second, 170)
        storage.damage(record_key(newest.number), lambda _: b"rotten")
        assert store.select().step == 160
    for bundle in list(store.bundles()):
        if bundle.step in (150, 160):
            storage.damage(record_key(bundle.number), lambda _: b"rotten")
    assert newer.id not in {bundle.id for bundle in Store.open(storage, writing=False).bundles()}
    decision = Store.open(storage, writing=False).select()
    assert decision.bundle == base.id
    assert (passed.id, "abandoned") in reasons(decision)
