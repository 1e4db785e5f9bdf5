"""The actual ledger of a run: every second once, and money for what was billed."""

from __future__ import annotations

import datetime as dt

import pytest

import cost_trainings
from cost_stores import EPOCH, JournalOf, Stored, three_hundred_steps
from samestep.bundle.identity import utc_text
from samestep.bundle.records import RemoveRecord
from samestep.cost.errors import CostError
from samestep.cost.inputs import Offer
from samestep.cost.records.actual import actual_of
from samestep.cost.records.attempts import End
from samestep.cost.records.keeping import keeping_of
from samestep.cost.records.measuring import observe_run
from samestep.ledger import Row

OFFER = Offer(
    provider="own",
    instance="one",
    spot=3.6,
    on_demand=7.2,
    nodes=2,
    priced=dt.date(2026, 11, 1),
    storage_month=73.0,
)
SECOND = 2 * 3.6 / 3600


def adds_up(actual):
    assert actual.time.total == pytest.approx(actual.wall_seconds, abs=1e-6)
    assert all(seconds >= 0 for seconds in actual.time.rows.values())
    assert actual.steps_accepted == actual.steps_executed - actual.steps_lost
    for life in actual.attempts:
        assert sum(life.rows.values()) == pytest.approx(life.ended_unix - life.began_unix, abs=1e-6)
    return actual


def test_three_hundred_steps_cut_at_300_and_resumed_at_240_lose_sixty(tmp_path):
    three_hundred_steps(tmp_path / "run")
    actual = adds_up(actual_of(tmp_path / "run", offer=OFFER))
    first, second = actual.attempts
    assert (first.reached, second.resumed, first.accepted) == (300, 240, 240)
    assert (actual.steps_accepted, actual.steps_executed, actual.steps_lost) == (320, 380, 60)
    assert (actual.saves, actual.interruptions, [life.end for life in actual.attempts]) == (
        7, 1, [End.INTERRUPTED, End.FINISHED],
    )  # fmt: skip
    assert actual.time.rows == pytest.approx(
        {
            Row.UNIQUE: 6 * 40 + 80,
            Row.REPEATED: 60,
            Row.SAVING: 7 * 1 + 2,
            Row.RESTART: 10 + 30,
            Row.IDLE: 0.5,
            Row.CAPACITY_WAIT: 400 - 317,
        }
    )
    assert actual.saves_begun == 8
    assert actual.money[Row.REPEATED] == pytest.approx(60 * SECOND)
    assert actual.money[Row.CAPACITY_WAIT] == 0
    paid = actual.money.total - actual.money[Row.STORAGE]
    assert actual.billed_seconds == pytest.approx(317 + 112.5)
    assert paid == pytest.approx(actual.billed_seconds * SECOND)
    assert actual.per_accepted == pytest.approx(actual.money.total / 320)
    assert actual.per_executed == pytest.approx(actual.money.total / 380)


def test_a_training_with_the_run_api_that_is_killed_at_300_loses_sixty_steps_too(tmp_path):
    root = tmp_path / "run"
    first = cost_trainings.train(root, steps=320, save=40, stuck_at=280, kill_at=300)
    assert first.exit_code == -9
    assert cost_trainings.train(root, steps=320, save=40).exit_code == 0
    actual = adds_up(actual_of(root))
    killed, restarted = actual.attempts
    assert (killed.reached, restarted.resumed, restarted.reached) == (300, 240, 320)
    assert (actual.steps_accepted, actual.steps_executed, actual.steps_lost) == (320, 380, 60)
    assert min(actual.time[row] for row in (Row.REPEATED, Row.RESTART, Row.SAVING, Row.DATA_STALL)) > 0
    assert restarted.end is End.FINISHED
    found = observe_run(root)
    assert found.missing.keys() <= {"persist_share", "save_requests"}
    assert (found.seen.interruptions, found.quantities["restart_seconds"].count) == (1, 1)


def test_storage_is_paid_for_the_bytes_and_the_time_that_bundles_occupied(tmp_path):
    run = Stored(tmp_path / "run")
    journal = run.begin(0.0)
    journal.steps(0.0, 10.0, 1, 10)
    run.commit(10.0, 10)
    journal.note(10.0 + 3600, "ended", outcome="finished", step=10)
    actual = adds_up(actual_of(run.root, offer=OFFER))
    kept = sum(part.size for part in run.attempt.newest.bundle.parts)
    assert actual.money[Row.STORAGE] == pytest.approx(kept / 1e9 * 73.0 / 730.0)


def test_what_is_billed_beyond_the_seconds_that_an_attempt_lived_was_idle(tmp_path):
    run = Stored(tmp_path / "run")
    journal = run.begin(0.0)
    journal.steps(0.0, 40.0, 1, 10)
    journal.note(40.0, "ended", outcome="closed", step=10)
    run.commit(40.0, 10)
    hourly = Offer(provider="own", instance="one", spot=3.6, billing="per-hour")
    actual = adds_up(actual_of(run.root, offer=hourly))
    assert actual.billed_seconds == 3600
    assert actual.money.rows == pytest.approx({Row.UNIQUE: 0.04, Row.IDLE: 3.56})


def test_the_first_hour_goes_free_only_when_that_is_asked_for(tmp_path):
    three_hundred_steps(tmp_path / "run")
    aws = Offer(provider="aws", instance="one", spot=3.6, billing="aws-linux")
    plain = actual_of(tmp_path / "run", offer=aws)
    free = actual_of(tmp_path / "run", offer=aws, first_hour=True)
    assert plain.billed_seconds - free.billed_seconds == pytest.approx(317)
    assert free.money.total == pytest.approx(free.billed_seconds * 0.001)
    assert free.time == plain.time


def test_steps_on_demand_are_fallback_and_count_all_the_same(tmp_path):
    three_hundred_steps(tmp_path / "run")
    actual = adds_up(actual_of(tmp_path / "run", offer=OFFER, on_demand_attempts=[2]))
    assert actual.steps_accepted == 320
    assert actual.time[Row.FALLBACK] == pytest.approx(112.5)
    assert actual.money[Row.FALLBACK] == pytest.approx(112.5 * 2 * 7.2 / 3600)
    alone = actual_of(tmp_path / "run", offer=OFFER, on_demand_attempts=[1, 2])
    assert alone.time[Row.FALLBACK] == 0
    assert alone.money[Row.UNIQUE] == pytest.approx(320 * 2 * 7.2 / 3600)


def test_an_attempt_that_the_run_does_not_have_is_refused(tmp_path):
    three_hundred_steps(tmp_path / "run")
    with pytest.raises(CostError, match="has no attempt 3") as error:
        actual_of(tmp_path / "run", offer=OFFER, on_demand_attempts=[2, 3])
    assert "1 to 2" in error.value.hint


def test_a_boot_that_no_journal_knows_of_is_billed_and_takes_from_the_wait(tmp_path):
    three_hundred_steps(tmp_path / "run")
    before = actual_of(tmp_path / "run", offer=OFFER)
    actual = adds_up(actual_of(tmp_path / "run", offer=OFFER, boot_seconds=50.0))
    assert actual.wall_seconds == pytest.approx(before.wall_seconds + 50)
    assert actual.time[Row.RESTART] == pytest.approx(before.time[Row.RESTART] + 100)
    assert actual.time[Row.CAPACITY_WAIT] == pytest.approx(before.time[Row.CAPACITY_WAIT] - 50)
    assert actual.billed_seconds == pytest.approx(before.billed_seconds + 100)


def test_a_restart_from_an_older_bundle_loses_what_had_counted_before(tmp_path):
    run = Stored(tmp_path / "run")
    first = run.begin(0.0)
    first.steps(0.0, 20.0, 1, 20)
    run.commit(10.0, 10)
    run.commit(20.0, 20)
    second = run.begin(30.0)
    second.steps(30.0, 35.0, 21, 25)
    newest = run.root / "bundles" / run.attempt.newest.bundle.id / "model.safetensors"
    newest.write_bytes(b"damaged")
    third = run.begin(40.0)
    assert run.attempt.newest.bundle.step == 10
    third.steps(40.0, 60.0, 11, 30)
    third.note(60.0, "ended", outcome="finished", step=30)
    run.commit(60.0, 30)
    actual = adds_up(actual_of(run.root))
    assert [life.steps_lost for life in actual.attempts] == [10, 5, 0]
    assert (actual.steps_accepted, actual.steps_lost) == (30, 15)


def test_two_attempts_at_the_same_time_count_once_in_time_and_twice_in_money(tmp_path):
    run = Stored(tmp_path / "run")
    first = run.begin(0.0)
    first.steps(0.0, 100.0, 1, 100)
    second = run.begin(60.0)
    second.steps(70.0, 120.0, 1, 50)
    second.note(120.0, "ended", outcome="finished", step=50)
    run.commit(120.0, 50)
    actual = adds_up(actual_of(run.root, offer=OFFER))
    assert actual.wall_seconds == pytest.approx(120)
    assert actual.billed_seconds == pytest.approx(160)
    assert any("before the one before it had ended" in note for note in actual.notes)


def test_a_journal_that_went_with_its_machine_is_accounted_up_to_its_last_save_and_said(tmp_path):
    run = Stored(tmp_path / "run")
    lost = JournalOf(None, run.begin(0.0).path.stem, 0.0)
    lost.note(0.0, "attempt-started", run="r", ordinal=1)
    lost.steps(5.0, 25.0, 1, 20)
    lost.saved(25.0, 26.0, 20)
    run.storage.create(f"journal/{run.attempt.id}/0000000000.jsonl", b"".join(lost.lines))
    run.commit(27.0, 20)
    (run.root / "logs" / f"{run.attempt.id}.jsonl").unlink()
    second = run.begin(100.0)
    second.steps(101.0, 111.0, 21, 30)
    second.note(111.0, "ended", outcome="finished", step=30)
    run.commit(111.0, 30)
    actual = adds_up(actual_of(run.root))
    assert actual.time.rows == pytest.approx(
        {Row.UNIQUE: 30, Row.SAVING: 1, Row.RESTART: 6, Row.IDLE: 1, Row.CAPACITY_WAIT: 73}
    )
    assert any("attempt 1 is known up to its last save only" in note for note in actual.notes)


def test_an_attempt_that_was_taken_away_before_it_had_a_journal_is_said(tmp_path):
    run = Stored(tmp_path / "run")
    run.begin(0.0).path.unlink()
    second = run.begin(30.0)
    second.steps(31.0, 41.0, 1, 10)
    second.note(41.0, "ended", outcome="finished", step=10)
    run.commit(41.0, 10)
    actual = adds_up(actual_of(run.root))
    assert actual.time[Row.CAPACITY_WAIT] == pytest.approx(30.0)
    assert any("attempt 1 left no journal; what it did in the 30 s" in note for note in actual.notes)


def test_what_comes_after_a_notice_and_is_no_step_is_its_tail(tmp_path):
    run = Stored(tmp_path / "run")
    journal = run.begin(0.0)
    journal.steps(2.0, 12.0, 1, 10)
    journal.note(12.0, "notice", source="SIGTERM", step=10)
    journal.saved(12.5, 13.0, 10, committed=15.0, waits=True)
    run.commit(15.0, 10)
    journal.note(15.5, "ended", outcome="notice", step=10)
    again = run.begin(20.0)
    again.steps(21.0, 31.0, 11, 20)
    again.note(31.0, "ended", outcome="finished", step=20)
    run.commit(31.0, 20)
    actual = adds_up(actual_of(run.root))
    assert actual.time[Row.NOTICE_TAIL] == pytest.approx(3.5)
    assert actual.time[Row.SAVING] == 0
    assert (actual.interruptions, actual.steps_lost) == (1, 0)


def test_waiting_for_data_has_a_row_of_its_own(tmp_path):
    run = Stored(tmp_path / "run")
    journal = run.begin(0.0)
    journal.steps(1.0, 11.0, 1, 10, waited=4.0)
    journal.note(11.0, "ended", outcome="finished", step=10)
    run.commit(11.0, 10)
    actual = adds_up(actual_of(run.root))
    assert actual.time.rows == pytest.approx({Row.UNIQUE: 6, Row.DATA_STALL: 4, Row.RESTART: 1})


def test_an_attempt_begins_with_its_process(tmp_path):
    run = Stored(tmp_path / "run")
    journal = run.begin(100.0, process_seconds=7.0)
    journal.steps(101.0, 111.0, 1, 10)
    journal.note(111.0, "ended", outcome="finished", step=10)
    run.commit(111.0, 10)
    actual = adds_up(actual_of(run.root))
    assert actual.attempts[0].began_unix == pytest.approx(EPOCH + 93)
    assert actual.time[Row.RESTART] == pytest.approx(8)


def test_the_newest_attempt_may_still_go_on_and_that_is_said(tmp_path):
    run = Stored(tmp_path / "run")
    journal = run.begin(0.0)
    journal.steps(1.0, 11.0, 1, 10)
    run.commit(11.0, 10)
    journal.saved(11.0, 11.1, 10, committed=11.2)
    journal.steps(11.1, 15.1, 11, 14)
    actual = adds_up(actual_of(run.root))
    assert (actual.steps_accepted, actual.steps_lost, actual.interruptions) == (10, 4, 0)
    assert any("may" in note or "still goes on" in note for note in actual.notes)


@pytest.mark.parametrize(
    "said",
    [
        {"first": 1, "last": 10, "seconds": "ten"},
        {"first": 1, "last": 10, "seconds": float("nan")},
        {"first": 10, "last": 1, "seconds": 1.0},
        {"first": None, "last": 1, "seconds": 1.0},
    ],
    ids=["text", "nan", "backwards", "none"],
)
def test_a_journal_that_says_what_cannot_be_meant_is_left_out_and_said(tmp_path, said):
    run = Stored(tmp_path / "run")
    run.begin(0.0).note(10.0, "steps", **said)
    run.commit(11.0, 10)
    actual = adds_up(actual_of(run.root))
    assert actual.time.rows == pytest.approx({Row.RESTART: 11.0})
    assert any("says what cannot be meant" in note for note in actual.notes)


def test_bytes_that_bundles_share_are_paid_once_and_removed_ones_no_more(tmp_path):
    run = Stored(tmp_path / "run")
    journal = run.begin(0.0)
    journal.steps(0.0, 100.0, 1, 100)
    run.commit(100.0, 50)
    run.commit(200.0, 100)
    first, second = (record for record in run.store.chain.following(0) if hasattr(record, "bundle"))
    shared = sum(part.size for part in second.bundle.parts if part.share_depth)
    assert shared > 0
    records = [first, second]
    own = second.bundle.size - shared
    kept = keeping_of(records, EPOCH + 300.0)
    assert kept.byte_seconds == pytest.approx(first.bundle.size * 200 + own * 100, rel=1e-6)
    gone = RemoveRecord(
        number=4, run=first.run, nonce="0" * 16, written=utc_text(EPOCH + 250), attempt_ordinal=1,
        bundles=(first.bundle.id,),
    )  # fmt: skip
    kept = keeping_of([*records, gone], EPOCH + 300.0)
    left = first.bundle.size - shared
    assert kept.byte_seconds == pytest.approx(first.bundle.size * 200 + own * 100 - left * 50, rel=1e-6)
    assert kept.mean_bytes == pytest.approx(kept.byte_seconds / 200, rel=1e-6)
    assert keeping_of([], EPOCH).mean_bytes == 0


def test_an_offer_without_the_price_that_is_needed_is_refused(tmp_path):
    three_hundred_steps(tmp_path / "run")
    spot_only = Offer(provider="own", instance="one", spot=1.0)
    with pytest.raises(CostError, match="no on-demand price"):
        actual_of(tmp_path / "run", offer=spot_only, on_demand_attempts=[1])


def test_a_store_without_an_attempt_has_nothing_to_account(tmp_path):
    from samestep.bundle.storage.local import LocalStorage
    from samestep.bundle.store import Store

    Store.create(LocalStorage(tmp_path / "run"))
    with pytest.raises(CostError, match="no attempt"):
        actual_of(tmp_path / "run")
