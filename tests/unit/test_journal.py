"""The journal of an attempt: what is appended can be read, whatever an interruption left of it."""

from __future__ import annotations

import errno
import math
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from samestep.journal import EVENTS, JOURNAL_SCHEMA, Journal, JournalError, read_journal
from samestep.journal.lines import encode_line

ATTEMPT = "a-20260101t000000000-0123456789"


@pytest.fixture
def journal(tmp_path):
    with Journal.open(tmp_path, ATTEMPT) as journal:
        yield journal


def names(path):
    return [event.event for event in read_journal(path).events]


def test_events_come_back_in_order_with_their_values(journal):
    journal.append("save-asked", step=3)
    journal.append("steps", first=1, last=3, seconds=0.5, loss=[math.inf, -math.inf])
    journal.flush()
    opened, asked, steps = read_journal(journal.path).events
    assert opened.values == {"schema": JOURNAL_SCHEMA, "attempt": ATTEMPT}
    assert (asked.seq, asked.event, asked.values) == (1, "save-asked", {"step": 3})
    assert steps.values == {"first": 1, "last": 3, "seconds": 0.5, "loss": [math.inf, -math.inf]}
    assert opened.monotonic <= asked.monotonic <= steps.monotonic
    assert asked.at.endswith("Z")


@pytest.mark.parametrize(
    "value",
    [
        "\ud800 alone",
        "line\nbreak\r\u2028",
        {"$float": "not one"},
        2**70,
        {"nested": [{"a": None}]},
        "é" * 500,
    ],
)
def test_odd_values_come_back_as_they_were(journal, value):
    journal.append("odd", value=value)
    assert read_journal(journal.path).events[-1].values["value"] == value


def test_nan_comes_back(journal):
    journal.append("odd", value=math.nan)
    assert math.isnan(read_journal(journal.path).events[-1].values["value"])


def test_the_same_events_give_lines_of_one_canonical_form(journal):
    journal.append("odd", b=1, a=2)
    line = journal.segment_since(1)
    assert line.startswith(b'{"at":"')
    assert b'"values":{"a":2,"b":1},"xxh3":"' in line
    assert line.endswith(b'"}\n')


def test_reopening_goes_on_in_the_same_chain(tmp_path):
    Journal.open(tmp_path, ATTEMPT).close()
    with Journal.open(tmp_path, ATTEMPT) as journal:
        assert journal.append("save-asked", step=1) == 2
    assert names(journal.path) == ["journal-opened", "journal-reopened", "save-asked"]


def test_a_torn_tail_is_dropped_and_said_and_the_journal_goes_on(tmp_path):
    with Journal.open(tmp_path, ATTEMPT) as journal:
        journal.append("save-asked", step=1)
    with journal.path.open("r+b") as file:
        file.truncate(journal.path.stat().st_size - 5)
    problem = read_journal(journal.path).problem
    assert problem.line == 2
    assert "line 2 was not completely written" in str(problem)
    with Journal.open(tmp_path, ATTEMPT) as again:
        again.append("save-asked", step=2)
    reading = read_journal(journal.path)
    assert reading.problem is None
    assert [event.event for event in reading.events] == ["journal-opened", "journal-reopened", "save-asked"]
    assert reading.events[1].values == {"dropped_bytes": problem.size_bytes}


def test_a_journal_of_which_nothing_is_left_begins_anew_and_says_so(tmp_path):
    (tmp_path / f"{ATTEMPT}.jsonl").write_bytes(b"\0" * 100)
    with Journal.open(tmp_path, ATTEMPT) as journal:
        pass
    assert names(journal.path) == ["journal-opened", "journal-reopened"]


def test_damage_to_a_line_that_was_durable_is_an_error_that_names_it(tmp_path):
    with Journal.open(tmp_path, ATTEMPT) as journal:
        for step in range(4):
            journal.append("save-asked", step=step)
            journal.flush()
    lines = journal.path.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b'"step":1', b'"step":7')
    journal.path.write_bytes(b"".join(lines))
    with pytest.raises(JournalError, match=r"line 3 of .* is damaged"):
        read_journal(journal.path)
    with pytest.raises(JournalError, match="line 3"):
        Journal.open(tmp_path, ATTEMPT)


def test_the_last_line_that_was_durable_counts_as_such(tmp_path):
    with Journal.open(tmp_path, ATTEMPT, batch_seconds=1000) as journal:
        journal.append("save-asked", step=1)
        journal.flush()
        journal.append("save-asked", step=2)
        data = journal.path.read_bytes()
    with pytest.raises(JournalError, match="line 2"):
        read_journal(data.replace(b'"step":1', b'"step":7'))


def test_a_line_with_a_wrong_number_is_no_line_of_the_journal():
    fields = {"at": "", "monotonic": 0.0, "event": "x", "values": {}, "synced": 0}
    first, checksum = encode_line({"seq": 0, **fields}, "")
    second, _ = encode_line({"seq": 5, **fields}, checksum)
    assert read_journal(first + second).problem.line == 2


@pytest.mark.parametrize("change", ["removed", "doubled", "swapped"])
def test_whole_lines_that_are_removed_doubled_or_swapped_are_noticed(tmp_path, change):
    with Journal.open(tmp_path, ATTEMPT) as journal:
        for step in range(5):
            journal.append("save-asked", step=step)
            journal.flush()
    lines = journal.path.read_bytes().splitlines(keepends=True)
    changed = {
        "removed": [*lines[:2], *lines[3:]],
        "doubled": [*lines[:3], lines[2], *lines[3:]],
        "swapped": [*lines[:2], lines[3], lines[2], *lines[4:]],
    }[change]
    with pytest.raises(JournalError, match="is damaged"):
        read_journal(b"".join(changed))


def test_lines_of_one_unsynced_batch_may_be_lost_in_any_order(tmp_path):
    """Pages written back out of order are no damage: nothing says that they were durable."""
    with Journal.open(tmp_path, ATTEMPT, batch_seconds=1000) as journal:
        for step in range(3):
            journal.append("save-asked", step=step)
        lines = journal.path.read_bytes().splitlines(keepends=True)
    lines[2] = b"\0" * len(lines[2])
    reading = read_journal(b"".join(lines))
    assert len(reading.events) == 2
    assert reading.problem.line == 3


def test_segments_joined_are_the_journal(journal):
    journal.append("save-asked", step=1)
    first = journal.segment_since(0)
    begin = journal.next_seq
    journal.append("save-asked", step=2)
    second = journal.segment_since(begin)
    assert journal.segment_since(journal.next_seq) == b""
    assert first + second == journal.path.read_bytes()
    assert [event.seq for event in read_journal(first + second).events] == [0, 1, 2]


def test_a_segment_is_durable_before_it_is_handed_out(journal, monkeypatch):
    synced = watch_fsync(monkeypatch)
    journal.append("save-asked", step=1)
    assert synced == []
    journal.segment_since(0)
    assert len(synced) == 1


def watch_fsync(monkeypatch):
    synced, original = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: (synced.append(descriptor), original(descriptor)))
    return synced


def test_lines_are_synced_in_batches(tmp_path, monkeypatch):
    with Journal.open(tmp_path, ATTEMPT, batch_lines=10, batch_seconds=1000) as journal:
        synced = watch_fsync(monkeypatch)
        for step in range(25):
            journal.append("save-asked", step=step)
        assert len(synced) == 2
        journal.flush()
        journal.flush()
        assert len(synced) == 3


def test_an_urgent_event_is_synced_at_once(tmp_path, monkeypatch):
    with Journal.open(tmp_path, ATTEMPT) as journal:
        synced = watch_fsync(monkeypatch)
        journal.append("notice", source="sigterm")
        assert len(synced) == 1


def test_old_lines_do_not_wait_for_a_full_batch(tmp_path, monkeypatch):
    with Journal.open(tmp_path, ATTEMPT, batch_seconds=0) as journal:
        synced = watch_fsync(monkeypatch)
        journal.append("save-asked", step=1)
        assert len(synced) == 1


def test_who_appends_does_not_wait_while_older_lines_are_made_durable(journal, monkeypatch):
    begun, go_on, original = threading.Event(), threading.Event(), os.fsync

    def slow(descriptor):
        begun.set()
        assert go_on.wait(30)
        original(descriptor)

    journal.append("save-asked", step=1)
    monkeypatch.setattr(os, "fsync", slow)
    flushing = threading.Thread(target=journal.flush)
    flushing.start()
    assert begun.wait(30)
    appending = threading.Thread(target=journal.append, args=("save-asked",), kwargs={"step": 2})
    appending.start()
    appending.join(30)
    assert not appending.is_alive()
    assert flushing.is_alive()
    go_on.set()
    flushing.join(30)
    synced = watch_fsync(monkeypatch)
    journal.flush()  # the second line was not covered by the fsync that had begun before it
    assert len(synced) == 1


def test_new_folders_are_synced_into_their_parents(tmp_path, monkeypatch):
    seen, original = [], os.fsync
    monkeypatch.setattr(
        os,
        "fsync",
        lambda descriptor: (
            seen.append(str(Path(f"/proc/self/fd/{descriptor}").readlink())),
            original(descriptor),
        ),
    )
    Journal.open(tmp_path / "a" / "b", ATTEMPT).close()
    assert {str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")} <= set(seen)


def test_a_second_writer_is_refused(journal, tmp_path):
    with pytest.raises(JournalError, match="another process writes"):
        Journal.open(tmp_path, ATTEMPT)


def test_a_full_disk_leaves_the_journal_as_it_was(journal, monkeypatch):
    before = journal.path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fails_after(30))
        with pytest.raises(JournalError, match="No space left"):
            journal.append("save-asked", step=1)
    assert journal.path.read_bytes() == before
    journal.append("save-asked", step=2)
    assert names(journal.path) == ["journal-opened", "save-asked"]


def fails_after(size):
    written, original = [], os.write

    def write(descriptor, data):
        if written:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(size)
        return original(descriptor, data[:size])

    return write


def test_after_a_failed_fsync_nothing_is_appended_any_more(journal, monkeypatch):
    def fail(_):
        raise OSError(errno.EIO, "Input/output error")

    journal.append("save-asked", step=1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(JournalError, match="fsync failed"):
            journal.flush()
    with pytest.raises(JournalError, match="cannot be continued"):
        journal.append("save-asked", step=2)


def test_many_threads_write_one_chain(journal):
    def write(number):
        for step in range(50):
            journal.append("odd", thread=number, step=step)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events = read_journal(journal.path).events
    assert len(events) == 401
    for number in range(8):
        assert [e.values["step"] for e in events if e.values.get("thread") == number] == list(range(50))


def test_what_was_appended_survives_a_killed_process(tmp_path):
    program = (
        "import os, sys, pathlib, signal\nfrom samestep.journal import Journal\n"
        f"journal = Journal.open(pathlib.Path(sys.argv[1]), {ATTEMPT!r})\n"
        "for step in range(20): journal.append('save-asked', step=step)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, tmp_path], check=False)
    assert done.returncode == -signal.SIGKILL
    with Journal.open(tmp_path, ATTEMPT) as journal:
        assert journal.next_seq == 22


@pytest.mark.parametrize("name", ["Upper", "", "with space", "x" * 65, "1st"])
def test_a_name_that_is_none_is_refused(journal, name):
    with pytest.raises(ValueError, match="is no name of an event"):
        journal.append(name)


def test_a_known_event_must_say_what_accounting_needs(journal):
    with pytest.raises(ValueError, match="must say last, seconds"):
        journal.append("steps", first=1)


def test_a_line_that_is_too_long_is_refused(journal):
    with pytest.raises(JournalError, match="at most 1048576"):
        journal.append("odd", value="x" * (1 << 20))
    assert names(journal.path) == ["journal-opened"]


@pytest.mark.parametrize("attempt", ["", "../up", "a/b", ".hidden", "x" * 200])
def test_an_attempt_whose_name_leads_elsewhere_is_refused(tmp_path, attempt):
    with pytest.raises(JournalError, match="cannot name a journal"):
        Journal.open(tmp_path, attempt)


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match=r"cannot write the journal .*file"):
        Journal.open(tmp_path / "file", ATTEMPT)


def test_a_journal_that_is_not_there_is_named(tmp_path):
    with pytest.raises(JournalError, match=r"cannot read the journal .*none"):
        read_journal(tmp_path / "none.jsonl")


def test_a_closed_journal_says_so(journal):
    journal.close()
    with pytest.raises(JournalError, match="is closed"):
        journal.append("odd")


def test_every_known_event_has_a_meaning():
    assert all(kind.meaning and kind.name == name for name, kind in EVENTS.items())
