"""Journals under every cut and every flipped byte."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from samestep.journal import Journal, JournalError, read_journal

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(["seen", "asked-again", "x"])


def written(events, flush_after):
    """Return the bytes of a journal with these events, synced after those whose index is in ``flush_after``."""
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal.open(Path(folder), "a-1", batch_seconds=1000)
        for index, (name, value) in enumerate(events):
            journal.append(name, value=value)
            if index in flush_after:
                journal.flush()
        data = journal.segment_since(0)
        journal.close()
    return data


@pytest.fixture(scope="module")
def data():
    return written([("seen", {"step": n, "text": "é\n"}) for n in range(5)], {1, 3})


def test_every_prefix_reads_as_the_lines_that_are_whole(data):
    lines = data.splitlines(keepends=True)
    for cut in range(len(data) + 1):
        whole = data[:cut].count(b"\n")
        reading = read_journal(data[:cut])
        assert len(reading.events) == whole
        torn = cut - sum(len(line) for line in lines[:whole])
        assert (reading.problem is None) == (torn == 0)
        if torn:
            assert (reading.problem.line, reading.problem.size_bytes) == (whole + 1, torn)


def test_every_flipped_byte_is_found(data):
    before = read_journal(data).events
    for place in range(len(data)):
        for bit in (0, 3, 7):
            changed = bytearray(data)
            changed[place] ^= 1 << bit
            line = data[:place].count(b"\n")
            try:
                reading = read_journal(bytes(changed))
            except JournalError as error:
                assert f"line {line + 1} " in error.message  # noqa: PT017 - both answers are right in turn
            else:
                assert reading.problem.line == line + 1
                assert reading.events == before[:line]


def test_damage_before_a_sync_is_never_taken_for_a_torn_tail(data):
    starts = [0, *(place + 1 for place, byte in enumerate(data) if byte == 10)]
    for line in range(4):
        changed = bytearray(data)
        changed[starts[line] + 10] ^= 1
        with pytest.raises(JournalError, match=f"line {line + 1} "):
            read_journal(bytes(changed))


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    events=st.lists(st.tuples(NAMES, VALUES), max_size=8),
    flush_after=st.sets(st.integers(0, 7)),
    cut=st.floats(0, 1),
)
def test_whatever_is_written_is_read_and_a_cut_leaves_a_prefix(events, flush_after, cut):
    data = written(events, flush_after)
    reading = read_journal(data)
    assert [(event.event, event.values["value"]) for event in reading.events[1:]] == events
    shorter = read_journal(data[: int(cut * len(data))])
    assert shorter.events == reading.events[: len(shorter.events)]


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=400))
def test_any_bytes_at_all_are_read_or_refused(data):
    assert read_journal(data).events == ()
