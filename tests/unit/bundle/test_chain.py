from __future__ import annotations

import msgspec
import pytest

from bundle_memory import MemoryStorage
from bundle_samples import save, started
from samestep.bundle import canonical
from samestep.bundle import chain as chain_module
from samestep.bundle.chain import Chain, Unreadable, given_up, is_zombie, living, marks, newest_ordinal
from samestep.bundle.errors import FormatError, StoreError
from samestep.bundle.identity import new_nonce, new_run_id, utc_text
from samestep.bundle.records import (
    AttemptRecord,
    BundleRef,
    ReinstateRecord,
    RetireRecord,
    encode_record,
    record_key,
)

RUN = new_run_id()
BUNDLES = [BundleRef(id=f"b-20260101t00000000{n}-000000000{n}", number=n, step=n) for n in range(1, 6)]


def holding(numbers) -> MemoryStorage:
    storage = MemoryStorage()
    storage.seen |= {record_key(number): b"" for number in numbers}
    return storage


def attempt(number: int, **fields) -> AttemptRecord:
    return AttemptRecord(
        **{
            "number": number,
            "run": RUN,
            "nonce": new_nonce(),
            "written": utc_text(),
            "attempt_ordinal": number,
            "attempt": "a-20260101t000000000-0000000001",
            "saw": number - 1,
        }
        | fields
    )


def retire(number: int, gone, stay, **fields) -> RetireRecord:
    return RetireRecord(
        number=number,
        run=RUN,
        nonce=new_nonce(),
        written=utc_text(),
        attempt_ordinal=0,
        bundles=tuple(gone),
        survivors=tuple(stay),
        policy="test",
        **fields,
    )


def put(storage: MemoryStorage, *records) -> Chain:
    for record in records:
        storage.create(record_key(record.number), encode_record(record))
    return Chain(storage, RUN)


def filled(storage: MemoryStorage, count: int) -> Chain:
    return put(storage, *[attempt(number) for number in range(1, count + 1)])


@pytest.mark.parametrize("length", [*range(40), 63, 64, 65, 100, 1000, 32767, 32768, 70000])
def test_the_head_is_the_highest_number_whatever_the_length(length):
    assert Chain(holding(range(1, length + 1)), RUN).head() == length


@pytest.mark.parametrize("known", [1, 16, 17, 99, 100])
def test_the_head_is_found_from_any_number_that_is_known_to_exist(known):
    assert Chain(holding(range(1, 101)), RUN).head(at_least=known) == 100


def test_finding_the_head_of_ten_thousand_records_takes_few_questions_and_no_listing():
    storage = holding(range(1, 10_001))
    assert Chain(storage, RUN).head() == 10_000
    assert storage.calls["size"] <= 96
    assert storage.calls["sizes"] <= 6
    assert storage.calls["entries"] == 0


@pytest.mark.parametrize("length", [3, 5, 12, 17, 70, 100, 300])
@pytest.mark.parametrize("known", [0, 1])
def test_a_lost_record_does_not_hide_those_after_it(length, known):
    for lost in range(known + 1, length):
        numbers = set(range(1, length + 1)) - {lost}
        assert Chain(holding(numbers), RUN).head(at_least=known) == length, lost


def test_a_record_is_appended_under_the_next_number():
    chain = put(MemoryStorage(), attempt(1))
    made = chain.append(attempt, after=1, nonce="", meet=pytest.fail)
    assert made.number == 2
    assert chain.read(2) == made


def test_records_of_others_are_taken_in_one_by_one_before_the_next_try():
    chain = put(MemoryStorage(), attempt(1), attempt(2), attempt(3))
    met = []
    made = chain.append(attempt, after=1, nonce="none of them", meet=lambda record: met.append(record.number))
    assert (met, made.number) == ([2, 3], 4)


def test_a_lost_reply_is_recognised_by_the_nonce_and_made_durable():
    storage = MemoryStorage()
    nonce = new_nonce()
    storage.arm(lose_reply=1)
    made = Chain(storage, RUN).append(
        lambda number: attempt(number, nonce=nonce), after=0, nonce=nonce, meet=pytest.fail
    )
    assert made.number == 1
    assert storage.log == [("create", record_key(1)), ("settle", record_key(1))]


def test_repeating_an_append_that_failed_after_it_was_applied_finds_it():
    storage = MemoryStorage()
    chain, nonce = Chain(storage, RUN), new_nonce()

    def build(number):
        return attempt(number, nonce=nonce)

    storage.arm(fail_after=1)
    with pytest.raises(StoreError):
        chain.append(build, after=0, nonce=nonce, meet=pytest.fail)
    assert chain.append(build, after=0, nonce=nonce, meet=pytest.fail).number == 1
    assert chain.head() == 1


def test_nothing_is_appended_past_a_record_that_cannot_be_read():
    storage = MemoryStorage()
    storage.create(record_key(1), b"{}\n")
    with pytest.raises(FormatError, match="record 1"):
        Chain(storage, RUN).append(attempt, after=0, nonce="x", meet=lambda _: None)
    assert Chain(storage, RUN).head() == 1


def test_what_cannot_be_read_says_why(monkeypatch):
    storage = MemoryStorage()
    put(storage, attempt(1), attempt(2, run=new_run_id()))
    storage.create(record_key(3), encode_record(attempt(3)).replace(b"chain/1", b"chain/2"))
    storage.create(record_key(5), b"x" * 5000)
    monkeypatch.setattr(canonical, "BYTES_LIMIT", 4096)
    found = [Chain(storage, RUN).look(number) for number in range(1, 6)]
    assert isinstance(found[0], AttemptRecord)
    reasons = [one.reason for one in found[1:] if isinstance(one, Unreadable)]
    assert reasons == ["wrong-run", "unknown-format", "no-manifest", "unknown-format"]
    with pytest.raises(FormatError, match="missing"):
        Chain(storage, RUN).read(4)


def test_a_place_that_fails_is_not_a_record_that_cannot_be_read():
    storage = MemoryStorage()
    chain = put(storage, attempt(1))

    def fail(operation, _key):
        if operation == "read":
            raise StoreError("no network")

    storage.before = fail
    with pytest.raises(StoreError, match="no network"):
        chain.look(1)


def test_a_retirement_sums_up_what_is_older():
    storage = MemoryStorage()
    store, trainer = started(storage)
    made = [save(trainer, step) for step in (1, 2, 3)]
    refs = [bundle.ref for bundle in made]
    record = msgspec.structs.replace(retire(5, refs[:2], refs[2:]), run=store.run.id)
    storage.create(record_key(5), encode_record(record))
    storage.calls.clear()
    assert list(living(store.chain, 5)) == [refs[2].id]
    assert [(mark.number, mark.retired) for mark in marks(store.chain, 5)] == [
        (5, False),
        (4, False),
        (3, True),
        (2, True),
    ]
    assert given_up(store.chain, refs[0], 5)
    assert not given_up(store.chain, refs[0], 4)
    assert not given_up(store.chain, refs[2], 5)


def test_a_reinstated_bundle_is_alive_until_it_is_retired_again():
    one, two = BUNDLES[:2]
    back = ReinstateRecord(
        number=4,
        run=RUN,
        nonce=new_nonce(),
        written=utc_text(),
        attempt_ordinal=0,
        bundles=(one,),
        because="held",
    )
    storage = MemoryStorage()
    chain = put(storage, attempt(1), attempt(2), retire(3, [one], [two]), back)
    assert list(living(chain, 4)) == [two.id, one.id]
    assert not given_up(chain, one, 4)
    put(storage, retire(5, [one], [two]))
    assert list(living(chain, 5)) == [two.id]
    assert given_up(chain, one, 5)


def test_records_that_cannot_be_read_are_counted_since_the_newest_attempt():
    storage = MemoryStorage()
    chain = put(storage, attempt(1))
    storage.create(record_key(2), b"?")
    storage.create(record_key(3), b"?")
    assert newest_ordinal(chain, 3) == (1, 2)
    assert newest_ordinal(chain, 0) == (0, 0)


def test_a_commit_after_a_newer_registration_is_a_zombie():
    storage = MemoryStorage()
    store, trainer = started(storage)
    bundle = save(trainer, 1)
    assert not is_zombie(store.chain, bundle.record)
    late = attempt(3, run=store.run.id, attempt_ordinal=2)
    storage.create(record_key(3), encode_record(late))
    zombie = msgspec.structs.replace(bundle.record, number=4, nonce=new_nonce())
    storage.create(record_key(4), encode_record(zombie))
    assert is_zombie(store.chain, zombie)


def test_of_large_records_few_are_kept_and_none_are_read_ahead(monkeypatch):
    storage = MemoryStorage()
    chain = filled(storage, 40)
    assert len(list(chain.backwards(40))) == 40
    assert len(chain._recent) == 8
    monkeypatch.setattr(chain_module, "_KEPT_BYTES", 500)
    large = Chain(storage, RUN)
    walk = large.backwards(40)
    for _ in range(3):
        next(walk)
    assert storage.calls["read"] - 40 <= 3
    assert len(large._recent) == 2


def test_a_record_that_is_dropped_while_another_thread_asks_for_it_is_read_again():
    chain = filled(MemoryStorage(), 1)
    chain.look(1)

    class Dropping(dict):
        def __contains__(self, key):
            found = super().__contains__(key)
            self.clear()
            return found

        def get(self, key, default=None):
            found = super().get(key, default)
            self.clear()
            return found

    chain._recent = Dropping(chain._recent)
    assert chain.look(1).number == 1


def test_what_is_alive_is_not_known_when_a_record_cannot_be_read():
    storage = MemoryStorage()
    chain = filled(storage, 2)
    storage.create(record_key(3), b"from the future\n")
    with pytest.raises(FormatError, match="which bundles are alive is not known"):
        living(chain, 3)
