"""One attempt's journal as spans of time: every moment in exactly one."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost_stores import EPOCH, JournalOf
from samestep.bundle.history import PastAttempt
from samestep.bundle.identity import utc_text
from samestep.bundle.manifest import Manifest
from samestep.bundle.records import AttemptRecord, CommitRecord
from samestep.cost.records.timeline import timeline_of
from samestep.journal import read_journal
from samestep.journal.odometer import NOT_SHOWN, Shown
from samestep.ledger import Row


def timeline(journal, *, shown=NOT_SHOWN, committed=None):
    record = AttemptRecord(
        number=1, run="r", nonce="0" * 16, written=utc_text(EPOCH), attempt_ordinal=1, attempt="a", saw=0
    )
    events = read_journal(b"".join(journal.lines)).events
    return timeline_of(PastAttempt(record, events, whole=True, shown=shown), committed)


def commit(at, step):
    bundle = Manifest(id="b", attempt="a", step=step, parts=(), contract={}, created=utc_text(EPOCH))
    return CommitRecord(
        number=2, run="r", nonce="0" * 16, written=utc_text(EPOCH + at), attempt_ordinal=1, bundle=bundle
    )


def told(found):
    return [(span.row, round(span.begin - EPOCH, 3), round(span.end - EPOCH, 3)) for span in found.spans]


def test_a_save_in_the_background_stops_the_training_only_while_the_state_is_captured():
    journal = JournalOf(None, "a", 0.0)
    journal.steps(1.0, 5.0, 1, 4)
    journal.saved(5.0, 5.5, 4)
    journal.note(7.0, "save-committed", step=4, bundle="b", number=1, size_bytes=1, written_bytes=1)
    journal.steps(5.5, 9.5, 5, 8)
    found = timeline(journal)
    assert told(found) == [
        (Row.RESTART, 0, 1),
        (Row.UNIQUE, 1, 5),
        (Row.SAVING, 5, 5.5),
        (Row.UNIQUE, 5.5, 9.5),
    ]
    assert [(save.ready - save.asked, save.committed - save.ready) for save in found.saves] == [(0.5, 1.5)]


def test_a_save_that_is_waited_for_stops_the_training_until_the_bundle_exists():
    journal = JournalOf(None, "a", 0.0)
    journal.steps(1.0, 5.0, 1, 4)
    journal.saved(5.0, 5.5, 4, committed=7.0, waits=True)
    journal.steps(7.25, 9.25, 5, 6)
    assert told(timeline(journal))[2:] == [
        (Row.SAVING, 5, 7),
        (Row.IDLE, 7, 7.25),
        (Row.UNIQUE, 7.25, 9.25),
    ]


def test_the_commit_of_an_earlier_save_does_not_end_one_that_is_waited_for():
    journal = JournalOf(None, "a", 0.0)
    journal.steps(0.0, 4.0, 1, 4)
    journal.saved(4.0, 4.5, 4)
    journal.steps(4.5, 5.5, 5, 5)
    journal.note(5.5, "save-asked", step=5, waits=True)
    journal.note(6.0, "save-committed", step=4, bundle="b", number=1, size_bytes=1, written_bytes=1)
    journal.note(6.5, "save-state-ready", step=5)
    journal.note(8.0, "save-committed", step=5, bundle="c", number=2, size_bytes=1, written_bytes=1)
    assert told(timeline(journal))[-1] == (Row.SAVING, 5.5, 8)


def test_steps_that_only_the_odometer_knows_of_are_found_after_the_last_note():
    journal = JournalOf(None, "a", 0.0)
    journal.steps(1.0, 5.0, 1, 4)
    found = timeline(journal, shown=Shown(7, EPOCH + 8.0))
    assert told(found)[-1] == (Row.UNIQUE, 5, 8)
    assert (found.spans[-1].first, found.spans[-1].last, found.spans[-1].known) == (5, 7, False)
    assert found.ended == EPOCH + 8


def test_after_a_save_without_more_steps_nothing_is_known_to_have_happened():
    journal = JournalOf(None, "a", 0.0)
    journal.steps(1.0, 5.0, 1, 4)
    journal.saved(5.0, 5.5, 4)
    assert told(timeline(journal, committed=commit(9.0, 4)))[-2:] == [
        (Row.SAVING, 5, 5.5),
        (Row.IDLE, 5.5, 9),
    ]


def test_a_clock_that_is_set_does_not_move_what_a_process_has_measured():
    journal = JournalOf(None, "a", 0.0)
    journal.steps(1.0, 5.0, 1, 4)
    journal._zero += 3600  # what is written from now on says an hour earlier than the monotonic clock
    journal.steps(5.0 - 3600, 9.0 - 3600, 5, 8)
    found = timeline(journal)
    assert found.seconds == pytest.approx(9.0)


def test_an_attempt_that_died_before_its_first_step_was_restarting():
    journal = JournalOf(None, "a", 0.0)
    journal.note(3.0, "restore-begun", bundle="b", step=3)
    found = timeline(journal)
    assert told(found) == [(Row.RESTART, 0, 3)]
    assert found.restart_seconds is None


def test_a_notice_was_usable_when_the_store_holds_its_step_whatever_the_journal_reaches_to():
    journal = JournalOf(None, "a", 0.0)
    journal.steps(1.0, 5.0, 1, 4)
    journal.note(5.0, "notice", source="SIGTERM", step=4)
    journal.note(5.0, "save-asked", step=4, waits=True)
    assert not timeline(journal).notice.usable
    assert not timeline(journal, committed=commit(2.0, 2)).notice.usable
    assert timeline(journal, committed=commit(6.0, 4)).notice.usable


MOMENTS = st.lists(st.integers(1, 400), min_size=1, max_size=30)
KINDS = (
    "steps",
    "save-asked",
    "save-asked-waits",
    "save-state-ready",
    "save-committed",
    "notice",
    "restore-ended",
)


@given(
    pauses=MOMENTS, kinds=st.lists(st.sampled_from(KINDS), min_size=30, max_size=30), shown=st.integers(0, 40)
)
def test_every_moment_of_any_journal_is_in_one_span(pauses, kinds, shown):
    journal, at, step = JournalOf(None, "a", 0.0), 0.0, 0
    for pause, kind in zip(pauses, kinds, strict=False):
        at += pause / 8
        if kind == "steps":
            step += 2
            journal.steps(at - pause / 16, at, step - 1, step)
        elif kind.startswith("save-asked"):
            journal.note(at, "save-asked", step=step, waits=kind.endswith("waits"))
        elif kind == "notice":
            journal.note(at, "notice", source="SIGTERM", step=step)
        else:
            said = {"bundle": "b", "number": 1, "size_bytes": 1, "written_bytes": 1, "outcome": "restored"}
            journal.note(at, kind, step=step, **said)
    found = timeline(journal, shown=Shown(shown, EPOCH + at + 1.0))
    assert found.spans[0].begin == found.began
    assert found.spans[-1].end == found.ended
    assert all(one.end == other.begin for one, other in itertools.pairwise(found.spans))
    assert all(span.seconds > 0 for span in found.spans)
    assert sum(span.steps for span in found.spans) == max(step, shown)
