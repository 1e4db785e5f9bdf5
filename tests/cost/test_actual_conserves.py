"""Whatever attempts did, and whenever: no second and no cent of a run is lost or counted twice."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost_stores import EPOCH, JournalOf
from samestep.bundle.history import PastAttempt
from samestep.bundle.identity import utc_text
from samestep.bundle.manifest import Manifest
from samestep.bundle.records import AttemptRecord, BundleRef, CommitRecord
from samestep.cost.billing import RULES
from samestep.cost.inputs import Offer
from samestep.cost.records.actual import account
from samestep.cost.records.attempts import RunHistory
from samestep.cost.records.timeline import timeline_of
from samestep.journal import read_journal
from samestep.journal.odometer import Shown
from samestep.ledger import Row

ACTS = ("steps", "steps", "save", "save-waits", "notice", "ended", "commit")


@st.composite
def attempts(draw, number, resumed, begin):
    """One attempt: its timeline, the step it has committed, and when it was last seen."""
    journal = JournalOf(None, f"a{number}", begin)
    age = draw(st.integers(0, 40)) / 8
    journal.note(begin, "attempt-started", run="r", ordinal=number, process_seconds=age)
    at, step, saved = begin, resumed, resumed
    for act in draw(st.lists(st.sampled_from(ACTS), max_size=12)):
        at += draw(st.integers(1, 400)) / 8
        if act == "steps":
            count = draw(st.integers(1, 9))
            seconds = draw(st.integers(1, 300)) / 8
            waited = (
                {"waited": seconds * draw(st.sampled_from((0.0, 0.25, 1.0)))} if draw(st.booleans()) else {}
            )
            journal.note(at, "steps", first=step + 1, last=step + count, seconds=seconds, **waited)
            step += count
        elif act.startswith("save"):
            journal.saved(at, at + 0.125, step, committed=at + 0.25, waits=act.endswith("waits"))
            at, saved = at + 0.25, step
        elif act == "notice":
            journal.note(at, "notice", source=draw(st.sampled_from(("SIGTERM", "Ctrl-C"))), step=step)
        elif act == "ended":
            journal.note(
                at, "ended", outcome=draw(st.sampled_from(("finished", "notice", "ValueError"))), step=step
            )
    shown = Shown(step + draw(st.integers(0, 5)), EPOCH + at + draw(st.integers(0, 80)) / 8)
    record = AttemptRecord(
        number=number, run="r", nonce="0" * 16, written=utc_text(EPOCH + begin), attempt_ordinal=number,
        attempt=f"a{number}", saw=0, resumed=BundleRef(id="b", number=1, step=resumed) if resumed else None,
    )  # fmt: skip
    events = read_journal(b"".join(journal.lines)).events
    return timeline_of(PastAttempt(record, events, whole=True, shown=shown)), saved, at


@st.composite
def histories(draw):
    """A run of up to four attempts, which may go back, overlap, or begin before one that registered earlier."""
    timelines, records, step, at = [], [], 0, 100.0
    for number in range(1, draw(st.integers(1, 4)) + 1):
        begin = max(0.0, at + draw(st.integers(-200, 800)) / 8)
        timeline, saved, at = draw(attempts(number, step, begin))
        timelines.append(timeline)
        bundle = Manifest(
            id="b", attempt=f"a{number}", step=saved, parts=(), contract={}, created=utc_text(EPOCH)
        )
        records.append(
            CommitRecord(
                number=number, run="r", nonce="0" * 16, written=utc_text(EPOCH + at), attempt_ordinal=number,
                bundle=bundle,
            )
        )  # fmt: skip
        step = draw(st.sampled_from((saved, step)))
    return RunHistory("r", "place", tuple(records), tuple(timelines), (), on_objects=True)


@given(
    history=histories(),
    rule=st.sampled_from(sorted(RULES)),
    on_demand=st.sets(st.integers(1, 4)),
    boot=st.integers(0, 400),
    first_hour=st.booleans(),
)
def test_no_second_and_no_cent_is_lost_or_counted_twice(history, rule, on_demand, boot, first_hour):
    offer = Offer(
        provider="own", instance="one", spot=1.5, on_demand=4.0, nodes=3, billing=rule, thousand_requests=7.0
    )
    on_demand &= {timeline.past.record.attempt_ordinal for timeline in history.timelines}
    actual = account(
        history, offer=offer, on_demand_attempts=on_demand, boot_seconds=boot / 8, first_hour=first_hour
    )
    assert all(amount >= 0 for ledger in actual.ledgers.values() for amount in ledger.rows.values())
    assert actual.time.total == pytest.approx(actual.wall_seconds, abs=1e-6)
    for life in actual.attempts:
        assert math.fsum(life.rows.values()) == pytest.approx(life.ended_unix - life.began_unix, abs=1e-6)
    billed = math.fsum(
        life.billed_seconds * (4.0 if life.on_demand else 1.5) * 3 / 3600 for life in actual.attempts
    )
    assert actual.money.total == pytest.approx(billed + actual.money[Row.REQUESTS], abs=1e-6)
    assert actual.money[Row.CAPACITY_WAIT] == 0
    assert actual.steps_lost >= 0
